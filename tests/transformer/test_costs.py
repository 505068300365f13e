"""Estimates beside published and counted figures, by the script that prints them."""

import json
from pathlib import Path

import estimate_errors
import pytest

from tests.support.places import DATA

FOUND = estimate_errors.figures()


@pytest.mark.parametrize("kind", estimate_errors.ALLOWED)
def test_figures_are_within_what_is_allowed(kind: str) -> None:
    allowed = estimate_errors.ALLOWED[kind]
    errors = [abs(figure.error) for figure in FOUND if figure.kind == kind and not figure.why]
    assert errors
    assert max(errors) <= allowed.largest
    assert allowed.mean is None or sum(errors) / len(errors) <= allowed.mean


def test_every_entry_is_looked_at() -> None:
    kinds = {entry["kind"] for entry in json.loads((DATA / "costs.json").read_text())["entries"]}
    assert kinds == set(estimate_errors.CHECKS)
    assert len(FOUND) > 250


def test_what_is_known_to_differ_is_explained_and_differs() -> None:
    explained = [figure for figure in FOUND if figure.why]
    assert len(explained) == 4 + 3 * 4
    assert all(figure.error for figure in explained)
    biases = [figure.expected - figure.found for figure in explained if "bias" in figure.why]
    assert biases == [58 * 256, 256]  # of every layer with experts, and of the module of multi-token prediction


def test_the_table_shows_what_misses(tmp_path: Path) -> None:
    entries = [entry for entry in json.loads((DATA / "costs.json").read_text())["entries"] if entry["kind"] == "parameters"]
    entries[0]["total"] += 1
    (tmp_path / "wrong.json").write_text(json.dumps({"entries": entries}))
    assert "MISSED" in estimate_errors.table(estimate_errors.figures(tmp_path / "wrong.json"))
    assert "MISSED" not in estimate_errors.table(FOUND)
