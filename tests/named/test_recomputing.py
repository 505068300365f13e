"""Named schedules and orders of one's own, each with the stages recomputing that suit it best: against every set of stages."""

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import strategies as st

from ppopt.checker import violations
from ppopt.files import read_model, setting
from ppopt.files.model import model_of_text
from ppopt.files.result import row_dict
from ppopt.heuristics import each_baseline
from ppopt.named import NAMED, Definition, Restriction, Row, compare, compare_freely, find, of_order_freely
from ppopt.named.recomputing import tree
from ppopt.pipeline import Costs, DataParallel, Layers, Links, Memory, Mix, Offload, Pipeline, PipelineError
from ppopt.pipeline.rewriting import unlimited
from ppopt.schedule import Order, Schedule
from ppopt.search import solve
from ppopt.timing import recomputed, time_order
from ppopt.timing.recomputed import Recomputed
from tests.support.command import QUICK, read, run
from tests.support.places import MODELS
from tests.support.shown import SHOWN
from tests.support.strategies import objectives
from tests.support.tiers import drawn, thorough

MODEL = str(MODELS / "gpt-1.5b-recompute.toml")

SMALL = (setting("pipeline.devices=4"), setting("pipeline.microbatches=8"), setting("memory.limit=2"))

Objective = Literal["makespan", "span"]

Key = tuple[Fraction, Fraction, int]


def key(schedule: Schedule, objective: Objective) -> Key:
    """What is to be small: the objective, then the work, then the number of stages that recompute."""
    pipeline = schedule.pipeline
    value, work = (Fraction(ticks, pipeline.ticks.per_unit) for ticks in (schedule.objective(objective), sum(schedule.work)))
    return value, work, len(pipeline.recomputing)


def each_choice(pipeline: Pipeline, made: Callable[[Pipeline], Schedule]) -> Iterator[Schedule]:
    """The schedule of every set of stages within the limit."""
    for size in range(pipeline.stages + 1):
        for stages in itertools.combinations(range(pipeline.stages), size):
            try:
                schedule = made(pipeline.resolved(stages))
            except (PipelineError, Restriction):
                continue
            if schedule.within_memory:
                yield schedule


def random_open(rng: random.Random, devices: int, microbatches: int, **more: Any) -> Pipeline:
    """Uneven costs and a limit that may need some recomputing, or more than there is."""
    per = rng.choice(["device", "stage"])
    stages = len(more["routes"][0]) if "routes" in more else devices * more.get("chunks", 1)
    length = stages if per == "stage" else devices

    def some(values: list[float]) -> Any:
        return rng.choice(values) if rng.random() < 0.3 else [rng.choice(values) for _ in range(length)]

    while True:
        costs = Costs(
            per,  # type: ignore[arg-type]
            forward=some([1, 2, 3]),
            recompute=some([0, 1, 2, 2.5]),
            **(
                {"backward": some([2, 4])}
                if rng.random() < 0.2
                else {"backward_input": some([1, 2]), "backward_weight": some([0, 1, 2])}
            ),
        )
        memory = Memory(
            activation=some([2, 3, 4]),
            retained=rng.choice([None, some([0, 1, 2])]),
            recompute_saved=some([0, 0.5, 1, 2]),
            static=rng.choice([0, 1]),
        )
        try:
            pipeline = Pipeline(devices, microbatches, costs=costs, memory=memory, recompute="choose", **more)
            if rng.random() < 0.3:
                limit: Any = rng.choice([2, 3, 4, 5, 7, 9, 12, [rng.choice([3, 5, 7, 9]) for _ in range(devices)]])
            else:
                limit = between(pipeline, rng)
            memory = dataclasses.replace(memory, limit=limit)
            return pipeline.changed(memory=memory, route_of_microbatch=pipeline.route_of_microbatch)
        except PipelineError:
            continue


def between(pipeline: Pipeline, rng: random.Random) -> list[Fraction]:
    """Limits between what some schedule holds with every stage recomputing and what it holds with none."""
    name = rng.choice(["1f1b", "gpipe", "hanayo", "interleaved-1f1b"])
    if pipeline.placement in ("routes", "linear"):
        name = "1f1b"
    try:
        ends = [find(name).schedule(pipeline.resolved(choice)) for choice in ("all", "none")]
    except Restriction:
        ends = [find("gpipe").schedule(pipeline.resolved(choice)) for choice in ("all", "none")]
    held = [[Fraction(peak, end.pipeline.amounts.per_unit) for peak in end.peak_memory] for end in ends]
    share = rng.choice([Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1)])
    return [low + (high - low) * share for low, high in zip(*held, strict=True)]


