"""Where a search is: the placement, the cut, the step that it is at, told to who watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Trail: TypeAlias = tuple[str, ...]
"""Where a search is, the outermost first: ``("[2/5] loop v=2", "CP-SAT: decisions")``."""

_listener: ContextVar[Callable[[Trail], None] | None] = ContextVar("listener", default=None)
_trail: ContextVar[Trail] = ContextVar("trail", default=())


@contextmanager
def told(listener: Callable[[Trail], None]) -> Iterator[None]:
    """While this lasts, call ``listener`` with where the searches of this thread are, whenever that changes."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def at(name: str) -> Iterator[None]:
    """While this lasts, the search is at what ``name`` says, within where it is already."""
    listener = _listener.get()
    if listener is None:
        yield
        return
    outer = _trail.get()
    token = _trail.set((*outer, name))
    listener(_trail.get())
    try:
        yield
    finally:
        _trail.reset(token)
        listener(outer)
