"""What is known in a search: best, bound, by whom."""

from __future__ import annotations

from ppopt.heuristics import baselines
from ppopt.pipeline import Pipeline
from ppopt.search.incumbent import Incumbent
from ppopt.search.problem import Problem


def test_the_incumbent() -> None:
    problem = Problem(Pipeline(2, 3), gap=0.1, enough=20)
    told: list[tuple[int | None, int]] = []
    incumbent = Incumbent(problem)
    incumbent.tell(lambda value, bound: told.append((value, bound)))
    assert told == []  # there is nothing to tell yet
    assert (incumbent.open, incumbent.gap, incumbent.target) == (True, 1.0, None)
    schedules = sorted((schedule for _, schedule in baselines(problem.pipeline)), key=lambda s: -s.makespan)
    worst, best = schedules[0], schedules[-1]
    assert incumbent.offer(worst, "first")
    assert incumbent.offer(best, "second")
    assert not incumbent.offer(worst, "third")
    assert incumbent.source == "second"
    incumbent.prove(5, "a")
    incumbent.prove(4, "b")
    assert (incumbent.lower, incumbent.proved_by) == (5, "a")
    incumbent.prove(best.makespan + 7, "c")  # no bound is above a value
    assert incumbent.lower == incumbent.value == best.makespan
    assert incumbent.closed
    assert told[-1] == (best.makespan, best.makespan)
    told.clear()
    incumbent.tell(lambda value, bound: told.append((value, bound)))
    assert told == [(best.makespan, best.makespan)]
