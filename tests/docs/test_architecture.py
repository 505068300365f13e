"""The page about the architecture is about this tree: what it names exists, and it leaves out no room, word, bound or step."""

import ast
import re
from typing import get_args

import pytest
from calls import ROOMS

from ppopt import bounds
from ppopt.constraints import Word
from ppopt.search.steps import closed_forms
from ppopt.search.strategies import BEGIN_LARGE, BEGIN_SMALL, ILP, LARGE, SMALL, SPAN_FIRST
from ppopt.search.turns import each_turn
from tests.docs.pages import named
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CODE = sorted(set(re.findall(r"`([^`\n]+)`", PAGE)))
NAMES = [code for code in CODE if re.fullmatch(r"ppopt(\.\w+)+", code)]
PATHS = [
    code for code in CODE if re.fullmatch(r"(?:(?:ppopt|docs|scripts|models|tests)/)?[\w./<>-]+(?:/|\.py|\.md|\.toml)", code)
]


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize("name", NAMES)
def test_name_exists(name: str) -> None:
    named(name)


@pytest.mark.parametrize("path", [path for path in PATHS if "<" not in path])
def test_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_names_and_paths_are_found() -> None:
    assert len(NAMES) > 60
    assert len(PATHS) > 40


def test_functions_in_brackets_are_in_the_file_before_them() -> None:
    """As in: ``ppopt/pipeline/tables.py`` (``held``)."""
    found = re.findall(r"`(ppopt/[\w/]+\.py)`(?:: | \()`(\w+)`", PAGE)
    assert len(found) >= 8
    for path, name in found:
        nodes = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        assert name in {
            getattr(node, "name", None) or getattr(node, "arg", None) or getattr(node, "id", None) for node in nodes
        }, path


def test_all_rooms_in_their_order() -> None:
    assert [row[0] for row in rows("Rooms")] == [f"`{room}`" for room in ROOMS]


def test_all_words() -> None:
    assert {row[0] for row in rows("Words")} == {f"`{word.__name__}`" for word in get_args(Word)}


def test_all_bounds() -> None:
    named = {row[0].strip("`").rpartition(".")[2] for row in rows("Bounds")}
    functions = {name for name in bounds.__all__ if name.islower()}
    assert named | {"best"} >= functions
    used = {of.bound.__name__ for of in vars(closed_forms).values() if isinstance(of, type) and hasattr(of, "bound")}
    assert named >= used


def test_all_steps_and_what_they_are() -> None:
    kinds = {"raises the bound": "bound", "finds better schedules": "improvement"}
    tables = (*BEGIN_SMALL, *BEGIN_LARGE, *SMALL, *LARGE, *SPAN_FIRST, *ILP)
    steps = {inner.step for turn in each_turn(tables) for inner in (turn, *each_turn(turn.options.get("strategy", ())))}
    assert {(row[0], row[1]) for row in rows("Steps")} == {
        (f"`{step.__name__}`", kinds.get(step.kind.value, "decision")) for step in steps
    }
