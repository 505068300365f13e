"""All-gathers before and reduce-scatters after a device's operations: timing, checker, bounds, both solvers, files."""

import dataclasses
import itertools
import json
import random
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import tuned
from random_pipelines import random_pipeline
from unaided import optimum

from ppopt import bounds, cpsat, ilp
from ppopt.bounds import Objective
from ppopt.checker import Rule, metrics, violations
from ppopt.clock import Limits
from ppopt.constraints import Lead, Tail, cuts_of, free_choices, graphs_of, pairs_of, rules_of
from ppopt.files.model import ModelError, model_dict, model_of_text, read_model
from ppopt.files.result import metrics_dict
from ppopt.heuristics import baselines, each_baseline
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.search import horizon, solve
from ppopt.timing import exposed_traffic, time_order

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


# --- traffic that overlaps computing -------------------------------------------------------------------------------


def wave(microbatches: int, gather: Any, scatter: Any, **more: Any) -> Pipeline:
    """Device 0 holds stages 0 and 3, device 1 stages 1 and 2; every operation takes 1."""
    traffic = DataParallel(gather, scatter, **{"overlap": True, "per": "stage", **more})
    return Pipeline(2, microbatches, "wave", 2, costs=Costs("stage", backward=1), data_parallel=traffic)


def test_traffic_stage_by_stage() -> None:
    # 0F0 waits for stage 0 (2), 3F0 for stages 0 and 3 (2 + 5); 1F0 for its input (3), 2F0 for stages 1 and 2 (1 + 4).
    # 3B0 ends at 9, then stage 3 is scattered for 4, until 13. 0B0 ends at 12, and stage 0 waits for the network, 13 to 14.
    # 2B0 ends at 10, 1B0 at 11; their traffic ends at 10 + 3 and 13 + 3.
    pipeline = wave(1, (2, 1, 4, 5), (1, 3, 3, 4))
    schedule = time_order(pipeline, Order.of(pipeline, [["0F0", "3F0", "3B0", "0B0"], ["1F0", "2F0", "2B0", "1B0"]]))
    assert [row.tolist() for row in schedule.start] == [[2, 7, 8, 11], [3, 5, 9, 10]]
    assert schedule.device_spans == (14, 16)
    assert schedule.makespan == 16
    assert exposed_traffic(schedule) == 16 - 8
    assert violations(pipeline, schedule, earliest=True) == []
    assert (metrics(pipeline, schedule).makespan, metrics(pipeline, schedule).device_span) == (16, 16)


def test_a_device_may_start_before_all_of_its_stages_are_gathered() -> None:
    rows = [["0F0", "3F0", "3B0", "0B0"], ["1F0", "2F0", "2B0", "1B0"]]
    starts = []
    for overlap in (False, True):
        pipeline = wave(1, 4, 0, overlap=overlap, per="device")  # 2 per stage
        schedule = time_order(pipeline, Order.of(pipeline, rows))
        starts.append([int(row[0]) for row in schedule.start])
        early = dataclasses.replace(schedule, start=tuple(row - 1 for row in schedule.start))
        assert {violation.rule for violation in violations(pipeline, early)} == {Rule.NEGATIVE}
    assert starts == [[4, 5], [2, 3]]


def test_one_stage_per_device_has_nothing_to_overlap_with() -> None:
    for placement, same in (("linear", True), ("bidirectional", False)):
        times = []
        for overlap in (False, True):
            pipeline = Pipeline(2, 2, placement, data_parallel=DataParallel(3, 2, overlap))
            times.append(sorted(pipeline.time(schedule.makespan) for _, schedule in baselines(pipeline)))
        assert (times[0] == times[1]) is same
        assert times[0] >= times[1]


def test_the_same_traffic_on_another_placement() -> None:
    pipeline = wave(2, (2, 1, 4, 5), 3)
    assert pipeline.placed("linear").data_parallel == DataParallel((7, 5), (6, 6), True)
    assert pipeline.placed("loop", 2).ticks.lead.tolist() == [[7, 5, 14, 10]]  # halves, per stage: 3.5, 2.5
    assert pipeline.placed("loop", 2).ticks.per_unit == 2


def orders(pipeline: Pipeline) -> Iterator[list[list[str]]]:
    """All orders of a fused wave of two devices: any interleaving of the microbatches."""
    ways = []
    for first, second in ((0, 3), (1, 2)):
        chains = [[f"{first}F{m}", f"{second}F{m}", f"{second}B{m}", f"{first}B{m}"] for m in range(pipeline.microbatches)]
        turns = sorted(set(itertools.permutations([m for m in range(len(chains)) for _ in range(4)])))
        ways.append([[chains[m][turn[:i].count(m)] for i, m in enumerate(turn)] for turn in turns])
    return map(list, itertools.product(*ways))


