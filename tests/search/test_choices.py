"""Placement, chunks, microbatches and recompute that are left open: which choices there are, and the scope of the answer."""

import dataclasses
import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest

import ppopt as pp
from ppopt import clock as clocks
from ppopt.clock import Clock
from ppopt.files import read_model, result_dict
from ppopt.pipeline import PipelineError
from ppopt.schedule import Objective
from ppopt.search import Result, Scope, Settings, solve_closed
from ppopt.search.choices import Later, Report, Time, solve_branches
from tests.support.open_choices import path_of, subsets
from tests.support.tiers import thorough


def test_a_scope_says_what_was_open() -> None:
    pipeline = pp.Pipeline(2, 2, "any", [2, 4], costs=pp.Costs(recompute=1), memory=pp.Memory(recompute_saved=1))  # type: ignore[arg-type]
    result = pp.solve(pipeline.changed(recompute="choose"), workers=1)
    assert result.scope == Scope(("linear", "loop", "wave"), (1, 2, 4), "choose")
    assert result.pipeline.open == ()
    assert [(each.pipeline.placement, each.pipeline.chunks) for each in result.placements] == [
        ("linear", 1), ("loop", 2), ("loop", 4), ("wave", 2), ("wave", 4)]  # fmt: skip
    assert result.reason == "optimal"
    assert result.lower_bound == result.value == min(each.lower_bound for each in result.placements)
    outcome = result_dict(result)["result"]
    assert outcome["scope"] == {"placements": ["linear", "loop", "wave"], "chunks": [1, 2, 4], "recompute": "choose"}
    assert [each["value"] for each in outcome["placements"]] == [each.value for each in result.placements]


def test_linear_ignores_a_list_of_chunks() -> None:
    pipeline = pp.Pipeline(2, 4, chunks=[2, 4])
    result = pp.solve(pipeline, workers=1)
    assert result.scope == Scope(("linear",), (1,), "none")
    assert {row.chunks for row in result.named if row.name == "hanayo"} == {2, 4}
    assert {row.chunks for row in pp.compare(pipeline) if row.name == "hanayo"} == {2, 4}


def test_an_own_order_is_for_one_of_the_choices(tmp_path: Path) -> None:
    """An order on a V, for one of two numbers of microbatches, in a file that leaves both open."""
    order = pp.named.find("zb-v").schedule(pp.Pipeline(2, 4)).order.texts()
    model = read_model(
        path_of(tmp_path, f'[pipeline]\ndevices = 2\nmicrobatches = [3, 4]\nplacement = "any"\norder = {json.dumps(order)}\n')
    )
    result = pp.solve(model, workers=1)
    rows = [[row.placement for row in point.named if row.name == "own order"] for point in result.points]
    assert rows == [[], ["wave"]]
    assert result.value == 12.5


class Searched:
    """A search on one placement, all of whose turns but the last leave it open; it takes no time, and notes what it is given."""

    def __init__(self, found: Result, turns: int) -> None:
        self.pipeline, self.result = found.pipeline, None
        self.left = list[float]()
        self._found, self._turns = found, turns

    result: Result | None

    def floor(self, objective: Objective) -> Time:
        return 0

    def go_on(self, clock: Clock, enough: Time, progress: Report | None) -> Result:
        self.left.append(clock.left)
        over = len(self.left) == self._turns
        ticks = self._found.ticks._replace(lower_bound=0)
        opened = dataclasses.replace(self._found, reason="feasible", limit="time", ticks=ticks)
        self.result = self._found if over else opened
        return self.result


def test_placements_share_half_of_the_time_that_is_left() -> None:
    found = solve_closed(pp.Pipeline(2, 2), settings=Settings(workers=1))
    one, other = Searched(found, 3), Searched(found, 2)
    solve_branches([one, other], "makespan", Settings(seconds=1000))
    assert [round(seconds, -1) for seconds in (*one.left, *other.left)] == [250, 250, 1000, 500, 500]


def test_no_placement_begins_once_the_time_is_over_and_a_value_is_known() -> None:
    found = solve_closed(pp.Pipeline(2, 2), settings=Settings(workers=1))
    one, other = Searched(found, 3), Searched(found, 3)
    assert len(solve_branches([one, other], "makespan", Settings(seconds=1000), clock=Clock(0))) == 1
    assert (len(one.left), other.left) == (1, [])
    one, other = Searched(found, 3), Searched(found, 3)
    in_shares = Settings(seconds=1000, deterministic=True)
    assert len(solve_branches([one, other], "makespan", in_shares, clock=Clock(0, deterministic=True))) == 2
    nothing = dataclasses.replace(found, schedule=None, reason="no-solution", ticks=found.ticks._replace(value=None))
    one, other = Searched(nothing, 3), Searched(found, 3)
    assert len(solve_branches([one, other], "makespan", Settings(seconds=1000), clock=Clock(0))) == 2


