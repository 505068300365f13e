"""The figures of other systems (tests/data), and the pipelines that they are of."""

import json
from collections.abc import Collection
from functools import cache
from typing import Any

from ppopt.pipeline import Costs, Links, Pipeline
from tests.support.places import DATA

Entry = dict[str, Any]
COSTS = ("forward", "backward", "backward_input", "backward_weight", "overlap")


@cache
def entries(name: str) -> list[Entry]:
    """All entries of a file."""
    return json.loads((DATA / f"{name}.json").read_text())


def label(entry: Entry) -> str:
    """A short id."""
    what = entry.get("study", entry.get("costs", entry.get("kind", "")))
    return f"{what}-{entry.get('schedule', '')}-d{entry['devices']}-m{entry['microbatches']}-v{entry['chunks']}".replace(" ", "-")


def of(name: str, schedules: str | Collection[str] | None = None, *, fails: bool = False) -> dict[str, Entry]:
    """The entries of a file, of these schedules; with ``fails`` those that the other system has no answer for."""
    chosen = [schedules] if isinstance(schedules, str) else schedules
    found = [e for e in entries(name) if ("fails" in e) == fails and (chosen is None or e.get("schedule") in chosen)]
    return {f"{label(entry)} #{number}": entry for number, entry in enumerate(found)}


def pipeline_of(entry: Entry, placement: str, **changes: Any) -> Pipeline:
    """The pipeline of an entry, which gives costs per operation: one number, a list per stage, or (with one stage per device
    or equal chunks) per device."""
    devices, chunks = entry["devices"], entry["chunks"]
    costs: dict[str, Any] = {}
    for key in COSTS:
        value = entry.get(key)
        if value is not None:
            costs[key] = [value[d] for d in range(devices)] * chunks if isinstance(value, list) else value
    if placement == "wave" and any(isinstance(value, list) for value in costs.values()):
        up_and_down = [*range(devices), *reversed(range(devices))] * (chunks // 2)
        costs = {key: [value[d] for d in up_and_down] if isinstance(value, list) else value for key, value in costs.items()}
    return Pipeline(
        devices,
        entry["microbatches"],
        placement=placement,
        chunks=chunks,
        costs=Costs(per="stage", **costs),
        links=Links(entry.get("comm", 0)),
        **changes,
    )
