"""How a search is going, on standard error: a live line on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

import click

from ppopt.pipeline import Pipeline
from ppopt.text import number, percent

if TYPE_CHECKING:
    from rich.live import Live

    from ppopt.search import Result

FIRST, GROWTH = 1.0, 1.5
"""Without a terminal: seconds to the first line, and how many times later than a line the next one comes."""


class Progress:
    """Called with the best value and the lower bound, in the user's unit, whenever one improves; from any thread."""

    def __init__(self, pipeline: Pipeline, objective: str) -> None:
        self._unit = pipeline.units.time
        self._objective = objective
        self._begun = time.monotonic()
        self._state: tuple[int | float | None, int | float | None] = (None, None)
        self._live: Live | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._live = Live(console=console, get_renderable=self.line, transient=True, redirect_stdout=False)
            self._live.start()
        else:
            threading.Thread(target=self._lines, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        if self._live is not None:
            self._live.stop()

    def __call__(self, value: int | float | None, lower_bound: int | float) -> None:
        """Note the best value and the bound."""
        self._state = value, lower_bound

    def point(self, result: Result) -> None:
        """Say what was found for one of several numbers of microbatches."""
        value = "nothing" if result.value is None else result.value
        click.echo(f"{result.pipeline.microbatches} microbatches: {value} ({result.seconds:.1f} s)", err=True)
        self._state = (None, None)

    def _lines(self) -> None:
        """A line now and then, ever more rarely, until the end."""
        wait = FIRST
        while not self._ended.wait(wait):
            click.echo(self.line(), err=True)
            wait = (GROWTH - 1) * (time.monotonic() - self._begun)

    def line(self) -> str:
        """Seconds, best value, lower bound, gap."""
        parts = [f"{time.monotonic() - self._begun:6.1f} s"]
        value, bound = self._state
        if value is not None:
            parts.append(f"best {self._objective} {number(value)} {self._unit}".rstrip())
        if bound is not None:
            parts.append(f"bound {number(bound)} {self._unit}".rstrip())
        if value is not None and bound is not None:
            parts.append(f"gap {percent((value - bound) / value if value else 0.0)}")
        return "   ".join(parts)
