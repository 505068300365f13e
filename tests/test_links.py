"""Links that carry one transfer at a time: timing, checker and both solvers."""

import importlib.util
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tuned
from random_pipelines import random_pipeline

from ppopt import bounds, cpsat, ilp
from ppopt.checker import Rule, violations
from ppopt.clock import Limits
from ppopt.constraints import Exclusive, Listed, Precede, Word, always_split, chain, cuts_of, rules_of, sends, splitting_is_free
from ppopt.files.checked import check_file
from ppopt.files.chrome_trace import trace_lines
from ppopt.files.exported import row_in, schedule_in
from ppopt.files.model import Model, ModelError, model_dict, model_of, model_of_text, read_model
from ppopt.files.result import document, json_text, result_dict
from ppopt.files.torch_export import for_torch, with_comms
from ppopt.heuristics import baselines
from ppopt.periodic.periodic_schedule import microbatches_per_route, schedule_of
from ppopt.pipeline import Costs, Links, Memory, Pipeline, PipelineError
from ppopt.schedule import Order, Schedule, Transfers
from ppopt.search import horizon, solve, span_horizon
from ppopt.solvers.outcome import Outcome
from ppopt.timing import left_shifted, time_order

ROOT = Path(__file__).parents[1]
GPIPE = [["0F0", "0F1", "0F2", "0B0", "0B1", "0B2"], ["1F0", "1F1", "1F2", "1B0", "1B1", "1B2"]]


def two(**links: Any) -> Schedule:
    pipeline = Pipeline(2, 3, links=Links(**links))
    return time_order(pipeline, Order.of(pipeline, GPIPE))


def listed(schedule: Schedule) -> tuple[list[list[int]], list[list[tuple[str, int]]]]:
    op = schedule.pipeline.index.op
    rows = zip(*schedule.transfers, strict=True)
    sent = [[(str(op(n)), t) for n, t in zip(row.tolist(), start.tolist(), strict=True)] for row, start in rows]
    return [row.tolist() for row in schedule.start], sent


def test_transfers_of_a_link_queue() -> None:
    # F ends at 1, 2, 3; the link is held 1-3, 3-5, 5-7; results arrive one later
    start, sent = listed(two(latency=1, occupancy=2))
    assert sent[0] == [("0SEND_F0", 1), ("0SEND_F1", 3), ("0SEND_F2", 5)]
    assert start[1][:3] == [4, 6, 8]
    assert sent[1] == [("1SEND_B0", 11), ("1SEND_B1", 13), ("1SEND_B2", 15)]  # B ends at 11, 13, 15
    assert start[0][3:] == [14, 16, 18]


def test_blocking_transfers_stop_both_ends() -> None:
    start, sent = listed(two(latency=1, occupancy=2, blocking=True))
    assert sent[0] == [("0SEND_F0", 1), ("0SEND_F1", 4), ("0SEND_F2", 7)]  # each F starts when the transfer before it ends
    assert start[0][:3] == [0, 3, 6]
    assert start[1][:3] == [6, 9, 10]  # 1F0 could start at 4, and is stopped 4-6; 1F1 arrives at 7, and is stopped 7-9


def test_both_directions_of_a_shared_line() -> None:
    rows = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    starts = []
    for shared in ([], [[[0, 1], [1, 0]]]):
        pipeline = Pipeline(2, 2, links=Links(occupancy=4, shared=shared))
        schedule = time_order(pipeline, Order.of(pipeline, rows))
        assert violations(pipeline, schedule, earliest=True) == []
        starts.append(listed(schedule)[1])
    assert starts[0] == [[("0SEND_F0", 1), ("0SEND_F1", 5)], [("1SEND_B0", 8), ("1SEND_B1", 12)]]
    assert starts[1] == [[("0SEND_F0", 1), ("0SEND_F1", 5), ("1SEND_B0", 9), ("1SEND_B1", 13)]]


