"""The names of the engines that solve integer programs."""

ENGINES = ("cbc", "highs", "scip", "gurobi", "cplex", "copt", "xpress")
"""CBC comes with PuLP; the others are used where they are installed (:mod:`ppopt.ilp.engines`)."""


class NoEngine(ValueError):
    """An engine that is not installed, or that refuses its work, as for want of a licence."""
