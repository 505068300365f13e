"""What every solver takes and gives. The solvers are rooms of their own, :mod:`ppopt.cpsat` and :mod:`ppopt.ilp`."""
