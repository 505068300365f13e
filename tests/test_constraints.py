"""Words of the user's own beside the rules: the best schedules under them, against an enumeration of all orders."""

import random
from collections.abc import Sequence
from itertools import permutations, product
from typing import Any

import pytest
from random_pipelines import random_machine

from ppopt.bounds import Objective
from ppopt.check import violations
from ppopt.constraints import (
    Capacity,
    Dealt,
    Exclusive,
    Family,
    Hold,
    Listed,
    OneOf,
    Precede,
    Stream,
    Together,
    Word,
    chain,
    own_words,
    pairs_of,
    rules_of,
)
from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Schedule
from ppopt.solve import horizon, solve
from ppopt.solvers import cpsat, ilp
from ppopt.solvers.outcome import Limits, NotForIlp
from ppopt.timing.obeys import broken

F, B, I, W = Kind  # noqa: E741

# --- all orders, one by one --------------------------------------------------------------------------------------

Wait = tuple[Op, Op, int]


def stream_of(pipeline: Pipeline, stream: Stream) -> list[Op]:
    """Families and lists are all that is drawn."""
    if isinstance(stream, Listed):
        return [op for op in stream.ops if isinstance(op, Op)]
    assert isinstance(stream, Family)
    return [Op(stream.stage, stream.kind, m) for m in range(pipeline.microbatches)]


def starts(durations: dict[Op, int], waits: Sequence[Wait]) -> dict[Op, int] | None:
    """The earliest starts; ``None``: operations wait for each other."""
    start = dict.fromkeys(durations, 0)
    for _ in range(len(durations) + 1):
        moved = False
        for a, b, lag in waits:
            if start[a] + durations[a] + lag > start[b]:
                start[b], moved = start[a] + durations[a] + lag, True
        if not moved:
            return start
    return None


def clash(start: dict[Op, int], durations: dict[Op, int], exclusive: list[list[Op]], holds: list[Any]) -> list[tuple[Op, Op]] | None:
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
            in_row = [(a, b, 0) for row in order for a, b in zip(row, row[1:], strict=False)]
            limit = pipeline.amounts.limit
            if limit is not None and any(peak(pipeline, row) > limit[d] for d, row in enumerate(order)):
                continue
            least_yet = least(durations, [*in_row, *waits], exclusive, holds, least_yet)
    return None if least_yet == far else least_yet


def peak(pipeline: Pipeline, row: Sequence[Op]) -> int:
    held = most = 0
    for op in row:
        activation, retained = (int(of[0, op.stage]) for of in (pipeline.amounts.activation, pipeline.amounts.retained))
        held += activation * (op.kind == F)
        most = max(most, held)
        held -= {F: 0, B: activation, I: activation - retained, W: retained}[Kind(op.kind)]
    return most


def chosen_once(pipeline: Pipeline, word: OneOf, run: set[Op]) -> bool:
    columns = [[stream_of(pipeline, stream) for stream in streams] for streams in word.alternatives]
    for k in range(len(columns[0][0])):
        ways = [{column[k] for column in alternative} for alternative in columns]
        if sum(run & set().union(*ways) == way for way in ways) != 1:
            return False
    return True


# --- random pipelines and words ----------------------------------------------------------------------------------


def small(rng: random.Random) -> Pipeline:
    devices, microbatches, split = rng.choice([(2, 2, False), (2, 2, False), (3, 1, True), (2, 1, True), (1, 2, True)])
    costs: dict[str, Any] = {"forward": [rng.randint(1, 3) for _ in range(devices)]}
    if split:
        costs |= {"backward_input": rng.randint(1, 3), "backward_weight": rng.randint(1, 2)}
        if rng.random() < 0.5:
            costs |= {"backward": rng.randint(1, 5)}
    else:
        costs |= {"backward": [rng.randint(1, 3) for _ in range(devices)]}
    return Pipeline(
        devices,
        microbatches,
        costs=Costs(**costs),
        links=Links(rng.choice([0, 0, 1, 2])),
        memory=Memory(limit=rng.choice([None, None, 1, 2])),
    )


def draw_stream(rng: random.Random, pipeline: Pipeline, kinds: Sequence[Kind]) -> Stream:
    if rng.random() < 0.5:
        return Family(rng.randrange(pipeline.stages), rng.choice(kinds))
    count = rng.choice([1, 1, 2])
    ops = {Op(rng.randrange(pipeline.stages), rng.choice(kinds), rng.randrange(pipeline.microbatches)) for _ in range(count)}
    return Listed(tuple(rng.sample(sorted(ops), len(ops))))


def draw_word(rng: random.Random, pipeline: Pipeline) -> Word:
    kinds = (F, B, I, W) if pipeline.costs.split else (F, B)
    kind = rng.choice(["precede"] * 4 + ["one of", "exclusive", "capacity"])
    if kind == "exclusive":
        return Exclusive((draw_stream(rng, pipeline, kinds), draw_stream(rng, pipeline, kinds)))
    if kind == "capacity":
        release = (B, W) if pipeline.costs.split else (B,)
        stages = rng.sample(range(pipeline.stages), rng.randint(1, pipeline.stages))
        holds = [Hold(Family(s, F), tuple(Family(s, k) for k in release), rng.randint(1, 2)) for s in stages]
        return Capacity(tuple(holds), rng.randint(1, 4))
    if kind == "one of" and pipeline.costs.split:
        stage, m = rng.randrange(pipeline.stages), rng.randrange(pipeline.microbatches)
        other = rng.randrange(pipeline.stages)
        ways: list[OneOf] = [
            OneOf(((Family(stage, B),),)),
            OneOf(((Family(stage, I), Family(stage, W)),)),
            OneOf(((Listed((Op(stage, B, m),)),),)),
        ]
        if other != stage:
            ways.append(OneOf(((Family(stage, B),), (Family(other, B),))))
            ways.append(OneOf(((Family(stage, B), Family(other, B)), (Family(stage, I), Family(other, I)))))
        return rng.choice(ways)
    while True:
        before, after = (draw_stream(rng, pipeline, kinds) for _ in range(2))
        word = Precede(before, after, rng.choice([0, 0, 1, -1]), rng.choice([0, 0, 1, 3]))
        if before != after or word.shift > 0:
            return word


