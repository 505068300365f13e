"""Every command of the page about the five systems is run, with less time, and its figures are those of the models."""

import importlib
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import FENCE, commands, lines
from tests.docs.test_commands import arguments_in
from tests.support.command import run
from tests.support.places import MODELS, ROOT
from tests.support.tiers import thorough

PAGE = ROOT / "docs" / "five-systems.md"
TEXT = FENCE.sub("", PAGE.read_text(encoding="utf-8"))
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
    for row in re.findall(r"^\| .*\|$", TEXT.split("## Other words")[0], re.MULTILINE)
    if not row.startswith("| it shows |")
]
COMMANDS = [*re.findall(r"^    (\S.*)$", TEXT, re.MULTILINE), *(row[1].strip("`") for row in ROWS)]
LESS = {"--time-limit": "1", "--points": "3", "--workers": "1", "--output": "out"}
"""Options that make a search shorter; with its study's smallest sizes, and without its curve of optima, a script is."""
SMALLEST = ("--quick", "--named-only", "--no-charts", "--time-limit", "--workers", "--output")
LONG = ("python scripts/memory_budget.py", "crosspipe-405b.toml", "solve models/seeds/distir-grid-search.toml")


def tier(command: str) -> list[pytest.MarkDecorator]:
    """Searches, pictures and studies are run with the thorough tests; what takes tens of seconds all the same is slow."""
    if any(part in command for part in LONG):
        return [pytest.mark.slow]
    return [] if re.match(r"ppopt (?:order|show|measured) [^&]*$", command) else [thorough]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(MODELS, tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", [pytest.param(command, marks=tier(command), id=command) for command in COMMANDS])
def test_is_run(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part in commands(command):
        if part.startswith("ppopt "):
            words, file = arguments_in(folder, part), part.partition(" > ")[2]
            printed = run(*words, *options(run(words[0], "--help").stdout, ("--time-limit", "--points", "--workers"))).stdout
            if file:
                (folder / file).write_text(printed)
            continue
        path, *words = shlex.split(part)[1:]
        main = importlib.import_module(Path(path).stem).main
        with pytest.raises(SystemExit):
            main(["--help"])
        main([*words, *options(capsys.readouterr().out, SMALLEST)])
        assert capsys.readouterr().out


def options(helped: str, wanted: tuple[str, ...]) -> Iterator[str]:
    """Those of these options that a command knows, with their values."""
    for flag in wanted:
        if re.search(rf"(?<!\S){flag}\b", helped):
            yield flag
            yield from LESS.get(flag, "").split()


def test_every_row_has_its_command() -> None:
    assert len(ROWS) > 45
    for shown, command, _ in ROWS:
        assert shown
        assert re.fullmatch(r"`(?:ppopt|python scripts/)[^`]+`", command), command
    known = {line.text for line in lines() if line.page == PAGE}
    assert {part for command in COMMANDS for part in commands(command)} <= known  # parsed by the tests of all pages, too


def test_every_model_of_the_systems_has_a_row() -> None:
    named = set(re.findall(r"models/seeds/([\w-]+)\.toml", TEXT))
    assert named == {path.stem for path in (MODELS / "seeds").glob("*.toml")}
