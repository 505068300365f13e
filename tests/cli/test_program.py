"""The program: help, version, exit codes, signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ppopt.cli import COMMANDS, main
from tests.support.command import run


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.short_help == COMMANDS[name]
    help_text = run(name, "--help").stdout
    assert f"\n    ppopt {name}" in help_text
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts} has no help"


def test_help_lists_every_command_and_the_exit_codes() -> None:
    shown = run("--help").stdout
    assert all(f"  {name} " in shown and line in shown for name, line in COMMANDS.items())
    assert "130  interrupted" in shown


def test_version_names_the_solvers() -> None:
    shown = run("--version").stdout
    assert shown.startswith("ppopt ")
    assert "ortools " in shown


def test_the_program_is_a_module_too() -> None:
    result = subprocess.run([sys.executable, "-m", "ppopt", "compair"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert "did you mean compare?" in result.stderr


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m ppopt order gpipe -d 16 -m 4000 | head -c 10"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("0F0,0F1,0F", "")


def test_termination_is_an_interruption(tmp_path: Path) -> None:
    """SIGTERM ends a command as Ctrl-C does, with exit code 130 and no traceback."""
    fifo = tmp_path / "model.toml"
    os.mkfifo(fifo)
    process = subprocess.Popen([sys.executable, "-m", "ppopt", "compare", str(fifo)], stderr=subprocess.PIPE, text=True)
    with open(fifo, "w"):  # opens once the program reads: its handler is in place
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr.strip()) == (130, "interrupted")
