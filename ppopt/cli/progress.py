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

FIRST, GROWTH = 1.0, 1.5
"""Without a terminal: seconds to the first line, and how many times later than a line the next one comes."""


class Progress:
    """Called with the best value and the lower bound, in ticks, whenever one improves; from any thread."""

    def __init__(self, pipeline: Pipeline, objective: str) -> None:
        self._pipeline = pipeline
        self._objective = objective
        self._begun = time.monotonic()
        self._state: tuple[int | None, int | None] = (None, None)
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

    def __call__(self, value: int | None, lower_bound: int) -> None:
        """Note the best value and the bound."""
        self._state = value, lower_bound

    def _lines(self) -> None:
        """A line now and then, ever more rarely, until the end."""
        wait = FIRST
        while not self._ended.wait(wait):
            click.echo(self.line(), err=True)
            wait = (GROWTH - 1) * (time.monotonic() - self._begun)

    def line(self) -> str:
        """Seconds, best value, lower bound, gap."""
        parts = [f"{time.monotonic() - self._begun:6.1f} s"]
        unit = self._pipeline.units.time
        value, bound = self._state
        if value is not None:
            parts.append(f"best {self._objective} {number(self._pipeline.time(value))} {unit}".rstrip())
        if bound is not None:
            parts.append(f"bound {number(self._pipeline.time(bound))} {unit}".rstrip())
            share = gap(value, bound)
            if share is not None:
                parts.append(f"gap {percent(share)}")
        return "   ".join(parts)
