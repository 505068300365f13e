"""What every solver takes and gives, and the ILP. CP-SAT has a room of its own, :mod:`ppopt.cpsat`."""
