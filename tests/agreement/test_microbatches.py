"""Microbatches that differ: brute force, both solvers, bounds and the checker say the same; and the laws that must hold."""

import itertools
import random
from fractions import Fraction

import pytest

from ppopt.bounds import machine, memory, work
from ppopt.checker import Rule, violations
from ppopt.clock import Limits
from ppopt.constraints import cuts_of, free_choices, rules_of
from ppopt.heuristics import baselines
from ppopt.ilp import solve as by_ilp
from ppopt.named import NAMED, Restriction
from ppopt.pipeline import Costs, Links, Memory, Mix, Pipeline, TooLittleMemory
from ppopt.schedule import Order
from ppopt.search import solve
from ppopt.timing import time_order
from tests.support.tiers import thorough

KINDS = "FIW"
Op = tuple[str, int]


def orders(microbatches: int, pieces: int, given: bool, fits: object) -> list[list[Op]]:
    """Every order of a stage's operations that a device may run by itself."""
    found: list[list[Op]] = []

    def later(kind: str, first: int, second: int) -> bool:
        """Whether ``first`` must not run behind ``second``."""
        if kind == "W" or first == second:
            return False
        a, b = first // pieces, second // pieces
        if a == b:
            return first < second if kind == "F" else first > second
        return given and a < b

    def extend(done: list[Op], left: list[Op]) -> None:
        if not left:
            found.append(done)
        for kind, m in left:
            behind = {"F": [], "I": [("F", m)], "W": [("I", m)]}[kind]
            if not set(behind) <= set(done) or any(k == kind and later(kind, m, other) for k, other in done):
                continue
            if fits(done, kind, m):  # type: ignore[operator]
                extend([*done, (kind, m)], [op for op in left if op != (kind, m)])

    extend([], [(kind, m) for kind in KINDS for m in range(microbatches)])
    return found


def least(pipeline: Pipeline, times: dict[str, list[list[Fraction]]], held: list[Fraction]) -> Fraction:
    """The least makespan of two stages on two devices; ``times[kind][stage][microbatch]``."""
    many, mix, latency = pipeline.microbatches, pipeline.mix, pipeline.links.latency
    limit = pipeline.memory.limit

    def fits(done: list[Op], kind: str, m: int) -> bool:
        if limit is None or kind != "F":
            return True
        return sum(held[o] for k, o in done if k == "F") - sum(held[o] for k, o in done if k == "W") + held[m] <= limit  # type: ignore[operator]

    each = orders(many, (mix.pieces or (1,))[0], mix.microbatch_order == "given", fits)
    best = None
    for rows in itertools.product(each, repeat=2):
        ends: dict[tuple[int, str, int], Fraction] = {}
        place, free = [0, 0], [Fraction(0), Fraction(0)]
        moved = True
        while moved:
            moved = False
            for stage in (0, 1):
                while place[stage] < len(rows[stage]):
                    kind, m = rows[stage][place[stage]]
                    own = {"F": None, "I": "F", "W": "I"}[kind]
                    other = (1 - stage, kind, m) if (kind, stage) in (("F", 1), ("I", 0)) else None
                    if other is not None and other not in ends:
                        break
                    start = max(
                        free[stage],
                        ends[other] + latency if other is not None else Fraction(0),  # type: ignore[operator]
                        ends[stage, own, m] if own else Fraction(0),
                    )
                    free[stage] = ends[stage, kind, m] = start + times[kind][stage][m]
                    place[stage] += 1
                    moved = True
        if all(place[stage] == len(rows[stage]) for stage in (0, 1)):
            best = max(free) if best is None else min(best, max(free))
    assert best is not None
    return best  # there is room for one microbatch, or for one sequence


