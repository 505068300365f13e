"""A settled order whose microbatches may take any places: every order of these is tried beside the passes over all of them."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest

from ppopt.clock import Clock
from ppopt.named import Restriction, find
from ppopt.named.in_turn import in_turn
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Mix, Pipeline, PipelineError
from ppopt.pipeline.scaling import alike
from ppopt.search import solve
from ppopt.search.binding import Binding
from ppopt.search.microbatch_turns import FAR, MicrobatchTurns, orders_in_all
from ppopt.search.verifying import verify
from tests.support.tiers import thorough


def drawn(rng: random.Random) -> tuple[Pipeline, str]:
    """Four to six microbatches of up to four lengths, or pieces of three sequences, on two or three devices, and a schedule."""
    name = rng.choice(["1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "hanayo", "looped-bfs", "seq1f1b"])
    placement = {"interleaved-1f1b": "loop", "looped-bfs": "loop", "hanayo": "wave"}.get(name, "linear")
    devices, chunks, pieces = rng.randint(2, 3), 1 if placement == "linear" else 2, 2 if name == "seq1f1b" else 1
    many = 2 * devices if chunks > 1 else rng.randint(4, 6) if pieces == 1 else 8
    held = rng.choice([None, "some"])
    lengths = [rng.choice([1, 1, 2, 3, 4, 6]) for _ in range(many)]
    quadratic = rng.randint(0, 2)
    costs = Costs(
        forward=rng.randint(2, 4),
        forward_quadratic=quadratic,
        backward_input=rng.randint(2, 4),
        backward_weight=rng.randint(1, 3),
    )
    memory = Memory(
        retained=rng.choice([None, Fraction(1, 2)]),
        working=rng.choice([None, Fraction(1, 2)]),
        limit=None if held is None else Fraction(sum(lengths) * rng.randint(4, 10), 10),
    )
    exchange = rng.choice([DataParallel(), DataParallel(all_gather=rng.randint(0, 3), reduce_scatter=2)])
    mix = Mix(lengths=lengths, length=2, microbatch_order="choose", pieces=pieces)
    links = Links(rng.randint(0, 2))
    return Pipeline(
        devices, many, placement, chunks, costs=costs, memory=memory, links=links, data_parallel=exchange, mix=mix
    ), name


def check(seed: int, examples: int) -> int:
    """How many of the examples fit the memory in no order."""
    rng, none = random.Random(seed), 0
    for _ in range(examples):
        try:
            pipeline, name = drawn(rng)
        except PipelineError:  # not one microbatch fits
            continue
        plain = alike(pipeline)
        binding = Binding(name, {"pieces": 2} if name == "seq1f1b" else {})
        order = find(name).order(plain, **binding.params)
        sequences = pipeline.mix.sequences(pipeline.microbatches)
        each = {tuple(m for s in turn for m in sequences[s]) for turn in itertools.permutations(range(len(sequences)))}
        timed = [in_turn(pipeline, order, turns) for turns in each]
        best = min((schedule.makespan for schedule in timed if schedule.within_memory), default=None)
        result = solve(pipeline, order=binding, seconds=30)
        none += best is None
        assert result.reason == ("infeasible" if best is None else "optimal"), (pipeline, name)
        assert result.ticks.value == best, (pipeline, name)
        over = MicrobatchTurns(pipeline, plain, order)
        for width in (1, 3, 10):
            for relaxed in (False, True) if over.ordered else (False,):
                found = over.passed(width, FAR, Clock(60), relaxed=relaxed)
                assert found is not None
                assert best is None or found.bound <= best, (pipeline, name, width, relaxed)
                assert not found.kinds or (best is not None and found.value >= best)
                assert not found.exact or (found.value == best if best is not None else not found.kinds)
    return none


def test_every_order_of_the_microbatches_is_tried() -> None:
    check(1, 2)


@thorough
def test_every_order_of_more_microbatches_is_tried() -> None:
    check(2, 20)


def test_what_a_rule_loses_and_what_is_proved() -> None:
    """One long sequence: 1F1B loses least where it is neither first nor last."""
    mix = Mix(lengths=[1, 8, 1, 1, 2, 2], length=1, microbatch_order="choose")
    pipeline = Pipeline(3, 6, costs=Costs(forward=1, backward=2), mix=mix)
    result = solve(pipeline, order="1f1b", seconds=30)
    assert result.reason == "optimal"
    assert result.proved_by == f"all {orders_in_all([3, 2, 1])} orders of the microbatches" == "all 60 orders of the microbatches"
    opinion = verify(result, seconds=30)
    assert opinion.only == ("microbatch_order",)
    assert opinion.confirmed is not False
    given = solve(pipeline.changed(mix=Mix(lengths=mix.lengths, length=1)), order="1f1b", seconds=30)
    assert given.value is not None
    assert result.value is not None
    assert result.value < given.value


@pytest.mark.parametrize(("links", "objective"), [(Links(0, 1), "makespan"), (Links(), "span")])
def test_what_the_passes_cannot_be_told_of_is_improved_by_moves(links: Links, objective: str) -> None:
    """The bound is that of any schedule; what is found is no worse than what others' rules give."""
    mix = Mix(microbatch_costs=[1, 5, 1, 2], microbatch_order="choose")
    pipeline = Pipeline(2, 4, costs=Costs(forward=1, backward=2), links=links, mix=mix)
    result = solve(pipeline, order="gpipe", objective=objective, seconds=0.02, deterministic=True)  # type: ignore[arg-type]
    assert result.schedule is not None
    assert result.reason in ("optimal", "feasible")
    rows = [row.schedule.objective(objective) for row in result.named if row.name == "gpipe" and row.schedule is not None]  # type: ignore[arg-type]
    assert result.ticks.value is not None
    assert result.ticks.lower_bound <= result.ticks.value <= min(rows, default=result.ticks.value)


def test_pieces_in_another_order_than_theirs_are_refused() -> None:
    pieces = Pipeline(2, 4, mix=Mix(microbatch_costs=[1, 5, 1, 2], microbatch_order="choose", pieces=2))
    with pytest.raises(Restriction, match="the pieces of a sequence run from its begin on"):
        solve(pieces, order="gpipe", seconds=1)
