"""The named schedules: those that people use today."""

from ppopt.named.comparing import adapted, compare, rows_of
from ppopt.named.definition import Definition, Parameter, Restriction, UnknownSchedule
from ppopt.named.model import Model
from ppopt.named.own import of_order, rows_of_order
from ppopt.named.recomputing import compare_freely, of_order_freely
from ppopt.named.registry import NAMED, find, reading
from ppopt.named.row import Row
from ppopt.named.table import Table

__all__ = [
    "NAMED",
    "Definition",
    "Model",
    "Parameter",
    "Restriction",
    "Row",
    "Table",
    "UnknownSchedule",
    "adapted",
    "compare",
    "compare_freely",
    "find",
    "of_order",
    "of_order_freely",
    "reading",
    "rows_of",
    "rows_of_order",
]
