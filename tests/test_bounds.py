"""Every bound against optima that share nothing with it: a plain model of the whole pipeline, operation by operation."""

from __future__ import annotations

import _thread
import json
import math
import random
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import tuned

ortools = pytest.importorskip("ortools.sat.python.cp_model")

from ppopt import bounds  # noqa: E402
from ppopt.bounds.latest_starts import beside_span  # noqa: E402
from ppopt.clock import Limits  # noqa: E402
from ppopt.constraints import relaxed_graph  # noqa: E402
from ppopt.heuristics import baselines  # noqa: E402
from ppopt.op import Kind  # noqa: E402
from ppopt.pipeline import Costs, Links, Memory, Pipeline  # noqa: E402
from ppopt.pipeline.ticks import horizon_of  # noqa: E402


def optimum(pipeline: Pipeline, objective: str, in_order: bool = True, patience: float = 0.5) -> int | None:
    """The optimum by CP-SAT: one interval per operation of every microbatch, each way of the backward optional.

    ``in_order`` keeps microbatches in order at every forward and every handing over of a gradient: the cut without which
    only the smallest cases are solved; :func:`test_order_of_microbatches_costs_nothing` solves these without. ``None`` where it
    takes longer than ``patience`` (deterministic time).
    """
    model = ortools.CpModel()
    duration, latency, amounts = pipeline.ticks.duration, pipeline.ticks.latency, pipeline.amounts
    horizon = horizon_of(pipeline)
    on_device: list[list] = [[] for _ in range(pipeline.devices)]
    times: list[list] = [[] for _ in range(pipeline.devices)]
    held: list[list] = [[] for _ in range(pipeline.devices)]
    latest: dict = {}
    for microbatch in range(pipeline.microbatches):
        route = pipeline.route_of_microbatch[microbatch]

        def keep_order(*key, value, latest=latest):
            if in_order and key in latest:
                model.add(value >= latest[key])
            latest[key] = value

        devices = pipeline.routes[route]
        forward_end: list = []
        forward_start: list = []

        def op(device: int, length: int, presence=None, on_device=on_device, times=times):
            start = model.new_int_var(0, horizon, "")
            if presence is None:
                on_device[device].append(model.new_fixed_size_interval_var(start, length, ""))
            else:
                on_device[device].append(model.new_optional_fixed_size_interval_var(start, length, presence, ""))
            times[device].append((start, length, presence))
            return start

        for stage, device in enumerate(devices):
            start = op(device, int(duration[route, Kind.F, stage]))
            if stage:
                model.add(start >= forward_end[-1] + int(latency[devices[stage - 1], device]))
            forward_start.append(start)
            keep_order(route, stage, "F", value=start)
            forward_end.append(start + int(duration[route, Kind.F, stage]))
        gradient = None
        for stage in reversed(range(pipeline.stages)):
            device = devices[stage]
            activation, retained = int(amounts.activation[route, stage]), int(amounts.retained[route, stage])
            full, input_, weight = (int(duration[route, kind, stage]) for kind in (Kind.B, Kind.I, Kind.W))
            handed, released, finished = (model.new_int_var(0, horizon, "") for _ in range(3))
            ways = [(model.new_bool_var(""), Kind.B)] + ([(model.new_bool_var(""), Kind.I)] if input_ >= 0 else [])
            model.add_exactly_one(literal for literal, _ in ways)
            for literal, kind in ways:
                length = full if kind == Kind.B else input_
                start = op(device, length, literal)
                model.add(start >= forward_end[stage]).only_enforce_if(literal)
                if gradient is not None:
                    lag = int(latency[devices[stage + 1], device])
                    model.add(start >= gradient + lag).only_enforce_if(literal)
                model.add(handed == start + length).only_enforce_if(literal)
                model.add(released == start + length).only_enforce_if(literal)
                if kind == Kind.B:
                    model.add(finished == start + length).only_enforce_if(literal)
                else:
                    late = op(device, weight, literal)
                    model.add(late >= start + length).only_enforce_if(literal)
                    model.add(finished == late + weight).only_enforce_if(literal)
            gradient = handed
            keep_order(route, stage, "I", value=handed)
            keep_order(route, stage, "W", value=finished)
            for amount, end in ((activation - retained, released), (retained, finished)):
                size = model.new_int_var(0, horizon, "")
                held[device].append((model.new_interval_var(forward_start[stage], size, end, ""), amount))
    spans = []
    for device in range(pipeline.devices):
        model.add_no_overlap(on_device[device])
        if amounts.limit is not None:
            room = int(amounts.limit[device] - amounts.static[device])
            model.add_cumulative([interval for interval, _ in held[device]], [amount for _, amount in held[device]], room)
        first, last = model.new_int_var(0, horizon, ""), model.new_int_var(0, horizon, "")
        for start, length, presence in times[device]:
            for constraint in (model.add(first <= start), model.add(last >= start + length)):
                if presence is not None:
                    constraint.only_enforce_if(presence)
        spans.append((first, last))
    value = model.new_int_var(0, horizon, "")
    for first, last in spans:
        model.add(value >= last - (first if objective == "span" else 0))
    model.minimize(value)
    solver = ortools.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = patience
    return round(solver.objective_value) if solver.solve(model) == ortools.OPTIMAL else None


