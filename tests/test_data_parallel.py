"""All-gathers before and reduce-scatters after a device's operations: timing, checker, bounds, both solvers, files."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
from random_pipelines import random_pipeline
from unaided import optimum

from ppopt import bounds
from ppopt.bounds import Objective
from ppopt.check import Rule, metrics, violations
from ppopt.constraints import cuts_of, free_choices, pairs_of
from ppopt.files.model import ModelError, model_dict, model_of_text, read_model
from ppopt.files.result import metrics_dict
from ppopt.pipeline import Costs, DataParallel, Links, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.solve import solve
from ppopt.solvers import cpsat, ilp
from ppopt.timing import baselines, exposed_traffic, time_order

MODELS = Path(__file__).parents[1] / "models"
ROWS = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]


def two(gather: Any, scatter: Any) -> Schedule:
    pipeline = Pipeline(2, 2, costs=Costs(backward=2), data_parallel=DataParallel(gather, scatter))
    return time_order(pipeline, Order.of(pipeline, ROWS))


def test_traffic_counts_before_and_after() -> None:
    # Without: 0F0 0-1, 1F0 1-2, 1B0 2-4, 1F1 4-5, 1B1 5-7; device 0: B0 4-6, B1 7-9.
    schedule = two((3, 1), (0, 5))
    assert [row.tolist() for row in schedule.start] == [[3, 4, 7, 10], [4, 5, 7, 8]]
    assert schedule.makespan == 10 + 5  # device 1 ends at 10, device 0 at 12
    assert schedule.device_spans == (3 + 9, 1 + 6 + 5)
    assert exposed_traffic(schedule) == 15 - 9
    assert violations(schedule.pipeline, schedule, earliest=True) == []
    found = metrics(schedule.pipeline, schedule)
    assert (found.makespan, found.device_span) == (15, 12)
    assert metrics_dict(schedule)["exposed_traffic"] == 6
    assert exposed_traffic(two(0, 0)) == 0


def test_traffic_that_other_devices_hide() -> None:
    assert exposed_traffic(two((0, 1), (0, 2))) == 0  # device 1 waits for 1 anyway, and ends 2 before device 0


def test_a_device_that_starts_before_its_all_gather_has_ended() -> None:
    schedule = two((3, 1), 0)
    early = dataclasses.replace(schedule, start=tuple(row - 1 for row in schedule.start))
    assert {violation.rule for violation in violations(schedule.pipeline, early)} == {Rule.NEGATIVE}


@pytest.mark.parametrize("seed", range(12))
def test_methods_agree(seed: int) -> None:
    rng = random.Random(seed)
    plain = random_pipeline(rng, 13)
    objective: Objective = rng.choice(["makespan", "span"])
    values = ([rng.randint(0, 4) for _ in range(plain.devices)] for _ in range(2))
    links = Links(plain.links.latency, rng.choice([0, 0, 1]))
    costs = dataclasses.replace(plain.costs, overlap=rng.choice([None, 2]))
    pipeline = plain.changed(
        data_parallel=DataParallel(*values), links=links, costs=costs, route_of_microbatch=plain.route_of_microbatch
    )
    cut = (*free_choices(pipeline), *cuts_of(pipeline))
    tried = ((cpsat, cut), (cpsat, pairs_of(pipeline)), (ilp, cut))
    found = [optimum(solver, pipeline, objective, words, seconds=3) for solver, words in tried]
    optima = [value for value in found if value is not None]
    assert optima
    best = optima[0]
    assert set(optima) == {best}
    for of in (bounds.work, bounds.machine, bounds.memory):
        bound = of(pipeline, objective, pairs=True)
        assert bound is None or bound.value <= best
    floor = bounds.machine(pipeline, pairs=True)
    assert floor is not None
    window = bounds.window(pipeline, floor.value // 2, floor.value // 2, objective, makespan=floor.value, pairs=True)
    assert window is None or window.value <= best
    for _, schedule in baselines(pipeline)[:4]:
        assert violations(pipeline, schedule, earliest=True) == []
        assert schedule.objective(objective) >= best
    assert solve(pipeline, objective=objective, workers=1, time_limit=10).value == best


def test_the_bound_meets_the_traffic_of_the_slowest_way() -> None:
    # One device: nothing hides its traffic.
    result = solve(Pipeline(1, 2, data_parallel=DataParallel(4, 5)), workers=1)
    assert (result.reason, result.value) == ("optimal", 4 + 6 + 5)


def test_files() -> None:
    pipeline = read_model(str(MODELS / "zero-1.toml")).pipeline
    assert pipeline.data_parallel == DataParallel(54, 54)
    text = json.dumps(model_dict(read_model(str(MODELS / "zero-1.toml"))))
    assert json.loads(text)["data_parallel"] == {"all_gather": 54, "reduce_scatter": 54}
    assert "data_parallel" not in model_dict(read_model(str(MODELS / "gpt-6.2b.toml")))
    start = "[pipeline]\ndevices = 2\nmicrobatches = 2\n[data_parallel]\n"
    for line, message in (
        ("all_gather = [1, 2, 3]", r"data_parallel\.all_gather: expected one number or a list of 2"),
        ("all_gathr = 1", r"data_parallel\.all_gathr.*all_gather"),
        ("reduce_scatter = -1", r"data_parallel\.reduce_scatter"),
    ):
        with pytest.raises(ModelError, match=message):
            model_of_text(start + line, "test")
