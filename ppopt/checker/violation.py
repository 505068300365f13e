"""The rules by name, and a violation of one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """What a schedule, or the record of one, must obey. The values are the names in messages and JSON."""

    UNKNOWN = "unknown"
    """An operation of the pipeline: notation, stage, microbatch, and a kind that the costs have."""
    MISSING = "missing"
    """Every microbatch runs on every stage, forward and back."""
    TWICE = "twice"
    """No operation is run twice."""
    BOTH_BACKWARDS = "both-backwards"
    """A backward is run as B, or as I and W, never as both."""
    W_WITHOUT_I = "w-without-i"
    """A gradient of the weights follows that of the input."""
    DEVICE = "device"
    """An operation runs where the route of its microbatch has its stage."""
    PAIR = "pair"
    """An overlapped pair is one operation on one device: its halves start together only if it is written as one."""
    TIME = "time"
    """Starts and ends are finite numbers."""
    NEGATIVE = "negative"
    """Nothing starts before 0."""
    DURATION = "duration"
    """An operation takes what it costs."""
    ORDER = "order"
    """The operations of a device start in the order in which they are listed."""
    OVERLAP = "overlap"
    """A device runs one operation at a time."""
    DATA = "data"
    """An operation starts when the results that it needs exist."""
    LATENCY = "latency"
    """Results of another device have travelled before they are used."""
    PASS = "pass"
    """Before each pass of a stage its weights are gathered, and behind it its gradients scattered, where that is asked for."""
    TRANSFER = "transfer"
    """What goes to another device over a link that it holds is transferred once, from its end on, for as long as that takes."""
    LINK = "link"
    """A link carries one transfer at a time."""
    BLOCKING = "blocking"
    """Where transfers block, neither end computes while one holds the link."""
    TURN = "turn"
    """Microbatches that differ run in their order where that is given, the pieces of a sequence from its begin on."""
    MEMORY = "memory"
    """A device never holds more than its limit."""
    LATE = "late"
    """Every operation starts as early as order, data and links allow (asked for only of recorded times)."""
    METRIC = "metric"
    """Recorded figures are those that follow from the recorded times."""
    BOUND = "bound"
    """No schedule is better than a lower bound, and an optimal one reaches it."""
    COMMUNICATION = "communication"
    """A file that lists its communication lists all of it, in an order that ends (the checker of files for PyTorch says so)."""


@dataclass(frozen=True)
class Violation:
    """One rule, broken once.

    ``device`` and ``op`` say where (``None``, ``""``: it concerns the whole schedule); ``time``, in the model's unit, when
    (``None`` where there is no time, as for an operation that never runs). ``message`` is the whole of it in a sentence.
    """

    rule: Rule
    device: int | None
    op: str
    time: int | float | None
    message: str
