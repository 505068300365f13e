"""The record of a schedule: per device, operations with their starts and ends, on the checker's own integers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from ppopt.checker.facts import Facts, facts_of, horizon, shortest
from ppopt.checker.violation import Rule, Violation
from ppopt.op import Kind, Op, Pair, Send, parse, parse_transfer
from ppopt.pipeline import Number, Pipeline, plain
from ppopt.schedule import Schedule

Record: TypeAlias = tuple[str | Op | Pair, Number, Number]
"""An operation, its start and its end, in the model's unit of time."""
TOLERANCE = 10**6
"""Recorded times are compared to this part of the shortest operation that takes any time."""


class Entry(NamedTuple):
    """One record. An operation is ``key = (kind * stages + stage) * microbatches + microbatch``.

    Of weight gradients in pieces the first is of the kind ``W``, and each further one of a kind of its own behind that.
    """

    key: int
    """The operation, or the forward of a pair; -1: not an operation of the pipeline."""
    second: int
    """The backward of a pair, else -1."""
    start: int
    end: int
    text: str
    """The record's own words where ``key`` is -1."""

    @property
    def keys(self) -> tuple[int, ...]:
        """The operations that it runs: none, one, or the two of a pair."""
        return (self.key, self.second) if self.second >= 0 else (self.key,) if self.key >= 0 else ()


class Sent(NamedTuple):
    """The record of a transfer: from stage ``stage`` to the next one, or, ``back``, to the one before."""

    stage: int
    back: bool
    microbatch: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.stage}SEND_{'FB'[self.back]}{self.microbatch}"


class Copied(NamedTuple):
    """The record of a copy of what a forward left: to the host, or, ``back``, from it."""

    stage: int
    back: bool
    microbatch: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.stage}{('OFFLOAD', 'RELOAD')[self.back]}{self.microbatch}"


@dataclass(frozen=True)
class Run:
    """What a schedule says it did.

    ``rows`` has the records with times, per device, in their order; ``untimed`` the operations without (a time that is no
    finite number). ``tolerance`` is how much earlier than it may something may be. ``found`` is what was wrong already. ``sent``
    are the transfers, in no order.
    """

    pipeline: Pipeline
    facts: Facts
    tolerance: int
    rows: list[list[Entry]]
    untimed: list[tuple[int, Entry]]
    found: list[Violation]
    sent: list[Sent]
    copied: list[Copied] = field(default_factory=list)
    """The copies to the host and back, in no order."""

    def time(self, time: int) -> int | float:
        """In the model's unit."""
        return plain(Fraction(time, self.facts.per_time))

    def amount(self, amount: int) -> int | float:
        """In the model's unit of memory."""
        return plain(Fraction(amount, self.facts.per_amount))

    def traffic(self, table: list[list[int]], entry: Entry) -> int:
        """What of ``gather`` or ``scatter`` of its facts a record has; a pair the larger of its halves'."""
        if not self.facts.traffic:
            return 0
        keys = (divmod(key, self.pipeline.microbatches) for key in entry.keys)
        route_of = self.pipeline.route_of_microbatch
        return max((table[route_of[microbatch]][family] for family, microbatch in keys), default=0)

    def home(self, key: int) -> int:
        """The device that has to run an operation."""
        family, microbatch = divmod(key, self.pipeline.microbatches)
        return self.facts.place[self.pipeline.route_of_microbatch[microbatch]][family]

    def text(self, key: int) -> str:
        """An operation in PyTorch's notation."""
        family, microbatch = divmod(key, self.pipeline.microbatches)
        kind, stage = divmod(family, self.pipeline.stages)
        piece = f".{kind - Kind.W}" if kind >= Kind.W and self.pipeline.costs.weight_pieces > 1 else ""
        return f"{stage}{'FBIW'[min(kind, Kind.W)]}{microbatch}{piece}"

    @property
    def last_kind(self) -> int:
        """The kind of the last piece of a weight gradient, or of a whole one."""
        return Kind.I + self.pipeline.costs.weight_pieces

    def shown(self, entry: Entry) -> str:
        """The operation of a record, in PyTorch's notation."""
        if entry.second >= 0:
            return f"({self.text(entry.key)};{self.text(entry.second)})OVERLAP_F_B"
        return entry.text if entry.key < 0 else self.text(entry.key)