def contended(rng: random.Random, most_ops: int = 20) -> Pipeline:
    """A random pipeline with at least one link that transfers hold."""
    while True:
        plain = random_pipeline(rng, most_ops)
        devices = range(plain.devices)
        uneven = [[0 if a == b else rng.randint(0, 3) for b in devices] for a in devices]
        pairs = [(a, b) for a in devices for b in devices if a != b]
        rng.shuffle(pairs)
        shared = [pairs[: rng.randint(1, len(pairs))]] if pairs and rng.random() < 0.4 else []
        occupancy: Any = rng.choice([1, 2, 3]) if rng.random() < 0.5 else uneven
        pipeline = plain.changed(links=Links(plain.links.latency, occupancy, rng.random() < 0.4, shared))
        if pipeline.lines:
            return pipeline


@pytest.mark.parametrize("seed", range(30))
def test_timed_orders_pass_the_checker(seed: int) -> None:
    pipeline = contended(random.Random(seed), 40)
    for _, schedule in baselines(pipeline)[:6]:
        assert violations(pipeline, schedule, earliest=True) == []
        shifted = left_shifted(schedule)
        assert violations(pipeline, shifted, earliest=True) == []
        assert shifted.makespan <= schedule.makespan
        assert all(sum(map(len, row)) for row in schedule.transfers)


@pytest.mark.parametrize("seed", range(30))
def test_links_that_are_never_held_change_nothing(seed: int) -> None:
    plain = random_pipeline(random.Random(seed), 60)
    pairs = [(a, b) for a in range(plain.devices) for b in range(plain.devices) if a != b]
    links = Links(plain.links.latency, 0, True, [pairs[:2]] if pairs else ())
    same = plain.changed(links=links)
    assert rules_of(same) == rules_of(plain)
    assert cuts_of(same) == cuts_of(plain)
    for (_, a), (_, b) in zip(baselines(plain), baselines(same), strict=True):
        assert a.order == b.order
        assert [row.tolist() for row in a.start] == [row.tolist() for row in b.start]
        assert b.transfers == Transfers()


# --- the checker -------------------------------------------------------------------------------------------------


def moved(schedule: Schedule, link: int, place: int, by: int) -> Schedule:
    starts = [row.copy() for row in schedule.transfers.start]
    starts[link][place] += by
    return replace(schedule, transfers=Transfers(schedule.transfers.rows, tuple(starts)))


def without(schedule: Schedule, link: int, place: int) -> Schedule:
    rows, starts = (
        tuple(np.delete(row, place) if i == link else row for i, row in enumerate(column)) for column in schedule.transfers
    )
    return replace(schedule, transfers=Transfers(rows, starts))


def again(schedule: Schedule) -> Schedule:
    rows, starts = (
        tuple(np.append(row, row[0] + 30 * time) if not i else row for i, row in enumerate(column))
        for time, column in enumerate(schedule.transfers)
    )
    return replace(schedule, transfers=Transfers(rows, starts))


def computing_earlier(schedule: Schedule) -> Schedule:
    starts = [row.copy() for row in schedule.start]
    starts[0][1] -= 1  # 0F1 waits for 0SEND_F0
    return replace(schedule, start=tuple(starts))


@pytest.mark.parametrize(
    ("mistake", "rule"),
    [
        (lambda s: moved(s, 0, 0, -1), Rule.TRANSFER),  # before its result is there
        (lambda s: moved(s, 0, 1, -1), Rule.LINK),
        (lambda s: moved(s, 0, 2, 1), Rule.LATENCY),  # and so too late for its consumer
        (lambda s: without(s, 0, 1), Rule.MISSING),
        (lambda s: without(s, 1, 0), Rule.MISSING),
        (again, Rule.TWICE),
        (computing_earlier, Rule.BLOCKING),
    ],
)
def test_the_checker_sees_every_mistake(mistake: Callable[[Schedule], Schedule], rule: Rule) -> None:
    schedule = two(latency=1, occupancy=2, blocking=rule == Rule.BLOCKING)
    assert violations(schedule.pipeline, schedule) == []
    assert rule in {v.rule for v in violations(schedule.pipeline, mistake(schedule))}


