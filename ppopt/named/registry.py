"""Which named schedules there are: those of this package, those that other packages bring, those that were registered.

Another package declares an entry point of the group ``ppopt.schedules``::

    [project.entry-points."ppopt.schedules"]
    mine = "package.module:OBJECT"

OBJECT is a :class:`~ppopt.named.Definition`, an iterable of them, or a function of no arguments that returns either.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from ppopt.named import (
    automatic,
    bidirectional,
    blocks,
    dualpipe,
    flush,
    hanayo,
    interleaved,
    work_maps,
    zero_bubble,
    zero_bubble_v,
)
from ppopt.named.definition import Definition, UnknownSchedule
from ppopt.named.row import Row
from ppopt.pipeline import PLACEMENTS, Pipeline

GROUP = "ppopt.schedules"
"""The group of entry points."""

BUILT_IN: Mapping[str, Definition] = MappingProxyType(
    {
        definition.name: replace(definition, built_in=True)
        for family in (
            flush,
            interleaved,
            hanayo,
            zero_bubble,
            automatic,
            zero_bubble_v,
            blocks,
            bidirectional,
            dualpipe,
            work_maps,
        )
        for definition in family.DEFINITIONS
    }
)
"""The schedules of this package, by name."""

_MEANT = MappingProxyType(
    {
        "zb1p": "zb1p is read as zb-h1, as PP-Emulation has it; the automatic scheduler with room for D activations is zb-1p",
        "zb2p": "zb2p is read as zb-h2; the automatic scheduler with room for 2D activations is zb-2p",
        "zb-1p": "zb-1p is the automatic scheduler with room for D activations; PP-Emulation's zb1p is zb-h1",
        "zb-2p": "zb-2p is the automatic scheduler with room for 2D activations; zb2p is zb-h2",
    }
)

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)


class ScheduleWarning(UserWarning):
    """An entry point of the group ``ppopt.schedules`` that gives no schedule; all others are there."""


class Registry(Mapping[str, Definition]):
    """Every named schedule by its name: built-in ones, those of entry points, those registered, in this order.

    Entry points are loaded when the mapping is first looked into, by distribution and name. One that cannot be loaded, or gives
    something else than schedules, is left out with a :class:`ScheduleWarning`.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._loaded: bool | None = False  # None: while they are being loaded
        self._of_packages: dict[str, Definition] = {}
        self._origin: dict[str, str] = {}
        self._registered: dict[str, Definition] = {}

    def __getitem__(self, name: str) -> Definition:
        for part in self._parts():
            if name in part:
                return part[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter([name for part in self._parts() for name in part])

    def __len__(self) -> int:
        return sum(map(len, self._parts()))

    def __repr__(self) -> str:
        return f"<named schedules: {', '.join(self)}>"

    def origin(self, name: str) -> str | None:
        """The distribution that brings the schedule of this name, and its version; ``None``: built in, or registered."""
        self._parts()
        return self._origin.get(name)

    def add(self, definition: Definition) -> None:
        """Take in a definition.

        Raises:
            ValueError: it is none, its name or placement is not possible, or a name of it belongs to another schedule.
        """
        with self._lock:
            self._parts()
            self._registered[definition.name] = self._checked(definition)

    def _parts(self) -> tuple[Mapping[str, Definition], ...]:
        if self._loaded is not True:
            with self._lock:
                if self._loaded is False:
                    self._load()
        return BUILT_IN, self._of_packages, self._registered

    def _load(self) -> None:
        self._loaded = None  # what is loaded may look into the mapping itself
        try:
            for point in sorted(entry_points(group=GROUP), key=lambda point: (_distribution(point), point.name, point.value)):
                self._take(point)
        except BaseException:  # an interrupt: the next look loads all of them
            self._loaded = False
            self._of_packages.clear()
            self._origin.clear()
            raise
        self._loaded = True

    def _take(self, point: EntryPoint) -> None:
        try:
            given = point.load()
            if callable(given) and not isinstance(given, Definition):
                given = given()
            definitions = [given] if isinstance(given, Definition) else _listed(given)
        except (Exception, SystemExit) as error:
            _warn(point, error)
            return
        for entry in definitions:
            try:
                definition = self._checked(entry)
            except ValueError as error:
                _warn(point, error)
            else:
                self._of_packages[definition.name] = definition
                self._origin[definition.name] = _distribution(point)

    def _checked(self, definition: object) -> Definition:
        if not isinstance(definition, Definition):
            raise ValueError(f"expected a ppopt.named.Definition, got {definition!r:.100}")
        name, aliases = definition.name, definition.aliases
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problem = "expected lower-case letters, digits and single hyphens between them"
            raise ValueError(f"a schedule cannot have the name {name!r}; {problem}")
        if not isinstance(aliases, tuple) or not all(isinstance(alias, str) and alias.strip() for alias in aliases):
            raise ValueError(f"{name}: expected a tuple of names as aliases, got {aliases!r}")
        if definition.routes is None and definition.work_map is None and definition.placement not in PLACEMENTS:
            expected = f"expected one of {', '.join(PLACEMENTS)}, or routes"
            raise ValueError(f"{name}: there is no placement {definition.placement!r}; {expected}")
        taken = {key_of(other): d.name for part in self._parts() for d in part.values() for other in (d.name, *d.aliases)}
        for own in (name, *aliases):
            if key_of(own) in taken:
                raise ValueError(f"{name}: the name {own!r} belongs to the schedule {taken[key_of(own)]}")
        return definition


def _listed(given: object) -> list[object]:
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise TypeError(f"expected a ppopt.named.Definition or an iterable of them, got {given!r:.100}")
    return list(given)


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else ""


def _warn(point: EntryPoint, error: BaseException) -> None:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    where = f"{_distribution(point) or 'an unknown distribution'}, entry point {point.name} = {point.value}"
    warnings.warn(f"no schedule from {where}: {text}", ScheduleWarning, stacklevel=2)


NAMED = Registry()
"""Every named schedule, by its name."""


def register(definition: Definition) -> Definition:
    """Make a schedule of your own one of the named ones, in this process; it is given back.

    A schedule that is to be there in every process, in the commands and in the workers of a sweep, is declared as an entry point
    of the group ``ppopt.schedules`` by the package that has it.

    Raises:
        ValueError: it is no :class:`~ppopt.named.Definition`, its name has other characters than lower-case letters, digits and
            hyphens, its placement does not exist and it has no routes, or its name or an alias belongs to another schedule.
    """
    NAMED.add(definition)
    return definition


def find(name: str) -> Definition:
    """The schedule of this name or alias; case does not matter, and an underscore is a hyphen.

    Raises:
        UnknownSchedule: nobody has this name; the nearest ones are given.
    """
    key = key_of(name)
    for definition in NAMED.values():
        if key in map(key_of, (definition.name, *definition.aliases)):
            return definition
    raise UnknownSchedule(name, [known for d in NAMED.values() for known in (d.name, *d.aliases)])


def key_of(name: str) -> str:
    """What two names of the same schedule have in common."""
    return name.lower().replace("_", "-")


def reading(name: str) -> str | None:
    """What ``name`` is read as, in words, where it is an alias or easily taken for another schedule; ``None``: it is plain.

    Raises:
        UnknownSchedule: nobody has this name.
    """
    definition, key = find(name), key_of(name)
    return _MEANT.get(key, None if key == definition.name else f"{name} is read as {definition.name}")


def shown_chunks(pipeline: Pipeline) -> tuple[int, ...]:
    """The numbers of chunks for which named schedules are shown beside a pipeline: its own above 1."""
    own: int | tuple[int, ...] = pipeline.chunks
    return tuple(count for count in (own if isinstance(own, tuple) else (own,)) if count > 1)


def each(chunks: Sequence[int], maps: bool = False) -> Iterator[tuple[Definition, int | None]]:
    """Every named schedule, those that take several numbers of chunks with each of ``chunks``; ``None``: its own number.

    ``maps``: also those that are maps of work and weights (:attr:`~ppopt.named.Definition.work_map`).
    """
    for definition in NAMED.values():
        if definition.work_map is not None and not maps:
            continue
        for v in (chunks or (None,)) if definition.any_chunks else (None,):
            yield definition, v


def shows_maps(pipeline: Pipeline, names: Collection[str] = ()) -> bool:
    """Whether maps of work and weights are shown beside a pipeline: it says something of weights, or of where backwards run; or
    one of them is among ``names``."""
    memory = pipeline.memory
    said = (memory.weights, memory.weights_on, memory.weights_kept, pipeline.links.weights, pipeline.backward_routes or None)
    return any(x is not None for x in said) or any(NAMED[name].work_map is not None for name in names if name in NAMED)


def none_applies(reason: str) -> list[Row]:
    """The rows where all named schedules are excluded for the same reason."""
    return [Row(d.name, d.placement, d.least_chunks, None, f"{d.name}: {reason}") for d, _ in each(())]