def found(solver: Any, pipeline: Pipeline, objective: Objective, binding: Sequence[Word]) -> int | None:
    """What a solver says without any bound or start; ``None``: there is no schedule."""
    until = horizon(pipeline, binding)
    outcome = solver.solve(
        pipeline,
        (*rules_of(pipeline), *binding),
        objective=objective,
        lower=0,
        upper=until,
        horizon=until,
        limits=Limits(30, workers=1),
    )
    if outcome.schedule is None:
        assert outcome.lower_bound > until
        return None
    obeyed(outcome.schedule, binding)
    value: int = outcome.schedule.objective(objective)
    assert outcome.lower_bound == value
    return value


def obeyed(schedule: Schedule, words: Sequence[Word]) -> None:
    assert violations(schedule.pipeline, schedule) == []
    assert broken(schedule, words) == []


@pytest.mark.parametrize("seed", range(50))
def test_solvers_and_an_enumeration_agree(seed: int) -> None:
    rng = random.Random(seed)
    pipeline = small(rng)
    words = [draw_word(rng, pipeline) for _ in range(rng.randint(1, 3))]
    try:
        binding = own_words(pipeline, words)
    except ValueError as error:
        assert "contradict" in str(error) or "exactly one operation" in str(error)
        if "contradict" in str(error):
            assert best(pipeline, words) is None
        return
    expected = best(pipeline, words)
    assert found(cpsat, pipeline, "makespan", binding) == expected
    result = solve(pipeline, constraints=words, time_limit=20, workers=1)
    assert (result.reason, result.value) == (("optimal", expected) if expected is not None else ("infeasible", None))
    try:
        assert found(ilp, pipeline, "makespan", binding) == expected
    except NotForIlp:
        assert any(isinstance(word, Capacity) for word in words)
        with pytest.raises(NotForIlp):
            solve(pipeline, constraints=words, solver="ilp")
    else:
        assert solve(pipeline, constraints=words, solver="ilp", time_limit=20, workers=1).value == expected


# --- everything that a pipeline may have -------------------------------------------------------------------------


def draw_more(rng: random.Random, pipeline: Pipeline) -> Word:
    """Words over streams of any kind, pairs that are asked for among them."""
    stage, route = rng.randrange(pipeline.stages), rng.randrange(len(pipeline.routes))
    kinds = (F, B, I, W) if pipeline.costs.split else (F, B)
    kind = rng.choice(["draw", "draw", "dealt", "together", "limit", "alike"])
    if kind == "dealt":
        families = tuple(Family(s, rng.choice(kinds), route) for s in rng.sample(range(pipeline.stages), min(2, pipeline.stages)))
        stream = Dealt(families, rng.randint(1, 2), descending=rng.random() < 0.3)
        return rng.choice([chain(stream), Precede(Family(stage, F, route), stream, 0, rng.randint(0, 2))])
    if kind == "together" and pipeline.costs.overlap is not None:
        return Together(Family(stage, F, route), Family(stage, B, route), shift=rng.randint(1, 2))
    if kind == "limit":
        release = (B, W) if pipeline.costs.split else (B,)
        return Capacity((Hold(Family(stage, F, route), tuple(Family(stage, k, route) for k in release), 1),), rng.randint(1, 2))
    if kind == "alike":
        other = rng.randrange(pipeline.stages)
        return Precede(Family(stage, F, route), Family(other, F, route), rng.randint(1, 2), rng.randint(0, 2))
    word = draw_word(rng, pipeline)
    return draw_more(rng, pipeline) if isinstance(word, Capacity) and len(pipeline.routes) > 1 else word


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("seed", range(25))
def test_what_is_added_to_the_words_loses_nothing(seed: int, objective: Objective) -> None:
    """Cuts, bounds, starts and free choices that are ruled out, against a model of the rules and the words alone."""
    rng = random.Random(seed)
    pipeline = random_machine(rng, 24)
    words = [draw_more(rng, pipeline) for _ in range(rng.randint(1, 2))]
    try:
        own_words(pipeline, words)
    except ValueError:
        return
    result = solve(pipeline, objective=objective, constraints=words, time_limit=20, workers=1)
    asked = [word for word in result.binding if isinstance(word, OneOf) and any(isinstance(word, Together) for word in words)]
    plain = (*rules_of(pipeline), *words, *asked, *pairs_of(pipeline, full=True))
    until = horizon(pipeline, words)
    outcome = cpsat.solve(
        pipeline,
        plain,
        objective=objective,
        lower=0,
        upper=until,
        horizon=until * (pipeline.devices if objective == "span" else 1),
        limits=Limits(20, workers=1),
    )
    if result.reason == "infeasible":
        assert outcome.schedule is None
        assert outcome.lower_bound > until
        return
    assert result.reason == "optimal"
    assert result.schedule is not None
    assert violations(pipeline, result.schedule) == []
    assert broken(result.schedule, result.binding) == []
    assert outcome.schedule is not None
    assert outcome.lower_bound == outcome.schedule.objective(objective) == result.value