def test_a_file_records_the_transfers(tmp_path: Path) -> None:
    schedule = two(latency=0.5, occupancy=1.5)
    tree = document(Model(schedule.pipeline), schedule=schedule)
    path = tmp_path / "result.json"
    path.write_text(json_text(tree))
    assert check_file(str(path), None) == []
    assert tree["schedule"]["transfers"][0]["order"] == ["0SEND_F0", "0SEND_F1", "0SEND_F2"]
    for change, rule in (
        (lambda line: line["start"].__setitem__(1, line["start"][0]), Rule.LINK),
        (lambda line: line["end"].__setitem__(1, line["end"][0]), Rule.DURATION),
        (lambda line: line["order"].__setitem__(1, "0SEND_F9"), Rule.UNKNOWN),
        (lambda line: line["order"].__setitem__(1, "0F1"), Rule.UNKNOWN),
        (lambda line: line["order"].__setitem__(1, "0SEND_F0"), Rule.TWICE),
        (lambda line: line["start"].__setitem__(0, -1), Rule.NEGATIVE),
    ):
        wrong = json.loads(json_text(tree))
        change(wrong["schedule"]["transfers"][0])
        path.write_text(json_text(wrong))
        assert rule in {v.rule for v in check_file(str(path), None)}
    del tree["schedule"]["transfers"]
    path.write_text(json_text(tree))
    assert Rule.MISSING in {v.rule for v in check_file(str(path), None)}


@pytest.mark.parametrize("name", ["two-sites", "two-sites-v"])
def test_files_keep_the_order_of_the_transfers(name: str, tmp_path: Path) -> None:
    model = read_model(str(ROOT / "models" / f"{name}.toml"))
    pipeline = model.pipeline
    result = solve(pipeline, seconds=30, workers=1)
    best = result.schedule
    assert best is not None
    path = tmp_path / "best.json"
    path.write_text(json_text(result_dict(result)))
    again = schedule_in(str(path))
    assert again.makespan == best.makespan < time_order(pipeline, best.order).makespan
    assert listed(again)[1] == listed(left_shifted(best))[1]
    row = row_in(str(path), pipeline)
    assert row.schedule is not None
    assert row.schedule.makespan == best.makespan

    runnable = for_torch(again).schedule
    assert violations(runnable.pipeline, runnable) == []
    assert runnable.makespan <= best.makespan
    for line, (row_, _) in zip(pipeline.lines, zip(*runnable.transfers, strict=True), strict=True):
        expected = [str(pipeline.index.op(number)) for number in row_.tolist()]
        for rank, actions in enumerate(with_comms(runnable)):
            sent = [str(a) for a in actions if "SEND" in str(a) and str(a) in expected]
            own = [text for text in expected if any(pair[0] == rank for pair in line) and text in sent]
            assert sent == own

    events = json.loads("".join(trace_lines(again)))["traceEvents"]
    slices = sorted(event["ts"] for event in events if event.get("cat") == "transfer" and event["ph"] == "X")
    assert slices == sorted(1000 * time for row_ in again.transfers.start for time in row_.tolist())


def test_a_pair_of_devices_is_on_one_link() -> None:
    with pytest.raises(PipelineError, match=r"links\.shared\[1\]\[0\].*already"):
        Pipeline(2, 2, links=Links(occupancy=1, shared=[[[0, 1]], [[0, 1], [1, 0]]]))


# --- the solvers -------------------------------------------------------------------------------------------------


def solved(of: Any, pipeline: Pipeline, words: tuple[Word, ...], objective: str, upper: int) -> Outcome:
    free = splitting_is_free(pipeline)
    outcome: Outcome = of(
        pipeline,
        (*words, *(always_split(pipeline) if free else ())),
        objective=objective,
        lower=0,
        upper=upper,
        horizon=horizon(pipeline) if objective == "makespan" else span_horizon(pipeline, upper, free=True),
        limits=Limits.of(60, workers=1),
    )
    return outcome


