"""The words: streams of operations, and what is said of them.

A reader that meets a word it does not know raises: what compiles words has a method for each, what is about some of them takes
these by :func:`select`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar, overload

from ppopt.constraints.listed import Listed as Listed
from ppopt.op import WHOLE, Kind, Send, row_of


class Family(NamedTuple):
    """All operations of one stage, kind and route: ``X(k)`` is that of the route's k-th microbatch.

    ``piece``: of weight gradients in pieces the number of one; all of them where a word says it of whole ones
    (:func:`~ppopt.constraints.pieces.in_pieces`).
    """

    stage: int
    kind: Kind | Send
    route: int = 0
    piece: int = WHOLE

    @property
    def row(self) -> int:
        """Their row in tables by kind."""
        return row_of(self.kind, self.piece)

    def __str__(self) -> str:
        piece = f".{self.piece}" if self.piece >= 0 else ""
        return f"{self.stage}{self.kind.name}{piece}" + (f"@{self.route}" if self.route else "")


@dataclass(frozen=True)
class Dealt:
    """Families taken in turn, ``group`` operations of each at a time (the last round takes what is left).

    For chunks 0 and 4 and groups of 2: ``0F0 0F1 4F0 4F1 0F2 0F3 4F2 4F3 …``, the table of interleaved schedules.
    ``descending`` takes the operations of each group from the last to the first. With a ``stride`` of 2 each family gives
    its operations 0, 2, 4, … first and 1, 3, 5, … then.
    """

    families: tuple[Family, ...]
    group: int
    descending: bool = False
    stride: int = 1

    def __str__(self) -> str:
        return f"[{' '.join(map(str, self.families))}] by {self.group}"


Stream: TypeAlias = Family | Dealt | Listed


def sends(stream: Stream) -> bool:
    """Whether these are transfers, copies to the host among them."""
    return isinstance(stream, Family) and isinstance(stream.kind, Send)


# --- words -------------------------------------------------------------------------------------------------------


class Precede(NamedTuple):
    """For every k: ``start(after(k)) >= end(before(k - shift)) + lag``, where both are run.

    ``Precede(X, X, shift=1)`` keeps a stream in its own order. ``lag`` is in ticks.
    """

    before: Stream
    after: Stream
    shift: int = 0
    lag: int = 0

    def __str__(self) -> str:
        lag = f" + {self.lag}" if self.lag else ""
        index = f"k{-self.shift:+d}" if self.shift else "k"
        return f"{self.before}({index}){lag} < {self.after}(k)"


@dataclass(frozen=True)
class Exclusive:
    """No two operations of these streams run at once: they share a device, or a link."""

    streams: tuple[Stream, ...]

    @property
    def computes(self) -> bool:
        """Whether these are a device's computations and nothing else."""
        return not any(map(sends, self.streams))

    @property
    def computes_none(self) -> bool:
        """Whether these are the transfers of a link and nothing else."""
        return all(map(sends, self.streams))

    def __str__(self) -> str:
        return f"one at a time: {', '.join(map(str, self.streams))}"


class Hold(NamedTuple):
    """``amount`` held from the start of ``claim(k)``, if that is run, to the end of whichever of ``release(k)`` is run."""

    claim: Family
    release: tuple[Family, ...]
    amount: int

    def __str__(self) -> str:
        return f"{self.amount} from {self.claim} to {' or '.join(map(str, self.release))}"


@dataclass(frozen=True)
class Away:
    """Of what is held, ``amount`` is not from the end of ``out(k)`` to the start of ``back(k)``, where these are run."""

    out: Family
    back: Family
    amount: int

    def __str__(self) -> str:
        return f"but for {self.amount} from {self.out} to {self.back}"


@dataclass(frozen=True)
class Capacity:
    """At any time the sum of what ``holds`` hold is at most ``limit``; releases at a time come before claims at that time.

    What is ``away`` meanwhile belongs to the ``holds`` of the same stage.
    """

    holds: tuple[Hold, ...]
    limit: int
    away: tuple[Away, ...] = ()

    def __str__(self) -> str:
        return f"at most {self.limit}: {', '.join(map(str, (*self.holds, *self.away)))}"