def place_of(rng: random.Random) -> dict[str, Any]:
    return rng.choice([{}, {}, {"placement": "loop", "chunks": 2}, {"placement": "wave", "chunks": 2}])


CHANCE = st.randoms(use_true_random=False)
"""Chances that hypothesis draws, so that a failure shrinks."""

PINNED = {name for name, definition in NAMED.items() if definition.fill is None} | {"zb-h2", "zb-v", "chimera", "bitpipe"}


@drawn(3, 12, CHANCE, objectives)
def test_rows_of_pinned_orders_are_the_best_of_all_choices(rng: random.Random, objective: Objective) -> None:
    devices = rng.choice([1, 2, 2, 3])
    traffic = DataParallel(rng.choice([0, 1]), rng.choice([0, 2]), rng.random() < 0.5) if rng.random() < 0.3 else DataParallel()
    pipeline = random_open(
        rng, devices, rng.choice([2, 4, 6]), links=Links(rng.choice([0, 1])), data_parallel=traffic, **place_of(rng)
    )
    compared = 0
    for row in compare_freely(pipeline, objective=objective):
        if row.name not in PINNED or row.schedule is None:
            continue
        definition = find(row.name)
        placed = definition.place(pipeline)
        best = min(
            (key(schedule, objective) for schedule in each_choice(placed, lambda each: definition.schedule(each, each.chunks))),  # noqa: B023
            default=None,
        )
        assert violations(row.schedule.pipeline, row.schedule) == [] or best is None
        if best is None:
            assert (row.recompute, row.within_memory) == ("all", False), row.name
        else:
            assert row.within_memory
            assert key(row.schedule, objective) == best, row.name
            assert row.schedule.order == definition.schedule(row.schedule.pipeline, row.chunks).order
        assert row.recompute == row.schedule.pipeline.recompute
        compared += 1
    assert compared >= 3


@drawn(8, 24, CHANCE, objectives, st.integers(0, 2))
def test_an_order_of_ones_own_is_the_best_of_all_choices(rng: random.Random, objective: Objective, place: int) -> None:
    """On any routes: a stage may be on two devices, and recomputing may shorten a device's span by delaying its start."""
    devices, stages = rng.choice([1, 2, 3]), rng.randint(3, 5)
    routes = []
    for _ in range(rng.choice([1, 2, 2])):
        routes.append([*range(devices), *(rng.randrange(devices) for _ in range(stages - devices))])
        rng.shuffle(routes[-1])
    traffic = DataParallel((1,) * devices, 2, rng.random() < 0.5) if rng.random() < 0.3 else DataParallel()
    pipeline = random_open(rng, devices, rng.randint(1, 5), routes=routes, links=Links(rng.choice([0, 1])), data_parallel=traffic)
    free = pipeline.changed(memory=Memory(recompute_saved=0), recompute="none", route_of_microbatch=pipeline.route_of_microbatch)
    order = [schedule for _, schedule in each_baseline(free)][place].order
    row = of_order_freely(pipeline, order, "mine", objective)
    best = min(
        (key(schedule, objective) for schedule in each_choice(pipeline, lambda each: time_order(each, order))), default=None
    )
    assert row.schedule is not None
    assert row.schedule.order == order
    if best is None:
        assert (row.recompute, row.within_memory) == ("all", False)
    else:
        assert row.within_memory
        assert key(row.schedule, objective) == best


def smallest(placed: Pipeline, definition: Definition) -> int:
    """How many sets fit of which no stage can be left out."""
    fits = {schedule.pipeline.recomputing for schedule in each_choice(placed, lambda each: definition.schedule(each, 2))}
    return sum(not any(other < stages for other in fits) for stages in fits)


@thorough
def test_the_random_pipelines_need_some_of_their_stages() -> None:
    """The tests above see all kinds of answers, and sets that need branching: neither what is forced nor all."""
    chosen, several = set(), 0
    for seed in range(12):
        rng = random.Random(seed)
        pipeline = random_open(rng, 2, 6, placement="loop", chunks=2)
        for row in compare_freely(pipeline):
            if row.name in PINNED and row.schedule is not None:
                chosen.add((row.recompute if isinstance(row.recompute, str) else "some", row.within_memory))
                if row.chunks == 2 and row.placement in ("loop", "wave"):
                    several += smallest(find(row.name).place(pipeline), find(row.name)) > 1
    assert chosen >= {("none", True), ("some", True), ("all", True), ("all", False)}
    assert several >= 3