def played(rows: list[list[str]], gather: list[int], scatter: list[int]) -> int | None:
    """The makespan of an order of unit operations by playing it, networks and all; ``None``: it gets stuck."""
    ready = {}  # by stage, when its device has gathered it
    for stages in ((0, 3), (1, 2)):
        time = 0
        for stage in stages:
            time = ready[stage] = time + gather[stage]
    ends: dict[str, int] = {}
    queues, free = [list(row) for row in rows], [0, 0]
    while any(queues):
        for device, queue in enumerate(queues):
            op = queue[0] if queue else ""
            stage, kind, m = int(op[0]) if op else 0, op[1:2], op[2:]
            need = {"F": f"{stage - 1}F{m}", "B": f"{stage + 1}B{m}", "": ""}[kind]
            need = f"3F{m}" if need.startswith("4") else need
            if op and (need in ends or need.startswith("-")):
                free[device] = ends[op] = max(free[device], ends.get(need, 0), ready[stage]) + 1
                queue.pop(0)
                break
        else:
            return None
    last = []
    for stages in ((3, 0), (2, 1)):
        time = 0
        for stage in stages:
            time = max(time, *(end for op, end in ends.items() if op.startswith(f"{stage}B"))) + scatter[stage]
        last.append(time)
    return max(last)


@pytest.mark.parametrize("seed", range(3))
def test_all_orders(seed: int) -> None:
    rng = random.Random(seed)
    gather, scatter = ([rng.randint(0, 3) for _ in range(4)] for _ in range(2))
    pipeline = wave(2, gather, scatter)
    values = {}
    for rows in orders(pipeline):
        value = played(rows, gather, scatter)
        if value is not None:
            values[str(rows)] = value
            if len(values) % 20 == 0:
                assert time_order(pipeline, Order.of(pipeline, rows)).makespan == value
    least = min(values.values())
    cut = (*free_choices(pipeline), *cuts_of(pipeline))
    assert optimum(cpsat, pipeline, "makespan", cut) == optimum(ilp, pipeline, "makespan", cut) == least
    assert solve(pipeline, workers=1).value == least


@pytest.mark.parametrize("left_out", [Lead, Tail])
@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("solver", [cpsat, ilp], ids=["cp-sat", "ilp"])
def test_a_back_end_without_the_traffic_finds_too_little(solver: Any, objective: Objective, left_out: type) -> None:
    pipeline = wave(1, (3, 0, 1, 6), (4, 2, 1, 5))
    whole = optimum(solver, pipeline, objective, cuts_of(pipeline))
    assert whole is not None
    words = [word for word in (*rules_of(pipeline), *cuts_of(pipeline)) if not isinstance(word, left_out)]
    until = horizon(pipeline) * (pipeline.devices if objective == "span" else 1)
    limits = Limits.of(60, workers=1)
    less = solver.solve(pipeline, words, objective=objective, lower=0, upper=until, horizon=until, limits=limits)
    assert less.lower_bound < whole
    assert less.schedule is None or less.schedule.objective(objective) >= whole


