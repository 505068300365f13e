"""How a search is going, on standard error: a live line on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

import click

from ppopt.cli.render import number, percent
from ppopt.files.result import gap
from ppopt.pipeline import Pipeline

if TYPE_CHECKING:
    from rich.live import Live

FIRST, GROWTH = 1.0, 1.25
"""Without a terminal: no line before this many seconds, and each at least so many times later than the one before."""


class Progress:
    """Called with the best value and the lower bound, in ticks, whenever one improves; from any thread."""

    def __init__(self, pipeline: Pipeline, objective: str) -> None:
        self._pipeline = pipeline
        self._objective = objective
        self._begun = time.monotonic()
        self._next = FIRST
        self._value: int | None = None
        self._bound: int | None = None
        self._lock = threading.Lock()
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(stderr=True),
                get_renderable=self.line,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, value: int | None, lower_bound: int) -> None:
        """Note the best value and the bound; print them, where it is time to."""
        with self._lock:
            self._value, self._bound = value, lower_bound
            elapsed = time.monotonic() - self._begun
            if self._live is None and elapsed >= self._next:
                self._next = GROWTH * elapsed
                click.echo(self.line(), err=True)

    def line(self) -> str:
        """Seconds, best value, lower bound, gap."""
        parts = [f"{time.monotonic() - self._begun:6.1f} s"]
        unit = self._pipeline.units.time
        if self._value is not None:
            parts.append(f"best {self._objective} {number(self._pipeline.time(self._value))} {unit}".rstrip())
        if self._bound is not None:
            parts.append(f"bound {number(self._pipeline.time(self._bound))} {unit}".rstrip())
            share = gap(self._value, self._bound)
            if share is not None:
                parts.append(f"gap {percent(share)}")
        return "   ".join(parts)
