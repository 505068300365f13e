"""What a row assumes is said in tables."""

import pytest

from tests.support.command import QUICK, read, run

NOTE = "† the model's costs are uneven, and this row assumes that each device has the same work here"


def test_a_dagger_and_a_line_say_it() -> None:
    uneven = ["-d", "4", "-m", "8", "--set", "costs.forward=[1,1,1,2]"]
    shown = run("compare", *uneven).stdout
    assert shown.count(NOTE) == 1
    lines = {line.split()[0]: line for line in shown.splitlines() if line}
    assert "wave †" in lines["zb-v"]
    assert "†" not in lines["1f1b"]
    assert "†" not in run("compare", "-d", "4", "-m", "8").stdout
    rows = {row["schedule"]: row for row in read("compare", *uneven)["named"]}
    assert (rows["zb-v"]["assumes_equal_work"], rows["1f1b"]["assumes_equal_work"]) == (True, False)
    assert rows["zb-v"]["work"] == rows["1f1b"]["work"] == [24, 24, 24, 32]


@pytest.mark.parametrize(
    ("flags", "own"), [(["--placement", "any"], {"linear", "loop", "wave"}), (["--order", "zb-v"], {"linear"})]
)
def test_solved_elsewhere_the_model_is_still_what_counts(flags: list[str], own: set[str]) -> None:
    """What is left open is the model's; what a binding order brings is not."""
    uneven = ["-d", "2", "-m", "4", "--set", "costs.forward=[1,2]", *flags, *QUICK]
    tree = read("solve", *uneven)
    assert {row["placement"] for row in tree["named"] if not row["assumes_equal_work"] and not row["excluded"]} == own
    others = {"linear", "loop", "wave", "bidirectional"} - own
    assert {row["placement"] for row in tree["named"] if row["assumes_equal_work"]} == others


def test_the_frontier_says_it_too() -> None:
    shown = run(
        "frontier", "-d", "2", "-m", "2", "--set", "costs.forward=[1,2]", "--limits", "2", "--placement", "any", *QUICK
    ).stdout
    assert shown.count(NOTE) == 1
    assert "†" not in next(line for line in shown.splitlines() if line.startswith("1f1b "))
