"""The strategy: known optima, proofs, laws that answers obey, limits and interruptions."""

import _thread
import dataclasses
import signal
import threading
from fractions import Fraction

import pytest

from ppopt.checker import violations
from ppopt.files import result_dict
from ppopt.heuristics import each_baseline
from ppopt.named.verified import verified_rows
from ppopt.pipeline import Costs, Links, Memory, Offload, Pipeline
from ppopt.search import solve
from ppopt.search.closed import ClosedSearch, quick_bound
from ppopt.search.steps.decisions import between
from ppopt.text import brief
from tests.support.search import proved
from tests.support.tiers import thorough

GPT = Costs(forward=185, backward_input=181, backward_weight=93)

GPT_V = Costs(forward=186, backward_input=180, backward_weight=94)  # 93, 90, 47 per chunk

SIX = Links(latency=6)


def gpt(devices: int, microbatches: int, limit: int, **changes) -> Pipeline:
    memory = Memory(retained=Fraction("0.366"), limit=limit)
    return Pipeline(devices, microbatches, costs=GPT, links=SIX, memory=memory).changed(**changes)


@pytest.mark.parametrize(
    ("devices", "microbatches", "limit", "makespan"),
    [
        (4, 8, 4, 4563),
        pytest.param(4, 8, 3, 5319, marks=thorough),
        (4, 8, 2, 6993),
        pytest.param(8, 16, 6, 10935, marks=pytest.mark.slow),
    ],
)
def test_tight_memory(devices, microbatches, limit, makespan):
    assert proved(gpt(devices, microbatches, limit)).value == makespan


@pytest.mark.parametrize(("limit", "makespan"), [(3, 310), ((2, 4, 4, 4), 410), ((4, 4, 2, 2), 290)])
def test_limits_per_device(limit, makespan):
    costs = Costs(forward=10, backward_input=10, backward_weight=10)
    assert proved(Pipeline(4, 8, costs=costs, memory=Memory(limit=limit))).value == makespan


@pytest.mark.parametrize(
    ("times", "weights", "limit", "makespan", "span"),
    [((10, 15, 10, 10), (6, 9, 6, 6), 4, 323, 312), pytest.param((12, 9, 11, 8), (7, 5, 7, 5), 6, 257, 250, marks=thorough)],
    ids=["one slow device", "uneven layers"],
)
def test_unequal_stages(times, weights, limit, makespan, span):
    memory = Memory(retained=Fraction("0.366"), limit=limit)
    costs = Costs(forward=times, backward_input=times, backward_weight=weights)
    pipeline = Pipeline(4, 8, costs=costs, links=Links(latency=1), memory=memory)
    assert proved(pipeline).value == makespan
    assert proved(pipeline, objective="span").value == span


@pytest.mark.parametrize(
    ("microbatches", "limit", "makespan"),
    [pytest.param(4, 3, 2628, marks=thorough), (4, 4, 2183)],
    ids=["v-half", "v at 1f1b's memory"],
)
def test_wave(microbatches, limit, makespan):
    pipeline = gpt(4, microbatches, limit, placement="wave", chunks=2, costs=GPT_V)
    assert proved(pipeline).value == makespan


def test_a_named_schedule_that_is_optimal_needs_no_solver():
    result = proved(Pipeline(4, 8))
    assert result.value == 27
    assert result.proved_by == "one-machine"
    assert result.versions == {}
    assert {row.name: row.schedule.makespan for row in result.named if row.name in ("zb-h1", "1f1b")} == {"zb-h1": 27, "1f1b": 33}


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline(1, 1),
        Pipeline(3, 1),
        Pipeline(1, 4, memory=Memory(limit=1)),
        Pipeline(4, 2, memory=Memory(limit=1)),
        Pipeline(2, 2, costs=Costs(forward=0, backward_input=0, backward_weight=0)),
        Pipeline(2, 3, costs=Costs(backward_input=(0, 1)), memory=Memory(limit=1)),
        Pipeline(2, 2, links=Links(latency=1000)),
        Pipeline(2, 2, costs=Costs(forward=Fraction(1, 3), backward_input=Fraction(2, 7), backward_weight=Fraction(1, 5))),
        Pipeline(2, 2, placement="bidirectional", memory=Memory(limit=2)),
        Pipeline(2, 2, costs=Costs(backward=2)),
        Pipeline(2, 2, costs=Costs(backward_input=2, backward_weight=2, backward=3)),
        Pipeline(3, 2, memory=Memory(activation=0, limit=0)),
    ],
    ids=lambda pipeline: f"{pipeline.devices}x{pipeline.microbatches}",
)
def test_edge_cases(pipeline, objective):
    proved(pipeline, objective=objective)