def drawn(rng: random.Random) -> tuple[Pipeline, dict[str, list[list[Fraction]]], list[Fraction]] | None:
    """Two microbatches that differ on two devices; durations and amounts worked out here."""
    costs = {kind: [rng.randint(1, 3) for _ in range(2)] for kind in KINDS}
    given = rng.choice(["given", "choose"])
    pieces = rng.choice([1, 1, 2])
    if rng.random() < 0.5:
        lengths = [rng.choice([[1], [2], [1, 1], [2, 1], [3]]) for _ in range(2)]
        part = {"F": rng.randint(0, 1), "I": rng.randint(0, 1), "W": 0}
        mix = Mix(lengths=lengths, length=2, microbatch_order=given, pieces=pieces)
        tokens = [Fraction(sum(bag), 2) for bag in lengths]
        squares = [Fraction(sum(x * x for x in bag), 4) for bag in lengths]
        times = {
            k: [[(c - part[k]) * n + part[k] * q for n, q in zip(tokens, squares, strict=True)] for c in costs[k]] for k in KINDS
        }
        more = {"forward_quadratic": part["F"], "backward_input_quadratic": part["I"]}
    else:
        factors, tokens = ([Fraction(rng.randint(1, 6), 2) for _ in range(2)] for _ in range(2))
        mix = Mix(microbatch_costs=factors, microbatch_activations=tokens, microbatch_order=given, pieces=pieces)
        times = {kind: [[c * f for f in factors] for c in costs[kind]] for kind in KINDS}
        more = {}
    limit = rng.choice([None, max(tokens), sum(tokens)])
    stage_costs = Costs("stage", costs["F"], costs["I"], costs["W"], **more)
    try:
        pipeline = Pipeline(2, 2, costs=stage_costs, links=Links(rng.randint(0, 1)), memory=Memory(limit=limit), mix=mix)
    except TooLittleMemory:
        return None
    return pipeline, times, tokens


def check_by_brute_force(seed: int, examples: int, ilp: bool) -> None:
    rng = random.Random(seed)
    for _ in range(examples):
        case = drawn(rng)
        if case is None:
            continue
        pipeline = case[0]
        best = least(*case)
        result = solve(pipeline, seconds=20)
        assert (result.reason, Fraction(str(result.makespan))) == ("optimal", best), pipeline
        ticks = int(best * pipeline.ticks.per_unit)
        for bound in (work, machine, memory):
            found = bound(pipeline)
            assert found is None or found.value <= ticks, (bound, pipeline)
        for name, schedule in baselines(pipeline):
            assert violations(pipeline, schedule, earliest=True) == [], name
            assert schedule.makespan >= ticks, name
        if ilp:
            words = (*rules_of(pipeline), *free_choices(pipeline), *cuts_of(pipeline))
            outcome = by_ilp(
                pipeline, words, objective="makespan", lower=0, upper=ticks + 1, horizon=ticks + 1, limits=Limits.of(20)
            )
            assert outcome.schedule is None or outcome.schedule.makespan == ticks


def test_brute_force() -> None:
    check_by_brute_force(1, 4, ilp=False)


@thorough
def test_brute_force_and_both_solvers() -> None:
    check_by_brute_force(2, 20, ilp=True)


COSTS = Costs(forward=2, backward_input=3, backward_weight=1)


def value(mix: Mix, many: int = 4, **fields: object) -> Fraction:
    result = solve(Pipeline(2, many, **{"costs": COSTS, **fields}, mix=mix), seconds=20)  # type: ignore[arg-type]
    assert result.reason == "optimal"
    return Fraction(str(result.makespan))


@pytest.mark.parametrize(
    "mix", [Mix(microbatch_costs=[1] * 4), Mix(lengths=[3] * 4, length=3), Mix(lengths=[[2, 1]] * 4, length=[1, 2])]
)
def test_equal_microbatches_are_alike(mix: Mix) -> None:
    """The same routes, words, ticks and answer as without a mix, to the last operation."""
    alike, mixed = (Pipeline(2, 4, costs=COSTS, memory=Memory(limit=2), mix=one) for one in (Mix(), mix))
    assert (mixed.routes, rules_of(mixed)) == (alike.routes, rules_of(alike))
    answers = [solve(each, seconds=20, deterministic=True).schedule for each in (alike, mixed)]
    assert None not in answers
    assert answers[0].order == answers[1].order  # type: ignore[union-attr]


