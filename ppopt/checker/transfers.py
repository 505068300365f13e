"""The transfers that hold a link: whether they are all there, in time, one at a time on a link, and whom they stop."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Generic, TypeAlias, TypeVar

from ppopt.checker.records import Entry, Run, Sent, held_for
from ppopt.checker.violation import Rule, Violation
from ppopt.checker.waits import Ran
from ppopt.op import Kind

Found: TypeAlias = Iterator[Violation]
Link: TypeAlias = tuple[str, int, int]
"""A group of shared links, by its place, or one from a device to another."""


Timed = TypeVar("Timed", bound=Entry | Sent)


class Timeline(Generic[Timed]):
    """Operations or transfers, by their starts."""

    def __init__(self, entries: Iterable[Timed]) -> None:
        self._entries = sorted(entries, key=lambda entry: entry.start)
        self._starts = [entry.start for entry in self._entries]
        self._over = list(accumulate((max(entry.start, entry.end) for entry in self._entries), max))
        """Of each and all before it, the latest end."""

    def between(self, begin: int, end: int) -> list[Timed]:
        """Those that run at some time between the two, and maybe others."""
        return self._entries[bisect_right(self._over, begin) : bisect_left(self._starts, end)]

    def over(self, time: int) -> int:
        """When all that have started by then have ended; 0: there are none."""
        started = bisect_right(self._starts, time)
        return self._over[started - 1] if started else 0


def transfer_violations(run: Run, ran: Ran) -> Found:
    """Everything that is wrong with the transfers of a run."""
    yield from _complete(run)
    yield from _times(run, ran)
    yield from _overlaps(run)
    if run.pipeline.links.blocking:
        yield from _computing(run)


def arrivals(run: Run) -> Iterator[tuple[int, int]]:
    """For whatever may wait for a transfer (a backward in one piece or two) when its data arrive."""
    for sent in run.sent:
        route = run.pipeline.route_of_microbatch[sent.microbatch]
        if sent.back:
            arrival = sent.end + run.facts.down[route][sent.stage - 1]
            yield from ((_key(run, kind, sent.stage - 1, sent.microbatch), arrival) for kind in (Kind.B, Kind.I))
        else:
            yield _key(run, Kind.F, sent.stage + 1, sent.microbatch), sent.end + run.facts.up[route][sent.stage]


def stopped(run: Run) -> list[Timeline[Sent]]:
    """By device the transfers during which it must not compute."""
    stops: list[list[Sent]] = [[] for _ in run.rows]
    for sent in run.sent if run.pipeline.links.blocking else ():
        for device in _ends(run, sent):
            stops[device].append(sent)
    return list(map(Timeline, stops))


def late_transfers(run: Run, ran: Ran) -> Found:
    """Transfers that start later than their data, their link and, where they block, their ends allow."""
    free: dict[Link, int] = {}
    rows = [Timeline(entry for entry in row if entry.end > entry.start) for row in run.rows]
    for sent in sorted(run.sent, key=lambda sent: (sent.start, sent.end)):
        ends = [_made(run, ran, sent), free.get(_link(run, sent), 0)]
        free[_link(run, sent)] = sent.end
        if run.pipeline.links.blocking:
            for device in _ends(run, sent):
                ends.append(rows[device].over(sent.start))
        earliest = max([0, *(end for end in ends if end is not None)])
        if sent.start > earliest + run.tolerance:
            at = run.time(sent.start)
            message = f"the transfer {sent} starts at {at}, but nothing holds it back after {run.time(earliest)}"
            yield Violation(Rule.LATE, None, str(sent), at, message)


def _complete(run: Run) -> Found:
    pipeline, facts = run.pipeline, run.facts
    counts: dict[tuple[int, bool, int], int] = {}
    for sent in run.sent:
        counts[sent[:3]] = counts.get(sent[:3], 0) + 1
        if counts[sent[:3]] > 1:
            at = run.time(sent.start)
            yield Violation(Rule.TWICE, None, str(sent), at, f"the transfer {sent} is made again at {at}")
    for microbatch, route in enumerate(pipeline.route_of_microbatch):
        for stage in range(pipeline.stages - 1):
            for held, key in (
                (facts.up_held[route][stage], (stage, False, microbatch)),
                (facts.down_held[route][stage], (stage + 1, True, microbatch)),
            ):
                if held and key not in counts:
                    text = str(Sent(*key, 0, 0))
                    device = pipeline.routes[route][key[0]]
                    message = f"the transfer {text} is never made; its result has to leave device {device} over a link"
                    yield Violation(Rule.MISSING, device, text, None, message)


def _times(run: Run, ran: Ran) -> Found:
    for sent in run.sent:
        held, made = held_for(run, sent), _made(run, ran, sent)
        negative = sent.start < -run.tolerance
        unlike = abs(sent.end - sent.start - held) > run.tolerance
        early = made is not None and sent.start < made - run.tolerance
        if not (negative or unlike or early):
            continue
        at, text, device = run.time(sent.start), str(sent), _ends(run, sent)[0]
        if negative:
            yield Violation(Rule.NEGATIVE, device, text, at, f"the transfer {text} starts at {at}, before 0")
        if unlike:
            message = f"the transfer {text} holds its link for {run.time(sent.end - sent.start)}; it takes {run.time(held)}"
            yield Violation(Rule.DURATION, device, text, at, message)
        if made is not None and early:
            message = f"the transfer {text} starts at {at}, before its result exists at {run.time(made)}"
            yield Violation(Rule.TRANSFER, device, text, at, message)
    for key, arrival in arrivals(run):
        start = ran.start[key]
        if start is not None and start < arrival - run.tolerance:
            op, at = run.text(key), run.time(start)
            message = f"{op} starts at {at}, before the transfer of what it needs arrives at {run.time(arrival)}"
            family, microbatch = divmod(key, run.pipeline.microbatches)
            device = run.pipeline.routes[run.pipeline.route_of_microbatch[microbatch]][family % run.pipeline.stages]
            yield Violation(Rule.LATENCY, device, op, at, message)


def _overlaps(run: Run) -> Found:
    last: dict[Link, Sent] = {}  # by link, of those that have started, the last to end
    for sent in sorted(run.sent, key=lambda sent: (sent.start, sent.end)):
        link = _link(run, sent)
        other = last.get(link)
        if other is not None and sent.start < other.end - run.tolerance:
            at, (source, target) = run.time(sent.start), _ends(run, sent)
            message = (
                f"the transfer {sent} from device {source} to {target} starts at {at} while {other} holds the link "
                f"until {run.time(other.end)}"
            )
            yield Violation(Rule.LINK, source, str(sent), at, message)
        if other is None or sent.end >= other.end:
            last[link] = sent


def _computing(run: Run) -> Found:
    rows = list(map(Timeline, run.rows))
    for sent in run.sent:
        for device in _ends(run, sent):
            for entry in rows[device].between(sent.start, sent.end):
                begin, end = max(entry.start, sent.start), min(entry.end, sent.end)
                inside = sent.start + run.tolerance < entry.start < sent.end - run.tolerance
                if end - begin > run.tolerance or inside:
                    op, at = run.shown(entry), run.time(begin)
                    message = f"device {device} runs {op} at {at} while the transfer {sent} stops it until {run.time(sent.end)}"
                    yield Violation(Rule.BLOCKING, device, op, at, message)


def _made(run: Run, ran: Ran, sent: Sent) -> int | None:
    """When the result that a transfer carries exists; ``None``: never, or at no known time."""
    kinds = (Kind.B, Kind.I) if sent.back else (Kind.F,)
    ends = (ran.end[_key(run, kind, sent.stage, sent.microbatch)] for kind in kinds)
    return min((end for end in ends if end is not None), default=None)


def _ends(run: Run, sent: Sent) -> tuple[int, int]:
    route = run.pipeline.routes[run.pipeline.route_of_microbatch[sent.microbatch]]
    return route[sent.stage], route[sent.stage + (-1 if sent.back else 1)]


def _link(run: Run, sent: Sent) -> Link:
    pair = _ends(run, sent)
    for number, group in enumerate(run.pipeline.links.shared):
        if pair in group:
            return "shared", number, 0
    return "single", *pair


def _key(run: Run, kind: Kind, stage: int, microbatch: int) -> int:
    return (int(kind) * run.pipeline.stages + stage) * run.pipeline.microbatches + microbatch
