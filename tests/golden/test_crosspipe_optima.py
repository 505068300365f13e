"""CrossPipe's optima."""

import json
from itertools import islice

import pytest

from ppopt import bounds
from ppopt.files import read_model
from ppopt.files.model import setting
from ppopt.heuristics import each_paced
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import solve
from tests.support.places import DATA, MODELS
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


@thorough
@pytest.mark.parametrize(
    ("changes", "theirs", "best"), [((), 5400, 5300), (("backward_input=180", "backward_weight=100"), 4670, 4660)]
)
def test_spans_over_two_sites_are_shorter_than_printed(changes: tuple[str, ...], theirs: int, best: int) -> None:
    path = str(MODELS / "seeds" / "crosspipe-two-sites-wave.toml")
    pipeline = read_model(path, [setting(f"costs.{change}") for change in changes]).pipeline
    result = solve(pipeline, objective="span", seconds=120, workers=1)
    assert (result.reason, result.value) == ("optimal", best)
    assert best < theirs


@thorough
def test_span_and_bound_of_many_devices_are_better_than_printed() -> None:
    """The search tries list schedules at a pace, too; these here need no clock."""
    pipeline = read_model(str(MODELS / "seeds" / "crosspipe-two-sites-many.toml")).pipeline
    bound = bounds.memory(pipeline, "span")
    assert bound is not None
    assert pipeline.time(bound.value) == 41000 > 35360
    schedules = islice(each_paced(pipeline, "span", 0), 120)
    assert min(pipeline.time(schedule.device_span) for _, schedule in schedules if schedule.within_memory) <= 41260 < 41470
