"""Weight gradients in pieces: brute force, both solvers, bounds and the checker say the same."""

import dataclasses

import pytest
from hypothesis import given, settings

from ppopt import bounds, cpsat, ilp
from ppopt.bounds.throughput import throughput
from ppopt.checker import Rule, violations_of
from ppopt.clock import Limits
from ppopt.constraints import Family, OneOf, Precede, cuts_of, free_choices
from ppopt.files import read_model
from ppopt.heuristics import baselines
from ppopt.named import NAMED, Restriction
from ppopt.op import Kind, Op, OpIndex, parse
from ppopt.pipeline import Costs, Memory, Pipeline, PipelineError
from ppopt.schedule import Order, Schedule
from ppopt.search import solve, tuning
from ppopt.timing import time_order
from tests.support.pieces import by_trying, pieced
from tests.support.tiers import thorough
from tests.support.unaided import optimum


def whole(pipeline: Pipeline) -> Pipeline:
    return pipeline.changed(costs=dataclasses.replace(pipeline.costs, weight_pieces=1))


def check(pipeline: Pipeline, *, by_ilp: bool) -> None:
    best, undivided = by_trying(pipeline), whole(pipeline)
    least = by_trying(undivided)
    assert best is not None
    assert least is not None
    scale = pipeline.ticks.per_unit // undivided.ticks.per_unit
    assert best <= least * scale
    if not any(pipeline.ticks.weight.flat):
        assert best == least * scale
    words = free_choices(pipeline)
    assert optimum(cpsat, pipeline, "makespan", (*words, *cuts_of(pipeline))) in (best, None)
    if by_ilp:
        assert optimum(ilp, pipeline, "makespan", (*words, *cuts_of(pipeline))) in (best, None)
    limits = Limits.of(seconds=1, workers=1, deterministic=True)
    found = [of(pipeline, pairs=True) for of in (bounds.work, bounds.machine, bounds.memory)]
    found += bounds.best(pipeline, limits=limits, tuning=tuning.BOUNDS, pairs=True)
    found.append(throughput(pipeline, most=3000, limits=limits, tuning=tuning.BOUNDS, pairs=True))
    assert all(bound.value <= best for bound in found if bound is not None)
    assert all(schedule.makespan >= best for _, schedule in baselines(pipeline))


@thorough
@settings(max_examples=25, deadline=None)
@given(pieced())
def test_all_agree(pipeline: Pipeline) -> None:
    check(pipeline, by_ilp=pipeline.index.computations <= 16)


@pytest.mark.parametrize("limit", [None, 2])
def test_all_agree_on_one(limit: int | None) -> None:
    costs = Costs(per="stage", forward=[1, 2], backward_input=[2, 1], backward_weight=[3, 1], weight_pieces=2)
    memory = Memory(activation=[1, 1], limit=limit)
    check(Pipeline(2, 2, costs=costs, memory=memory), by_ilp=True)


def test_pieces_pay() -> None:
    model = read_model("models/weight-pieces.toml").pipeline
    found = [solve(of, seconds=20, workers=1) for of in (whole(model), model)]
    assert [(result.makespan, result.reason) for result in found] == [(24, "optimal"), (23, "optimal")]


# --- notation and numbers ---


def test_notation() -> None:
    assert parse("2W0.1") == Op(2, Kind.W, 0, 1)
    assert str(Op(2, Kind.W, 0, 1)) == "2W0.1"
    assert str(parse("2W0")) == "2W0"
    for text in ("2F0.1", "2W0.", "2W.1", "2W0.-1"):
        with pytest.raises(ValueError, match="expected an operation"):
            parse(text)


def test_numbers_are_told_apart_and_found_again() -> None:
    index = OpIndex(2, 3, 3)
    ops = [index.op(number) for number in range(index.size)]
    assert len(set(ops)) == index.size
    assert [index.number(op) for op in ops] == list(range(index.size))
    assert sum(isinstance(op, Op) and op.kind == Kind.W for op in ops) == 2 * 3 * 3
    with pytest.raises(ValueError, match=r"0W0: expected one of its pieces; pieces of W are 0\.\.2"):
        index.number(Op(0, Kind.W, 0))
    with pytest.raises(ValueError, match=r"there is no piece 3"):
        index.number(Op(0, Kind.W, 0, 3))
    with pytest.raises(ValueError, match="weight gradients are whole"):
        OpIndex(2, 3).number(Op(0, Kind.W, 0, 0))


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2", 257])
def test_no_number_of_pieces(value: object) -> None:
    with pytest.raises(PipelineError, match=r"costs\.weight_pieces: "):
        Costs(weight_pieces=value)  # type: ignore[arg-type]


def test_nothing_to_cut() -> None:
    with pytest.raises(PipelineError, match=r"costs\.weight_pieces: costs\.backward alone is given"):
        Costs(backward=2, weight_pieces=2)
    with pytest.raises(PipelineError, match=r"costs\.weight_pieces: PyTorch"):
        Pipeline(2, 2, costs=Costs(weight_pieces=2), runtime="torch")


