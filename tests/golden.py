"""The golden orders and timings of the named schedules (tests/data/schedules.json)."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from ppopt.pipeline import Costs, Links, Pipeline
from ppopt.schedule import Order

DATA = Path(__file__).parent / "data"


@cache
def entries() -> list[dict[str, Any]]:
    """All golden entries."""
    return json.loads((DATA / "schedules.json").read_text())


def cases() -> list[tuple[dict[str, Any], dict[str, Any], str]]:
    """Every entry with each of its timings, and an id."""
    return [(e, timing, f"{e['id']}-{case}") for e in entries() for case, timing in e["timing"].items()]


def pipeline_of(entry: dict[str, Any], timing: dict[str, Any]) -> Pipeline:
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


def order_of(entry: dict[str, Any], pipeline: Pipeline) -> Order:
    """The order of an entry."""
    return Order.of(pipeline, entry["order"])
