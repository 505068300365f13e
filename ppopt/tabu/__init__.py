"""Tabu search on the order of the operations."""

from ppopt.tabu.search import improved, unknown

__all__ = ["improved", "unknown"]