# --- orders, words and named schedules ---

MODEL = Pipeline(2, 2, costs=Costs(weight_pieces=2))


def test_a_whole_weight_gradient_in_an_order_is_all_its_pieces() -> None:
    order = Order.of(MODEL, [["0F0", "0F1", "0I0", "0W0", "0I1", "0W1"], ["1F0", "1I0", "1W0", "1F1", "1I1", "1W1"]])
    assert order.texts()[0] == ["0F0", "0F1", "0I0", "0W0.0", "0W0.1", "0I1", "0W1.0", "0W1.1"]


def test_words_of_whole_weight_gradients() -> None:
    weight, forward = Family(1, Kind.W), Family(1, Kind.F)
    split = OneOf(((Family(1, Kind.I), weight),))
    result = solve(MODEL, seconds=10, workers=1, constraints=[split, Precede(weight, forward, shift=1)])
    row = result.schedule.order.texts()[1]  # type: ignore[union-attr]
    assert row.index("1W0.1") < row.index("1F1")


@pytest.mark.parametrize("name", sorted(NAMED))
def test_named_schedules_take_no_longer_than_with_whole_ones(name: str) -> None:
    plain = Pipeline(4, 8)
    cut = plain.changed(costs=Costs(weight_pieces=2))
    try:
        one, other = (NAMED[name].schedule(of) for of in (plain, cut))
    except Restriction:
        return
    assert other.makespan * one.pipeline.ticks.per_unit <= one.makespan * other.pipeline.ticks.per_unit
    assert violations_of(other.pipeline, records(other)) == []


# --- the checker ---


def records(schedule: Schedule) -> list[list[tuple[str, float, float]]]:
    time = schedule.pipeline.time
    return [
        [(text, time(start), time(end)) for text, start, end in zip(texts, starts.tolist(), ends.tolist(), strict=True)]
        for texts, starts, ends in zip(schedule.order.texts(), schedule.start, schedule.end, strict=True)
    ]


def rules(rows: list[list[tuple[str, float, float]]], pipeline: Pipeline = MODEL) -> set[Rule]:
    return {violation.rule for violation in violations_of(pipeline, rows)}


GOOD = records(
    time_order(
        MODEL,
        Order.of(
            MODEL,
            [
                ["0F0", "0F1", "0I0", "0W0.0", "0I1", "0W0.1", "0W1"],
                ["1F0", "1I0", "1F1", "1I1", "1W0.0", "1W0.1", "1W1.0", "1W1.1"],
            ],
        ),
    )
)


def moved(op: str, start: float | None, end: float | None = None) -> list[list[tuple[str, float, float]]]:
    """The good schedule with another start of an operation, and end; left out where there is none."""
    rows = []
    for row in GOOD:
        new = []
        for text, a, b in row:
            if text != op:
                new.append((text, a, b))
            elif start is not None:
                new.append((text, start, start + b - a if end is None else end))
        rows.append(sorted(new, key=lambda entry: entry[1]))
    return rows


def test_the_checker_finds_what_is_wrong_with_pieces() -> None:
    assert rules(GOOD) == set()
    assert rules(moved("1W0.1", None)) == {Rule.MISSING}
    assert Rule.DATA in rules(moved("1W1.1", 2.0))  # before its predecessor, and before its I
    last = GOOD[1][-1]
    assert rules(moved(last[0], last[1], last[2] + 1)) == {Rule.DURATION}
    assert Rule.UNKNOWN in rules([[("0W0.2" if text == "0W0.1" else text, a, b) for text, a, b in row] for row in GOOD])
    assert Rule.UNKNOWN in rules([[("0W0" if text == "0W0.1" else text, a, b) for text, a, b in row] for row in GOOD])
    first, second = (next(entry for entry in GOOD[1] if entry[0] == f"1W0.{k}") for k in (0, 1))
    swapped = [{"1W0.0": "1W0.1", "1W0.1": "1W0.0"}.get(text, text) for text, _, _ in GOOD[1]]
    rows = [GOOD[0], [(text, a, b) for text, (_, a, b) in zip(swapped, GOOD[1], strict=True)]]
    assert first[2] == second[1]
    assert rules(rows) == {Rule.DATA}


def test_a_piece_gives_nothing_back_but_the_last() -> None:
    tight = Pipeline(1, 2, costs=Costs(weight_pieces=2), memory=Memory(limit=1))
    early = Order.of(tight, [["0F0", "0I0", "0W0.0", "0F1", "0W0.1", "0I1", "0W1"]])
    schedule = time_order(tight, early)
    assert not schedule.within_memory
    assert rules(records(schedule), tight) == {Rule.MEMORY}
    assert time_order(tight, Order.of(tight, [["0F0", "0I0", "0W0", "0F1", "0I1", "0W1"]])).within_memory
