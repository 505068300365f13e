"""How a search is going, on standard error: a live line on a terminal, else a line now and then, or JSON for programs."""

from __future__ import annotations

import json
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from ppopt.text import number, percent

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.live import Live
    from rich.text import Text

    from ppopt.search import Result, Trail

FIRST, GROWTH = 1.0, 1.5
"""Without a terminal: seconds to the first line, and how many times later than a line the next one comes."""
APART = 0.25
"""Seconds between two JSON objects at least."""
Form: TypeAlias = Literal["text", "json", "none"]

progress_option = click.option(
    "--progress",
    "form",
    type=click.Choice(["text", "json", "none"]),
    default="text",
    show_default=True,
    help="How the search is going, on standard error: lines, a JSON object a line, or nothing.",
)


class Progress:
    """Called with the best value and the lower bound, in the user's unit, whenever one improves; from any thread.

    ``what`` is minimised, in ``unit``. While it is entered, it also hears where the searches of its thread are.
    """

    def __init__(self, what: str, unit: str = "", form: Form = "text") -> None:
        self._what, self._unit, self._form = what, unit, form
        self._begun = time.monotonic()
        self._state: tuple[int | float | None, int | float | None] = (None, None)
        self._trail: Trail = ()
        self._live: Live | None = None
        self._ended, self._changed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._heard: AbstractContextManager[None] | None = None

    def __enter__(self) -> Progress:
        from ppopt.search import told

        self._heard = told(self.at)
        self._heard.__enter__()
        if self._form == "text" and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._live = Live(console=console, get_renderable=self._renderable, transient=True, redirect_stdout=False)
            self._live.start()
        elif self._form != "none":
            target = self._lines if self._form == "text" else self._objects
            self._thread = threading.Thread(target=target, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._changed.set()
        if self._heard is not None:
            self._heard.__exit__(None, None, None)
        if self._live is not None:
            self._live.stop()
        if self._thread is not None:
            self._thread.join()

    def __call__(self, value: int | float | None, lower_bound: int | float) -> None:
        """Note the best value and the bound."""
        self._state = value, lower_bound
        self._changed.set()

    def at(self, trail: Trail) -> None:
        """Note where the search is."""
        self._trail = trail
        self._changed.set()

    def point(self, result: Result) -> None:
        """Say what was found for one of several numbers of microbatches."""
        value = "nothing" if result.value is None else number(result.value)
        self.told(f"{result.pipeline.microbatches} microbatches: {value} ({result.seconds:.1f} s)")
        self._state = (None, None)

    def told(self, line: str) -> None:
        """A line for people."""
        if self._form == "text":
            click.echo(line, err=True)

    def _lines(self) -> None:
        """A line now and then, ever more rarely, until the end."""
        wait = FIRST
        while not self._ended.wait(wait):
            click.echo(self.line(), err=True)
            wait = (GROWTH - 1) * (time.monotonic() - self._begun)

    def _objects(self) -> None:
        """An object on every change, at most one in :data:`APART` seconds; the last one is told at the end."""
        told: dict[str, Any] | None = None
        while True:
            self._changed.wait()
            self._changed.clear()
            ended = self._ended.is_set()
            tree = self.tree()
            if tree != told:
                told = tree
                timed = {**tree, "seconds": round(time.monotonic() - self._begun, 3)}
                click.echo(json.dumps(timed, ensure_ascii=False), err=True)
            if ended:
                return
            self._ended.wait(APART)

    def tree(self) -> dict[str, Any]:
        """Best value and lower bound (null: not known yet), and where the search is."""
        value, bound = self._state
        return {"value": value, "bound": bound, "seconds": None, "at": list(self._trail)}

    def line(self) -> str:
        """Seconds, best value, lower bound, gap, and where the search is."""
        parts = [f"{time.monotonic() - self._begun:6.1f} s"]
        value, bound = self._state
        if value is not None:
            parts.append(f"best {self._what} {number(value)} {self._unit}".rstrip())
        if bound is not None:
            parts.append(f"bound {number(bound)} {self._unit}".rstrip())
        if value is not None and bound is not None:
            parts.append(f"gap {percent((value - bound) / value if value else 0.0)}")
        return "   ".join([*parts, ": ".join(self._trail)] if self._trail else parts)

    def _renderable(self) -> Text:
        """The line, no wider than the terminal."""
        from rich.text import Text

        return Text(self.line(), no_wrap=True, overflow="ellipsis")