def agree(seed: int, objective: str) -> None:
    rng = random.Random(seed)
    pipeline = contended(rng, 18)
    while 0 in pipeline.ticks.duration:
        pipeline = contended(rng, 18)
    words, cuts = rules_of(pipeline), cuts_of(pipeline)
    upper = min((s.objective(objective) for _, s in baselines(pipeline) if s.within_memory), default=horizon(pipeline))
    values = set()
    for of, used in ((cpsat.solve, (*words, *cuts)), (cpsat.solve, words), (ilp.solve, (*words, *cuts))):
        outcome = solved(of, pipeline, used, objective, upper)
        assert outcome.schedule is not None
        assert violations(pipeline, outcome.schedule) == []
        assert outcome.lower_bound == outcome.schedule.objective(objective)
        values.add(outcome.lower_bound)
    assert len(values) == 1
    found = [of(pipeline, objective) for of in (bounds.work, bounds.machine, bounds.memory)]  # type: ignore[operator]
    found += [*tuned.best(pipeline, objective, limits=Limits.of(0.5, deterministic=True))]
    if objective == "makespan":
        found.append(tuned.throughput(pipeline, most=2000))
    assert all(bound is None or bound.value <= min(values) for bound in found)


@pytest.mark.parametrize(
    ("pipeline", "least"),
    [
        # one line both ways, 8 transfers of 3 on it; the first result is there after 1, and the last gradient's I and W take 2
        (Pipeline(2, 4, links=Links(0, 3, shared=[[[0, 1], [1, 0]]])), 1 + 8 * 3 + 2),
        # device 1 computes for 12 and sends 4 gradients of 2 meanwhile; before that 0F0 and its transfer
        (Pipeline(2, 4, links=Links(0, 2, True)), 1 + 2 + 12 + 4 * 2),
    ],
)
def test_a_link_is_a_machine_of_the_bounds(pipeline: Pipeline, least: int) -> None:
    bound = bounds.machine(pipeline)
    delays = bounds.machine(pipeline.changed(links=pipeline.links.uncontended()))
    assert bound is not None
    assert delays is not None
    assert delays.value < least <= bound.value <= solved(cpsat.solve, pipeline, rules_of(pipeline), "makespan", 60).lower_bound


@pytest.mark.parametrize("seed", range(6))
def test_windows_of_any_length_are_valid_with_links(seed: int) -> None:
    rng = random.Random(seed)
    pipeline = contended(rng, 60)
    pipeline = pipeline.changed(microbatches=len(pipeline.routes) * rng.choice([1, 3, 5]))
    makespan = max(bound.value for of in (bounds.machine, bounds.memory) if (bound := of(pipeline)) is not None)
    for objective in ("makespan", "span"):
        best = min(s.objective(objective) for _, s in baselines(pipeline) if s.within_memory)
        for _ in range(3):
            first = rng.randint(1, max(1, makespan - 1))
            last = rng.randint(1, max(1, makespan - first))
            bound = tuned.window(
                pipeline, first, last, objective, makespan=makespan, grain=rng.choice([1, 2]), limits=Limits.of(1, workers=1)
            )
            assert bound is None or bound.value <= best


def test_bounds_of_links_within_memory() -> None:
    for links, better in (
        (Links(0, 2, True), (bounds.machine, bounds.memory)),
        (Links(1, 2, False, [[[0, 1], [1, 2]]]), (bounds.machine, tuned.throughput)),
    ):
        tight = Pipeline(3, 8, links=links, memory=Memory(limit=3))
        optimum = solve(tight, seconds=20, workers=1)
        assert optimum.reason == "optimal"
        for of in better:
            less, more = of(tight.changed(links=links.uncontended())), of(tight)
            assert more is not None
            assert (0 if less is None else less.value) < more.value <= optimum.lower_bound


@pytest.mark.parametrize("seed", range(40))
def test_solvers_agree(seed: int) -> None:
    agree(seed, "span" if seed % 4 == 0 else "makespan")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 340))
def test_solvers_agree_on_many(seed: int) -> None:
    agree(seed, "span" if seed % 3 == 0 else "makespan")


def sending(word: Word) -> bool:
    """Whether it says when a transfer starts."""
    return isinstance(word, Precede) and sends(word.after)


def receiving(word: Word) -> bool:
    """Whether it says who waits for a transfer."""
    return isinstance(word, Precede) and sends(word.before)


