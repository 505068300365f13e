"""``ppopt show``."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.command import QUICK, read, refused, run
from tests.support.places import ROOT

MODELS = ROOT / "models"


def test_a_named_schedule_is_shown_as_order_has_it() -> None:
    words = ("zb-v", "-d", 3, "-m", 5, "--memory-limit", 3, "--set", "links.latency=0.5")
    shown, ordered = read("show", *words), read("order", *words)
    assert shown == ordered
    assert len(shown["metrics"]["devices"]) == 3
    for use in shown["metrics"]["devices"]:
        assert use["work"] + sum(use["idle"].values()) == shown["metrics"]["makespan"]
        assert use["work"] + sum(use["idle_by_phase"].values()) == shown["metrics"]["makespan"]
        assert use["utilisation"] == pytest.approx(use["work"] / shown["metrics"]["makespan"])
    assert "links" not in shown["metrics"]


def test_links_and_parameters_and_chunks() -> None:
    words = ("interleaved-1f1b", "-d", 2, "-m", 4, "--chunks", 3, "--param", "group_size=4", "--set", "links.occupancy=0.25")
    tree = read("show", *words)
    assert tree["model"]["pipeline"]["chunks"] == 3
    assert [link["transfers"] for link in tree["metrics"]["links"]] == [5 * 4, 5 * 4]
    assert [link["busy"] for link in tree["metrics"]["links"]] == [5, 5]
    text = run("show", *words).stdout
    assert "Links that transfers hold" in text
    assert "0 to 1" in text


def test_layers_are_shown() -> None:
    words = ("1f1b", MODELS / "llama-3-70b.toml", "-d", 4, "-m", 4, "--memory-limit", "none", "--partition", "even")
    text = run("show", *words).stdout
    assert "layers of each stage: 21, 20, 20, 21" in text
    assert "Idle time by cause [ms]" in text


def test_a_result_is_shown_with_its_recorded_times(tmp_path: Path) -> None:
    """A device span leaves operations waiting: timed anew, they would not."""
    best = tmp_path / "best.json"
    tree = read("solve", "-d", 3, "-m", 4, "--objective", "span", "-o", best, *QUICK)
    shown = read("show", best)
    assert shown["schedule"] == tree["schedule"]
    assert shown["metrics"] == tree["metrics"]
    assert shown["result"]["value"] == tree["result"]["value"] == shown["metrics"]["device_span"]
    text = run("show", best).stdout
    assert text.splitlines()[1].startswith(f"span {tree['result']['value']}: optimal, proved by ")
    changed = read("show", best, "--set", "costs.forward=2")
    assert changed["result"] is None
    assert changed["metrics"]["makespan"] > shown["metrics"]["makespan"]


def test_an_order_and_what_exceeds_memory(tmp_path: Path) -> None:
    order = run("order", "gpipe", "-d", 2, "-m", 3).stdout
    text = run("show", "-", "--memory-limit", 2, stdin=order).stdout
    rows = [line for line in text.splitlines() if line.endswith("!")]
    assert len(rows) == 2
    assert (
        read("show", "-", stdin=order)["metrics"]["makespan"] == read("order", "gpipe", "-d", 2, "-m", 3)["metrics"]["makespan"]
    )


def test_a_model_file_that_has_a_schedule(tmp_path: Path) -> None:
    assert read("show", MODELS / "zb-h1.toml") == read("order", "zb-h1", MODELS / "zb-h1.toml")
    own = tmp_path / "own.toml"
    own.write_text('[pipeline]\ndevices = 1\nmicrobatches = 1\norder = [["0F0", "0I0", "0W0"]]\n')
    assert read("show", own)["schedule"]["order"] == [["0F0", "0I0", "0W0"]]
    none = tmp_path / "none.toml"
    none.write_text("[pipeline]\ndevices = 2\nmicrobatches = 2\n")
    assert "is a model file without a schedule; name one" in refused("show", none)
    assert "is a model file already" in refused("show", none, own)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nonsense"], "there is no file 'nonsense', and "),
        (["zb-h", "-d", "2", "-m", "2"], "did you mean zb-h2 or zb-h1"),
        (["best.json", "--param", "group_size=2"], "--param belongs to a named schedule"),
        (["best.json", "--chunks", "2"], "--chunks belongs to a named schedule"),
        (["1f1b", "-d", "2", "-m", "2", "--chunks", "1,2"], "expected a single number of chunks"),
    ],
)
def test_what_cannot_be_shown(words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("best.json").write_text(run("order", "1f1b", "-d", 2, "-m", 2, "--json").stdout)
    assert told in refused("show", *words)


def test_a_schedule_goes_before_a_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("1f1b").write_text(run("order", "gpipe", "-d", 2, "-m", 3).stdout)
    assert read("show", "1f1b", "-d", 2, "-m", 4)["model"]["pipeline"]["microbatches"] == 4
    assert read("show", "./1f1b")["model"]["pipeline"]["microbatches"] == 3


def test_wrong_records_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    tree = read("order", "1f1b", "-d", 2, "-m", 2)
    tree["schedule"]["start"][1][0] = 0
    path.write_text(json.dumps(tree))
    assert "the recorded times break a rule" in refused("show", path)
    tree["schedule"]["start"][1][0] = 1e30
    path.write_text(json.dumps(tree))
    assert "schedule.start: 1e+30 is later than any time that can be told" in refused("show", path)
    shutil.copy(path, tmp_path / "none.json")
    tree["schedule"] = tree["metrics"] = None
    path.write_text(json.dumps(tree))
    assert "schedule: there is none" in refused("show", path)


def test_transfers_that_are_not_recorded_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    tree = read("order", "1f1b", "-d", 2, "-m", 2, "--set", "links.occupancy=1")
    path.write_text(json.dumps(tree))
    assert read("show", path)["schedule"] == tree["schedule"]
    del tree["schedule"]["transfers"]
    path.write_text(json.dumps(tree))
    assert "schedule.transfers: those of the link" in refused("show", path)
