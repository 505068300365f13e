"""Inner loops: one source each, run by Python where there is little to do, and compiled by numba where there is much.

A loop is a function of numbers, of one-dimensional arrays of 64-bit integers, and of tuples of these. Without numba, and for few
operations, Python runs it on lists: single entries of these are read faster than those of arrays, and its integers have no end.
With numba it is compiled when it is first used, and kept on disk beside its source (or in the user's cache folder), so that later
runs only load it. Both give the same numbers.

To load numba takes a moment, which only much work makes up for. So what the loops of a process have done is counted, in
operations, each with the time that it takes in Python: once that is as long as loading takes, numba is loaded. So no run takes
much more than twice as long as it would with the better choice, and what is chosen depends on no clock. Who knows beforehand that
much is to be done says so (:func:`expect`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np

from ppopt.interrupt import uninterrupted

LOADING = 1.0
"""Seconds that loops take in Python before numba is loaded. Measured: to import numba takes 0.5 s, and every loop that was
compiled before 0.03 s more; from then on the loops take a hundredth to a tenth of what they took."""
Part: TypeAlias = Callable[..., Any] | tuple[Callable[..., Any], Callable[..., Any]]
"""A function that a loop calls; or one that Python calls, and one that numba compiles in its place."""
MOST = 2**62
"""Compiled loops keep to numbers below this; where larger ones may occur, Python runs them, whose integers have no end."""


class Loop:
    """A function that Python or numba runs (:func:`loop`)."""

    def __init__(self, function: Callable[..., Any], seconds: float, changes: Sequence[str], parts: Sequence[Part]):
        self.function, self.seconds, self.parts = function, seconds, tuple(parts)
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        self._changed = [(names.index(name), field) for name, _, field in (change.partition(".") for change in changes)]
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, operations: int, largest: int, *arguments: Any) -> Any:
        """What the function gives for these arguments. The arrays that it changes are changed.

        ``operations``: how many it works on. ``largest``: no number that occurs is larger.

        Raises:
            OverflowError: a number for an array has more than 64 bits.
        """
        if _state.pays(operations * self.seconds) and largest < MOST:
            if self._compiled is None:
                with _lock:
                    self._compiled = self._compiled or _compiled(self.function, self.parts)
            return self._compiled(*arguments)
        plain = [_plain(argument) for argument in arguments]
        found = self.function(*plain)
        for place, field in self._changed:
            changed, to = (getattr(of[place], field) if field else of[place] for of in (arguments, plain))
            changed[:] = to
        return found


def loop(seconds: float, changes: Sequence[str] = (), parts: Sequence[Part] = ()) -> Callable[[Callable[..., Any]], Loop]:
    """Make a :class:`Loop` of a function.

    ``seconds``: what Python takes for an operation, about. ``changes``: the arguments whose arrays it changes, or, with a dot,
    fields of these. ``parts``: the functions that it calls, and that these call; a pair of functions is one for Python and one
    for numba. What is kept on disk is compiled again when a module of these changes.
    """
    return lambda function: Loop(function, seconds, changes, parts)


class _State:
    """What the loops of this process have done in Python, and whether numba is there."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.forced: bool | None = None
        self._there: bool | None = None

    def pays(self, seconds: float) -> bool:
        """Whether this much more is to be done by compiled loops."""
        if self.forced is not None:
            return self.forced and self.there
        self.spent += seconds
        return self.spent > LOADING and self.there

    def expect(self, seconds: float) -> None:
        """So much is to be done soon."""
        if self.spent + seconds > LOADING:
            self.spent = max(self.spent, LOADING)

    @property
    def there(self) -> bool:
        """Whether numba can be loaded here."""
        if self._there is None:
            self._there = _loads()
        return self._there


_state = _State()


@contextmanager
def using(compiled: bool) -> Iterator[None]:
    """While this lasts, all loops are compiled, or none: for tests and benchmarks."""
    before, _state.forced = _state.forced, compiled
    try:
        yield
    finally:
        _state.forced = before


