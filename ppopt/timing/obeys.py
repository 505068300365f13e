"""Which words a schedule breaks: read off its times, with nothing of what makes schedules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ppopt.constraints import (
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
from ppopt.op import COPIES, HOPS, Op, Pair, Send
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.timing.kept import Kept


class _Run(NamedTuple):
    """When an operation runs, in ticks; on which device or link, and as the how manieth there."""

    start: int
    end: int
    machine: int
    place: int


def broken(schedule: Schedule, words: Iterable[Word]) -> list[str]:
    """Each instance of ``words`` that ``schedule`` breaks, in words of its own; nothing where it obeys them all.

    Times count, and where they tie on one device the order of its list. A pair that no ``Together`` asks for and no ``Pairable``
    allows is broken, too. The rules of the pipeline are not looked at (:func:`ppopt.checker.violations`).

    Raises:
        TypeError: a word or a stream that is not known here.
    """
    words, kept = tuple(words), Kept(schedule)
    return list(_read(schedule, words, kept, [word for word in words if not kept.keeps(word)]))


def obeys_all(schedule: Schedule, words: Iterable[Word]) -> bool:
    """Whether ``schedule`` breaks none of ``words`` (:func:`broken`): told much faster, where it is not asked what breaks which.

    Raises:
        TypeError: a word or a stream that is not known here.
    """
    words, kept, left = tuple(words), Kept(schedule), list[Word]()
    for word in words:
        keeps = kept.keeps(word)
        if keeps is False:
            return False
        if keeps is None:
            left.append(word)
    return next(_read(schedule, words, kept, left), None) is None


def _read(schedule: Schedule, words: Sequence[Word], kept: Kept, left: Sequence[Word]) -> Iterator[str]:
    """What breaks those of the words that are ``left``, and the pairs that none of them allows."""
    if kept.known and not left:
        return
    reading = _Reading(schedule)
    for word in left:
        yield from reading.of(word)
    yield from reading.stray_pairs(words)


class _Reading:
    def __init__(self, schedule: Schedule) -> None:
        self.pipeline = schedule.pipeline
        self.runs: dict[Op, _Run] = {}
        self.pairs: set[tuple[Op, Op]] = set()
        self.spans = schedule.spans
        op_of = self.pipeline.index.op
        rows = (*schedule.order.rows, *schedule.transfers.rows, *schedule.copies.rows)
        times = (*schedule.start, *schedule.transfers.start, *schedule.copies.start)
        lasting = dict(_sending(self.pipeline)) if schedule.transfers.rows or schedule.copies.rows else {}
        for machine, (row, starts) in enumerate(zip(rows, times, strict=True)):
            ends = schedule.end[machine].tolist() if machine < self.pipeline.devices else None
            for place, (number, start) in enumerate(zip(row.tolist(), starts.tolist(), strict=True)):
                op = op_of(number)
                if isinstance(op, Pair):
                    self.pairs.add((op.forward, op.backward))
                for half in op if isinstance(op, Pair) else (op,):
                    end = start + lasting[half] if ends is None else ends[place]
                    self.runs[half] = _Run(start, end, machine, place)

    def of(self, word: Word) -> Iterator[str]:
        """What breaks one word.

        Raises:
            TypeError: a word that is not known here.
        """
        if isinstance(word, Precede):
            return self._precede(word)
        if isinstance(word, Exclusive):
            return self._exclusive(word)
        if isinstance(word, Capacity):
            return self._capacity(word)
        if isinstance(word, Together):
            return self._together(word)
        if isinstance(word, Pairable):
            return self._pairable(word)
        if isinstance(word, OneOf):
            return self._one_of(word)
        if isinstance(word, Maybe):
            return self._maybe(word)
        if isinstance(word, Lead | Tail):
            return self._margin(word)
        if isinstance(word, Turns):
            return self._turns(word)
        raise TypeError(f"unknown word {word!r}")

    def stray_pairs(self, words: Sequence[Word]) -> Iterator[str]:
        """The pairs that no word asks for or allows."""
        asked = {pair for word in select(words, Together) for pair in self._asked(word)}
        ways = [
            ({op for f in word.forwards for op in self.stream(f)}, {op for b in word.backwards for op in self.stream(b)})
            for word in select(words, Pairable)
        ]
        for first, second in sorted(self.pairs):
            if (first, second) not in asked and not any(
                first in forwards and second in backwards for forwards, backwards in ways
            ):
                yield f"{first} and {second} run as a pair, which no word allows"

    def stream(self, stream: Stream) -> list[Op | Pair]:
        """The operations of a stream, in its order.

        Raises:
            TypeError: it is no stream.
        """
        if isinstance(stream, Family):
            route_of = self.pipeline.route_of_microbatch
            return [Op(stream.stage, stream.kind, m, stream.piece) for m, route in enumerate(route_of) if route == stream.route]
        if isinstance(stream, Listed):
            return list(stream.ops)
        if not isinstance(stream, Dealt):
            raise TypeError(f"unknown stream {stream!r}")
        columns = []
        for family in stream.families:
            ops = self.stream(family)
            columns.append([op for first in range(stream.stride) for op in ops[first :: stream.stride]])
        dealt: list[Op | Pair] = []
        while any(columns):
            for column in columns:
                hand, column[:] = column[: stream.group], column[stream.group :]
                dealt += reversed(hand) if stream.descending else hand
        return dealt

    def _related(self, first: Stream, second: Stream, shift: int) -> Iterator[tuple[Op, Op]]:
        """``first(k - shift)`` and ``second(k)``, their halves one by one, where they are run."""
        ones, others = self.stream(first), self.stream(second)
        for k, other in enumerate(others):
            if 0 <= k - shift < len(ones):
                for a in _halves(ones[k - shift]):
                    for b in _halves(other):
                        if a in self.runs and b in self.runs:
                            yield a, b

    def _precede(self, word: Precede) -> Iterator[str]:
        for a, b in self._related(word.before, word.after, word.shift):
            first, second = self.runs[a], self.runs[b]
            if second.start < first.end + word.lag:
                late = f" + {word.lag}" if word.lag else ""
                yield f"{word}: {b} starts at {second.start}, before the end of {a} at {first.end}{late}"
            elif first.machine == second.machine and second.place <= first.place:
                yield f"{word}: {b} stands before {a} in the list of its device"

    def _exclusive(self, word: Exclusive) -> Iterator[str]:
        ops = {half for stream in word.streams for op in self.stream(stream) for half in _halves(op)}
        entries: dict[tuple[int, int], tuple[int, int, Op]] = {}
        for op in sorted(ops & self.runs.keys()):
            run = self.runs[op]
            entries.setdefault((run.machine, run.place), (run.start, run.end, op))
        last: tuple[int, int, Op] | None = None
        for entry in sorted(entries.values()):
            if last is not None and entry[0] < last[1]:
                yield f"{last[2]} ({last[0]} to {last[1]}) and {entry[2]} ({entry[0]} to {entry[1]}) exclude each other"
            if last is None or entry[1] > last[1]:
                last = entry

    def _capacity(self, word: Capacity) -> Iterator[str]:
        changes: dict[int, list[int]] = defaultdict(lambda: [0, 0])  # by time what is given back, then what is claimed
        for hold in word.holds:
            claims, releases = self.stream(hold.claim), [self.stream(family) for family in hold.release]
            for k, claim in enumerate(claims):
                assert isinstance(claim, Op)
                if claim not in self.runs:
                    continue
                changes[self.runs[claim].start][1] += hold.amount
                ends = [
                    self.runs[op].end for column in releases if k < len(column) for op in _halves(column[k]) if op in self.runs
                ]
                if ends:
                    changes[max(ends)][0] -= hold.amount
        for away in word.away:
            for out, back in zip(self.stream(away.out), self.stream(away.back), strict=True):
                if out in self.runs and back in self.runs:
                    changes[self.runs[out].end][0] -= away.amount
                    changes[self.runs[back].start][1] += away.amount
        held = 0
        for time in sorted(changes):
            held += sum(changes[time])
            if held > word.limit:
                yield f"{held} are held at {time}, with room for {word.limit}"

    def _asked(self, word: Together) -> Iterator[tuple[Op, Op]]:
        first, second = self.stream(word.first), self.stream(word.second)
        for k, other in enumerate(second):
            if 0 <= k + word.shift < len(first):
                a, b = first[k + word.shift], other
                assert isinstance(a, Op)
                assert isinstance(b, Op)
                yield a, b

    def _together(self, word: Together) -> Iterator[str]:
        for a, b in self._asked(word):
            if (a, b) not in self.pairs:
                yield f"{a} and {b} do not run as a pair"

    def _pairable(self, word: Pairable) -> Iterator[str]:
        paired = {backward for _, backward in self.pairs}
        for family in () if word.alone else word.backwards:
            for op in self.stream(family):
                if op in self.runs and op not in paired:
                    yield f"{op} runs without a forward"

    def _margin(self, word: Lead | Tail) -> Iterator[str]:
        for op in self.stream(word.family):
            run = self.runs.get(op) if isinstance(op, Op) else None
            span = None if run is None else self.spans[run.machine]
            if run is not None and span is not None:
                begin, end = span
                if (run.start - begin if isinstance(word, Lead) else end - run.end) < word.ticks:
                    yield f"{op}: {word}"

    def _maybe(self, word: Maybe) -> Iterator[str]:
        for ops in zip(*map(self.stream, word.streams), strict=True):
            run = [op for op in ops if op in self.runs]
            if 0 < len(run) < len(ops):
                yield f"{' and '.join(map(str, ops))}: {' and '.join(map(str, run))} alone is run"

    def _turns(self, word: Turns) -> Iterator[str]:
        runs = [
            (self.runs[op], op, turn) for turn in word.turns for f in turn.families for op in self.stream(f) if op in self.runs
        ]
        runs.sort(key=lambda run: run[0].place)
        for (first, op, turn), (second, other, next_) in pairwise(runs):
            pause = turn.after + next_.before
            if turn != next_ and second.start < first.end + pause:
                yield f"{word}: {other} starts at {second.start}, less than {pause} after the end of {op} at {first.end}"

    def _one_of(self, word: OneOf) -> Iterator[str]:
        columns = [[self.stream(stream) for stream in streams] for streams in word.alternatives]
        for k in range(len(columns[0][0])):
            ways = [{op for column in alternative for op in _halves(column[k])} for alternative in columns]
            run = set().union(*ways) & self.runs.keys()
            if sum(run == way for way in ways) != 1:
                wanted = " or ".join(" and ".join(map(str, sorted(way))) for way in ways)
                yield f"{wanted}: {'nothing' if not run else ' and '.join(map(str, sorted(run)))} is run"


def _halves(op: Op | Pair) -> tuple[Op, ...]:
    return (op.forward, op.backward) if isinstance(op, Pair) else (op,)


def _sending(pipeline: Pipeline) -> Iterator[tuple[Op, int]]:
    """Every transfer, and for how many ticks it holds its link."""
    for microbatch, route in enumerate(pipeline.route_of_microbatch):
        for stage in range(pipeline.stages):
            for send in HOPS:
                yield Op(stage, send, microbatch), int(pipeline.ticks.sending[route, send - Send.SEND_F, stage])
            for copy in COPIES:
                yield Op(stage, copy, microbatch), int(pipeline.ticks.copying[route, copy - Send.OFFLOAD, stage])
