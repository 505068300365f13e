"""Options of the commands that search."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from ppopt.cli import BEGUN
from ppopt.cli.options import Command
from ppopt.cli.values import Seconds
from ppopt.search.settings import MOST_WORKERS, SOLVERS, Settings
from ppopt.solvers.engines import ENGINES

best_cut_option = click.option(
    "--best-cut/--no-best-cut",
    "best_cut",
    default=None,
    help="Look for the best cut beside one that is settled.  [default: beside layers of each stage that are written out]",
)


LONG = 10.0
"""Seconds from which a time limit is that of the whole command, what it loads included; below, of the search alone."""


def within_all(settings: Settings) -> Settings:
    """The same with what the command has taken so far taken off its time limit, half of it at most."""
    if settings.deterministic or settings.seconds < LONG:
        return settings
    return dataclasses.replace(settings, seconds=settings.seconds - min(time.monotonic() - BEGUN, settings.seconds / 2))


def search_options(
    seconds: float, each: str = "", solvers: Sequence[str] = SOLVERS, objective: bool = True
) -> Callable[[Command], Command]:
    """The options of a search; the command gets ``objective`` and ``settings``.

    ``seconds`` is the default of the time limit, ``each`` says of what it is. Without ``objective`` it is always the makespan.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(
            solver: Any,
            time_limit: float,
            gap: float,
            workers: int | None,
            seed: int,
            deterministic: bool,
            engine: str | None = None,
            **others: Any,
        ) -> Any:
            try:
                chosen = Settings(time_limit, gap, solver, workers, seed, deterministic, engine)
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            return command(settings=chosen, **others)

        show: dict[str, Any] = {"show_default": True}
        options = (
            click.option(
                "--objective", type=click.Choice(["makespan", "span"]), default="makespan", help="What to minimise.", **show
            ),
            click.option("--solver", type=click.Choice(solvers), default="auto", help="Which solver.", **show),
            click.option(
                "--time-limit", type=Seconds(positive=True), default=seconds, metavar="S", help=f"Seconds{each}.", **show
            ),
            click.option("--gap", type=Seconds(most=1.0), default=0.0, metavar="G", help="Stop at this gap, a fraction.", **show),
            click.option("--workers", type=click.IntRange(1, MOST_WORKERS), help="Threads of the solver.  [default: all cores]"),
            click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, help="Seed of the search.", **show),
            click.option("--deterministic", is_flag=True, help="One worker and deterministic time: the same answer every time."),
        )
        if "ilp" in solvers:
            help_ = "Solve by the ILP, with this engine.  [default: cbc]"
            wrapped = click.option("--engine", type=click.Choice(ENGINES), help=help_)(wrapped)
        for option in reversed(options if objective else options[1:]):
            wrapped = option(wrapped)
        return wrapped  # type: ignore[return-value]

    return decorate