def read_schedule(pipeline: Pipeline, schedule: Schedule) -> Run:
    """The record of a schedule: its order and starts, with ends from the costs. Nothing is tolerated.

    Raises:
        ValueError: a device has another number of starts than of operations.
    """
    per_unit = schedule.pipeline.ticks.per_unit  # the unit of its starts, whatever the pipeline is
    facts = facts_of(pipeline, per_unit)
    run = Run(pipeline, facts, 0, [], [], [], [])
    index, factor = schedule.order.index, facts.per_time // per_unit
    plainly = 0  # numbers below this are single operations of this very pipeline
    if index == pipeline.index:
        plainly = (4 if pipeline.costs.split else 2) * index.stages * index.microbatches
    microbatches, route_of = pipeline.microbatches, pipeline.route_of_microbatch
    for device, (numbers, starts) in enumerate(zip(schedule.order.rows, schedule.start, strict=True)):
        if len(numbers) != len(starts):
            raise ValueError(f"device {device} has {len(numbers)} operations and {len(starts)} starts")
        row = []
        for number, tick in zip(numbers.tolist(), starts.tolist(), strict=True):
            start = tick * factor
            if 0 <= number < plainly:
                family, microbatch = divmod(number, microbatches)
                entry = Entry(number, -1, start, start + facts.duration[route_of[microbatch]][family], "")
            else:
                entry = _entry(run, device, _op_of(schedule, number), start, start)
                entry = entry._replace(end=start + max(length_of(run, entry), 0))
            row.append(entry)
        run.rows.append(row)
    for numbers, starts in (*zip(*schedule.transfers, strict=True), *zip(*schedule.copies, strict=True)):
        for number, tick in zip(numbers.tolist(), starts.tolist(), strict=True):
            _add_sent(run, _op_of(schedule, number), tick * factor, None)
    return run


def read_rows(pipeline: Pipeline, rows: Sequence[Iterable[Record]], transfers: Iterable[Record] = ()) -> Run:
    """The record as a file has it, per device, and its transfers; whatever is wrong with it is found, not raised."""
    facts = facts_of(pipeline, None)
    scale = facts.per_time
    run = Run(pipeline, facts, 0, [], [], [], [])
    rounded = False
    for device, records in enumerate(rows):
        row = []
        for op, start, end in records:
            try:
                begin, finish = _scaled(start, scale), _scaled(end, scale)
            except (ValueError, OverflowError):
                entry = _entry(run, device, op, 0, 0)
                message = f"{run.shown(entry)} on device {device} runs from {start} to {end}: not finite numbers"
                run.found.append(Violation(Rule.TIME, device, run.shown(entry), None, message))
                run.untimed.append((device, entry))
                continue
            row.append(_entry(run, device, op, begin, finish))
            rounded = rounded or isinstance(start, float) or isinstance(end, float)
        run.rows.append(row)
    for op, start, end in transfers:
        try:
            begin, finish = _scaled(start, scale), _scaled(end, scale)
        except (ValueError, OverflowError):
            message = f"the transfer {op} runs from {start} to {end}: not finite numbers"
            run.found.append(Violation(Rule.TIME, None, str(op), None, message))
            continue
        _add_sent(run, op, begin, finish)
        rounded = rounded or isinstance(start, float) or isinstance(end, float)
    tolerance = shortest(facts) // TOLERANCE
    if rounded:  # a double cannot tell more than this at the end of a long schedule
        spacing = Fraction(math.ulp(float(Fraction(horizon(pipeline, facts), scale))))
        tolerance = max(tolerance, math.ceil(2 * spacing * scale))
    return Run(pipeline, facts, tolerance, run.rows, run.untimed, run.found, run.sent, run.copied)


def length_of(run: Run, entry: Entry) -> int:
    """What a record's operation costs; -1 if it is not one of the pipeline."""
    if entry.key < 0:
        return -1
    pipeline = run.pipeline
    family, microbatch = divmod(entry.key, pipeline.microbatches)
    route = pipeline.route_of_microbatch[microbatch]
    length = run.facts.duration[route][family]
    if entry.second < 0:
        return length
    together = run.facts.overlap[route][family % pipeline.stages]
    family, microbatch = divmod(entry.second, pipeline.microbatches)
    return together if together >= 0 else length + run.facts.duration[pipeline.route_of_microbatch[microbatch]][family]


def apart(entry: Entry) -> tuple[Entry, ...]:
    """The operations of a record: of a pair both."""
    return (entry,) if entry.second < 0 else (entry._replace(second=-1), entry._replace(key=entry.second, second=-1))


def held_for(run: Run, sent: Sent) -> int:
    """How long a transfer holds its link; 0: it holds none, and is no transfer."""
    route = run.pipeline.route_of_microbatch[sent.microbatch]
    return run.facts.down_held[route][sent.stage - 1] if sent.back else run.facts.up_held[route][sent.stage]