def case(seed: int) -> Pipeline:
    """A small pipeline; placements, uneven costs, latencies, ways of the backward and memory limits in turn."""
    rng = random.Random(seed)
    devices = rng.choice([1, 2, 2, 3, 3])
    placement, chunks = rng.choice([("linear", 1), ("loop", 2), ("wave", 2), ("bidirectional", 1), ("routes", 1), ("linear", 1)])
    stages = devices * chunks
    routes: tuple[tuple[int, ...], ...] = ()
    if placement == "routes":
        placement = "linear"
        stages = devices + rng.randint(0, 2)
        route = [*range(devices), *(rng.randrange(devices) for _ in range(stages - devices))]
        rng.shuffle(route)
        routes = (tuple(route),)
    elif placement == "bidirectional" and devices == 1:
        placement = "linear"
    microbatches = rng.randint(1, 5 if stages <= 2 else 4 if stages <= 3 else 3 if stages <= 4 else 2)

    def values(low: int, high: int, even: bool):
        return rng.randint(low, high) if even else [rng.randint(low, high) for _ in range(stages)]

    even = rng.random() < 0.5
    forward, input_, weight = values(0 if rng.random() < 0.2 else 1, 5, even), values(1, 5, even), values(0, 4, even)
    costs = Costs(per="stage", forward=forward, backward_input=input_, backward_weight=weight)
    way = rng.random()
    if way < 0.2:
        costs = Costs(per="stage", forward=forward, backward=input_)
    elif way < 0.35:
        costs = replace(costs, backward=values(2, 6, even))
    if rng.random() < 0.3:
        latency = [[0 if a == b else rng.randint(0, 3) for b in range(devices)] for a in range(devices)]
    else:
        latency = rng.choice([0, 0, 1, 3])
    memory = Memory()
    if rng.random() < 0.8:
        amounts = [rng.randint(1, 2) for _ in range(stages)] if rng.random() < 0.3 else 1
        memory = Memory(
            activation=amounts,
            retained=rng.choice([None, 0, 0.4, 0.5, 1]),
            static=rng.choice([0, 1]),
        )
        least = Pipeline(devices, microbatches, placement, chunks, routes, memory=replace(memory, limit=100), costs=costs)
        need = [0] * devices
        for r, route_ in enumerate(least.routes):
            of_route = [0] * devices
            for s, d in enumerate(route_):
                of_route[d] += least.amounts.activation[r, s] / least.amounts.per_unit
            need = [max(a, b) for a, b in zip(need, of_route, strict=True)]
        static = [float(s) / least.amounts.per_unit for s in least.amounts.static]
        extra = [rng.choice([0, 0.5, 1, 1, 2, 3]) for _ in range(devices)]
        memory = replace(memory, limit=[n + s + e for n, s, e in zip(need, static, extra, strict=True)])
    links = Links(latency=latency)
    return Pipeline(devices, microbatches, placement, chunks, routes, costs=costs, links=links, memory=memory)