@pytest.mark.parametrize("few", [0, recomputed.FEW], ids=["by whole arrays", "one by one"])
def test_a_set_of_stages_is_timed_as_the_pipeline_with_it(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(recomputed, "FEW", few)
    rng = random.Random(5)
    for _ in range(6):
        traffic = DataParallel(2, 1, rng.random() < 0.5)
        pipeline = random_open(rng, 3, 6, placement="wave", chunks=2, links=Links(1), data_parallel=traffic)
        free = pipeline.changed(memory=Memory(activation=4, recompute_saved=1, limit=None))
        none, every = free.resolved("none"), free.resolved("all")
        for name in ("hanayo", "looped-bfs", *(("dualpipe-v", "zb-v") if none.costs.split else ())):
            definition = find(name)
            if definition.place(none).routes != none.routes:
                continue
            order = definition.order(none)
            timed = Recomputed(none, every, order)
            sets = [tuple(s for s in range(6) if rng.random() < 0.5) for _ in range(5)]
            first, last = timed.spans(np.array([[s in chosen for s in range(6)] for chosen in sets]))
            for row, chosen in enumerate(sets):
                schedule = time_order(free.resolved(chosen), order)
                scale = Fraction(timed.per_unit, schedule.pipeline.ticks.per_unit)
                assert (last[row] - first[row]).tolist() == [scale * span for span in schedule.device_spans]
                assert last[row].max() - first[row].min() == scale * schedule.makespan


@thorough
def test_with_the_timings_used_up_the_best_so_far_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "TIMINGS", 0)
    pipeline = read_model(MODEL, [setting("pipeline.recompute=choose"), setting("pipeline.microbatches=16")]).pipeline
    few = {row.label.split()[0]: row for row in compare_freely(pipeline, (2,)) if row.name in PINNED}
    monkeypatch.undo()
    shorter = 0
    for row in compare_freely(pipeline, (2,)):
        if row.name in PINNED:
            other = few[row.name]
            too_much = row.name == "zb-h2"  # its weight gradients come late, and for each of them what I has made again is held
            assert row.within_memory is other.within_memory is not too_much
            assert row.makespan is not None
            assert other.makespan is not None
            assert row.makespan <= other.makespan
            shorter += row.makespan < other.makespan
    assert shorter >= 1


def best_of_ends(rows: list[Row], name: str, objective: Objective) -> Fraction | None:
    """The better of no stage and every stage recomputing, within the limit."""
    fitting = [row.schedule for row in rows if row.name == name and row.schedule is not None and row.within_memory]
    return min((key(schedule, objective)[0] for schedule in fitting), default=None)


@drawn(2, 6, CHANCE, objectives)
def test_rows_are_never_worse_than_with_none_or_all(rng: random.Random, objective: Objective) -> None:
    links = (
        Links(1, occupancy=rng.choice([1, 2]), blocking=rng.random() < 0.5) if rng.random() < 0.5 else Links(rng.choice([0, 1]))
    )
    pipeline = random_open(rng, rng.choice([2, 3, 4]), rng.choice([4, 6, 8]), links=links, **place_of(rng))
    ends, made = compare(pipeline), 0
    for row in compare_freely(pipeline, objective=objective):
        best = best_of_ends(ends, row.name, objective)
        if row.schedule is None:
            assert best is None, row.excluded
            continue
        made += row.name not in PINNED
        assert row.recompute == row.schedule.pipeline.recompute
        if best is not None:
            assert row.within_memory, row.name
            assert violations(row.schedule.pipeline, row.schedule) == []
            assert key(row.schedule, objective)[0] <= best, row.name
        elif not row.within_memory:
            assert row.recompute == "all"
    assert made or not pipeline.costs.split


