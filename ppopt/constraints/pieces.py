"""Words about whole weight gradients, said of their pieces.

A ``W`` in a word stands for all its pieces, where it comes in any (``costs.weight_pieces``). What comes before it comes before
the first one, and what comes after it after the last one. It excludes others with every piece, and gives back with the last. Two
that run in their order do so one after the other, with all their pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from ppopt.constraints.expansion import operations
from ppopt.constraints.rules import weights_of
from ppopt.constraints.words import (
    Capacity,
    Dealt,
    Exclusive,
    Family,
    Hold,
    Listed,
    Maybe,
    OneOf,
    Pairable,
    Precede,
    Stream,
    Together,
    Turns,
    Word,
    chain,
)
from ppopt.op import WHOLE, Kind, Op, Pair
from ppopt.pipeline import Pipeline


def in_pieces(pipeline: Pipeline, words: Iterable[Word]) -> tuple[Word, ...]:
    """These words with the pieces of ``pipeline`` in the place of whole weight gradients; the very same where these are whole.

    Raises:
        TypeError: a word that is not known here.
    """
    words = tuple(words)
    if pipeline.index.pieces == 1:
        return words
    told = _Told(pipeline)
    return tuple(each for word in words for each in told.word(word))


class _Told:
    """The words of a pipeline, read one by one."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.index = pipeline, pipeline.index

    def word(self, word: Word) -> Iterator[Word]:
        """A word in pieces."""
        if isinstance(word, Precede):
            if word == chain(word.before):
                yield from self._chain(word.before)
            else:
                yield word._replace(before=self._at(word.before, -1), after=self._at(word.after, 0))
        elif isinstance(word, OneOf):
            yield OneOf(tuple(self._all(streams) for streams in word.alternatives))
        elif isinstance(word, Exclusive | Maybe):
            yield replace(word, streams=self._all(word.streams))
        elif isinstance(word, Capacity):
            yield replace(word, holds=tuple(map(self._hold, word.holds)))
        elif isinstance(word, Turns):
            turns = (turn._replace(families=self._families(turn.families)) for turn in word.turns)
            yield Turns(tuple(turns))
        elif isinstance(word, Together | Pairable):  # of forwards and whole backwards
            yield word
        else:  # Lead, Tail
            for family in self._families((word.family,)):
                yield replace(word, family=family)

    def _chain(self, stream: Stream) -> Iterator[Precede]:
        """A stream in its own order: a chain of each piece, and one piece after the other."""
        if isinstance(stream, Listed):
            yield chain(self._listed(stream))
            return
        columns = [self._at(stream, piece) for piece in range(self.index.pieces)]
        if columns[0] == columns[-1]:
            yield chain(stream)
        elif isinstance(stream, Dealt) and any(not _whole(family) for family in stream.families):
            yield chain(self._listed(Listed(self._ops(stream))))
        else:
            yield from map(chain, columns)
            yield from (Precede(before, after) for before, after in pairwise(columns))
            yield Precede(columns[-1], columns[0], shift=1)

    def _at(self, stream: Stream, piece: int) -> Stream:
        """A stream with one of the pieces in the place of each whole weight gradient; -1 is the last."""
        piece %= self.index.pieces
        if isinstance(stream, Family):
            return stream._replace(piece=piece) if _whole(stream) else stream
        if isinstance(stream, Dealt):
            families = tuple(family._replace(piece=piece) if _whole(family) else family for family in stream.families)
            return replace(stream, families=families)
        if not any(isinstance(op, Op) and _whole(op) for op in stream.ops):
            return stream
        return Listed(op._replace(piece=piece) if isinstance(op, Op) and _whole(op) else op for op in stream.ops)

    def _all(self, streams: Iterable[Stream]) -> tuple[Stream, ...]:
        """Streams with a stream for each piece of those that have whole weight gradients."""
        every = (self._at(stream, piece) for stream in streams for piece in range(self.index.pieces))
        return tuple(dict.fromkeys(every))

    def _families(self, families: Iterable[Family]) -> tuple[Family, ...]:
        every = (weights_of(self.pipeline, f.stage, f.route) if _whole(f) else (f,) for f in families)
        return tuple(family for each in every for family in each)

    def _hold(self, hold: Hold) -> Hold:
        release = (f._replace(piece=self.index.pieces - 1) if _whole(f) else f for f in hold.release)
        return hold._replace(release=tuple(release))

    def _listed(self, stream: Listed) -> Listed:
        """The operations of a list, each whole weight gradient as its pieces."""
        return Listed(each for op in stream.ops for each in self._pieces(op))

    def _pieces(self, op: Op | Pair) -> Iterator[Op | Pair]:
        if isinstance(op, Op) and _whole(op):
            yield from (op._replace(piece=piece) for piece in range(self.index.pieces))
        else:
            yield op

    def _ops(self, stream: Dealt) -> Iterator[Op | Pair]:
        """What is dealt, with whole weight gradients."""
        first = self._at(stream, 0)
        for op in map(self.index.op, operations(self.pipeline, first).tolist()):
            yield op._replace(piece=WHOLE) if isinstance(op, Op) and op.kind == Kind.W else op


def _whole(of: Family | Op) -> bool:
    return of.kind == Kind.W and of.piece == WHOLE