def crowded(seed: int) -> Pipeline:
    """Little memory and more microbatches: the device span's windows depend on how late devices may begin and end."""
    rng = random.Random(seed)
    devices = rng.choice([2, 2, 3])
    chunks = rng.choice([1, 1, 1, 2]) if devices == 2 else 1
    microbatches = rng.randint(3, 4 if devices == 3 or chunks == 2 else 6)

    def values(low: int, high: int):
        return [rng.randint(low, high) for _ in range(devices * chunks)] if rng.random() < 0.5 else rng.randint(low, high)

    return Pipeline(
        devices,
        microbatches,
        rng.choice(["loop", "wave"]) if chunks == 2 else "linear",
        chunks,
        costs=Costs(per="stage", forward=values(1, 3), backward_input=values(1, 3), backward_weight=values(0, 2)),
        links=Links(latency=rng.choice([0, 0, 1])),
        memory=Memory(limit=[chunks * rng.randint(1, 2) for _ in range(devices)], retained=rng.choice([None, None, 0.5])),
    )


OPTIMA = json.loads((Path(__file__).parent / "data" / "small_optima.json").read_text())
"""Per seed of :func:`case` and :func:`crowded` the optimal makespan and device span; ``null`` where that took too long."""


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize(("make", "seeds"), [(case, (0, 1, 2, 3, 4, 7, 9, 11, 13, 15)), (crowded, (1, 2))])
def test_the_recorded_optima(make, seeds, objective):
    for seed in seeds:
        assert optimum(make(seed), objective, patience=5) == OPTIMA[make.__name__][seed][objective == "span"], f"seed {seed}"


def recorded(make, objective: str) -> list[tuple[int, int]]:
    optima = [row[objective == "span"] for row in OPTIMA[make.__name__]]
    return [(seed, value) for seed, value in enumerate(optima) if value is not None]


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_never_above_the_optimum(objective):
    """All bounds; most of them are tight, and from each argument some, so one that is a tick too high is found."""
    tight: Counter[str] = Counter()
    cases = recorded(case, objective)
    for seed, optimal in cases:
        best = None
        for bound in tuned.best(case(seed), objective, target=optimal, limits=Limits.of(0.1, deterministic=True)):
            assert best is None or bound.value > best.value
            best = bound
            assert best.value <= optimal, f"seed {seed}: {best}"
        tight[best.argument] += best.value == optimal
    assert len(cases) > 150
    assert tight.total() > 0.75 * len(cases)
    assert min(tight[argument] for argument in ("work", "one-machine", "memory", "window certificate")) > 0


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("make", [case, crowded])
def test_windows_of_any_length_and_grain_are_valid(make, objective):
    """Without a target, and far from the lengths that the ladder would choose."""
    tight = used = 0
    makespans = dict(recorded(make, "makespan"))
    for seed, optimal in recorded(make, objective)[:40]:
        makespan, pipeline = makespans.get(seed), make(seed)
        for share, grain in ((2, 1), (3, 1), (4, 1), (3, 2)):
            first = (makespan or 0) // share
            if first >= grain:
                window = tuned.window(
                    pipeline,
                    first,
                    makespan - first,
                    objective,
                    makespan=makespan,
                    grain=grain,
                    limits=Limits.of(0.1, deterministic=True),
                )
                assert window is not None
                used += 1
                tight += window.value == optimal
                assert window.value <= optimal, f"seed {seed}, {first} ticks, grain {grain}: {window}"
    assert used > 80
    assert tight > used / 4


@pytest.mark.parametrize("make", [case, crowded])
def test_a_makespan_is_no_longer_than_the_span_and_what_is_beside_it(make):
    makespans = dict(recorded(make, "makespan"))
    known = 0
    for seed, span in recorded(make, "span"):
        beside = beside_span(make(seed))
        if beside is not None and seed in makespans:
            known += 1
            assert span >= makespans[seed] - beside, f"seed {seed}"
    assert known >= 20