@pytest.mark.parametrize("held", [False, pytest.param(True, marks=thorough)], ids=["plain", "held"])
def test_some_stages_are_better_than_all_or_none(held: bool) -> None:
    """On a real model, of a schedule of each kind; and where transfers hold links."""
    pipeline = read_model(MODEL, [setting("pipeline.recompute=choose"), *SMALL]).pipeline
    if held:
        pipeline = pipeline.changed(links=Links(Fraction("0.6"), occupancy=1))
    ends = compare(pipeline)
    rows = {row.name: row for row in compare_freely(pipeline)}
    for name in ("1f1b", "zb-1p", "v-half", "interleaved-1f1b", "dualpipe"):
        best, row = best_of_ends(ends, name, "makespan"), rows[name]
        assert best is not None
        assert row.schedule is not None
        assert isinstance(row.recompute, tuple)
        assert key(row.schedule, "makespan")[0] < best
    assert rows["1f1b"].label == "1f1b + recompute 0,1"
    assert row_dict(rows["1f1b"])["recompute"] == [0, 1]


def test_what_does_not_apply_keeps_its_reason() -> None:
    pipeline = Pipeline(
        3, 5, costs=Costs(recompute=1), memory=Memory(recompute_saved=Fraction(1, 2), limit=3), recompute="choose"
    )
    rows = compare_freely(pipeline, (2, 3))
    assert [(row.name, row.chunks) for row in rows] == [
        (row.name, row.chunks) for row in compare(pipeline.resolved("all"), (2, 3))
    ]
    excluded = {(row.name, row.chunks): row.excluded for row in rows if row.schedule is None}
    assert excluded["dualpipe", 1] == "dualpipe: devices must be even, got 3"
    assert excluded["hanayo", 3] == "hanayo: chunks must be even (2 per wave), got 3"
    assert excluded == {(row.name, row.chunks): row.excluded for row in compare(pipeline.resolved("all"), (2, 3)) if row.excluded}


@pytest.mark.parametrize("links", [Links(), pytest.param(Links(1, occupancy=1), marks=thorough)], ids=["plain", "held"])
def test_a_named_order_that_deadlocks_keeps_its_reason(links: Links) -> None:
    pipeline = Pipeline(5, 7, costs=Costs(recompute=1), memory=Memory(recompute_saved=1), recompute="choose", links=links)
    excluded = {row.name: row.excluded for row in compare_freely(pipeline)}
    assert excluded == {row.name: row.excluded for row in compare(pipeline.resolved("all"))}
    reason = excluded["interleaved-1f1b"]
    assert reason is not None
    assert "the order deadlocks: " in reason


def test_a_limit_below_one_activation_on_another_placement() -> None:
    memory = Memory(activation=2, recompute_saved=1, static=2, limit=3)
    pipeline = Pipeline(
        2, 4, costs=Costs(recompute=1), memory=memory, recompute="choose"
    )  # two copies of the weights are too much
    rows = {row.name: row for row in compare_freely(pipeline)}
    reason = rows["chimera"].excluded
    assert reason is not None
    assert reason.startswith("chimera: memory.limit: device 0 needs at least 5")
    assert (rows["1f1b"].recompute, rows["1f1b"].within_memory) == ("all", False)  # two activations on device 0
    assert rows["v-min"].schedule is not None


def test_only_what_is_left_open_can_be_chosen() -> None:
    for choice in ("none", "all"):
        pipeline = Pipeline(2, 4, costs=Costs(recompute=1), memory=Memory(recompute_saved=1), recompute=choice)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"expected \"choose\", got '{choice}'"):
            compare_freely(pipeline)
        with pytest.raises(ValueError, match=r"pipeline\.recompute"):
            of_order_freely(pipeline, find("1f1b").order(pipeline), "mine")
    with pytest.raises(Restriction, match="unknown parameter"):
        compare_freely(pipeline.resolved("choose"), params={"1f1b": {"waves": 2}})


def test_solve_shows_one_row_for_each_schedule_and_begins_from_them() -> None:
    """With every stage or none recomputing the best of these takes 646.9."""
    pipeline = read_model(MODEL, [setting("pipeline.recompute=choose"), *SMALL]).pipeline
    result = solve(pipeline, seconds=1, workers=1)
    assert [row.name for row in result.named] == SHOWN
    own = [row for row in result.named if row.schedule is not None and row.schedule.pipeline.routes == pipeline.routes]
    assert result.value is not None
    least = min(key(row.schedule, "makespan")[0] for row in own if row.within_memory and row.schedule is not None)
    assert Fraction(result.ticks.value, result.ticks.per_unit) <= least < 646
    placed = [row.schedule.pipeline for row in own if row.schedule is not None]
    assert all(each == pipeline.resolved(each.recomputing) for each in placed)


