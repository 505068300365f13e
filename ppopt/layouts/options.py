"""Options of runtimes: their names, what each may be, and what is said of one that is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

from ppopt.pipeline import MAX_DEVICES, MAX_STAGES

Rows: TypeAlias = tuple[tuple[str, ...], ...]
"""Names, stage by stage."""

MAX_LAYERS = 100_000
"""Most layers of a model."""


class OptionError(ValueError):
    """An option that a runtime does not have, that is missing, or whose value is of the wrong kind."""


class Kind(NamedTuple):
    """What the value of an option may be."""

    expected: str
    fits: Callable[[object], bool]


def _kind(expected: str, fits: Callable[[object], bool]) -> Mapping[str, Kind]:
    """Metadata of a field of :class:`Options`."""
    return MappingProxyType({"kind": Kind(expected, fits)})


def _whole(least: int | None = None, most: int | None = None) -> Callable[[object], bool]:
    def fits(value: object) -> bool:
        low = least is None or (isinstance(value, int) and value >= least)
        return type(value) is int and low and (most is None or value <= most)

    return fits


def _rows(value: object) -> bool:
    lists = (list, tuple)
    return isinstance(value, lists) and all(isinstance(row, lists) and all(isinstance(e, str) for e in row) for row in value)


DEVICES = _kind(f"a whole number from 1 to {MAX_DEVICES}", _whole(1, MAX_DEVICES))
LAYERS = _kind(f"a whole number from 1 to {MAX_LAYERS}", _whole(1, MAX_LAYERS))
SOME_LAYERS = _kind(f"a whole number from 0 to {MAX_LAYERS}", _whole(0, MAX_LAYERS))
COUNT = _kind("a whole number >= 1", _whole(1))
NUMBER = _kind("a whole number", _whole())
FLAG = _kind("true or false", lambda value: isinstance(value, bool))
TEXT = _kind("a string", lambda value: isinstance(value, str))
NAMES = _kind("a list with a list of names for each stage", _rows)
TEXT_OR_NAMES = _kind("a string, or a list with a list of names for each stage", lambda v: isinstance(v, str) or _rows(v))


@dataclass(frozen=True)
class Options:
    """The options of a runtime, by the names that it gives them. ``None``: not given. Lists become tuples.

    The metadata of each field says what its value may be; a field without a default is needed.

    Raises:
        OptionError: a value is of the wrong kind.
    """

    RUNTIME: ClassVar[str] = ""
    GIVEN_AS: ClassVar[str] = ""
    """The option that holds the layout itself."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None and each.default is None:
                continue
            kind: Kind = each.metadata["kind"]
            if not kind.fits(value):
                raise OptionError(f"{self.RUNTIME}: {each.name}: expected {kind.expected}, got {_shown(value)}")
            if isinstance(value, (list, tuple)):
                object.__setattr__(self, each.name, tuple(map(tuple, value)))

    @classmethod
    def of(cls, given: Mapping[str, object]) -> Self:
        """The options in a table of names and values; a value of ``None`` is one that is not given.

        Raises:
            OptionError: an option is unknown, missing, or of the wrong kind.
        """
        known: dict[str, Field[Any]] = {each.name: each for each in fields(cls)}
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"its options are {', '.join(known)}"
                raise OptionError(f"{cls.RUNTIME}: {name}: unknown option; {hint}")
        values = {name: value for name, value in given.items() if value is not None}
        missing = [name for name, each in known.items() if each.default is MISSING and name not in values]
        if missing:
            raise OptionError(f"{cls.RUNTIME}: {', '.join(missing)}: missing")
        return cls(**values)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + " …"


def check_stages(count: int) -> None:
    """A number of stages that is supported.

    Raises:
        OptionError: there are more.
    """
    if count > MAX_STAGES:
        raise OptionError(f"at most {MAX_STAGES} stages are supported, got {count}")
