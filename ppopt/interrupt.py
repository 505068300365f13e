"""Ctrl-C and SIGTERM: not in the midst of what must come to its end, such as an import, and never lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any, TypeAlias

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_came: list[int] = []

Handler: TypeAlias = Callable[[int, FrameType | None], Any]


@contextmanager
def noting() -> Iterator[None]:
    """While this lasts, :func:`check` raises for a signal that came, even if its KeyboardInterrupt was swallowed.

    NumPy, for one, looks up attributes of what it is given, and takes any error there for a missing one.
    """

    def note(number: int, frame: FrameType | None, forward: Handler) -> None:
        _came.append(number)
        forward(number, frame)

    with _handled(lambda handler: partial(note, forward=handler)):
        _came.clear()
        try:
            yield
        finally:
            _came.clear()


def check() -> None:
    """Raise KeyboardInterrupt if a signal came (see :func:`noting`).

    Raises:
        KeyboardInterrupt: one came.
    """
    if _came:
        raise KeyboardInterrupt


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that come while this lasts are handled at its end.

    For imports of compiled packages, and for compiling: a KeyboardInterrupt in the midst of these may be swallowed or become
    another error (seen with OR-Tools 9.15 and numba 0.68).
    """
    came: list[int] = []
    try:
        with _handled(lambda handler: lambda number, frame: came.append(number)):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextmanager
def held() -> Iterator[list[int]]:
    """Signals that come while this lasts are in the list that it gives, and raise nothing: for what has to be brought to its end,
    such as a result that is being written, and threads that have to be stopped. :func:`noting` knows of them.
    """
    came: list[int] = []

    def note(number: int, frame: FrameType | None, forward: Handler) -> None:
        came.append(number)
        with suppress(KeyboardInterrupt):
            forward(number, frame)

    with _handled(lambda handler: partial(note, forward=handler)):
        yield came


def lazily(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a ``package`` that imports compiled packages: each name from its module once it is used.

    ``modules`` has the module of each name. No signal interrupts the import (:func:`uninterrupted`).

    Raises:
        AttributeError: the package is asked for another name.
    """

    def attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with uninterrupted():
            module = import_module(f"{package}.{modules[name]}")
        return getattr(module, name)

    return attribute


@contextmanager
def _handled(wrap: Callable[[Handler], Handler]) -> Iterator[None]:
    """Wrap those handlers that are Python functions; outside the main thread, where no signal is handled, none."""
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in SIGNALS} if main else {}
    mine = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number, handler in mine.items():
        signal.signal(number, wrap(handler))
    try:
        yield
    finally:
        for number, handler in mine.items():
            signal.signal(number, handler)
