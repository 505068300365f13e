"""The examples of the pages are run: what they show is what happens."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ppopt.files import model_of_text
from ppopt.files.estimates import read_source
from ppopt.study.plan import read_study
from ppopt.study.planning import question_of
from ppopt.study.planning.space import cases_of
from tests.docs.pages import FENCE, Block, blocks
from tests.support.places import ROOT
from tests.support.tiers import thorough

BLOCKS = [block for block in blocks() if block.language]

LONG = re.compile(r"^\$ ppopt (?:frontier|plan|plot|sweep) |--recompute choose|deepseek|llama-3-70b.toml -d 4", re.MULTILINE)
"""Studies, plans, pictures, searches over what recomputes or over cuts: such examples are run with the thorough tests."""


def tier(block: Block) -> list[pytest.MarkDecorator]:
    """What keeps an example from the quick tests: more than two commands, a long one, or one of another page."""
    long = block.text.count("$ ppopt") > 2 or LONG.search(block.text) or block.page.stem != "README"
    return [thorough] if long else []


PROGRESS = re.compile(r" *\d+\.\d s(   |$)|Compiling inner loops, once after installation: some seconds\.$")
"""A line about a search that takes a second or more, as any does on a busy machine; or about the first use after installation."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "models", tmp_path / "models")
    example = next(text for language, text in FENCE.findall((ROOT / "README.md").read_text()) if language == "toml")
    (tmp_path / "pipeline.toml").write_text(example)
    (tmp_path / "ppopt").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ppopt "$@"\n')
    (tmp_path / "ppopt").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(("language", "text"), [pytest.param(*block[2:], marks=tier(block), id=block.name) for block in BLOCKS])
def test_example(language: str, text: str, folder: Path) -> None:
    if language == "toml" and "[vary]" in text:
        study = folder / "models" / "studies" / "example.toml"
        study.write_text(text)
        assert all(instance.error is None for instance in read_study(str(study)).instances)
    elif language == "toml" and "[transformer]" in text:
        (folder / "example.toml").write_text(text)
        if "[search]" in text:
            assert cases_of(question_of(read_source(str(folder / "example.toml")).tables)).count
            return
        read_source(str(folder / "example.toml")).asked().estimate()
    elif language == "toml":
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


def test_pages_have_examples() -> None:
    pages = {
        "README",
        "estimates",
        "model-file",
        "result-json",
        "command-line",
        "api",
        "torch",
        "schedules",
        "studies",
        "plans",
        "page",
        "runs",
    }
    assert {block.page.stem for block in BLOCKS} == pages
