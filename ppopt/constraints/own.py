"""Words of the user's own, beside the rules: which are taken, and what they leave open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from ppopt.constraints.checked import check_words, streams_of
from ppopt.constraints.cuts import free_choices
from ppopt.constraints.expansion import chosen, instances, operations
from ppopt.constraints.pairs import pairs_of
from ppopt.constraints.pieces import in_pieces
from ppopt.constraints.rules import rules_of
from ppopt.constraints.words import (
    Capacity,
    Dealt,
    Exclusive,
    Family,
    Hold,
    Lead,
    Listed,
    Maybe,
    OneOf,
    Pairable,
    Precede,
    Stream,
    Tail,
    Together,
    Turns,
    Word,
    select,
)
from ppopt.op import HOPS, Kind, Op, Pair, Send
from ppopt.pipeline import CHOOSE, IntArray, Pipeline


def own_words(pipeline: Pipeline, words: Iterable[Word], named: Sequence[Word] = ()) -> tuple[Word, ...]:
    """All words that bind beside the rules: ``named``, those of a named schedule, then ``words``, and what both leave open.

    A named schedule says what is run. Words of the user's own mostly do not: without ``named`` a backward stays a choice where
    they leave it open, and so do the overlapped pairs that save time. What :func:`~ppopt.constraints.cuts.free_choices` rules
    out, because it is never better, is ruled out here too where no word is about backwards of any kind: in a schedule that is
    made better that way forwards start when they did and end no later.

    Raises:
        TypeError: a word that is not known, or not taken from users (``Pairable``).
        ValueError: a word is about what this pipeline does not have, or the words contradict each other.
    """
    words = tuple(words)
    if pipeline.recompute == CHOOSE:
        raise ValueError('constraints need to know which stages recompute; pipeline.recompute is "choose"')
    check_words(pipeline, words)
    words = in_pieces(pipeline, words)
    for word in words:
        _check(pipeline, word)
    _check_pairs(pipeline, words)
    binding = (*named, *words)
    try:
        forced, free = chosen(pipeline, (*rules_of(pipeline), *binding))
    except ValueError as error:
        raise ValueError(f"the constraints contradict each other: {error}") from error
    run = np.zeros((2, pipeline.index.size), dtype=bool)
    run[0, forced], run[1, free] = True, True
    for capacity in select(words, Capacity):
        for hold in capacity.holds:
            _check_hold(pipeline, hold, run)
    return binding if named else (*binding, *_choices(pipeline, binding))


def spread(pipeline: Pipeline, word: Word) -> bool:
    """Whether an ``Exclusive`` or a ``Capacity`` is about computations of several devices, so that no order implies it.

    Raises:
        TypeError: a word that is not known here, which orders may not imply either.
    """
    if isinstance(word, Precede | Together | Pairable | OneOf | Maybe | Lead | Tail | Turns):
        return False
    if not isinstance(word, Exclusive | Capacity):
        raise TypeError(f"unknown word {word!r}")
    devices = set()
    for stream in streams_of(word):
        families = stream.families if isinstance(stream, Dealt) else (stream,)
        for family in families:
            if isinstance(family, Family) and family.kind in HOPS:
                continue
            if isinstance(family, Family):
                devices.add(device_of_family(pipeline, family))
            else:
                devices |= {_device(pipeline, op) for op in _singles(family)}
    return len(devices) > 1


def device_of_family(pipeline: Pipeline, family: Family) -> int:
    """The device that runs a family of computations, or whose activations are copied."""
    kind = family.kind if isinstance(family.kind, Kind) else Kind.F
    return int(pipeline.device_by_kind[family.route, kind, family.stage])


def _device(pipeline: Pipeline, op: Op) -> int:
    return int(pipeline.device_by_kind[pipeline.route_of_microbatch[op.microbatch], op.kind, op.stage])


def _choices(pipeline: Pipeline, words: Sequence[Word]) -> tuple[Word, ...]:
    """What stays open, without what is surely no better."""
    kinds = {kind for word in words for stream in streams_of(word) for kind in kinds_of(stream)}
    return pairs_of(pipeline, full=True) if kinds & {Kind.B, Kind.I, Kind.W} else free_choices(pipeline)


def kinds_of(stream: Stream) -> set[Kind | Send]:
    """The kinds of a stream's operations."""
    if isinstance(stream, Family):
        return {stream.kind}
    if isinstance(stream, Dealt):
        return {family.kind for family in stream.families}
    return {op.kind for op in _singles(stream)}


def _singles(stream: Listed) -> list[Op]:
    return [half for op in stream.ops for half in (op if isinstance(op, Pair) else (op,))]


