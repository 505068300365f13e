"""Layouts of runtimes: the golden cases (tests/data/layouts.json), and random ones."""

import json
from functools import cache
from typing import Any

from hypothesis import strategies as st

from ppopt.layouts import Layout, filled
from tests.support.places import DATA

Case = dict[str, Any]


@cache
def cases() -> dict[str, Case]:
    """All by their ids."""
    return {case["id"]: case for case in json.loads((DATA / "layouts.json").read_text())}


def of(runtime: str, valid: bool | None = None) -> dict[str, Case]:
    """Those of a runtime; ``valid``: only those that it takes, or refuses."""
    found = {name: case for name, case in cases().items() if case["runtime"] == runtime}
    return {name: case for name, case in found.items() if valid in (None, case["valid"])}


def lists(layout: Layout) -> list[list[list[int | str]]]:
    """As the cases have it."""
    return [[list(stage) for stage in held] for held in layout.devices]


@st.composite
def layouts(draw: st.DrawFn, mtp: bool = True, virtual: int = 4, placement: str = "loop", least: int = 0) -> Layout:
    """With E on the first and L on the last stage; where there is multi-token prediction, as Megatron takes it."""
    devices = draw(st.integers(1, 6))
    chunks = draw(st.integers(1, virtual)) if devices > 1 else 1
    count = devices * chunks
    layers = draw(st.lists(st.integers(least, 5), min_size=count, max_size=count).filter(any))
    more = [0] * count
    if mtp and draw(st.booleans()):
        late = draw(st.integers(count - devices, count - 1))
        layers[late + 1 :] = [0] * (count - late - 1)
        more[late] = draw(st.integers(1, 3))
        layers[0] += not any(layers)
    return Layout.of(filled(layers, more), devices, placement)
