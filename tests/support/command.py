"""The command line without a process of its own."""

import json
from typing import Any

from click.testing import CliRunner, Result

from ppopt.cli import main

QUICK = ("--workers", "1", "--time-limit", "60")
"""For searches that end with a proof, long before that."""


def run(*args: object, stdin: str | bytes | None = None, code: int = 0) -> Result:
    """What a command prints; it ends with ``code``, and without a traceback."""
    result = CliRunner().invoke(main, [str(arg) for arg in args], input=stdin)
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code == code, result.output
    return result


def refused(*args: object, stdin: str | bytes | None = None) -> str:
    """What a command says on standard error that ends with code 2 and prints nothing else."""
    result = run(*args, stdin=stdin, code=2)
    assert result.stdout == ""
    return result.stderr


def read(*args: object, **more: Any) -> Any:
    """The JSON that a command prints."""
    return json.loads(run(*args, "--json", **more).stdout)


def solve(*args: object, code: int = 0) -> Any:
    """The JSON of ``ppopt solve``."""
    return read("solve", *args, *QUICK, code=code)