def test_order_of_microbatches_costs_nothing():
    """The cut that makes the plain model of these tests quick keeps the optimum, as do the bounds that rest on it."""
    compared = 0
    for seed in range(25):
        pipeline = case(seed)
        if pipeline.microbatches * pipeline.stages <= 8:
            with_cut, without = optimum(pipeline, "makespan"), optimum(pipeline, "makespan", in_order=False)
            if with_cut is not None and without is not None:
                compared += 1
                assert with_cut == without, f"seed {seed}"
    assert compared > 5


def linear(devices, microbatches, forward=1, input_=1, weight=1, latency=0, limit=None, placement="linear", chunks=1, **memory):
    """Costs of one operation; memory in activations of one stage."""
    return Pipeline(
        devices,
        microbatches,
        placement,
        chunks,
        costs=Costs(per="stage", forward=forward, backward_input=input_, backward_weight=weight),
        links=Links(latency=latency),
        memory=Memory(limit=limit, **memory),
    )


def idle(bound: bounds.Bound | None, pipeline: Pipeline) -> int:
    assert bound is not None
    return bound.value - int(pipeline.work.max())


REAL = {"forward": 185, "input_": 181, "weight": 93, "latency": 6}


@pytest.mark.parametrize(
    ("pipeline", "length", "expected"),
    [
        (linear(4, 1024, **REAL, limit=4), 1500, 891),
        (linear(8, 1024, **REAL, limit=8), 3012, 2079),
        (linear(4, 1024, **REAL, limit=8), 1500, 573),
        (linear(4, 1024, limit=4), 8, 3),
        (linear(8, 1024, limit=8), 16, 7),
        (linear(8, 1024, limit=6), 16, 13),
        (linear(4, 1024, limit=8, placement="wave", chunks=2), 12, 3),
        (linear(4, 1024, limit=6, placement="wave", chunks=2), 12, 5),
        (linear(4, 1024, limit=5, placement="wave", chunks=2), 12, 8),
        (linear(4, 1024, limit=4, placement="wave", chunks=2), 12, 11),
        (linear(4, 1024, 92, 90, 47, 6, limit=6, placement="wave", chunks=2), 1100, 783),
        (linear(4, 1024, limit=12, placement="loop", chunks=2), 12, 3),
        (linear(4, 1024, limit=6, placement="loop", chunks=2), 12, 5),
        (linear(8, 1024, limit=12, placement="loop", chunks=2), 24, 11),
        (linear(8, 24, **REAL, limit=8, retained=0.366), 2972, 2079),
    ],
)
def test_window_certificates_known_to_be_reached(pipeline, length, expected):
    """Idle time beside the work, for any number of microbatches; schedules with exactly this idle time are known."""
    floor = max(bound.value for bound in tuned.best(pipeline, limits=Limits.of(0, workers=1)))
    assert idle(tuned.window(pipeline, length, length, makespan=floor, limits=Limits.of(60, workers=1)), pipeline) == expected


def test_windows_must_be_disjoint():
    """With windows longer than the makespan idle time would count twice: 5 ticks suffice here, X would be 7."""
    pipeline = linear(2, 1, limit=1)
    assert optimum(pipeline, "makespan") == 5
    assert tuned.window(pipeline, 5, 5, makespan=5) is None
    assert [bound.value for bound in tuned.best(pipeline, limits=Limits.of(1, workers=1))][-1] == 5


def test_windows_close_what_the_closed_forms_leave_open():
    """Two chunks per device with measured costs: 783 ticks of idle time are known to suffice for every M."""
    pipeline = linear(4, 64, 92, 90, 47, 6, limit=6, placement="wave", chunks=2)
    without, *_, last = list(tuned.best(pipeline, target=int(pipeline.work.max()) + 783, limits=Limits.of(60, workers=1)))
    assert without.argument == "work"
    assert (idle(last, pipeline), last.argument) == (783, "window certificate")


def test_windows_that_have_said_all_they_can_are_not_asked_again():
    pipeline, tried = linear(2, 6, latency=1, limit=4, placement="wave", chunks=2), {}
    *_, last = tuned.best(pipeline, target=500, tried=tried)
    assert last.argument == "window certificate"
    assert "window certificate" not in [bound.argument for bound in tuned.best(pipeline, target=500, tried=tried)]


