"""A named schedule's constraints made binding, some kinds of operations set free again."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from ppopt.constraints import (
    Dealt,
    Family,
    Listed,
    OneOf,
    Precede,
    Stream,
    Together,
    Word,
    chain,
    instances,
    operations,
    select,
    splitting_is_free,
)
from ppopt.op import Kind, Op, Pair, Send
from ppopt.pipeline import Pipeline


def binding(pipeline: Pipeline, words: Iterable[Word], free: Collection[Kind] = ()) -> tuple[Word, ...]:
    """What stays of a named schedule's ``words`` when operations of the kinds ``free`` may go anywhere.

    - What is run stays (``OneOf``): a fused backward stays fused, a split one split. Except: where ``W`` is free and the costs
      have it, a ``B`` that is no half of an overlapped pair becomes ``I`` in its place and a free ``W``; and where ``B`` takes
      less than ``I`` and ``W`` somewhere, either may be run in that place.
    - An order between two streams goes where it names a freed kind, as does a chain over one. A list of single operations
      keeps its order without the freed ones.
    - An overlapped pair goes where one of its halves is freed; its halves are then run one by one.
    """
    kept: tuple[Word, ...] = tuple(words)
    if not free:
        return kept
    kinds = frozenset(free)
    kept = tuple(new for word in kept for new in _freed(pipeline, word, kinds))
    if Kind.W not in kinds or not pipeline.costs.split:
        return kept
    paired = {op for word in select(kept, Together) for column in instances(pipeline, word) for op in column.tolist()}
    kept = tuple(_split(pipeline, word, paired) for word in kept)
    kept = tuple(new for word in kept for new in _freed(pipeline, word, kinds))
    if splitting_is_free(pipeline):
        return kept
    return tuple(new for word in kept for new in _either(pipeline, word, paired))


def _freed(pipeline: Pipeline, word: Word, free: frozenset[Kind]) -> Iterable[Word]:
    if not isinstance(word, Precede | Together):
        return (word,)
    first, second = (word.before, word.after) if isinstance(word, Precede) else (word.first, word.second)
    if not (_kinds(first) | _kinds(second)) & free:
        return (word,)
    if not (isinstance(first, Listed) or isinstance(second, Listed)):
        return ()
    if word == chain(first) and isinstance(first, Listed):
        return (chain(Listed(tuple(left for op in first.ops if (left := _left(op, free)) is not None))),)
    columns = zip(*(column.tolist() for column in instances(pipeline, word)), strict=True)
    ops = ((_single(pipeline, a), _single(pipeline, b)) for a, b in columns)
    related = [(a, b) for a, b in ops if not {a.kind, b.kind} & free]
    if not related:
        return ()
    before, after = (Listed(ops) for ops in zip(*related, strict=True))
    if isinstance(word, Together):
        return (Together(before, after),)
    return (Precede(before, after, lag=word.lag),)


def _kinds(stream: Stream) -> set[Kind | Send]:
    if isinstance(stream, Family):
        return {stream.kind}
    if isinstance(stream, Dealt):
        return {family.kind for family in stream.families}
    return {half.kind for op in stream.ops for half in (op if isinstance(op, Pair) else (op,))}


def _single(pipeline: Pipeline, number: int) -> Op:
    op = pipeline.index.op(number)
    assert isinstance(op, Op), "words relate single operations"
    return op


def _left(op: Op | Pair, free: frozenset[Kind]) -> Op | Pair | None:
    """What is not freed of an entry of a list."""
    halves = [half for half in (op if isinstance(op, Pair) else (op,)) if half.kind not in free]
    if isinstance(op, Pair) and len(halves) == 2:
        return op
    return halves[0] if halves else None


def _split(pipeline: Pipeline, word: Word, paired: Collection[int]) -> Word:
    """``word`` with ``I`` in the place of every ``B`` that is no half of a pair; where such a ``B`` is run, ``W`` is too."""

    number = pipeline.index.number

    def turned(stream: Stream, kind: Kind = Kind.I) -> Stream:
        turn: dict[Kind | Send, Kind] = {Kind.B: kind}
        if isinstance(stream, Listed):
            alone = (
                op if isinstance(op, Pair) or number(op) in paired else op._replace(kind=turn.get(op.kind, op.kind))
                for op in stream.ops
            )
            return Listed(tuple(alone))
        if Kind.B not in _kinds(stream) or not set(operations(pipeline, stream).tolist()).isdisjoint(paired):
            return stream
        if isinstance(stream, Family):
            return stream._replace(kind=kind)
        families = tuple(f._replace(kind=kind) if f.kind == Kind.B else f for f in stream.families)
        return dataclasses.replace(stream, families=families)

    def both(stream: Stream) -> tuple[Stream, ...]:
        return tuple(dict.fromkeys((turned(stream), turned(stream, Kind.W))))

    if isinstance(word, Precede):
        return word._replace(before=turned(word.before), after=turned(word.after))
    if isinstance(word, OneOf):
        return OneOf(tuple(tuple(s for stream in streams for s in both(stream)) for streams in word.alternatives))
    return word


def _either(pipeline: Pipeline, word: Word, paired: Collection[int]) -> Iterable[Word]:
    """``word`` for backwards that may be run as ``B`` in the place of their ``I``, but for the halves of pairs."""
    index = pipeline.index

    def ways(op: Op) -> tuple[Op, ...]:
        alone = op.kind in (Kind.B, Kind.I) and index.number(op) not in paired
        return (op._replace(kind=Kind.B), op._replace(kind=Kind.I)) if alone else (op,)

    if isinstance(word, Precede):
        columns = zip(*(column.tolist() for column in instances(pipeline, word)), strict=True)
        ops = ((_single(pipeline, a), _single(pipeline, b)) for a, b in columns)
        related = [(x, y) for a, b in ops for x in ways(a) for y in ways(b)]
        if related:
            before, after = (Listed(column) for column in zip(*related, strict=True))
            yield Precede(before, after, lag=word.lag)
    elif isinstance(word, OneOf):  # of the definitions' kind, with one alternative
        for stream in (stream for streams in word.alternatives for stream in streams):
            run = operations(pipeline, stream).tolist()
            fixed = tuple(_single(pipeline, op) for op in run if op in paired or _single(pipeline, op).kind == Kind.F)
            if fixed:
                yield OneOf(((stream if len(fixed) == len(run) else Listed(fixed),),))
    else:
        yield word
