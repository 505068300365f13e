"""The pages of the documentation: their blocks, and the command lines and names that stand in them."""

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.places import ROOT

PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROGRAMS = ("ppopt", "python", "mkdocs", "pip", "pytest", "bash")
PLACES = re.compile(r"^(?:\S*/)?bin/")
"""A program of the virtual environment: what it is without that."""


class Block(NamedTuple):
    """A fenced block: its language (empty: none), and its text."""

    page: Path
    number: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """How tests call it."""
        return f"{self.page.stem}-{self.number}-{self.language}"


class Line(NamedTuple):
    """A command line, and whether it stands alone (``whole``) or in a sentence, where parts may be left out."""

    page: Path
    text: str
    whole: bool

    @property
    def name(self) -> str:
        """How tests call it."""
        return f"{self.page.stem}: {self.text}"


def blocks() -> list[Block]:
    """The fenced blocks of all pages."""
    return [
        Block(page, number, language, text)
        for page in PAGES
        for number, (language, text) in enumerate(FENCE.findall(page.read_text(encoding="utf-8")))
    ]


def lines() -> list[Line]:
    """The command lines of all pages, but those in console blocks, whose output is shown and compared."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fenced = [line for language, block in FENCE.findall(text) if not language for line in block.splitlines()]
        rest = FENCE.sub("", text)
        alone = [*fenced, *re.findall(r"^    (\S.*)$", rest, re.MULTILINE)]
        found += [Line(page, command, True) for line in alone for command in commands(line)]
        found += [Line(page, command, False) for code in re.findall(r"`([^`\n]+)`", rest) for command in commands(code)]
    return list(dict.fromkeys(found))


def commands(line: str) -> Iterator[str]:
    """The commands of a line of a shell, each without the folder of its program."""
    for part in line.split("&&"):
        command = PLACES.sub("", re.sub(r"^python3\b", "python", part.strip()))
        if command.split(" ")[0] in PROGRAMS and " " in command and not re.match(r"python\w* -m venv\b", command):
            yield command


def named(name: str, get: Callable[[object, str], object] = getattr) -> object:
    """What a full name stands for: a module, or what ``get`` finds in one, part by part.

    Raises:
        AttributeError: there is nothing of that name.
    """
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = get(found, part)
        return found
    raise AttributeError(f"there is no {name}")
