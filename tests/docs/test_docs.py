"""The examples of docs/*.md are run: what they show is what happens."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ppopt.files import model_of_text

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("model-file", "result-json", "command-line", "api", "torch", "schedules")),
]
BLOCKS = [
    pytest.param(language, text, id=f"{page.stem}-{number}-{language}")
    for page in PAGES
    for number, (language, text) in enumerate(re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE))
]

PROGRESS = re.compile(r" *\d+\.\d s(   |$)")
"""A line about a search that takes a second or more, as any does on a busy machine."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "models", tmp_path / "models")
    (tmp_path / "ppopt").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ppopt "$@"\n')
    (tmp_path / "ppopt").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(("language", "text"), BLOCKS)
def test_example(language: str, text: str, folder: Path) -> None:
    if language == "toml":
        model_of_text(text, "example")
    elif language == "python":
        subprocess.run([sys.executable, "-c", text], cwd=folder, check=True)
    else:
        assert language == "console"
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            run = f"PATH={folder}:$PATH; {command} 2>&1"
            result = subprocess.run(["bash", "-c", run], cwd=folder, capture_output=True, text=True, check=False)
            assert "Traceback" not in result.stdout
            kept = [line.rstrip() for line in result.stdout.splitlines() if not PROGRESS.match(line)]
            shown = "\n".join(kept) + "\n" * bool(kept)
            lines = expected.splitlines()
            pattern = "".join("(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + "\n" for line in lines)
            assert re.fullmatch(pattern, shown), f"$ {command}\n{shown}"


def test_every_page_has_examples() -> None:
    assert {param.id.split("-")[0] for param in BLOCKS if param.id} == {page.stem.split("-")[0] for page in PAGES}
