"""The steps of a search, one file each; :mod:`ppopt.search.strategies` says which comes when."""
