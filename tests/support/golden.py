"""The golden orders and timings of the named schedules (tests/data/schedules.json), read when they are used."""

import json
from functools import cache
from typing import Any, NamedTuple

from ppopt.pipeline import Costs, Links, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order
from tests.support.places import DATA

Entry = dict[str, Any]

TWO_ROUTES = ("chimera", "dualpipe")
ONE_ROUTE = (
    *("gpipe", "1f1b", "interleaved-1f1b", "1f1b-overlap", "interleaved-1f1b-overlap", "looped-bfs", "hanayo"),
    *("zb-h1", "interleaved-zb", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"),
)
FIRST_SIX = ("gpipe", "1f1b", "interleaved-1f1b", "hanayo", "zb-h1", "dualpipe")
"""One of each family, for what takes long."""
SCHEDULES = (*ONE_ROUTE, *TWO_ROUTES)
"""The schedules that have golden orders; that these are all, a test says."""


class Timing(NamedTuple):
    """An entry with one of its cases of costs."""

    entry: Entry
    case: str

    @property
    def figures(self) -> dict[str, Any]:
        """Costs, and what the order takes with them."""
        figures: dict[str, Any] = self.entry["timing"][self.case]
        return figures

    @property
    def schedule(self) -> Schedule:
        """The order, timed."""
        return timed(self.entry["id"], self.case)


@cache
def entries() -> dict[str, Entry]:
    """All golden entries by their ids."""
    return {entry["id"]: entry for entry in json.loads((DATA / "schedules.json").read_text())}


def of(schedule: str, order_is: str | None = None) -> dict[str, Entry]:
    """The entries of a schedule by their ids; ``order_is``: those whose order is "exact", or an "example"."""
    return {
        name: entry
        for name, entry in entries().items()
        if entry["schedule"] == schedule and order_is in (None, entry["order_is"])
    }


def timings(schedule: str) -> dict[str, Timing]:
    """Every entry of a schedule with each of its cases, by their ids."""
    return {f"{name}-{case}": Timing(entry, case) for name, entry in of(schedule).items() for case in entry["timing"]}


@cache
def timed(name: str, case: str) -> Schedule:
    """The order of an entry with the costs of a case."""
    entry = entries()[name]
    pipeline = pipeline_of(entry, entry["timing"][case])
    return time_order(pipeline, order_of(entry, pipeline))


def pipeline_of(entry: Entry, timing: dict[str, Any]) -> Pipeline:
    """The pipeline of an entry, with its routes written out and costs per stage."""
    placement = entry["placement"]
    if isinstance(placement, dict):
        routes, split = placement["routes"], tuple(placement["route_of_microbatch"])
    else:
        routes, split = [placement], ()
    costs = Costs(
        per="stage",
        forward=timing["F"],
        backward_input=timing["I"],
        backward_weight=timing["W"],
        backward=timing["B"],
        overlap=timing["overlap"],
    )
    return Pipeline(
        entry["devices"],
        entry["microbatches"],
        routes=routes,
        route_of_microbatch=split,
        costs=costs,
        links=Links(timing["comm"]),
    )


def order_of(entry: Entry, pipeline: Pipeline) -> Order:
    """The order of an entry."""
    return Order.of(pipeline, entry["order"])