def available() -> bool:
    """Whether numba can be loaded here."""
    return _state.there


def expect(operations: int, *loops: Loop) -> None:
    """Loops will work on so many operations soon, each of them on all: where that is much, none of it is left to Python."""
    _state.expect(operations * sum(loop.seconds for loop in loops))


def bare(argument: Any) -> Any:
    """A tuple of arrays that a loop hands on to its parts; what is beside arrays is kept.

    Compiled, it has their addresses alone, without lengths. To hand on an array as it is takes seven numbers, and every function
    counts one reference more to each: both together took two thirds of the time of a list schedule. A named tuple is handed on as
    the place of these addresses, which is there until the function ends that calls this. Measured against as many arguments as it
    has fields: state graphs take four fifths of the time, moves of the tabu search three quarters.
    """
    return argument


def _plain(argument: Any) -> Any:
    if hasattr(argument, "plain"):
        return argument.plain()
    if isinstance(argument, tuple):
        made = map(_plain, argument)
        return argument._make(made) if hasattr(argument, "_make") else tuple(made)
    return argument.tolist() if isinstance(argument, np.ndarray) else argument


def _loads() -> bool:
    if find_spec("numba") is None:
        return False
    try:
        with uninterrupted():
            import numba.core.event
    except ImportError:  # it has no support for this version of Python or NumPy
        return False
    numba.core.event.register(  # type: ignore[no-untyped-call]
        "numba:compile", _teller()
    )
    return True


def _teller() -> Any:
    """What says once that loops are being compiled."""
    from numba.core.event import Event, Listener

    class Teller(Listener):
        said = False

        def on_start(self, event: Event) -> None:
            if not self.said:
                self.said = True
                print("Compiling inner loops, once after installation: some seconds.", file=sys.stderr)

        def on_end(self, event: Event) -> None:
            pass

    return Teller()


def _compiled(function: Callable[..., Any], parts: Sequence[Part]) -> Callable[..., Any]:
    with uninterrupted():
        from ppopt.compiled.taught import compiled_loop

        made: Callable[..., Any] = compiled_loop(_with_parts(_stamped(function, parts), parts))
    return made


def _with_parts(function: Callable[..., Any], parts: Sequence[Part]) -> FunctionType:
    """The function, in which the names of its parts mean what numba compiles: each part once, for all loops that call it."""
    from ppopt.compiled.taught import compiled_part

    made = _copy(function)
    copies = [made]
    for own, instead in (part if isinstance(part, tuple) else (part, part) for part in parts):
        if own not in _parts:
            copies.append(_copy(instead))
            _parts[own] = compiled_part(copies[-1])
    for names in (copy.__globals__ for copy in copies):
        called = [name for name, value in names.items() if isinstance(value, FunctionType) and value in _parts]
        names.update({name: _parts[names[name]] for name in called})
    return made


_parts: dict[Callable[..., Any], Any] = {}
"""Parts of loops, as numba compiles them."""
_lock = Lock()
"""Two threads may need a loop for the first time at once."""


def _copy(function: Callable[..., Any]) -> FunctionType:
    """The function with names of its own."""
    copy = FunctionType(function.__code__, dict(function.__globals__), function.__name__)
    copy.__qualname__ = function.__qualname__
    return copy


def _stamped(function: Callable[..., Any], parts: Sequence[Part]) -> Callable[..., Any]:
    """The function with a name that says what its parts in other modules are: under that name numba keeps it, who sees by itself
    only when the function's own module changes."""
    modules = {own.__module__ for part in parts for own in (part if isinstance(part, tuple) else (part,))} - {function.__module__}
    sources = [Path(path) for name in sorted(modules) if (path := sys.modules[name].__file__)]
    if sources:
        stamp = crc32(b"".join(source.read_bytes() for source in sources if source.exists()))
        function = _copy(function)
        function.__qualname__ += f"-{stamp:08x}"
    return function
