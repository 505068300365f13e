"""Words that somebody wrote: whether they are about operations that this pipeline has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from ppopt.constraints.words import (
    Capacity,
    Dealt,
    Exclusive,
    Family,
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
from ppopt.op import WHOLE, Kind, Op, Pair, Send
from ppopt.pipeline import Pipeline


def check_words(pipeline: Pipeline, words: Iterable[object]) -> None:
    """Nothing, where all these are words over streams of this pipeline's operations.

    Raises:
        TypeError: one is no word, or something in it is no stream, no operation or no whole number.
        ValueError: one names a stage, microbatch or route that there is not, or a number is out of range.
    """
    for word in select(words, *get_args(Word)):
        for stream in streams_of(word):
            _check_stream(pipeline, stream, word)
        if isinstance(word, Precede | Together):
            _whole(word.shift, "shift", word)
        if isinstance(word, Precede) and _whole(word.lag, "lag", word) < 0:
            raise ValueError(f"{word}: lag: expected ticks >= 0, got {word.lag}")
        if isinstance(word, Capacity):
            _whole(word.limit, "limit", word)
            for hold in word.holds:
                _whole(hold.amount, "amount", word)


def streams_of(word: Word) -> Iterator[Stream]:
    """All streams that a word names.

    Raises:
        TypeError: it is no word.
    """
    if isinstance(word, Precede):
        yield from (word.before, word.after)
    elif isinstance(word, Together):
        yield from (word.first, word.second)
    elif isinstance(word, Exclusive):
        yield from word.streams
    elif isinstance(word, Pairable):
        yield from (*word.forwards, *word.backwards)
    elif isinstance(word, OneOf):
        yield from (stream for streams in word.alternatives for stream in streams)
    elif isinstance(word, Capacity):
        yield from (stream for hold in word.holds for stream in (hold.claim, *hold.release))
        yield from (stream for away in word.away for stream in (away.out, away.back))
    elif isinstance(word, Maybe):
        yield from word.streams
    elif isinstance(word, Lead | Tail):
        yield word.family
    elif isinstance(word, Turns):
        yield from (family for turn in word.turns for family in turn.families)
    else:
        raise TypeError(f"expected a word of ppopt.constraints, got {word!r:.100}")


def _check_stream(pipeline: Pipeline, stream: object, word: Word) -> None:
    if isinstance(stream, Family):
        if not isinstance(stream.kind, Kind | Send):
            raise TypeError(f"{word!r:.200}: expected a Kind, got {stream.kind!r}")
        if not 0 <= _whole(stream.stage, "stage", word) < pipeline.stages:
            raise ValueError(f"{word}: there is no stage {stream.stage}; stages are 0..{pipeline.stages - 1}")
        if not 0 <= _whole(stream.route, "route", word) < len(pipeline.routes):
            raise ValueError(f"{word}: there is no route {stream.route}; routes are 0..{len(pipeline.routes) - 1}")
        if _whole(stream.piece, "piece", word) != WHOLE:
            pipeline.index.check_piece(word, stream.kind, stream.piece)
    elif isinstance(stream, Dealt):
        for family in stream.families:
            if not isinstance(family, Family):
                raise TypeError(f"{word!r:.200}: families are dealt, got {family!r:.100}")
            _check_stream(pipeline, family, word)
        if not stream.families or _whole(stream.group, "group", word) < 1 or _whole(stream.stride, "stride", word) < 1:
            raise ValueError(f"{word!r:.200}: expected families, and a group and a stride >= 1")
    elif isinstance(stream, Listed):
        for op in stream.ops:
            if not isinstance(op, Op | Pair):
                raise TypeError(f"{word!r:.200}: expected operations (ppopt.op.Op), got {op!r:.100}")
            index = pipeline.index._replace(pieces=1) if isinstance(op, Op) and op.piece == WHOLE else pipeline.index
            index.number(op)
    else:
        raise TypeError(f"{word!r:.200}: expected a stream (Family, Dealt or Listed), got {stream!r:.100}")


def _whole(value: object, name: str, word: Word) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{word!r:.200}: {name}: expected a whole number, got {value!r:.100}")
    return value
