"""Every command line of the pages: parsed, its options known; and those that stand alone are run, with less time."""

import glob
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from ppopt.cli import COMMANDS, main
from tests.docs.pages import PAGES, Line, blocks, lines
from tests.support.command import run
from tests.support.places import ROOT
from tests.support.tiers import thorough

LINES = lines()
OF_PPOPT = [line for line in LINES if line.text.startswith("ppopt ")]
OF_SCRIPTS = [line for line in LINES if line.text.startswith("python scripts/")]
OTHERS = [line for line in LINES if line not in OF_PPOPT and line not in OF_SCRIPTS]
ELSEWHERE = ("tcp://",)
"""Command lines with one of these need another machine, and are parsed only."""
STANDS_FOR = {
    **{"MODEL": "models/1f1b.toml", "FILE": "best.json", "FILE…": "best.json", "SCHEDULE": "1f1b", "NAME": "1f1b"},
    **{"PICTURE": "best.png", "FORMAT": "torch-csv", "STUDY": "study.toml", "STORE": "all.db", "TRACE…": "timing-0.json"},
    **{
        "RUNTIME": "megatron",
        "CONFIG": "models/configs/gpt-2.json",
        "PROFILE": "times.csv",
        "config.json": "models/configs/gpt-2.json",
    },
}
"""What may stand for a word in capitals."""


def command_of(name: str) -> click.Command:
    command = main.get_command(click.Context(main), name)
    assert command is not None, f"there is no command {name}"
    return command


