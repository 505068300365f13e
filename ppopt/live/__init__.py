"""The live form: a model is written in a browser, its schedules are compared and searched for, on this machine alone.

:mod:`~ppopt.live.form` turns what the form says into a model, :mod:`~ppopt.live.answers` into pages, :mod:`~ppopt.live.jobs` runs
searches as processes of their own, and :mod:`~ppopt.live.server` answers the browser. It is imported when it is used.
"""