@pytest.mark.parametrize("seed", range(12))
def test_methods_agree(seed: int) -> None:
    rng = random.Random(seed)
    plain = random_pipeline(rng, 13)
    objective: Objective = rng.choice(["makespan", "span"])
    values = ([rng.randint(0, 4) for _ in range(plain.devices)] for _ in range(2))
    links = Links(plain.links.latency, rng.choice([0, 0, 1]))
    costs = dataclasses.replace(plain.costs, overlap=rng.choice([None, 2]))
    pipeline = plain.changed(
        data_parallel=DataParallel(*values, overlap=seed % 2 == 1),
        links=links,
        costs=costs,
        route_of_microbatch=plain.route_of_microbatch,
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
    window = tuned.window(pipeline, floor.value // 2, floor.value // 2, objective, makespan=floor.value, pairs=True)
    assert window is None or window.value <= best
    for _, schedule in baselines(pipeline)[:4]:
        assert violations(pipeline, schedule, earliest=True) == []
        assert schedule.objective(objective) >= best
    assert solve(pipeline, objective=objective, workers=1, seconds=10).ticks.value == best


def test_the_bound_meets_the_traffic_of_the_slowest_way() -> None:
    # One device: nothing hides its traffic.
    result = solve(Pipeline(1, 2, data_parallel=DataParallel(4, 5)), workers=1)
    assert (result.reason, result.value) == ("optimal", 4 + 6 + 5)


@pytest.mark.parametrize("overlap", [False, True])
def test_many_microbatches(overlap: bool) -> None:
    # What is best without traffic (device 2 begins after 2 and never idles) is best with it: device 0 gathers before its first
    # operation, and scatters after its last one. Modulo scheduling goes on from the kernel of a list schedule.
    pipeline = Pipeline(3, 560, data_parallel=DataParallel(4, 5, overlap))
    result = solve(pipeline, deterministic=True, seconds=10)
    steps = {step.name: step.outcome for step in result.steps}
    assert "repeated" in steps["kernels of schedules of 56 microbatches"]
    assert "(modulo scheduling), sought without what devices do before and after" in steps["modulo scheduling"]
    assert "microbatches per" in steps["modulo scheduling: the kernel of the best schedule"]
    assert result.schedule is not None
    assert violations(pipeline, result.schedule, earliest=True) == []
    assert result.reason == "optimal"
    assert result.schedule.makespan == result.lower_bound == 3 * 560 + 2 + 9


@pytest.mark.parametrize("links", [Links(latency=1), Links(occupancy=1)], ids=["latency", "occupancy"])
def test_the_middle_of_a_schedule_with_traffic_is_repeated(links: Links) -> None:
    traffic = DataParallel((4, Fraction(100, 3)), (1, Fraction(50, 7)), overlap=True)
    pipeline = Pipeline(2, 72, "wave", 2, memory=Memory(limit=3), links=links, data_parallel=traffic)
    patterns = graphs_of(pipeline)
    _, few = next(each_baseline(pipeline.changed(microbatches=36)))
    periodic = tuned.kernel_in(few, patterns[0])
    assert periodic is not None
    assert periodic.makespan_for((36,)) == max(row[-1] for row in few.end) - min(row[0] for row in few.start)  # without traffic
    many = tuned.repeated(few, patterns, pipeline)
    assert many is not None
    assert violations(pipeline, many) == []
    # a device computes three units for a microbatch, and does not idle in the middle
    assert many.makespan == tuned.repeated_value(few, patterns, 72) == few.makespan + 36 * 3 * pipeline.ticks.per_unit
    assert tuned.repeated(few, patterns, pipeline.changed(microbatches=1)) is None  # fewer than its beginning and end have


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_the_state_graph_counts_the_least_traffic(objective: Objective) -> None:
    plain = Pipeline(2, 5, memory=Memory(limit=1))
    pipeline = plain.changed(data_parallel=DataParallel((4, 2), (3, 1)))
    without, found = (tuned.throughput(p, objective) for p in (plain, pipeline))
    assert without is not None
    assert found is not None
    best = solve(pipeline, objective=objective, workers=1)
    assert best.reason == "optimal"
    # the first operation is of device 0, the last one of any; of the spans, any may be the largest
    assert without.value + (4 + 1 if objective == "makespan" else 2 + 1) == found.value <= best.lower_bound


def test_files() -> None:
    pipeline = read_model(str(MODELS / "zero-1.toml")).pipeline
    assert pipeline.data_parallel == DataParallel(54, 54)
    text = json.dumps(model_dict(read_model(str(MODELS / "zero-1.toml"))))
    expected = {"all_gather": 54, "reduce_scatter": 54, "overlap": False, "per": "device"}
    assert json.loads(text)["data_parallel"] == expected
    assert "data_parallel" not in model_dict(read_model(str(MODELS / "gpt-6.2b.toml")))
    start = "[pipeline]\ndevices = 2\nmicrobatches = 2\n[data_parallel]\n"
    for line, message in (
        ("all_gather = [1, 2, 3]", r"data_parallel\.all_gather: expected one number or a list of 2"),
        ("all_gathr = 1", r"data_parallel\.all_gathr.*all_gather"),
        ("reduce_scatter = -1", r"data_parallel\.reduce_scatter"),
        ("overlap = 1", r"data_parallel\.overlap: expected true or false"),
        ('per = "chunk"', r'data_parallel\.per: expected "device" or "stage"'),
        (
            'per = "stage"\nall_gather = [1, 2, 3]',
            r"data_parallel\.all_gather: expected one number or a list of 2 \(one per stage\)",
        ),
    ):
        with pytest.raises(ModelError, match=message):
            model_of_text(start + line, "test")