def _check(pipeline: Pipeline, word: Word) -> None:
    """Nothing, where users may say this word of this pipeline."""
    if isinstance(word, Lead | Tail | Turns):
        raise TypeError(f"{type(word).__name__} is not taken as a constraint: it is a cost of a device, which the pipeline has")
    if isinstance(word, Pairable):
        raise TypeError(
            "Pairable is not taken as a constraint: pairs that save time may be run anyway, and Together asks for one"
        )
    kinds = {kind for stream in streams_of(word) for kind in kinds_of(stream)}
    if kinds & {*Send}:
        raise ValueError(f"{word}: transfers are not taken in constraints; expected computations (F, B, I, W)")
    if kinds & {Kind.I, Kind.W} and not pipeline.costs.split:
        raise ValueError(f"{word}: the costs give backward alone, so that neither I nor W is ever run")
    paired = any(isinstance(op, Pair) for stream in streams_of(word) if isinstance(stream, Listed) for op in stream.ops)
    if paired and not isinstance(word, Precede):
        raise ValueError(f"{word}: expected single operations, got an overlapped pair")
    if isinstance(word, OneOf):
        _check_choice(pipeline, word)
    if isinstance(word, Maybe) or (isinstance(word, Capacity) and word.away):
        raise TypeError("copies to the host are not taken in constraints: the pipeline has them (offload)")
    if isinstance(word, Capacity) and (word.limit < 0 or any(hold.amount < 0 for hold in word.holds)):
        raise ValueError(f"{word}: expected amounts and a limit >= 0")


def _check_choice(pipeline: Pipeline, word: OneOf) -> None:
    columns = [[operations(pipeline, stream) for stream in streams] for streams in word.alternatives]
    if not columns or not all(columns):
        raise ValueError(f"{word}: expected at least one alternative, each with at least one stream")
    lengths = {len(column) for alternative in columns for column in alternative}
    if len(lengths) > 1:
        raise ValueError(f"{word}: expected streams of the same number of operations, got {', '.join(map(str, sorted(lengths)))}")
    counts = Counter(op for alternative in columns for column in alternative for op in column.tolist())
    twice = [op for op, count in counts.items() if count > 1]
    if twice:
        raise ValueError(f"{word}: {pipeline.index.op(twice[0])} is in it more than once")


def _check_pairs(pipeline: Pipeline, words: Sequence[Word]) -> None:
    """Nothing, where each pair that is asked for can be one, and no operation is in two."""
    seen: set[int] = set()
    for word in select(words, Together):
        first, second = instances(pipeline, word)
        ops = [[pipeline.index.op(op) for op in column.tolist()] for column in (first, second)]
        for number, other, forward, backward in zip(first.tolist(), second.tolist(), *ops, strict=True):
            assert isinstance(forward, Op)
            assert isinstance(backward, Op)
            if (forward.kind, backward.kind) != (Kind.F, Kind.B):
                raise ValueError(f"{word}: a pair is a forward and a full backward, in this order; got {forward} and {backward}")
            devices = [_device(pipeline, op) for op in (forward, backward)]
            if devices[0] != devices[1]:
                raise ValueError(f"{word}: {forward} is on device {devices[0]} and {backward} on device {devices[1]}")
            if number in seen or other in seen:
                raise ValueError(f"{word}: {forward if number in seen else backward} is in two pairs")
            seen |= {number, other}


def _check_hold(pipeline: Pipeline, hold: Hold, run: IntArray) -> None:
    """Nothing, where what is claimed is given back exactly once, and later."""
    claim, text = hold.claim, f"{hold.claim} until {' or '.join(map(str, hold.release))}"
    if claim.kind != Kind.F:
        raise ValueError(f"{text}: a Hold begins with a forward")
    if not hold.release or any(family.route != claim.route for family in hold.release):
        raise ValueError(f"{text}: a Hold ends with operations of its own route")
    if any(family.kind == Kind.F and family.stage < claim.stage for family in hold.release):
        raise ValueError(f"{text}: a Hold ends with an operation of the same microbatch that comes later than its begin")
    always, maybe = (np.array([of[operations(pipeline, family)] for family in hold.release]) for of in run)
    kinds = {(family.stage, family.kind) for family in hold.release}
    stages = {stage for stage, _ in kinds}
    either = [{(stage, Kind.B), (stage, kind)} for stage in stages for kind in (Kind.I, Kind.W)]
    once = always.sum(axis=0) + (maybe.sum(axis=0) == 2 if kinds in either else 0) == 1
    if not (once & ((maybe.sum(axis=0) == 0) | (always.sum(axis=0) == 0))).all():
        problem = "a Hold ends with exactly one operation that is run; where a backward is a choice give both, as in (B, W)"
        raise ValueError(f"{text}: {problem}")
