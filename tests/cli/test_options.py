"""How flags, ``--set`` and the model file go together."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ppopt.cli import searching
from ppopt.search.settings import Settings
from tests.support.command import read, run
from tests.support.places import MODELS


def model_of(*args: str, **more: Any) -> dict[str, Any]:
    """The model that ``ppopt order`` has, the quickest of the commands that take one."""
    model: dict[str, Any] = read("order", "1f1b", *args, **more)["model"]
    return model


def test_flags_beat_set_and_set_beats_the_file() -> None:
    path = str(MODELS / "zb-h1.toml")
    assert model_of(path)["pipeline"]["microbatches"] == 8
    assert model_of(path, "--set", "pipeline.microbatches=9")["pipeline"]["microbatches"] == 9
    assert model_of(path, "--set", "pipeline.microbatches=9", "-m", "10")["pipeline"]["microbatches"] == 10
    assert model_of(path, "-m", "10", "--set", "pipeline.microbatches=9")["pipeline"]["microbatches"] == 10


def test_a_limit_is_a_number_a_list_or_none() -> None:
    path = str(MODELS / "zb-h1.toml")
    assert model_of(path, "--memory-limit", "5")["memory"]["limit"] == 5
    assert model_of(path, "--memory-limit", "3,4,4,2.5")["memory"]["limit"] == [3, 4, 4, 2.5]
    assert "limit" not in model_of(path, "--memory-limit", "none")["memory"]


def test_a_model_may_come_from_standard_input() -> None:
    text = (MODELS / "gpt-1.5b.toml").read_text()
    assert model_of("-", stdin=text) == model_of(str(MODELS / "gpt-1.5b.toml"))


def test_placement_and_a_bare_word() -> None:
    for words, placement in ((("--placement", "wave"), "wave"), (("--set", "pipeline.placement=loop"), "loop")):
        assert read("compare", "-d", "2", "-m", "2", *words)["model"]["pipeline"]["placement"] == placement
    assert model_of("-d", "2", "-m", "2", "--set", "name=mine")["name"] == "mine"


def test_another_placement_leaves_out_the_schedule_of_the_file_and_says_so() -> None:
    path = str(MODELS / "gpt-1.5b.toml")
    result = run("compare", path, "-m", "8", "--placement", "loop", "--set", "pipeline.chunks=2", "--json")
    pipeline = json.loads(result.stdout)["model"]["pipeline"]
    assert (pipeline["placement"], pipeline["chunks"]) == ("loop", 2)
    assert "schedule" not in pipeline
    assert result.stderr.startswith("Note: the model's own schedule is left out.")


def test_what_a_name_is_read_as_is_said_wherever_one_is_read(tmp_path: Path) -> None:
    note = "Note: zb1p is read as zb-h1, as PP-Emulation has it; the automatic scheduler with room for D activations is zb-1p.\n"
    assert run("order", "zb1p", "-d", "2", "-m", "4").stderr == note
    assert run("schedules", "zb1p").stderr == note
    assert run("solve", "-d", "2", "-m", "4", "--order", "zb1p", "--workers", "1", "--json").stderr.startswith(note)
    path = tmp_path / "model.toml"
    path.write_text('[pipeline]\ndevices = 2\nmicrobatches = 4\nschedule = "zb1p"\n')
    assert run("compare", str(path)).stderr == note
    assert run("order", "zb1p", str(path)).stderr == note  # once
    assert run("compare", "-d", "2", "-m", "4", "--set", "pipeline.schedule=zb1p").stderr == note
    assert run("order", "zb-1p", "-d", "2", "-m", "4").stderr.startswith("Note: zb-1p is the automatic scheduler")
    assert run("order", "interleaved", "-d", "2", "-m", "4").stderr == "Note: interleaved is read as interleaved-1f1b.\n"
    assert run("order", "zb-h1", "-d", "2", "-m", "4").stderr == ""


@pytest.mark.parametrize(("limit", "loaded", "least", "most"), [(100, 30, 50, 70), (100, 1000, 50, 50), (9, 3, 9, 9)])
def test_a_long_time_limit_is_that_of_the_whole_command(
    monkeypatch: pytest.MonkeyPatch, limit: float, loaded: float, least: float, most: float
) -> None:
    """What it has loaded and read counts, but half of the time is left; of a short limit nothing is taken."""
    monkeypatch.setattr(searching, "BEGUN", time.monotonic() - loaded)
    assert least <= searching.within_all(Settings(limit)).seconds <= most
    assert searching.within_all(Settings(limit, deterministic=True)).seconds == limit
