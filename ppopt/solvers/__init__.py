"""Solvers, one module each: they compile the words of :mod:`ppopt.constraints`. Imported only when used."""