def test_fused_or_split_is_chosen_where_it_matters():
    # Splitting costs 1 of work per stage and microbatch; only where the gradient is waited for is it worth it: 5, not 6.
    result = proved(Pipeline(2, 1, costs=Costs(backward_input=1, backward_weight=2, backward=2)))
    assert result.value == 5
    assert {text[1] for row in result.schedule.order.texts() for text in row} == {"F", "B", "I", "W"}


def test_fine_times_are_proved_too():
    # The model of 0.1 ms costs in microseconds: not a multiple of it, so the grid has to be left in the end.
    costs = Costs(forward=18522, backward_input=18086, backward_weight=9337)
    memory = Memory(retained=Fraction("0.366"), limit=3)
    result = proved(Pipeline(3, 5, costs=costs, links=Links(latency=601), memory=memory))
    assert result.schedule.makespan == result.value


@pytest.mark.parametrize(
    "options", [{"objective": "speed"}, {"solver": "magic"}, {"seconds": 0}, {"gap": 2}, {"gap": float("nan")}]
)
def test_wrong_options_raise(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        solve(Pipeline(1, 1), **options)


HARD = gpt(8, 24, 5, placement="wave", chunks=2, costs=GPT_V)


def test_a_time_limit_leaves_a_checked_schedule_and_a_bound():
    result = solve(HARD, seconds=0.5, workers=1)
    assert (result.reason, result.limit) == ("feasible", "time")
    assert violations(HARD, result.schedule) == []
    assert max(HARD.work) <= result.lower_bound <= result.value
    assert result.value <= next(each_baseline(HARD))[1].makespan


def test_a_gap_that_is_met_stops_the_search():
    result = solve(HARD, gap=0.9, workers=1)
    assert (result.reason, result.limit) == ("feasible", "gap")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_keeps_the_best():
    """Also where Ctrl-C comes while an object is deleted: there Python tells of it and goes on."""
    timer = threading.Timer(0.5, _thread.interrupt_main)

    def found(value: int | None, bound: int) -> None:
        if value is not None and timer.ident is None:
            timer.start()

    result = solve(HARD, seconds=60, workers=1, progress=found)
    timer.join()
    assert (result.reason, result.limit) == ("feasible", "interrupted")
    assert violations(HARD, result.schedule) == []


def test_progress_never_gets_worse():
    seen = []
    proved(gpt(4, 8, 3), progress=lambda value, bound: seen.append((value, bound)))
    values = [value for value, _ in seen if value is not None]
    assert values == sorted(values, reverse=True)
    assert [bound for _, bound in seen] == sorted(bound for _, bound in seen)
    assert seen[-1] == (5319, 5319)


def test_deterministic_mode_repeats():
    first, second = (solve(gpt(4, 6, 3), deterministic=True, seed=5, seconds=5) for _ in range(2))
    assert first.schedule.order == second.schedule.order
    assert (first.value, first.lower_bound) == (second.value, second.lower_bound)


def test_steps_say_what_was_done():
    steps = solve(Pipeline(2, 2), workers=1).steps
    assert [step.name for step in steps][:3] == ["bound: work", "named schedules", "bound: one machine"]
    assert all(step.seconds >= 0 and step.outcome for step in steps)


def test_an_early_interrupt_has_a_bound_all_the_same(monkeypatch):
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ppopt.search.answer.rows_of", interrupted)
    result = solve(Pipeline(2, 4), workers=1)
    assert (result.reason, result.limit, result.value) == ("no-solution", "interrupted", None)
    assert (result.lower_bound, result.proved_by) == (12, "work")


@pytest.mark.parametrize(("gap", "reason", "limit"), [(0.9, "feasible", "interrupted"), (0.0, "optimal", None)])
def test_an_interrupt_after_the_search_loses_nothing(gap, reason, limit, monkeypatch):
    """While the rows of the table are checked; what is settled stays so."""

    def interrupted(*given: object, **named: object) -> None:
        signal.raise_signal(signal.SIGINT)
        verified_rows(*given, **named)

    monkeypatch.setattr("ppopt.search.answer.verified_rows", interrupted)
    result = solve(gpt(4, 6, 3), gap=gap, workers=1, seconds=60)
    assert (result.reason, result.limit) == (reason, limit)
    assert violations(result.pipeline, result.schedule) == []


def test_a_backward_that_may_be_run_whole_releases_in_time():
    """What waits for ``B`` or ``I`` is told apart from what waits for ``B`` or ``W``: memory is held until the right one."""
    costs = Costs(forward=(2, 3), backward_input=1, backward_weight=(4, 1), backward=(3, 1))
    memory = Memory(retained=Fraction(1, 2), limit=1)
    pipeline = Pipeline(2, 2, placement="loop", chunks=2, costs=costs, links=Links(latency=1), memory=memory)
    assert proved(pipeline, seconds=20).value == 25


def test_targets_between_bound_and_best():
    assert between(0, 30, [], 1) == [15]
    assert between(0, 30, [], 2) == [10, 20]
    assert between(0, 30, [10, 20], 2) == [5, 25]
    assert between(0, 30, [4, 20], 2) == [23, 26]
    assert between(0, 30, [5, 25], 2) == []
    assert between(7, 8, [], 2) == [7]
    assert between(7, 8, [7], 2) == []
    assert between(7, 10, [8], 2) == [9]


@thorough
def test_an_interrupted_search_says_what_it_has_not_begun(monkeypatch):
    monkeypatch.setattr(ClosedSearch, "go_on", interrupting(ClosedSearch.go_on))
    pipeline = Pipeline(4, 8, "any", (2, 4), costs=Costs(forward=1, backward_input=2), memory=Memory(limit=2))
    result = solve(pipeline, seconds=0.5, workers=1)
    assert (result.limit, len(result.placements)) == ("interrupted", 1)
    (begun,) = result.placements
    others = [each for each in pipeline.placements() if each.routes != begun.pipeline.routes]
    may = [brief(each) for each in others if quick_bound(each, "makespan") < result.value]
    assert (len(others), sorted(result.untried)) == (4, sorted(may))
    assert may
    easy = solve(Pipeline(4, 8, "any", (2, 4), memory=Memory(limit=4)), seconds=20, workers=1)
    assert (easy.reason, len(easy.placements), easy.untried) == ("optimal", 1, ())  # the others cannot have anything better
    several = solve(Pipeline(3, [4, 8, 16]), seconds=20, workers=1)
    assert (len(several.points), several.untried) == (1, ("8 microbatches", "16 microbatches"))
    assert result_dict(result)["result"]["untried"] == list(result.untried)
    assert "untried" not in result_dict(solve(Pipeline(2, 2), seconds=20, workers=1))["result"]


def interrupting(go_on):
    """The same search, interrupted at its end."""

    def search(self, clock, *args, **more):
        result = go_on(self, clock, *args, **more)
        clock.interrupt()
        return dataclasses.replace(result, limit="interrupted")

    return search


def test_given_copies_that_the_host_has_no_room_for_are_infeasible() -> None:
    """Each activation of 1 is copied, and the host has room for half of one; with recomputing it is half of one."""
    offload = Offload(time=1, host_limit=0.5, stages="all")
    pipeline = Pipeline(2, 2, costs=Costs(backward=2, recompute=1), memory=Memory(recompute_saved=0.5), offload=offload)
    result = solve(pipeline, workers=1, seconds=30)
    assert (result.reason, result.schedule) == ("infeasible", None)
    assert any(row.within_memory is False for row in result.named)
    free = solve(pipeline.resolved("choose"), workers=1, seconds=30)
    assert (free.reason, free.pipeline.recompute) == ("optimal", "all")
