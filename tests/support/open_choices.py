"""Pipelines that leave something open."""

import itertools
from pathlib import Path


def path_of(folder: Path, text: str) -> str:
    (folder / "model.toml").write_text(text)
    return str(folder / "model.toml")


def subsets(stages: int) -> list[tuple[int, ...]]:
    return [chosen for size in range(stages + 1) for chosen in itertools.combinations(range(stages), size)]
