"""Named schedules of microbatches that differ: the order that they have for alike ones, whichever microbatch comes first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ppopt.constraints import (
    Capacity,
    Dealt,
    Exclusive,
    Family,
    Lead,
    Listed,
    OneOf,
    Pairable,
    Precede,
    Stream,
    Tail,
    Together,
    Word,
    expand,
    microbatch_turns,
    operations,
)
from ppopt.op import Op, Pair
from ppopt.pipeline import IntArray, Pipeline, halves, way_of_microbatch
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order

OUT_OF_TURN = (
    'its microbatches run in another order than is given; microbatch_order = "choose" leaves that open, '
    "and the pieces of a sequence run from its begin on, backwards from its end"
)


def in_turn(pipeline: Pipeline, order: Order, turns: Sequence[int] = ()) -> Schedule:
    """An order of alike microbatches with those of ``pipeline`` in their places, timed.

    ``turns``: the microbatches in the order in which they take the places 0, 1, …; on each way by themselves. Empty: their own.

    Raises:
        CyclicOrder: it cannot end.
    """
    many, place = pipeline.microbatches, _places(pipeline, turns)
    index = order.index

    def moved(numbers: IntArray) -> IntArray:
        family, microbatch = np.divmod(numbers, many)
        return family * many + place[microbatch]

    rows = []
    for row in order.rows:
        first, second = halves(index, row)
        single = moved(first)
        paired = second >= 0
        if paired.any():
            pairs = [index.pair(int(a), int(b)) for a, b in zip(single[paired], moved(second[paired]), strict=True)]
            single[paired] = pairs
        rows.append(single)
    return time_order(pipeline, Order(index, tuple(rows)))


def _places(pipeline: Pipeline, turns: Sequence[int]) -> IntArray:
    """Which microbatch takes each place (:func:`in_turn`)."""
    place = np.arange(pipeline.microbatches)
    if turns:
        ways = np.array(way_of_microbatch(pipeline))
        sorted_ = np.array(turns)
        for way in set(ways.tolist()):
            place[ways == way] = sorted_[ways[sorted_] == way]
    return place


def out_of_turn(pipeline: Pipeline, order: Order) -> bool:
    """Whether microbatches run in another order than the one that is given, or pieces of a sequence in another than theirs."""
    words = microbatch_turns(pipeline)
    if not words:
        return False
    place = np.full(pipeline.index.size, -1, dtype=np.int64)
    for row in order.rows:
        for half in halves(pipeline.index, row):
            place[half[half >= 0]] = np.flatnonzero(half >= 0)
    before, after = (place[numbers] for numbers in expand(pipeline, words)[:2])  # each word is about one device
    return bool(((before >= 0) & (after >= 0) & (before >= after)).any())


def _moved(op: Op | Pair, place: Sequence[int]) -> Op | Pair:
    """An operation, or a pair, of the microbatches that take the places."""
    if isinstance(op, Pair):
        return Pair(*(half._replace(microbatch=place[half.microbatch]) for half in op))
    return op._replace(microbatch=place[op.microbatch])


def retold(pipeline: Pipeline, plain: Pipeline, words: Iterable[Word], turns: Sequence[int] = ()) -> Iterator[Word]:
    """Words of ``plain``, whose microbatches are alike, for ``pipeline``, where they differ: the k-th microbatch is the k-th, or
    the k-th of ``turns`` (:func:`in_turn`).

    Raises:
        TypeError: a word that is not known here.
    """
    ways, place = list(plain.routes), _places(pipeline, turns).tolist()
    on_way = [[r for r, devices in enumerate(pipeline.routes) if devices == way] for way in ways]

    def told(stream: Stream) -> Stream:
        if isinstance(stream, Family | Dealt):
            op = plain.index.op
            stream = Listed(tuple(each for n in operations(plain, stream).tolist() if isinstance(each := op(n), Op)))
        if not turns:
            return stream
        return Listed(tuple(_moved(each, place) for each in stream.ops))

    def each(stream: Stream) -> list[Stream]:
        if isinstance(stream, Family):
            return [stream._replace(route=route) for route in on_way[stream.route]]
        return [told(stream)]

    for word in words:
        if isinstance(word, Precede):
            yield word._replace(before=told(word.before), after=told(word.after))
        elif isinstance(word, Together):
            yield replace(word, first=told(word.first), second=told(word.second))
        elif isinstance(word, OneOf):
            for alternatives in zip(*(zip(*map(each, streams), strict=True) for streams in word.alternatives), strict=True):
                yield OneOf(tuple(alternatives))
        elif isinstance(word, Exclusive):
            yield Exclusive(tuple(one for stream in word.streams for one in each(stream)))
        elif isinstance(word, Pairable):
            sides = (
                [one for f in side for one in each(f) if isinstance(one, Family)] for side in (word.forwards, word.backwards)
            )
            forwards, backwards = map(tuple, sides)
            yield replace(word, forwards=forwards, backwards=backwards)
        elif isinstance(word, Capacity):
            yield replace(
                word,
                holds=tuple(
                    hold._replace(
                        claim=hold.claim._replace(route=route),
                        release=tuple(family._replace(route=route) for family in hold.release),
                    )
                    for hold in word.holds
                    for route in on_way[hold.claim.route]
                ),
            )
        elif isinstance(word, Lead | Tail):
            for family in each(word.family):
                assert isinstance(family, Family)
                yield replace(word, family=family)
        else:
            raise TypeError(f"unknown word {word!r}")
