"""Tabu search on the order of the operations."""

from ppopt.tabu.jobs import HABITS
from ppopt.tabu.search import Search, improved, unknown

__all__ = ["HABITS", "Search", "improved", "unknown"]
