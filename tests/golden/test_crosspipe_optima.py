"""CrossPipe's optima."""

import json
from typing import Any

import pytest

from ppopt import bounds
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import solve
from tests.support.places import DATA
from tests.support.tiers import thorough


def test_crosspipe_optima_are_reproduced_and_proved() -> None:
    entries = json.loads((DATA / "crosspipe_optima.json").read_text())
    assert len(entries) == 4
    for entry in entries:
        pipeline = Pipeline(
            entry["devices"],
            entry["microbatches"],
            costs=Costs(**{key: entry[key] for key in ("forward", "backward_input", "backward_weight")}),
            links=Links(entry["comm"]),
            memory=Memory(**{key: entry[key] for key in ("activation", "retained", "limit")}),
        )
        for solver in ("auto", "ilp"):
            result = solve(pipeline, objective="span", solver=solver, seconds=30, workers=1)
            assert (result.reason, result.value) == ("optimal", entry["device_span"])


def two_sites(devices: int, microbatches: int, latency: int, times: tuple[int, int, int], **placed: Any) -> Pipeline:
    """Half of the devices at each site; room for the activations of as many microbatches as there are devices."""
    half = devices // 2
    far = [[latency * ((a < half) != (b < half)) for b in range(devices)] for a in range(devices)]
    costs = Costs(**dict(zip(("forward", "backward_input", "backward_weight"), times, strict=True)))
    return Pipeline(devices, microbatches, costs=costs, links=Links(far), memory=Memory(limit=devices), **placed)


@thorough
@pytest.mark.parametrize(("times", "theirs", "best"), [((200, 200, 200), 5400, 5300), ((200, 180, 100), 4670, 4660)])
def test_spans_over_two_sites_are_shorter_than_printed(times: tuple[int, int, int], theirs: int, best: int) -> None:
    pipeline = two_sites(4, 8, 100, times, placement="wave", chunks=2)
    result = solve(pipeline, objective="span", seconds=120, workers=1)
    assert (result.reason, result.value) == ("optimal", best)
    assert best < theirs


@thorough
def test_the_bound_of_many_devices_is_better_than_printed() -> None:
    pipeline = two_sites(32, 64, 400, (200, 180, 100))
    bound = bounds.memory(pipeline, "span")
    assert bound is not None
    assert pipeline.time(bound.value) == 41000 > 35360
