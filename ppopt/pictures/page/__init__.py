"""The interactive page: one HTML file that works without a network.

:mod:`~ppopt.pictures.page.payload` packs schedules, :mod:`~ppopt.pictures.page.facts` says what else the page has to know of
them, :mod:`~ppopt.pictures.page.table` sums them up, and :mod:`~ppopt.pictures.page.document` puts it all together. The scripts
beside them run in the browser. Nothing is imported here: the page itself needs Bokeh, the rest does not.
"""