@thorough
def test_factors_scale_the_answer_and_equal_ones_may_be_swapped() -> None:
    factors = [1, 2, 1, 3]
    assert value(Mix(microbatch_costs=[5 * f for f in factors])) == 5 * value(Mix(microbatch_costs=factors))
    free = [value(Mix(microbatch_costs=some, microbatch_order="choose")) for some in ([1, 2, 1, 3], [3, 1, 1, 2], [2, 3, 1, 1])]
    assert len(set(free)) == 1, "any order is open, so the numbers of the microbatches are names"
    assert free[0] <= value(Mix(microbatch_costs=factors))


def test_the_given_order_costs_what_the_longest_first_cannot_hide() -> None:
    """One of three microbatches is twice as long: what the devices wait for at both ends depends on which."""
    costs = Costs(forward=1, backward=1)
    given = {tuple(f): value(Mix(microbatch_costs=f), 3, costs=costs) for f in ([2, 1, 1], [1, 2, 1], [1, 1, 2])}
    assert value(Mix(microbatch_costs=[2, 1, 1], microbatch_order="choose"), 3, costs=costs) == min(given.values())
    assert max(given.values()) > min(given.values())


def test_the_checker_finds_microbatches_out_of_turn_and_pieces_out_of_order() -> None:
    rows = [["0F1", "0F0", "0B1", "0B0"], ["1F1", "1B1", "1F0", "1B0"]]
    fused = Costs(forward=1, backward=2)
    free = Pipeline(2, 2, costs=fused, mix=Mix(microbatch_costs=[1, 2], microbatch_order="choose"))
    schedule = time_order(free, Order.of(free, rows))
    assert violations(free, schedule) == []
    for mix in (Mix(microbatch_costs=[1, 2]), Mix(pieces=2, microbatch_order="choose")):
        strict = Pipeline(2, 2, costs=fused, mix=mix)
        found = violations(strict, time_order(strict, Order.of(strict, rows)))
        assert {each.rule for each in found} == {Rule.TURN}
        assert "microbatch 0 has to come before microbatch 1" in found[0].message or "microbatch 1 has" in found[-1].message


def test_pieces_go_back_from_the_last_one() -> None:
    rows = [["0F0", "0F1", "0B1", "0B0"], ["1F0", "1F1", "1B1", "1B0"]]
    pipeline = Pipeline(2, 2, costs=Costs(forward=1, backward=2), mix=Mix(pieces=2))
    assert violations(pipeline, time_order(pipeline, Order.of(pipeline, rows))) == []
    pieces = Mix(microbatch_costs=[3, 2, 2, 1] * 2, pieces=4)
    schedule = NAMED["seq1f1b"].schedule(Pipeline(2, 8, mix=pieces), pieces=4)
    assert violations(schedule.pipeline, schedule) == []
    assert schedule.work == (48, 48)
    with pytest.raises(Restriction, match="from its begin on, backwards from its end"):
        NAMED["1f1b"].schedule(Pipeline(2, 8, mix=pieces))


def test_wrong_durations_and_amounts_are_caught() -> None:
    """A schedule that was timed, or packed, as if its microbatches were alike."""
    mixed = Pipeline(2, 3, memory=Memory(limit=3), mix=Mix(microbatch_costs=[1, 2, 1], microbatch_order="choose"))
    alike = mixed.changed(mix=Mix())
    order = NAMED["gpipe"].order(alike)
    rules = {each.rule for each in violations(mixed, time_order(alike, order))}
    assert Rule.MEMORY in rules
    assert Rule.OVERLAP in rules or Rule.DATA in rules