def test_windows_are_asked_again_where_they_get_more_time_or_less_is_asked():
    pipeline, tried = linear(2, 6, latency=1, limit=4, placement="wave", chunks=2), {}
    *_, last = tuned.best(pipeline, target=500, limits=Limits.of(30, workers=1), tried=tried)
    asked = [((20, 10.0, last.value), "memory"), ((60, 10.0, last.value), "window certificate")]
    asked += [((20, 10.0, 500), "window certificate"), ((60, math.inf, 500), "memory")]
    for (seconds, spent, target), expected in asked:
        before = dict.fromkeys(tried, (spent, target))
        *_, bound = tuned.best(pipeline, target=last.value, limits=Limits.of(seconds, workers=1), tried=before)
        assert bound.argument == expected


def test_span_certificates():
    """Part of an activation is retained until W, whose backlog both the window and the time to fill the memory show."""
    pipeline = linear(4, 1024, 2, 2, 1, limit=4, retained=0.5)
    window = tuned.window(pipeline, 20, 20, "span", makespan=5120, target=5130, limits=Limits.of(60, workers=1))
    assert idle(window, pipeline) == idle(bounds.memory(pipeline, "span"), pipeline) == 9


@pytest.mark.parametrize(("limit", "expected", "optimal"), [(8, 3, 3), (6, 5, 5), (5, 7, 8), (4, 9, 11)])
def test_what_a_device_cannot_do_while_it_fills_and_empties(limit, expected, optimal):
    """Two stages share a device's memory; windows prove the optimal idle time, and there are schedules with it."""
    pipeline = linear(4, 1024, limit=limit, placement="wave", chunks=2)
    assert idle(bounds.memory(pipeline), pipeline) == expected <= optimal


def test_before_the_first_release_a_device_runs_forwards_alone_and_no_more_than_fit():
    """The last device of a V begins 7 * 98 ticks after the first; 1542 ticks later the first gradient is back, and 16 forwards
    take 1472 of these."""
    pipeline = linear(8, 1024, 92, 90, 47, 6, limit=16, placement="wave", chunks=2)
    assert idle(bounds.memory(pipeline), pipeline) == 7 * 98 + 1542 - 16 * 92


@pytest.mark.parametrize("first", range(1, 77, 15))
def test_a_device_that_is_done_before_a_window_is_has_no_idle_time_behind_that(first):
    # device 0 can do all its work in 72, the makespan is 77 at least: a window of 76 ends behind its end
    costs = Costs(forward=2, backward_input=4, backward_weight=2)
    latency = [[0, 3], [1, 0]]
    pipeline = Pipeline(2, 9, routes=((0, 1, 1),), costs=costs, links=Links(latency))
    assert bounds.machine(pipeline).value == 77
    bound = tuned.window(pipeline, first, 77 - first, "span", makespan=77)
    assert bound is not None
    assert bound.value <= 72


def test_target_ends_the_ladder_and_the_search():
    pipeline = linear(8, 24, **REAL, limit=8, retained=0.366)
    assert [bound.argument for bound in tuned.best(pipeline, target=12000)] == ["work", "one-machine"]
    bound = tuned.window(pipeline, 3012, 3012, makespan=12367, known=12367, target=12500, limits=Limits.of(60, workers=1))
    assert bound is not None
    assert bound.value == 12500


def test_coarser_grain_is_weaker():
    pipeline = linear(4, 1024, **REAL, limit=4)
    values = [
        idle(tuned.window(pipeline, 1500, 1500, makespan=470016, grain=g, limits=Limits.of(60, workers=1)), pipeline)
        for g in (1, 5, 20)
    ]
    assert values[0] == 891
    assert values == sorted(values, reverse=True)
    assert values[-1] > 700