@pytest.mark.parametrize(("taken", "begun"), [((60.0, 1.0, 1.0), 1), ((50.0, 30.0, 1.0), 2), ((50.0, 10.0, 1.0), 3)])
def test_no_turn_begins_with_less_than_others_took_beyond_their_share(
    monkeypatch: pytest.MonkeyPatch, taken: tuple[float, ...], begun: int
) -> None:
    """The first one has a sixth of 100 seconds, so that it takes 43 or 33 more."""
    now = 0.0
    monkeypatch.setattr(clocks.time, "monotonic", lambda: now)

    class Taking(Searched):
        def go_on(self, clock: Clock, enough: Time, progress: Report | None) -> Result:
            nonlocal now
            now += next(seconds)
            return super().go_on(clock, enough, progress)

    found, seconds = solve_closed(pp.Pipeline(2, 2), settings=Settings(workers=1)), iter((*taken, *[1.0] * 1000))
    branches = [Taking(found, 2) for _ in taken]
    solve_branches(branches, "makespan", Settings(seconds=100))
    assert sum(branch.result is not None for branch in branches) == begun


def test_a_search_is_made_when_it_has_its_turn() -> None:
    found = solve_closed(pp.Pipeline(2, 2), settings=Settings(workers=1))
    value, made = found.lower_bound, list[Searched]()

    def later(floor: Time) -> Later:
        def make() -> Searched:
            made.append(Searched(found, 1))
            return made[-1]

        return Later(found.pipeline, floor, make)

    one, other = later(0), later(value)
    assert one.result is None
    assert solve_branches([other, one], "makespan", Settings(seconds=1000)) == (found, found)
    assert len(made) == 2, "each once: both may have the best"
    del made[:]
    one, other = later(0), later(value)
    assert len(solve_branches([one, other], "makespan", Settings(seconds=1000), clock=Clock(0))) == 1
    assert (len(made), other.result, other.floor("makespan")) == (1, None, value)


def test_an_interrupt_while_a_search_is_made_keeps_what_others_found() -> None:
    found = solve_closed(pp.Pipeline(2, 2), settings=Settings(workers=1))
    one, other = Searched(found, 3), Searched(found, 3)

    def make() -> Searched:
        signal.raise_signal(signal.SIGINT)
        return other

    later = Later(found.pipeline, 1, make)
    assert later.go_on(Clock(1000), math.inf, None) is other.result
    assert other.left == [0.0]
    assert len(solve_branches([one, Later(found.pipeline, 1, make)], "makespan", Settings(seconds=1000))) == 2


def test_chunks_are_two_where_a_placement_takes_several() -> None:
    found = {place: pp.Pipeline(2, 4, place).chunks for place in ("linear", "loop", "wave", "bidirectional", "any")}
    assert found == {"linear": 1, "loop": 2, "wave": 2, "bidirectional": 1, "any": (2,)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"placement": "any", "costs": pp.Costs(per="stage")}, 'costs.per: "stage" belongs to one placement'),
        ({"placement": "any", "recompute": [0]}, "pipeline.recompute: a list of stages belongs to one placement"),
        ({"placement": "loop", "chunks": []}, "pipeline.chunks: expected a whole number >= 1 or a list of them"),
        ({"placement": "any", "chunks": [2, 0]}, r"pipeline.chunks\[1\]: expected a whole number >= 1, got 0"),
        ({"placement": "any", "chunks": 5000}, "pipeline.chunks: at most 4096"),
        ({"routes": [[0, 1, 1, 0]], "chunks": [2, 4]}, "pipeline.chunks: routes that are written out"),
        ({"placement": "any", "memory": pp.Memory(limit=0.5)}, "memory.limit: device 0 needs at least 1"),  # type: ignore[arg-type]
        ({"microbatches": [4, "x"]}, r"pipeline.microbatches\[1\]: expected a whole number >= 1, got 'x'"),
        ({"microbatches": [1, 2], "route_of_microbatch": [0]}, "pipeline.route_of_microbatch: belongs to one number"),
    ],
)
def test_open_choices_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        pp.Pipeline(**{"devices": 2, "microbatches": 4, **fields})


def test_the_named_order_settles_the_placement_that_is_open() -> None:
    pipeline = pp.Pipeline(2, 4, "any", [2, 4])
    result = pp.solve(pipeline, order="interleaved-1f1b", workers=1)
    assert [each.pipeline.chunks for each in result.placements] == [2, 4]
    assert {each.pipeline.placement for each in result.placements} == {"loop"}
    assert result.order == pp.Binding("interleaved-1f1b")


@thorough
def test_an_order_with_recompute_open_is_the_best_of_all_choices() -> None:
    costs, memory = pp.Costs(recompute=(1, 2, 1)), pp.Memory(recompute_saved=0.5, limit=2)  # type: ignore[arg-type]
    pipeline = pp.Pipeline(3, 4, costs=costs, memory=memory, recompute="choose")
    found = pp.solve(pipeline, order="1f1b", workers=1)
    values = [pp.solve(pipeline.resolved(stages), order="1f1b", workers=1).value for stages in subsets(3)]
    assert found.reason == "optimal"
    assert found.value == min(value for value in values if value is not None)
    assert found.pipeline.recompute == (0,)