def _add_sent(run: Run, op: str | Op | Pair, start: int, end: int | None) -> None:
    """Note a transfer; without ``end`` it takes what it has to."""
    pipeline = run.pipeline
    try:
        parsed = parse_transfer(op) if isinstance(op, str) else op
        if not isinstance(parsed, Op) or not isinstance(parsed.kind, Send):
            raise ValueError(f"{op} is no transfer")
        stage, kind, microbatch, _ = parsed
        if kind in (Send.OFFLOAD, Send.RELOAD):
            return _add_copied(run, parsed, start, end)
        back = kind == Send.SEND_B
        if not 0 <= microbatch < pipeline.microbatches or not back <= stage < pipeline.stages - (not back):
            raise ValueError(
                f"{op}: there is no such transfer in {pipeline.stages} stages and {pipeline.microbatches} microbatches"
            )
        sent = Sent(stage, back, microbatch, start, start)
        held = held_for(run, sent)
        if not held:
            raise ValueError(f"{op}: this transfer holds no link")
        run.sent.append(sent._replace(end=start + held if end is None else end))
    except ValueError as problem:
        run.found.append(Violation(Rule.UNKNOWN, None, str(op), run.time(start), f"among the transfers: {problem}"))


def _add_copied(run: Run, op: Op, start: int, end: int | None) -> None:
    """Note a copy; without ``end`` it takes what it has to."""
    stage, kind, microbatch, _ = op
    if not (0 <= stage < run.pipeline.stages and 0 <= microbatch < run.pipeline.microbatches):
        raise ValueError(f"{op}: there is no such stage or microbatch")
    back, route = kind == Send.RELOAD, run.pipeline.route_of_microbatch[microbatch]
    takes = (run.facts.copy_out, run.facts.copy_in)[back][route][stage]
    if takes < 0:
        raise ValueError(f"{op}: the pipeline copies nothing of stage {stage} to the host")
    run.copied.append(Copied(stage, back, microbatch, start, start + takes if end is None else end))


def _scaled(time: Number, scale: int) -> int:
    numerator, denominator = time.as_integer_ratio()
    return (2 * numerator * scale + denominator) // (2 * denominator)


def _op_of(schedule: Schedule, number: int) -> str | Op | Pair:
    try:
        return schedule.order.index.op(number)
    except ValueError:
        return f"operation number {number}"


def _entry(run: Run, device: int, op: str | Op | Pair, start: int, end: int) -> Entry:
    try:
        parsed = parse(op) if isinstance(op, str) else op
        if isinstance(parsed, Pair):
            if (parsed.forward.kind, parsed.backward.kind) != (Kind.F, Kind.B):
                raise ValueError(f"{parsed}: an overlapped pair is one F and one B")
            return Entry(_key(run.pipeline, parsed.forward), _key(run.pipeline, parsed.backward), start, end, "")
        return Entry(_key(run.pipeline, parsed), -1, start, end, "")
    except ValueError as problem:
        run.found.append(Violation(Rule.UNKNOWN, device, str(op), run.time(start), f"on device {device}: {problem}"))
        return Entry(-1, -1, start, end, str(op))


def _key(pipeline: Pipeline, op: Op) -> int:
    if not 0 <= op.stage < pipeline.stages:
        raise ValueError(f"{op}: there is no stage {op.stage}; stages are 0..{pipeline.stages - 1}")
    if not 0 <= op.microbatch < pipeline.microbatches:
        raise ValueError(f"{op}: there is no microbatch {op.microbatch}; microbatches are 0..{pipeline.microbatches - 1}")
    if isinstance(op.kind, Send):
        raise ValueError(f"{op}: a transfer, which no device runs")
    if op.kind in (Kind.I, Kind.W) and pipeline.costs.backward_input is None:
        raise ValueError(f"{op}: the costs have a fused backward only, no {op.kind.name}")
    pieces = pipeline.costs.weight_pieces if op.kind == Kind.W else 1
    if pieces == 1 and op.piece >= 0:
        raise ValueError(f"{op}: weight gradients are not cut into pieces")
    if pieces > 1 and not 0 <= op.piece < pieces:
        raise ValueError(f"{op}: weight gradients are cut into {pieces} pieces, which are numbered 0..{pieces - 1}")
    kind = op.kind + max(op.piece, 0)
    return (kind * pipeline.stages + op.stage) * pipeline.microbatches + op.microbatch
