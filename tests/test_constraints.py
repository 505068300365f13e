"""Words of the user's own beside the rules: the best schedules under them, against an enumeration of all orders."""

import json
import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_pipelines import random_machine

from ppopt import cpsat, ilp
from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import (
    Capacity,
    Dealt,
    Exclusive,
    Family,
    Hold,
    Listed,
    OneOf,
    Pairable,
    Precede,
    Stream,
    Together,
    Word,
    chain,
    own_words,
    pairs_of,
    rules_of,
)
from ppopt.files import read_result, result_dict
from ppopt.named import find
from ppopt.op import Kind, Op, Pair, Send
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.search import Binding, horizon, model_text, solve, verify
from ppopt.solvers.outcome import NotForIlp
from ppopt.timing import broken, time_order

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
        limits=Limits.of(30, workers=1),
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


@pytest.mark.parametrize("seed", range(24))
def test_solvers_and_an_enumeration_agree(seed: int) -> None:
    rng = random.Random(seed)
    pipeline = small(rng)
    words = [draw_word(rng, pipeline) for _ in range(rng.randint(1, 3))]
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
@pytest.mark.parametrize("seed", range(12))
def test_what_is_added_to_the_words_loses_nothing(seed: int, objective: Objective) -> None:
    """Cuts, bounds, starts and free choices that are ruled out, against a model of the rules and the words alone."""
    rng = random.Random(seed)
    pipeline = random_machine(rng, 24 if objective == "makespan" else 13)
    words = [draw_more(rng, pipeline) for _ in range(rng.randint(1, 2))]
    try:
        own_words(pipeline, words)
    except ValueError:
        return
    result = solve(pipeline, objective=objective, constraints=words, seconds=20, workers=1)
    plain = (*rules_of(pipeline), *words, *pairs_of(pipeline, full=True))
    until = horizon(pipeline, words)
    outcome = cpsat.solve(
        pipeline,
        plain,
        objective=objective,
        lower=0,
        upper=until,
        horizon=until * (pipeline.devices if objective == "span" else 1),
        limits=Limits.of(20, workers=1),
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
    assert outcome.lower_bound == outcome.schedule.objective(objective) == result.ticks.value


# --- with named schedules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1", "pipedream"])
def test_a_named_schedules_own_words_are_its_order(name: str) -> None:
    pipeline = Pipeline(3, 6, costs=Costs(forward=2, backward_input=3, backward_weight=1), links=Links(1))
    words = find(name).words(pipeline)
    bound, own = solve(pipeline, order=name), solve(pipeline, constraints=words)
    assert bound.schedule is not None
    assert own.schedule is not None
    assert (own.reason, own.ticks.value, own.ticks.lower_bound) == (bound.reason, bound.ticks.value, bound.ticks.lower_bound)
    assert own.schedule.order == bound.schedule.order


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-h2", "gpipe"])
def test_the_best_under_words_is_between_the_best_and_a_schedule_that_obeys_them(name: str) -> None:
    pipeline = Pipeline(3, 5, costs=Costs(forward=[2, 3, 2], backward_input=2, backward_weight=1), memory=Memory(limit=5))
    free = solve(pipeline)
    schedule = find(name).schedule(pipeline)
    assert free.ticks.value is not None
    relations = [word for word in find(name).words(pipeline) if isinstance(word, Precede)]
    for words in (relations, relations[::2], relations[1::3]):
        result = solve(pipeline, constraints=words)
        assert result.reason == "optimal"
        assert result.schedule is not None
        assert result.ticks.value is not None
        assert not broken(schedule, words)
        assert free.ticks.value <= result.ticks.value <= schedule.makespan
        obeyed(result.schedule, result.binding)


def test_words_bind_together_with_a_named_order() -> None:
    pipeline = Pipeline(3, 4)
    wait = Precede(Family(2, F), Family(0, F), shift=2, lag=8)  # across devices
    alone, both = solve(pipeline, order="1f1b"), solve(pipeline, order="1f1b", constraints=[wait])
    assert alone.schedule is not None
    assert both.schedule is not None
    assert both.reason == "optimal"
    assert both.proved_by == "the binding order, which leaves nothing open"
    assert both.schedule.order == alone.schedule.order
    assert alone.ticks.value is not None
    assert both.ticks.value is not None
    assert both.ticks.value > alone.ticks.value
    assert broken(alone.schedule, [wait])
    obeyed(both.schedule, both.binding)
    later = solve(pipeline, order=Binding("1f1b", free=(B,)), constraints=[wait])
    assert later.ticks.value is not None
    assert later.ticks.value <= both.ticks.value
    against = Precede(Listed((Op(0, B, 0),)), Listed((Op(0, F, 1),)))  # 1F1B begins with three forwards on device 0
    assert solve(pipeline, order="1f1b", constraints=[against]).reason == "infeasible"


def test_a_word_with_a_lag_is_waited_for_on_one_device_too() -> None:
    pipeline = Pipeline(1, 3)
    words = [chain(Family(0, F)), Precede(Family(0, F), Family(0, B), lag=5), *find("gpipe").words(pipeline)]
    result = solve(pipeline, constraints=words)
    assert result.schedule is not None
    assert (result.reason, result.ticks.value) == ("optimal", 12)
    assert solve(pipeline, constraints=words, objective="span").ticks.value == 12


def test_what_a_device_does_is_fixed_by_one_word() -> None:
    """Weight gradients of a stage at the end: an optimum that is worse, and still proved."""
    pipeline = Pipeline(3, 4, memory=Memory(limit=4))
    free = solve(pipeline)
    last: list[Word] = [
        chain(Family(0, I)),
        chain(Family(0, W)),
        Precede(Family(0, I), Family(0, W), shift=1 - 4),
        OneOf(((Family(0, I), Family(0, W)),)),
    ]
    result = solve(pipeline, constraints=last)
    assert result.reason == "optimal"
    assert result.schedule is not None
    assert [str(op)[1] for op in result.schedule.order.ops(0)][-4:] == ["W"] * 4
    assert result.ticks.value is not None
    assert free.ticks.value is not None
    assert result.ticks.value >= free.ticks.value
    opinion = verify(result, seconds=20)
    assert opinion.confirmed
    assert "minimise the makespan" in model_text(result)
    assert "minimise the makespan" in model_text(result, "ilp")


def test_free_choices_stay_open_under_words_of_forwards_only() -> None:
    """A backward is cheaper in one operation here; words about forwards must not settle how it is run."""
    pipeline = Pipeline(2, 3, costs=Costs(forward=2, backward_input=2, backward_weight=2, backward=3))
    words = [Precede(Family(0, F), Family(1, F), lag=1)]
    result = solve(pipeline, constraints=words)
    assert result.reason == "optimal"
    split_only = solve(pipeline, constraints=[*words, *(OneOf(((Family(s, I), Family(s, W)),)) for s in range(2))])
    assert split_only.ticks.value is not None
    assert result.ticks.value is not None
    assert result.ticks.value < split_only.ticks.value


def test_pairs_that_save_time_stay_open_and_can_be_asked_for() -> None:
    pipeline = Pipeline(2, 4, costs=Costs(forward=2, backward_input=2, backward_weight=2, overlap=4))
    words = [Precede(Family(0, F), Family(1, F), lag=1)]
    result = solve(pipeline, constraints=words)
    assert result.schedule is not None
    assert result.reason == "optimal"
    assert result.schedule.order.paired
    asked = solve(pipeline, constraints=[Together(Listed((Op(1, F, 1),)), Listed((Op(1, B, 0),)))])
    assert asked.schedule is not None
    assert "(1F1;1B0)OVERLAP_F_B" in asked.schedule.order.texts()[1]
    assert asked.reason == "optimal"


def test_one_transfer_of_two_devices_at_a_time() -> None:
    """What takes a resource that two devices share: their forwards never run at once."""
    pipeline = Pipeline(2, 4)
    word = Exclusive((Family(0, F), Family(1, F)))
    result = solve(pipeline, constraints=[word])
    assert result.reason == "optimal"
    assert result.schedule is not None
    obeyed(result.schedule, [*result.binding, word])
    assert solve(pipeline, constraints=[word], objective="span").reason == "optimal"
    free = solve(pipeline)
    assert free.schedule is not None
    assert broken(free.schedule, [word])


# --- no schedule at all ------------------------------------------------------------------------------------------


def test_words_that_no_schedule_can_obey_are_infeasible() -> None:
    pipeline = Pipeline(2, 2)
    before_data = Precede(Family(1, F), Family(0, F))
    for solver in ("auto", "ilp"):
        result = solve(pipeline, constraints=[before_data], solver=solver)
        assert result.reason == "infeasible"
        assert result.schedule is None
    assert verify(solve(pipeline, constraints=[before_data])).confirmed
    full = Capacity((Hold(Family(0, F), (Family(0, B), Family(0, W)), 2),), 1)
    assert solve(pipeline, constraints=[full]).reason == "infeasible"


@pytest.mark.parametrize(
    ("word", "error", "text"),
    [
        ("0F before 0B", TypeError, "expected a word of ppopt.constraints"),
        (Pairable((Family(0, F),), (Family(0, B),)), TypeError, "Pairable is not taken"),
        (Precede(Family(0, F), "0B"), TypeError, "expected a stream"),  # type: ignore[arg-type]
        (Precede(Family(4, F), Family(0, F)), ValueError, "there is no stage 4; stages are 0..1"),
        (Precede(Family(0, F, 1), Family(0, F)), ValueError, "there is no route 1"),
        (Precede(Listed((Op(0, F, 7),)), Family(0, F)), ValueError, "there is no microbatch 7"),
        (Precede(Family(0, F), Family(0, B), lag=-1), ValueError, "lag: expected ticks >= 0, got -1"),
        (Precede(Family(0, F), Family(0, B), lag=Fraction(1, 2)), TypeError, "lag: expected a whole number"),  # type: ignore[arg-type]
        (Precede(Family(0, Send.SEND_F), Family(0, B)), ValueError, "transfers are not taken in constraints"),
        (OneOf(()), ValueError, "at least one alternative"),
        (OneOf(((Family(0, B),), (Listed((Op(1, B, 0),)),))), ValueError, "the same number of operations"),
        (OneOf(((Family(0, B),), (Family(0, B), Family(1, B)))), ValueError, "0B0 is in it more than once"),
        (Together(Family(0, B), Family(0, F)), ValueError, "a pair is a forward and a full backward"),
        (Together(Family(0, F), Family(1, B)), ValueError, "0F0 is on device 0 and 1B0 on device 1"),
        (Exclusive((Listed((Pair(Op(0, F, 1), Op(0, B, 0)),)),)), ValueError, "expected single operations"),
        (Capacity((Hold(Family(0, B), (Family(0, W),), 1),), 1), ValueError, "a Hold begins with a forward"),
        (Capacity((Hold(Family(1, F), (Family(0, F),), 1),), 1), ValueError, "comes later than its begin"),
        (Capacity((Hold(Family(0, F), (Family(0, B),), 1),), 1), ValueError, "exactly one operation that is run"),
        (Capacity((Hold(Family(0, F), (Family(0, B), Family(0, W)), 1),), -1), ValueError, "a limit >= 0"),
    ],
)
def test_words_that_are_not_taken_say_why(word: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        solve(Pipeline(2, 2), constraints=[word])


def test_words_that_contradict_each_other_are_refused_before_any_search() -> None:
    words = [OneOf(((Family(0, B),),)), OneOf(((Listed((Op(0, I, 1),)),),))]
    with pytest.raises(ValueError, match=r"the constraints contradict each other: 0[BIW]1 is both required and excluded"):
        solve(Pipeline(2, 2), constraints=words)
    with pytest.raises(ValueError, match="contradict each other"):
        solve(Pipeline(2, 2), order="1f1b", constraints=[OneOf(((Family(0, I), Family(0, W)),))])
    fused = Pipeline(2, 2, costs=Costs(forward=1, backward=2))
    with pytest.raises(ValueError, match="the costs give backward alone"):
        solve(fused, constraints=[Precede(Family(0, I), Family(0, F))])
    with pytest.raises(ValueError, match='recompute is "choose"'):
        own_words(
            Pipeline(2, 2, costs=Costs(recompute=1), memory=Memory(recompute_saved=1), recompute="choose"), [chain(Family(0, F))]
        )


# --- many operations ---------------------------------------------------------------------------------------------


def test_large_pipelines_have_an_answer_under_words() -> None:
    pipeline = Pipeline(8, 300, memory=Memory(limit=8))
    words = [Precede(Family(7, F), Family(0, F), shift=8, lag=1), Exclusive((Family(0, F), Family(1, F)))]
    result = solve(pipeline, constraints=words, seconds=5, workers=1)
    assert result.schedule is not None
    obeyed(result.schedule, result.binding)
    assert 0 < result.ticks.lower_bound <= result.schedule.makespan
    assert result.seconds < 60


# --- what breaks a word is seen ----------------------------------------------------------------------------------


def moved(schedule: Schedule, op: Op, ticks: int) -> Schedule:
    """One operation later, nothing else."""
    starts = [column.copy() for column in schedule.start]
    for row, column in zip(schedule.order.rows, starts, strict=True):
        column[row == schedule.pipeline.index.number(op)] += ticks
    return Schedule(schedule.pipeline, schedule.order, tuple(starts), schedule.transfers)


def test_every_word_is_broken_by_some_schedule_and_told() -> None:
    pipeline = Pipeline(2, 2, costs=Costs(overlap=2))
    order = Order.of(pipeline, [["0F0", "0F1", "0I0", "0W0", "0B1"], ["1F0", "(1F1;1B0)OVERLAP_F_B", "1B1"]])
    schedule = time_order(pipeline, order)
    pair = Together(Listed((Op(1, F, 1),)), Listed((Op(1, B, 0),)))
    kept: list[Word] = [
        pair,
        Precede(Family(0, F), Family(1, F)),
        Precede(Family(1, B), Family(0, B)),
        Exclusive((Family(0, F), Family(0, I))),
        OneOf(((Family(1, B),),)),
        OneOf(((Listed((Op(0, B, 0),)),), (Listed((Op(0, I, 0),)),))),
        Capacity((Hold(Family(0, F), (Family(0, B), Family(0, W)), 1),), 2),
        Capacity((Hold(Family(0, F), (Family(1, F),), 1),), 2),
        chain(Listed((Op(0, F, 0), Op(0, F, 1), Op(0, W, 0)))),
        chain(Dealt((Family(0, F), Family(0, W)), 2)),
    ]
    assert broken(schedule, kept) == []
    wrong: dict[str, Word] = {
        "1F0 starts at 1, before the end of 0F0 at 1 + 1": Precede(Family(0, F), Family(1, F), lag=1),
        "do not run as a pair": Together(Listed((Op(0, F, 1),)), Listed((Op(0, B, 1),))),
        "exclude each other": Exclusive((Family(0, F), Family(1, F))),
        "0B0: nothing is run": OneOf(((Family(0, B),),)),
        "2 are held at 1, with room for 1": Capacity((Hold(Family(0, F), (Family(0, B), Family(0, W)), 1),), 1),
        "runs without a forward": Pairable((Family(1, F),), (Family(1, B),), alone=False),
    }
    for text, word in wrong.items():
        assert any(text in line for line in broken(schedule, [pair, word])), text
    assert broken(schedule, [chain(Family(0, F))]) == ["1F1 and 1B0 run as a pair, which no word allows"]


@pytest.mark.parametrize("seed", range(40))
def test_a_schedule_that_is_shifted_until_a_word_breaks_is_caught(seed: int) -> None:
    """Whatever starts as early as it can: its words' ``before`` later, and the word is broken, and told by name."""
    rng = random.Random(seed)
    pipeline = small(rng)
    fused = [OneOf(((Family(s, B),),)) for s in range(pipeline.stages)] if pipeline.costs.split else []
    relation = Precede(Family(0, F), Family(pipeline.stages - 1, F), rng.choice([0, 1]), rng.randint(1, 3))
    limited = Exclusive(tuple(Family(s, F) for s in range(pipeline.stages)))
    result = solve(pipeline, constraints=[relation, limited, *fused], seconds=20, workers=1)
    if result.schedule is None:
        return
    assert broken(result.schedule, result.binding) == []
    columns = starts_of(result.schedule)
    for k in range(relation.shift, pipeline.microbatches):
        a, b = Op(0, F, k - relation.shift), Op(pipeline.stages - 1, F, k)
        room = columns[b][0] - (columns[a][1] + relation.lag)
        assert broken(moved(result.schedule, a, room), [relation]) == [] or room == 0
        found = broken(moved(result.schedule, a, room + 1), [relation])
        assert len([line for line in found if f"{b} starts" in line]) >= 1


def starts_of(schedule: Schedule) -> dict[Op, tuple[int, int]]:
    rows = zip(schedule.order.rows, schedule.start, schedule.end, strict=True)
    op = schedule.pipeline.index.op
    return {op(int(n)): (int(a), int(b)) for row in rows for n, a, b in zip(*row, strict=True)}  # type: ignore[misc]


def test_an_answer_that_breaks_a_word_is_never_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the times of list schedules to forget the words, and nobody to look at them there, the result would be refused."""
    import ppopt.timing.timed as timed
    from ppopt.search import problem
    from ppopt.search.steps import list_schedules
    from ppopt.timing.demands import NO_DEMANDS

    words = [Precede(Family(2, F), Family(0, F), shift=1, lag=2)]
    assert solve(Pipeline(3, 3), constraints=words, seconds=20, workers=1).reason == "optimal"
    monkeypatch.setattr(timed, "demands_of", lambda pipeline, words: NO_DEMANDS)
    for module in (list_schedules, problem):
        monkeypatch.setattr(module, "broken", lambda schedule, words: [])
    with pytest.raises(AssertionError, match="breaks a constraint: 2F"):
        solve(Pipeline(3, 3), constraints=words, seconds=20, workers=1)


def test_times_wait_for_words_between_devices_with_links_that_are_held() -> None:
    pipeline = Pipeline(2, 3, links=Links(1, occupancy=1))
    wait = Precede(Family(1, F), Family(0, F), shift=1, lag=4)
    order = find("1f1b").order(pipeline)
    schedule = time_order(pipeline, order, words=[wait])
    assert broken(time_order(pipeline, order), [wait])
    obeyed(schedule, [wait])
    assert np.array_equal(np.diff(schedule.start[0][:2]), [1 + 2 + 1 + 4])  # 0F0, its transfer, 1F0, the wait
    result = solve(pipeline, constraints=[wait], seconds=20)
    assert result.reason == "optimal"


def test_a_results_file_says_which_words_bound(tmp_path: Path) -> None:
    pipeline = Pipeline(2, 3)
    words = [Precede(Family(1, F), Family(0, F), shift=1, lag=2), Exclusive((Family(0, F), Family(1, F)))]
    result = solve(pipeline, constraints=words)
    assert result.constraints == tuple(words)
    tree = result_dict(result)
    assert tree["result"]["constraints"] == ["1F(k-1) + 2 < 0F(k)", "one at a time: 0F, 1F"]
    path = tmp_path / "r.json"
    path.write_text(json.dumps(tree))
    assert read_result(str(path)).schedule is not None
    assert "constraints" not in result_dict(solve(pipeline))["result"]
