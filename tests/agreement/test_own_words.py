"""Words of the user's own beside the rules: the best schedules under them, against an enumeration of all orders."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, permutations, product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ppopt import cpsat, ilp
from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import (
    Capacity,
    Exclusive,
    Family,
    Listed,
    OneOf,
    Precede,
    Stream,
    Word,
    own_words,
    pairs_of,
    rules_of,
)
from ppopt.op import Kind, Op
from ppopt.pipeline import Pipeline
from ppopt.search import horizon, solve
from ppopt.solvers.outcome import NotForIlp
from ppopt.timing import broken
from tests.support.strategies import any_words, few_ops, machines, words
from tests.support.tiers import drawn, thorough
from tests.support.words import Wait, found, starts

F, B, I, W = Kind  # noqa: E741


def stream_of(pipeline: Pipeline, stream: Stream) -> list[Op]:
    """Families and lists are all that is drawn."""
    if isinstance(stream, Listed):
        return [op for op in stream.ops if isinstance(op, Op)]
    assert isinstance(stream, Family)
    return [Op(stream.stage, stream.kind, m) for m in range(pipeline.microbatches)]


def clash(
    start: dict[Op, int], durations: dict[Op, int], exclusive: list[list[Op]], holds: list[Any]
) -> list[tuple[Op, Op]] | None:
    """Of what cannot be at once but is, the ways to put one behind the other; ``None``: all is well."""
    for ops in exclusive:
        for a, b in product(ops, ops):
            if a < b and start[a] < start[b] + durations[b] and start[b] < start[a] + durations[a]:
                return [(a, b), (b, a)]
    for limit, of in holds:
        spans = [(start[claim], start[release] + durations[release], amount, claim, release) for claim, release, amount in of]
        for time in {begin for begin, *_ in spans}:
            at = [span for span in spans if span[0] <= time < span[1]]
            if sum(amount for _, _, amount, _, _ in at) > limit:
                return [(release, claim) for _, _, _, _, release in at for _, _, _, claim, own in at if own != release]
    return None


def least(durations: dict[Op, int], waits: list[Wait], exclusive: list[list[Op]], holds: list[Any], most: int) -> int:
    """The least makespan below ``most``; else that."""
    start = starts(durations, waits)
    if start is None:
        return most
    value = max(time + durations[op] for op, time in start.items())
    if value >= most:
        return most
    ways = clash(start, durations, exclusive, holds)
    for a, b in ways or ():
        most = least(durations, [*waits, (a, b, 0)], exclusive, holds, most)
    return value if ways is None else most


def best(pipeline: Pipeline, words: Sequence[Word]) -> int | None:
    """The least makespan of all orders of one chunk per device under these words, without pairs; ``None``: there is none."""
    stages, microbatches, ticks = range(pipeline.stages), range(pipeline.microbatches), pipeline.ticks
    ways = [[(B,), (I, W)] if pipeline.costs.split else [(B,)]] * (pipeline.stages * pipeline.microbatches)
    least_yet = far = 10**6
    for way in product(*ways):
        kinds = dict(zip(product(stages, microbatches), way, strict=True))
        rows = [[Op(s, k, m) for m in microbatches for k in (F, *kinds[s, m])] for s in stages]
        ops = [op for row in rows for op in row]
        if not all(chosen_once(pipeline, word, set(ops)) for word in words if isinstance(word, OneOf)):
            continue
        durations = {op: int(ticks.duration[0, op.kind, op.stage]) for op in ops}
        waits: list[Wait] = []
        for s, m in product(stages, microbatches):
            first = Op(s, kinds[s, m][0], m)
            if s:
                back, lags = Op(s - 1, kinds[s - 1, m][0], m), (int(ticks.latency[s - 1, s]), int(ticks.latency[s, s - 1]))
                waits += [(Op(s - 1, F, m), Op(s, F, m), lags[0]), (first, back, lags[1])]
            waits += [(Op(s, F, m), first, 0)]
            waits += [(first, Op(s, W, m), 0)] if kinds[s, m] == (I, W) else []
        exclusive = []
        holds = []
        for word in words:
            if isinstance(word, Precede):
                ones, others = (stream_of(pipeline, stream) for stream in (word.before, word.after))
                pairs = [(ones[k - word.shift], other) for k, other in enumerate(others) if 0 <= k - word.shift < len(ones)]
                waits += [(a, b, word.lag) for a, b in pairs if a in durations and b in durations]
            elif isinstance(word, Exclusive):
                exclusive.append([op for stream in word.streams for op in stream_of(pipeline, stream) if op in durations])
            elif isinstance(word, Capacity):
                of = []
                for hold in word.holds:
                    for k, claim in enumerate(stream_of(pipeline, hold.claim)):
                        (release,) = (op for f in hold.release if (op := stream_of(pipeline, f)[k]) in durations)
                        of.append((claim, release, hold.amount))
                holds.append((word.limit, of))
        for order in product(*map(permutations, rows)):
            in_row = [(a, b, 0) for row in order for a, b in pairwise(row)]
            limit = pipeline.amounts.limit
            if limit is not None and any(peak(pipeline, row) > limit[d] for d, row in enumerate(order)):
                continue
            least_yet = least(durations, [*in_row, *waits], exclusive, holds, least_yet)
    return None if least_yet == far else least_yet


def peak(pipeline: Pipeline, row: Sequence[Op]) -> int:
    held = most = 0
    for op in row:
        activation, retained = (int(of[0, op.stage]) for of in (pipeline.amounts.activation, pipeline.amounts.retained))
        if op.kind == I and retained > activation:
            held += retained - activation
        held += activation * (op.kind == F)
        most = max(most, held)
        held -= {F: 0, B: activation, I: max(0, activation - retained), W: retained}[Kind(op.kind)]
    return most


def chosen_once(pipeline: Pipeline, word: OneOf, run: set[Op]) -> bool:
    columns = [[stream_of(pipeline, stream) for stream in streams] for streams in word.alternatives]
    for k in range(len(columns[0][0])):
        ways = [{column[k] for column in alternative} for alternative in columns]
        if sum(run & set().union(*ways) == way for way in ways) != 1:
            return False
    return True


@drawn(5, 25, few_ops().flatmap(lambda pipeline: st.tuples(st.just(pipeline), st.lists(words(pipeline), min_size=1, max_size=3))))
def test_solvers_and_an_enumeration_agree(case: tuple[Pipeline, list[Word]]) -> None:
    pipeline, words = case
    try:
        binding = own_words(pipeline, words)
    except ValueError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:  # a Hold may end with what no schedule runs
        assert refused.startswith("the constraints contradict") or "exactly one operation" in refused
        assert "contradict" not in refused or best(pipeline, words) is None
        return
    expected = best(pipeline, words)
    assert found(cpsat, pipeline, "makespan", binding) == expected
    result = solve(pipeline, constraints=words, seconds=20, workers=1)
    assert (result.reason, result.ticks.value) == (("optimal", expected) if expected is not None else ("infeasible", None))
    try:
        assert found(ilp, pipeline, "makespan", binding) == expected
    except NotForIlp:
        assert any(isinstance(word, Capacity) for word in words)
        with pytest.raises(NotForIlp):
            solve(pipeline, constraints=words, solver="ilp")
    else:
        assert solve(pipeline, constraints=words, solver="ilp", seconds=20, workers=1).ticks.value == expected


@pytest.mark.parametrize(("examples", "same"), [(5, 2), pytest.param(14, 8, marks=thorough)], ids=["few", "all"])
@pytest.mark.parametrize(("objective", "most_ops"), [("makespan", 18), ("span", 12)])
def test_what_is_added_to_the_words_loses_nothing(objective: Objective, most_ops: int, examples: int, same: int) -> None:
    """Cuts, bounds, starts and free choices that are ruled out, against a model of the rules and the words alone."""
    count: Counter[str] = Counter()
    of = machines(most_ops).flatmap(
        lambda pipeline: st.tuples(st.just(pipeline), st.lists(any_words(pipeline), min_size=1, max_size=2))
    )

    @settings(max_examples=examples)
    @given(of)
    @example((Pipeline(2, 2), [Precede(Family(1, F), Family(0, F))]))  # infeasible
    def on(case: tuple[Pipeline, list[Word]]) -> None:
        pipeline, words = case
        try:
            own_words(pipeline, words)
        except ValueError:
            return  # they are refused
        result = solve(pipeline, objective=objective, constraints=words, seconds=60, workers=1)
        until = horizon(pipeline, words)
        plain = cpsat.solve(
            pipeline,
            (*rules_of(pipeline), *words, *pairs_of(pipeline, full=True)),
            objective=objective,
            lower=0,
            upper=until,
            horizon=until * (pipeline.devices if objective == "span" else 1),
            limits=Limits.of(10, workers=1),
        )
        if result.reason == "infeasible":
            assert plain.schedule is None
            count["infeasible"] += plain.lower_bound > until
            return
        assert result.reason == "optimal"
        assert result.schedule is not None
        assert violations(pipeline, result.schedule) == []
        assert broken(result.schedule, result.binding) == []
        assert plain.lower_bound <= result.ticks.value
        if plain.schedule is not None:
            assert plain.schedule.objective(objective) >= result.ticks.value
            count["same"] += plain.lower_bound == plain.schedule.objective(objective)

    on()
    assert count["same"] >= same
    assert count["infeasible"] >= 1
