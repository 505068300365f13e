"""``--placement any`` and ``--verify``: which placement is best, what is proved of all of them, and second opinions."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ppopt import search
from ppopt.checker import violations
from ppopt.cli import main
from ppopt.clock import Clock
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import Scope, Settings, solve, verify
from ppopt.search.closed import ClosedSearch

QUICK = ("--workers", "1", "--time-limit", "20")


def run(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["solve", *args, *QUICK])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code == code, result.output
    return result


def tree(*args: str, code: int = 0) -> Any:
    return json.loads(run(*args, "--json", code=code).stdout)


def test_which_placements() -> None:
    each = Pipeline(3, 4, placement="wave", chunks=2).placed("any", (1, 2, 4, 2)).placements()
    found = [(one.placement, one.chunks) for one in each]
    assert found == [("linear", 1), ("loop", 2), ("loop", 4), ("wave", 2), ("wave", 4)]
    assert all(one.work.tolist() == [12 * one.ticks.per_unit] * 3 for one in each)


def test_every_placement_with_its_bound() -> None:
    """Unit costs, D = 4, M = 8: device 3 begins after three forwards of 1 / v each, and has work for 24."""
    found = solve(Pipeline(4, 8, "any", [2, 4], memory=Memory(limit=4)), workers=1)
    values = {(r.pipeline.placement, r.pipeline.chunks): r.value for r in found.placements}
    assert values == {("linear", 1): 27, ("loop", 2): 25.5, ("wave", 2): 25.5, ("loop", 4): 24.75, ("wave", 4): 24.75}
    assert all(result.reason == "optimal" for result in found.placements)
    assert (found.pipeline.placement, found.pipeline.chunks) == ("loop", 4)
    assert found.reason == "optimal"
    assert found.lower_bound == found.value == 24.75
    assert found.scope == Scope(("linear", "loop", "wave"), (1, 2, 4), "none")


def test_a_placement_that_cannot_win_is_not_solved() -> None:
    """Linear takes at least 27 ticks; a V within the same memory takes less. So linear's optimum, 31, is not looked for."""
    found = solve(Pipeline(4, 8, "any", memory=Memory(limit=3)), workers=1, seconds=6)
    linear = found.placements[0]
    assert found.value is not None
    assert found.value <= 27
    assert (linear.reason, linear.limit) == ("feasible", None)
    assert linear.lower_bound == 27
    assert not any(step.name.startswith("CP-SAT") for step in linear.steps)
    for result in found.placements:
        assert result.schedule is not None
        assert violations(result.pipeline, result.schedule) == []


def test_times_of_other_ticks_are_compared_in_the_users_unit() -> None:
    """Half a unit per forward: two chunks have quarters."""
    pipeline = Pipeline(2, 4, "any", costs=Costs(forward=0.5), links=Links(0.1))
    assert len({each.ticks.per_unit for each in pipeline.placements()}) > 1
    found = solve(pipeline, workers=1)
    assert found.reason == "optimal"
    assert found.value == min(result.value for result in found.placements if result.value is not None)


