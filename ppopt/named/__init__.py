"""The named schedules: those that people use today, and those of your own (:func:`register`)."""

from ppopt.named.auto_partition import auto_partition
from ppopt.named.comparing import adapted, compare, placed_here, rows_of
from ppopt.named.definition import (
    Definition,
    Parameter,
    Restriction,
    UnknownSchedule,
    alternating,
    deferred,
    filled_greedily,
    fused,
    overlapping,
    split,
)
from ppopt.named.model import Model
from ppopt.named.own import of_order, rows_of_order
from ppopt.named.recomputing import best_of, compare_freely, of_order_freely, placed_freely
from ppopt.named.registry import BUILT_IN, NAMED, ScheduleWarning, find, reading, register
from ppopt.named.row import Row
from ppopt.named.table import Table

__all__ = [
    "BUILT_IN",
    "NAMED",
    "Definition",
    "Model",
    "Parameter",
    "Restriction",
    "Row",
    "ScheduleWarning",
    "Table",
    "UnknownSchedule",
    "adapted",
    "alternating",
    "auto_partition",
    "best_of",
    "compare",
    "compare_freely",
    "deferred",
    "filled_greedily",
    "find",
    "fused",
    "of_order",
    "of_order_freely",
    "overlapping",
    "placed_freely",
    "placed_here",
    "reading",
    "register",
    "rows_of",
    "rows_of_order",
    "split",
]
