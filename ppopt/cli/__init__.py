"""The command line. Commands are imported when they run: this module imports click and nothing that takes time."""

from __future__ import annotations

import difflib
import importlib
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

import click

from ppopt import __version__
from ppopt.collector import seldom_collecting
from ppopt.interrupt import uninterrupted

BEGUN = time.monotonic()
"""When the command began, but for some hundredths of a second."""
COMMANDS = {
    "solve": "The best schedule, with its proof.",
    "compare": "All named schedules on this hardware, side by side.",
    "order": "One named schedule's order, as CSV in PyTorch's notation.",
    "show": "One schedule: its chart, and where the time of each device goes.",
    "check": "Every rule that a schedule violates.",
    "frontier": "Makespan against memory limit, point by point with bounds.",
    "plan": "The best sizes, cut and schedule for a model on a cluster.",
    "sweep": "Many pipelines, resumable.",
    "results": "What sweeps have found, as table, CSV or JSON.",
    "plot": "Schedules as pictures, or as an interactive page.",
    "serve": "The form in a browser: schedules side by side, searches, plans.",
    "export": "A schedule as a file for PyTorch, Perfetto or other runtimes.",
    "estimate": "A model file from a config.json or sizes, and hardware.",
    "profile": "A model file from a real run.",
    "measured": "A step of a real run, drawn and summed up, beside its plan.",
    "layout": "How a runtime cuts the layers of a model into stages.",
    "schedules": "The named schedules.",
}
"""Name -> first line of its help; ``ppopt.cli.NAME`` holds the command, under the same name."""

INTERRUPTED = 130


class Commands(click.Group):
    """A group whose commands are modules, imported on demand; it turns errors of the library into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order in which help shows them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; a Ctrl-C waits until that is done."""
        if cmd_name not in COMMANDS:
            return None
        with uninterrupted():
            command: click.Command = getattr(importlib.import_module(f"ppopt.cli.{cmd_name}"), cmd_name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is an error that names the nearest."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of the user's is one line and exit code 2."""
        try:
            return super().invoke(ctx)
        except ValueError as error:
            from ppopt.cli.failures import failure

            shown = failure(error)
            if shown is None:
                raise
            raise shown from error

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run the program and exit with the documented code."""
        extra.pop("standalone_mode", None)
        terminate = signal.signal(signal.SIGTERM, _interrupt)
        try:
            with _noting(), seldom_collecting():
                code = super().main(args, prog_name or "ppopt", standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            code = INTERRUPTED
        except BrokenPipeError:  # the reader went away: nobody is left to tell
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        finally:
            signal.signal(signal.SIGTERM, terminate)
        sys.exit(code)


@contextmanager
def _noting() -> Iterator[None]:
    """Warnings of this package are lines on standard error; others are shown as ever."""
    shown = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if file is None and category.__module__.partition(".")[0] == "ppopt":
            click.echo(f"Note: {message}.", err=True)
        else:
            shown(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = shown


def _interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM acts as Ctrl-C does."""
    raise KeyboardInterrupt


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    click.echo(f"ppopt {__version__}")
    for package in ("ortools", "pulp", "highspy", "numba"):
        try:
            click.echo(f"{package} {version(package)}")
        except PackageNotFoundError:
            click.echo(f"{package} not installed")
    ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Versions of ppopt, its solvers and numba.",
)
def main() -> None:
    """Optimal pipeline-parallel training schedules, with proof.

    MODEL is a model file (docs/model-file.md) or - for standard input; without it a pipeline with unit costs is built from
    -d and -m. Results go to standard output, progress and notes to standard error.

    \b
    Examples:
      ppopt compare -d 4 -m 8
      ppopt solve models/gpt-1.5b.toml
      ppopt order zb-h1 -d 4 -m 8 > order.csv

    \b
    Exit codes:
      0    a checked schedule was written
      1    check found violations, layout was refused, or an operation failed
      2    usage, or an error in the model file
      3    infeasible: no schedule can satisfy the model
      4    nothing found within the limits
      130  interrupted with nothing to keep
    """