@thorough
def test_an_order_of_ones_own_is_one_row_of_solve(tmp_path: Path) -> None:
    text = (
        '[pipeline]\ndevices = 2\nmicrobatches = 2\nrecompute = "choose"\n'
        'order = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]\n'
        "[costs]\nrecompute = 1\n[memory]\nrecompute_saved = 0.5\nlimit = 1\n"
    )
    (row,) = model_of_text(text, "text").own_rows_freely("makespan")
    assert (row.label, row.within_memory) == ("own order + recompute 0", True)
    path = tmp_path / "mine.toml"
    path.write_text(text)
    arguments = ("solve", path, *QUICK)
    tree = read(*arguments)
    assert [row["recompute"] for row in tree["named"] if row["schedule"] == "own order"] == [[0]]
    assert "own order + recompute 0 *" in run(*arguments).stdout
    both = read("compare", path)["named"]
    assert [row["recompute"] for row in both if row["schedule"] == "own order"] == ["none", "all"]


def test_an_order_that_cannot_run_is_excluded_with_the_reason() -> None:
    pipeline = Pipeline(2, 2, costs=Costs(backward=2, recompute=1), memory=Memory(recompute_saved=1), recompute="choose")
    plain = pipeline.resolved("none")
    stuck = Order.of(plain, [["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]])
    reason = of_order_freely(pipeline, stuck, "mine").excluded
    assert reason is not None
    assert reason.startswith("mine: the order deadlocks: ")
    short = of_order_freely(pipeline, Order.of(plain, [["0F0", "0B0", "0F1", "0B1"], ["1F0", "1B0", "1F1"]]), "mine")
    assert short.excluded == "mine: 1B1 is missing"


def test_a_pinned_order_of_microbatches_out_of_turn_is_excluded_with_the_reason() -> None:
    """The pieces of a sequence go back from its end, those of 1F1B from its begin; those of Seq1F1B the other way round."""
    for mix, name in ((Mix(pieces=2), "1f1b"), (Mix(microbatch_costs=[1, 2, 1, 1]), "seq1f1b")):
        costs, memory = Costs(backward=2, recompute=1), Memory(recompute_saved=0.5, limit=3)
        pipeline = Pipeline(2, 4, costs=costs, memory=memory, recompute="choose", mix=mix)
        rows = {row.name: row for row in compare_freely(pipeline)}
        reason = rows[name].excluded
        assert reason is not None
        assert reason.startswith(f"{name}: its microbatches run in another order than is given")
        for row in rows.values():
            assert row.schedule is None or not violations(unlimited(row.schedule.pipeline), row.schedule)


def test_where_copies_give_room_nothing_recomputes_for_it() -> None:
    """1F1B holds 3 activations on the first device: one is away in time."""
    costs, memory = Costs(forward=2, backward=4, recompute=2), Memory(recompute_saved=0.5, limit=2)
    pipeline = Pipeline(3, 6, costs=costs, memory=memory, recompute="choose")
    (kept,) = [row for row in compare_freely(pipeline) if row.name == "1f1b"]
    assert kept.recompute == (0,)
    (copied,) = [row for row in compare_freely(pipeline.changed(offload=Offload(time=1))) if row.name == "1f1b"]
    assert copied.recompute == "none"
    assert copied.within_memory


def test_where_the_host_has_no_room_for_given_copies_more_recomputes() -> None:
    """What recomputes takes half of the room there. With layers the limit of the host may be the only one."""
    offload = Offload(time=0.5, host_limit=0.5, stages="all")
    pipeline = Pipeline(2, 2, costs=Costs(backward=2, recompute=1), memory=Memory(recompute_saved=0.5), recompute="choose")
    (row,) = [row for row in compare_freely(pipeline.changed(offload=offload)) if row.name == "1f1b"]
    assert row.within_memory
    assert row.recompute == "all"
    levels = [{"name": "full", "time": 1, "saved": 0.5}]
    layers = Layers([{"name": "a", "count": 4, "forward": 1, "backward": 2, "activation": 1, "recompute": levels}])
    offload = Offload(rate=4, host_limit=3, stages="all")
    cut = Pipeline(2, 3, layers=layers, partition="even", recompute="choose", offload=offload)
    (row,) = [row for row in compare_freely(cut) if row.name == "interleaved-1f1b"]
    assert (row.within_memory, row.label) == (True, "interleaved-1f1b + recompute 2 full")