@dataclass(frozen=True)
class Together:
    """For every k: ``first(k + shift)`` and ``second(k)`` are one overlapped pair, where both exist."""

    first: Stream
    second: Stream
    shift: int = 0

    def __str__(self) -> str:
        return f"one operation: {self.first}({f'k{self.shift:+d}' if self.shift else 'k'}) and {self.second}(k)"


@dataclass(frozen=True)
class Pairable:
    """Any operation of ``forwards`` may run with any of ``backwards`` as one overlapped pair, or not; each in at most one pair.

    A pair takes the overlap that the costs give its forward. Both halves start at its start and end at its end, in whatever
    other words say of them. ``alone``: whether a backward of these may also be run without a forward.
    """

    forwards: tuple[Family, ...]
    backwards: tuple[Family, ...]
    alone: bool = True


@dataclass(frozen=True)
class OneOf:
    """For every k exactly one alternative is run: all of its streams' operations ``X(k)``, and none of the others'.

    ``OneOf(((X,),))`` with one alternative: ``X`` is run.
    """

    alternatives: tuple[tuple[Stream, ...], ...]

    def __str__(self) -> str:
        return f"run {' or '.join(' and '.join(map(str, streams)) for streams in self.alternatives)}"


@dataclass(frozen=True)
class Maybe:
    """For every k all of ``streams``' operations ``X(k)`` are run, or none is."""

    streams: tuple[Stream, ...]

    def __str__(self) -> str:
        return f"run {' and '.join(map(str, self.streams))}, or not"


@dataclass(frozen=True)
class Lead:
    """For every k the device of ``family`` begins at least ``ticks`` before ``family(k)`` starts: with an all-gather, say."""

    family: Family
    ticks: int

    def __str__(self) -> str:
        return f"its device begins {self.ticks} before {self.family}"


@dataclass(frozen=True)
class Tail:
    """For every k the device of ``family`` ends at least ``ticks`` after ``family(k)`` ends: with a reduce-scatter, say."""

    family: Family
    ticks: int

    def __str__(self) -> str:
        return f"its device ends {self.ticks} after {self.family}"


class Turn(NamedTuple):
    """Families that run without a pause among them; ``before`` and ``after``: ticks between them and those of other turns."""

    families: tuple[Family, ...]
    before: int
    after: int


@dataclass(frozen=True)
class Turns:
    """Of what is run of two turns on one device: ``start(b) >= end(a) + after of a's turn + before of b's`` where a runs first.

    So it is for all of them if it is for those that follow each other. A device's forwards, say, in passes: the weights of each
    pass are gathered once the pass before it, of another stage, has ended.
    """

    turns: tuple[Turn, ...]

    def __str__(self) -> str:
        return f"in turns: {', '.join(' '.join(map(str, turn.families)) for turn in self.turns)}"


Word: TypeAlias = Precede | Exclusive | Capacity | Together | Pairable | OneOf | Maybe | Lead | Tail | Turns

Some = TypeVar("Some", bound=Word)
Other = TypeVar("Other", bound=Word)


@overload
def select(words: Iterable[object], kind: type[Some], /) -> tuple[Some, ...]: ...
@overload
def select(words: Iterable[object], kind: type[Some], other: type[Other], /) -> tuple[Some | Other, ...]: ...
def select(words: Iterable[object], *kinds: type) -> tuple[object, ...]:
    """Those of ``words`` that are of these kinds: how a reader takes what it is about, and leaves the rest aside.

    Raises:
        TypeError: something is no word at all, so that nobody can tell what it says.
    """
    words = tuple(words)
    there = set(map(type, words))  # a few, of hundreds of thousands of words where microbatches differ
    if not all(issubclass(kind, Word) for kind in there):
        word = next(word for word in words if not isinstance(word, Word))
        raise TypeError(f"expected a word of ppopt.constraints, got {word!r:.100}")
    wanted = {kind for kind in there if issubclass(kind, kinds)}
    return tuple(word for word in words if type(word) in wanted) if wanted else ()


def chain(stream: Stream) -> Precede:
    """The stream runs in its own order."""
    return Precede(stream, stream, shift=1)


def run(streams: Iterable[Stream]) -> tuple[OneOf, ...]:
    """These operations are run."""
    return tuple(OneOf(((stream,),)) for stream in streams)
