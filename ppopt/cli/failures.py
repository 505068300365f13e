"""Errors of the library that are the user's to mend, as one line and exit code 2."""

from __future__ import annotations

import click

from ppopt.files import FileError, ModelError, ResultError
from ppopt.files.recorded import ProfileError
from ppopt.files.torch_csv import CsvError
from ppopt.layouts import NotExpressible, OptionError
from ppopt.named import Restriction, UnknownSchedule
from ppopt.pipeline import PipelineError
from ppopt.pipeline.runtimes import NotForTorch
from ppopt.search.verifying import Unanswerable
from ppopt.solvers.engines import NoEngine
from ppopt.solvers.outcome import NotForIlp, TooLarge

_MENDABLE = (
    CsvError,
    FileError,
    ModelError,
    NoEngine,
    NotExpressible,
    NotForIlp,
    NotForTorch,
    OptionError,
    PipelineError,
    ProfileError,
    Restriction,
    ResultError,
    TooLarge,
    Unanswerable,
    UnknownSchedule,
)


class Failure(click.ClickException):
    """Shown as ``Error: …``."""

    exit_code = 2


def failure(error: ValueError) -> Failure | None:
    """How an error is shown; ``None`` for what is a mistake of the program and deserves its traceback."""
    return Failure(str(error)) if isinstance(error, _MENDABLE) else None