def test_microseconds_on_a_coarser_grain():
    """On its true ticks this window stays open for minutes; a hundredth as fine gives nearly all of it at once."""
    pipeline = linear(8, 24, 18522, 18086, 9337, 601, limit=8, retained=0.366)
    bound = tuned.window(pipeline, 301_200, 301_200, makespan=1_236_541, grain=93, limits=Limits.of(60, workers=1))
    assert idle(bound, pipeline) > 200_000


def test_the_cheaper_way_of_the_backward():
    """A fused backward of 3 instead of 2 + 2, and one of 5 that nobody would run."""
    cheap, dear = (Pipeline(1, 3, costs=Costs(forward=1, backward_input=2, backward_weight=2, backward=b)) for b in (3, 5))
    assert [bound.value for bound in tuned.best(cheap)] == [12]
    assert [bound.value for bound in tuned.best(dear)] == [15]


def test_a_route_that_nobody_takes():
    pipeline = Pipeline(3, 2, routes=((0, 1), (2, 1)), route_of_microbatch=(0, 0))
    last = list(tuned.best(pipeline, limits=Limits.of(1, workers=1)))[-1]
    assert last.value == optimum(pipeline, "makespan")


def test_unknown_objective():
    with pytest.raises(ValueError, match='expected "makespan" or "span"'):
        bounds.machine(linear(2, 2), "time")


def test_interrupt_stops_a_window():
    pipeline = linear(16, 1024, 92, 90, 47, 6, limit=24, placement="wave", chunks=2)
    threading.Timer(1.0, _thread.interrupt_main).start()
    limits = Limits.of(100, workers=1)
    with pytest.raises(KeyboardInterrupt):
        tuned.window(pipeline, 6000, 6000, makespan=400_000, limits=limits.slice(50))
    assert limits.clock.interrupted  # and nothing is left of it for other steps
    assert limits.clock.over


def test_forwards_of_early_stages_wait_for_those_of_later_ones_where_several_share_a_memory():
    """In every schedule in order, forwards and reversed; what is claimed at least is not loose."""
    rng, near = random.Random(5), 0
    for _ in range(12):
        placement, chunks = rng.choice([("wave", 2), ("wave", 4), ("loop", 3)])
        stages = 3 * chunks
        activation = [rng.randint(1, 3) for _ in range(stages)]
        costs = Costs(per="stage", forward=[rng.randint(1, 4) for _ in range(stages)])
        retained = [rng.randint(0, amount) for amount in activation]
        memory = Memory(activation=activation, retained=retained, limit=rng.randint(3 * chunks, 6 * chunks))
        pipeline = Pipeline(3, 6, placement=placement, chunks=chunks, costs=costs, memory=memory)
        graph = relaxed_graph(pipeline)
        assert any(graph.families[wait.before].kind == Kind.F for wait in graph.implied)
        for _, schedule in baselines(pipeline)[:4]:
            begin = {
                str(pipeline.index.op(number)): start
                for row, starts in zip(schedule.order.rows, schedule.start, strict=True)
                for number, start in zip(row.tolist(), starts.tolist(), strict=True)
            }
            for before, after, shift, lag in graph.implied:
                ends = [begin[f"{graph.label[before]}{n - shift}"] + graph.duration[before] for n in range(shift, 6)]
                waits = [begin[f"{graph.label[after]}{n}"] - end for n, end in zip(range(shift, 6), ends, strict=True)]
                assert all(wait >= lag for wait in waits)
                near += sum(wait <= lag + 4 for wait in waits)
            back = graph.reversed()
            for before, after, shift, lag in back.implied:
                for n in range(shift, 6):
                    end = begin[f"{back.label[after]}{5 - n}"] + back.duration[after]
                    assert begin[f"{back.label[before]}{5 - n + shift}"] >= end + lag
    assert near


def test_windows_are_the_optimum_of_four_stages_to_a_device_with_half_the_memory():
    pipeline = Pipeline(3, 8, placement="wave", chunks=4, memory=Memory(limit=1.5))
    best = max(tuned.best(pipeline, target=109, limits=Limits.of(60, workers=2)), key=lambda bound: bound.value)
    assert (best.value, best.argument) == (107, "window certificate")  # in quarters; CP-SAT finds one of 26.75
