"""Many numbers of microbatches on the command line."""

import pytest

from tests.support.command import read, refused, run


def test_json_has_a_point_for_each() -> None:
    tree = read("solve", "-d", "3", "-m", "4..17", "--memory-limit", "3", "--workers", "1")
    assert [point["microbatches"] for point in tree["points"]] == [4, 8, 16]
    assert [point["result"]["value"] for point in tree["points"]] == [14, 26, 50]
    assert all(point["result"]["lower_bound"] == point["result"]["value"] for point in tree["points"])
    assert all(len(point["schedule"]["order"]) == 3 for point in tree["points"])


def test_the_table_shows_value_and_proof() -> None:
    shown = run("solve", "-d", "3", "-m", "8,4", "--memory-limit", "3", "--workers", "1")
    text, progress = shown.stdout, shown.stderr
    rows = [line.split() for line in text.splitlines() if line.split() and line.split()[0] in ("4", "8")]
    assert [row[:4] for row in rows] == [["4", "14", "14", "0.0"], ["8", "26", "26", "0.0"]]
    assert progress.index("4 microbatches") < progress.index("8 microbatches")


@pytest.mark.parametrize("text", ["8..4", "0..4", "8..", "..8", "4,x", "", "4..8..16", "4,0"])
def test_what_is_no_number_of_microbatches(text: str) -> None:
    error = refused("solve", "-d", "3", "-m", text)
    assert "--microbatches" in error


@pytest.mark.parametrize("flag", [("--verify", "a second opinion"), ("--export-model", "a model")])
def test_what_is_for_one_number_only(flag: tuple[str, str]) -> None:
    error = refused("solve", "-d", "3", "-m", "4,8", flag[0], *["model.txt"] * (flag[0] == "--export-model"))
    assert f"{flag[1]} is for one number of microbatches; got 2" in error