def arguments(text: str) -> list[str]:
    """What comes after ``ppopt`` in a command line, without redirections; words in capitals replaced, files found."""
    given = shlex.split(text.split(" > ")[0])[1:]
    words = [STANDS_FOR.get(word, word) for word in given if not re.fullmatch(r"\[[A-Z]+\]", word)]
    return [path for word in words for path in (sorted(glob.glob(word)) if "*" in word else [word])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the files that the command lines of the pages name."""
    path = tmp_path_factory.mktemp("commands")
    shutil.copytree(ROOT / "models", path / "models")
    for rank in range(2):
        shutil.copy(next((ROOT / "tests").rglob(f"torch_trace_{rank}.json")), path / f"timing-{rank}.json")
    for schedule, file in (("zb-h1", "best.json"), ("1f1b", "1f1b.json")):
        (path / file).write_text(run("order", schedule, "-d", "2", "-m", "3", "--json").stdout)
    for name in ("schedule.csv", "file.csv"):
        (path / name).write_text(run("order", "1f1b", "-d", "4", "-m", "8").stdout)
    (path / "all.db").touch()
    (path / "model.toml").write_text("[pipeline]\ndevices = 4\nmicrobatches = 8\n")
    study = '[model.pipeline]\ndevices = 2\n[vary]\npipeline.microbatches = [2, 4]\n[run]\nschedules = ["1f1b"]\n'
    (path / "study.toml").write_text(study)
    return path


def ppopt(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ppopt", *words], cwd=folder, capture_output=True, text=True, check=False)


def takes_value(command: click.Command, flag: str) -> bool:
    option = next(param for param in command.params if flag in param.opts)
    return not getattr(option, "is_flag", False)


@pytest.mark.parametrize("line", OF_PPOPT, ids=[line.name for line in OF_PPOPT])
def test_is_parsed(line: Line, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    words = arguments(line.text)
    if words[0] == "--version":
        assert ppopt(words, folder).stdout.startswith("ppopt ")
        return
    if words[0] == "COMMAND":
        words[0] = "solve"
    name, *rest = words
    command = command_of(name)
    flags = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)} | {"-h", "--help"}
    unknown = [word for word in rest if re.match(r"--?[a-z]", word) and word not in flags]
    assert not unknown, f"{name} has no option {unknown}"
    if "--help" in rest:
        return
    if not line.whole and rest and rest[-1].startswith("-") and takes_value(command, rest[-1]):
        rest.append("1f1b")
    context = click.Context(main, info_name="ppopt")
    try:
        command.make_context(name, rest, parent=context)
    except click.MissingParameter:
        assert not line.whole, "an argument is missing"  # a sentence may speak of a command alone


RUN = [line for line in OF_PPOPT if line.whole and not any(word in line.text for word in (*ELSEWHERE, *STANDS_FOR, "--version"))]

LONG = re.compile(r"ppopt (?:frontier|plot|results|sweep) |--placement any")
"""Studies, pictures, all placements: these command lines are run with the thorough tests."""


@pytest.mark.parametrize(
    "line", [pytest.param(line, marks=thorough if LONG.search(line.text) else (), id=line.name) for line in RUN]
)
def test_is_run(line: Line, folder: Path, tmp_path: Path) -> None:
    """By itself, in a folder that has what it names; with a second for a search, and few points."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "all.db").unlink()
    words = arguments_in(tmp_path, line.text)
    if words[0] == "results":
        assert ppopt(["sweep", "study.toml", "-o", "all.db", "--workers", "1"], tmp_path).returncode == 0
    if words[0] == "serve":
        serves(words, tmp_path)
        return
    known = {flag for param in command_of(words[0]).params for flag in param.opts}
    less = [word for flag, value in (("--time-limit", "1"), ("--points", "3")) if flag in known for word in (flag, value)]
    done = ppopt([*words, *less], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def serves(words: Sequence[str], folder: Path) -> None:
    """Until it says where; then Ctrl-C ends it."""
    pytest.importorskip("tornado")
    command = [sys.executable, "-m", "ppopt", *words]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline().startswith("http://127.0.0.1:")
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)


def arguments_in(folder: Path, text: str) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return arguments(text)


class Parsed(Exception):
    """The arguments are as they should be."""


@pytest.mark.parametrize("line", OF_SCRIPTS, ids=[line.name for line in OF_SCRIPTS])
def test_script_takes_these_arguments(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script's own parser takes them; nothing is run."""
    import argparse

    path, *words = shlex.split(line.text)[1:]
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, Path(path).stem, module)
    spec.loader.exec_module(module)
    parse = argparse.ArgumentParser.parse_args

    def parsed(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> None:
        parse(parser, *args, **kwargs)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    monkeypatch.setattr(sys, "argv", [path, *words])
    with pytest.raises(Parsed):
        module.main()


def test_other_command_lines_are_those_of_the_tools() -> None:
    """Installing, testing, building the site: few, and looked at one by one."""
    assert {line.text for line in OTHERS} == {
        'pip install --quiet -e ".[dev]"',
        'pip install -e ".[docs]"',
        "pip install --quiet .",
        "pip install .",
        "pip install 'ppopt-pipeline[dask]'",
        "pip install torch==2.13.0",
        "pip install playwright",
        "pip install 'ppopt-pipeline[page]'",
        "pytest -q -m browser tests/browser",
        "pytest -q -n 2",
        'pytest -q -n 2 -m "thorough and not slow"',
        "pytest -m slow",
        "pytest -q -m torch tests/in_torch",
        "mkdocs build --strict",
        "mkdocs serve",
    }


def test_options_in_sentences_exist() -> None:
    """Whatever looks like an option belongs to a command, to a script, or to one of those tools."""
    params = [param for name in COMMANDS for param in command_of(name).params]
    known = {flag for param in params for flag in (*param.opts, *param.secondary_opts)}
    scripts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "scripts").glob("*.py"))
    known |= set(re.findall(r"\"(--[a-z][a-z-]*)\"", scripts)) | {"--help", "--version", "--strict", "--quiet"}
    for page in PAGES:
        for code in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
            for flag in re.findall(r"(?<!\S)--[a-z][a-z-]*", code):
                assert flag in known, f"{page.name}: {code}"


def test_pages_have_commands_of_each_kind() -> None:
    shown = {words[1] for block in blocks() if block.language == "console" for words in map(str.split, block.text.splitlines())
             if words[:1] == ["$"] and len(words) > 1}  # fmt: skip
    assert "ppopt" in shown
    assert len(RUN) >= 8
    assert len(OF_SCRIPTS) >= 8
    assert {line.text.split()[1] for line in OF_PPOPT} >= set(COMMANDS)