def holding(word: Word) -> bool:
    """Whether it says that a link carries one transfer at a time."""
    return isinstance(word, Exclusive) and all(map(sends, word.streams))


def stopping(word: Word) -> bool:
    """Whether it says that transfers stop a device."""
    return isinstance(word, Exclusive) and not word.computes and not holding(word)


@pytest.mark.parametrize("of", [cpsat.solve, ilp.solve], ids=["cp-sat", "ilp"])
@pytest.mark.parametrize("dropped", [sending, receiving, holding, stopping])
def test_a_back_end_without_a_rule_finds_too_little(dropped: Callable[[Word], bool], of: Any) -> None:
    # Both transfers of the two devices share a line and stop both: 2 microbatches take 2F + 2B + 4 transfers of 3 at least.
    links = Links(0, 3, dropped is not holding, [[[0, 1], [1, 0]]])
    pipeline = Pipeline(2, 2, links=links)
    words = rules_of(pipeline)
    whole = solved(of, pipeline, words, "makespan", 60)
    assert whole.schedule is not None
    assert whole.lower_bound == whole.schedule.makespan
    try:
        less = solved(of, pipeline, tuple(word for word in words if not dropped(word)), "makespan", 60)
    except ValueError as error:
        if "wait for each other" not in str(error):
            raise
        return  # what it finds has no order at all
    assert less.lower_bound < whole.lower_bound or less.schedule is None or violations(pipeline, less.schedule)


@pytest.mark.parametrize("seed", range(5))
def test_modulo_scheduling_keeps_links(seed: int) -> None:
    rng = random.Random(seed)
    pipeline = contended(rng, 60)
    while 0 in pipeline.ticks.duration or pipeline.microbatches < len(pipeline.routes):
        pipeline = contended(rng, 60)
    pipeline = pipeline.changed(microbatches=6 * len(pipeline.routes))
    limits = Limits.of(1, deterministic=True)
    few = tuned.periodic_schedule(pipeline, lower_bound=0, limits=limits)
    assert few.periodic is not None
    assert few.periodic.is_valid()
    for more in (0, 20):
        larger = pipeline.changed(microbatches=pipeline.microbatches + more * few.periodic.unroll * len(pipeline.routes))
        schedule = schedule_of(larger, few.periodic)
        assert violations(larger, schedule) == []
        expected = few.periodic.makespan_for(microbatches_per_route(larger))
        assert expected is not None
        assert max(of.value for of in tuned.best(larger, limits=Limits.of(0.2, workers=1))) <= schedule.makespan <= expected


def test_modulo_scheduling_meets_the_bound_of_a_link() -> None:
    pipeline = Pipeline(2, 200, links=Links(1, 4), memory=Memory(limit=6))
    result = solve(pipeline, seconds=20, workers=1)
    assert result.reason == "optimal"
    assert result.value == 1 + 200 * 4 + 1 + 2 + 4 + 1 + 2  # 0F0, all results sent, on the way, F and I, its gradient, I and W


def test_solve_takes_links() -> None:
    pipeline = Pipeline(3, 4, links=Links(0.5, 1, True, [[[0, 1], [1, 2]]]), memory=Memory(limit=3))
    result = solve(pipeline, seconds=20, workers=1)
    assert result.schedule is not None
    assert violations(pipeline, result.schedule) == []
    free = solve(pipeline.changed(links=pipeline.links.uncontended()), seconds=20, workers=1)
    assert free.value is not None
    assert result.value is not None
    assert free.lower_bound <= result.value
    assert json.loads(json_text(result_dict(result)))["schedule"]["transfers"]


def test_crosspipe_optima_are_reproduced_and_proved() -> None:
    entries = json.loads((ROOT / "tests" / "data" / "crosspipe_optima.json").read_text())
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


# --- the model file ----------------------------------------------------------------------------------------------

SITES = """
[pipeline]
devices = 4
microbatches = 6
[links]
blocking = true
sites = [[0, 2], [1, 3]]
intra = { latency = 0.5 }
inter = { latency = 2, occupancy = 3, shared = true }
"""