def test_what_stays_open_goes_on_from_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each placement has its beginning first; its search is then still there, with what it knows."""
    calls: list[tuple[ClosedSearch, int, int | None]] = []
    go_on = ClosedSearch.go_on

    def slow(self: ClosedSearch, clock: Clock, enough: int | None, progress: Callable[[int | None, int], None]) -> Result:
        calls.append((self, self.run.incumbent.lower, enough))
        if sum(one is self for one, _, _ in calls) == 1:
            clock = Clock(0)
        return go_on(self, clock, enough, progress)

    monkeypatch.setattr(ClosedSearch, "go_on", slow)
    costs = Costs(forward=(3, 5, 4), backward_input=(4, 5, 3), backward_weight=(2, 3, 4))
    found = solve(Pipeline(3, 5, "any", costs=costs, memory=Memory(limit=2)), seconds=20)
    assert found.reason == "optimal"
    again = [call for i, call in enumerate(calls) if call[0] in [one for one, _, _ in calls[:i]]]
    assert again
    for one, lower, enough in again:
        assert lower > 0
        assert enough is not None
        assert [taken.name for taken in one.run.taken].count("named schedules") == 1


def test_deterministic_placements_repeat() -> None:
    pipeline = Pipeline(3, 4, "any", memory=Memory(limit=2))
    first, second = (solve(pipeline, seconds=3, deterministic=True) for _ in range(2))
    for a, b in zip(first.placements, second.placements, strict=True):
        assert (a.value, a.lower_bound, a.reason) == (b.value, b.lower_bound, b.reason)
        assert a.schedule is not None
        assert b.schedule is not None
        assert a.schedule.order == b.schedule.order


def test_the_best_placement_on_the_command_line(tmp_path: Path) -> None:
    output = tmp_path / "best.json"
    args = ("-d", "2", "-m", "4", "--memory-limit", "2", "--placement", "any", "--chunks", "2,4", "-o", str(output))
    found = tree(*args)
    assert found["model"]["pipeline"]["placement"] == "loop"
    assert found["model"]["pipeline"]["chunks"] == 4
    rows = {(row["placement"], row["chunks"]): row["result"] for row in found["placements"]}
    assert {key: row["value"] for key, row in rows.items()} == {
        ("linear", 1): 13,
        ("loop", 2): 12.5,
        ("wave", 2): 12.5,
        ("loop", 4): 12.25,
        ("wave", 4): 12.25,
    }
    assert all(row["lower_bound"] == row["value"] for row in rows.values())
    assert json.loads(output.read_text()) == found
    checked = CliRunner().invoke(main, ["check", str(output)])
    assert checked.output == f"{output}: no violation\n"
    shown = run(*args[:-2]).stdout
    assert "Placements" in shown
    assert "None of these placements has anything better than loop with 4 chunks." in shown


def test_one_number_of_chunks_is_for_the_other_placements() -> None:
    found = tree("-d", "2", "-m", "2", "--placement", "any", "--chunks", "3")
    assert [(row["placement"], row["chunks"]) for row in found["placements"]] == [("linear", 1), ("loop", 3), ("wave", 3)]


def test_an_order_settles_the_placement_that_is_open() -> None:
    found = tree("-d", "2", "-m", "2", "--placement", "any", "--chunks", "2,4", "--order", "interleaved-1f1b")
    assert [(row["placement"], row["chunks"]) for row in found["placements"]] == [("loop", 2), ("loop", 4)]
    assert found["binding"]["schedule"] == "interleaved-1f1b"


@pytest.mark.parametrize(("solver", "by"), [("auto", "CP-SAT"), ("ilp", "CP-SAT")])
def test_a_second_opinion_on_the_command_line(solver: str, by: str) -> None:
    args = ("-d", "3", "-m", "4", "--memory-limit", "2", "--solver", solver, "--verify")
    found = tree(*args)
    assert found["result"]["reason"] == "optimal"
    opinion = found["verification"]
    assert opinion["confirmed"] is True
    assert opinion["bound"] == found["result"]["value"]
    assert opinion["tried"][-1]["route"] == opinion["by"]
    assert not found["result"]["proved_by"].startswith(opinion["by"])
    assert f"Second opinion: confirmed by {opinion['by']}: nothing below {opinion['bound']:g}" in run(*args).stdout


def test_a_second_opinion_on_what_cannot_be() -> None:
    found = tree("-d", "3", "-m", "4", "--memory-limit", "2", "--order", "gpipe", "--verify", code=3)
    assert found["result"]["reason"] == "infeasible"
    assert found["verification"]["confirmed"] is True


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_a_wrong_proof_is_refuted(objective: Any) -> None:
    result = solve(Pipeline(3, 4, memory=Memory(limit=2)), objective=objective, workers=1)
    assert result.reason == "optimal"
    assert verify(result, workers=1).confirmed is True
    assert result.value is not None
    wrong = replace(result, ticks=result.ticks._replace(value=result.value + 1, lower_bound=result.lower_bound + 1))
    opinion = verify(wrong, workers=1)
    assert opinion.confirmed is False
    assert opinion.schedule is not None
    assert opinion.schedule.objective(objective) == result.value


def test_a_refuted_proof_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = search.verify

    def dishonest(result: Any, settings: Settings) -> Any:
        return honest(replace(result, ticks=result.ticks._replace(lower_bound=99)), settings)

    monkeypatch.setattr(search, "verify", dishonest)
    shown = run("-d", "2", "-m", "2", "--verify", code=1)
    assert "Second opinion: REFUTED by CP-SAT" in shown.stdout
    assert "refutes the first proof" in shown.stderr


def test_the_ilp_refuses_what_is_too_large() -> None:
    shown = run("-d", "16", "-m", "64", "--memory-limit", "8", "--solver", "ilp", code=2)
    assert "too large for the ILP: " in shown.stderr


def test_nothing_is_shorter_than_nothing() -> None:
    free = Costs(forward=0, backward_input=0, backward_weight=0)
    opinion = verify(solve(Pipeline(2, 2, costs=free), workers=1))
    assert opinion.confirmed is True
    assert math.isclose(opinion.seconds, 0)