def test_sites_are_tables_by_device() -> None:
    model = model_of_text(SITES, "sites")
    links = model.pipeline.links
    assert isinstance(links.latency, tuple)
    assert [float(x) for x in links.latency[0]] == [0, 2, 0.5, 2]
    assert [float(x) for x in links.occupancy[1]] == [3, 0, 3, 0]  # type: ignore[index]
    assert links.shared == (((0, 1), (0, 3), (2, 1), (2, 3)), ((1, 0), (1, 2), (3, 0), (3, 2)))
    assert links.blocking
    assert model_of(model_dict(model), "again").pipeline == model.pipeline


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[1, 3]]", "[1]]", r"links\.sites: device 3 is at no site"),
        ("[1, 3]]", "[1, 3, 0]]", r"links\.sites\[1\]\[2\]: device 0 is at site 0 already"),
        ("[1, 3]]", "[1, 4]]", r"links\.sites\[1\]\[1\]: expected a device 0\.\.3, got 4"),
        ("sites =", "latency = 1\nsites =", r"links\.latency: give either this or links\.sites"),
        ("shared = true", "shared = 1", r"links\.inter\.shared: expected true or false"),
        ("latency = 0.5", "latncy = 0.5", r"links\.intra\.latncy: unknown key"),
        ("latency = 0.5", "latency = [1]", r"links\.intra\.latency: expected a number"),
        ("inter = {", "intra2 = {", r"links\.intra2: unknown key"),
        ("sites = [[0, 2], [1, 3]]", "", r"links\.sites: missing"),
        ("sites = [[0, 2], [1, 3]]", "sites = 2", r"links\.sites: expected a list of sites"),
    ],
)
def test_sites_that_cannot_be(old: str, new: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        model_of_text(SITES.replace(old, new), "sites")


# --- what it is good for -----------------------------------------------------------------------------------------


def contention(name: str) -> Any:
    path = ROOT / "scripts" / "contention.py"
    spec = importlib.util.spec_from_file_location("contention", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.contention(read_model(str(ROOT / "models" / name)).pipeline, 60.0)


def test_a_plan_without_contention_is_a_tenth_worse() -> None:
    found = contention("two-sites-v.toml")
    assert found.planned.reason == found.best.reason == "optimal"
    assert found.loss >= 0.1
    # and not only because its transfers go first come, first served: with the best order of the transfers for its computations
    pipeline, order = found.best.pipeline, found.planned.schedule.order
    fixed = tuple(chain(Listed(tuple(order.ops(device)))) for device in range(pipeline.devices))
    outcome = solved(cpsat.solve, pipeline, (*rules_of(pipeline), *fixed), "makespan", found.met)
    assert outcome.schedule is not None
    assert outcome.schedule.order == order
    assert outcome.lower_bound == outcome.schedule.makespan >= 1.1 * found.best.value


def test_two_sites_is_solved() -> None:
    found = contention("two-sites.toml")
    assert found.planned.reason == found.best.reason == "optimal"
    assert found.loss > 0


@pytest.mark.parametrize("name", ["two-sites", "two-sites-v", "embedding-and-head", "moe-overlap"])
def test_model_files_of_machines(name: str) -> None:
    pipeline = read_model(str(ROOT / "models" / f"{name}.toml")).pipeline
    for _, schedule in baselines(pipeline):
        assert violations(pipeline, schedule, earliest=True) == []


def test_greedy_schedules_see_contention() -> None:
    links = Links(latency=5, occupancy=23, blocking=True, shared=[[[1, 2], [3, 0]], [[2, 1], [0, 3]]])
    costs = Costs(forward=38, backward_input=36, backward_weight=18)
    pipeline = Pipeline(4, 6, placement="loop", chunks=2, costs=costs, links=links, memory=Memory(limit=4))
    delays = pipeline.changed(links=links.uncontended())
    blind = min(time_order(pipeline, schedule.order).makespan for _, schedule in baselines(delays))
    assert min(schedule.makespan for _, schedule in baselines(pipeline)) < blind
