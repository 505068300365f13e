"""Never worse than the best schedules that are known from elsewhere, at the same memory."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ppopt.bounds import Objective
from ppopt.named import rows_of
from ppopt.pipeline import Memory, Pipeline, PipelineError
from ppopt.search import Result, Settings, solve, solve_closed
from tests.support.many import each
from tests.support.peers import Entry, of, pipeline_of

OBJECTIVES: dict[Objective, str] = {"makespan": "makespan", "span": "device_span"}


def pipeline(entry: Entry, retained: float, limit: float | list[float] | None) -> Pipeline:
    """The pipeline of an entry: activations of one microbatch, shared out equally over the chunks of a device."""
    chunks = entry["chunks"]
    limits = limit if isinstance(limit, list | None) else Fraction(str(limit))
    memory = Memory(activation=Fraction(1, chunks), retained=Fraction(str(retained)) / chunks, limit=limits)
    return pipeline_of(entry, "linear" if chunks == 1 else "wave", memory=memory)


def reached(asked: Pipeline, objective: Objective, known: float, seconds: float) -> Result:
    """A result that is no worse than ``known``; one second first, since that is mostly enough."""
    ticks = Fraction(str(known)) * asked.ticks.per_unit
    result = solve(asked, objective=objective, seconds=1, workers=1)
    if result.ticks.value is None or result.ticks.value > ticks:
        start, bound = result.schedule, result.ticks.lower_bound
        again = Settings(seconds=seconds)
        result = solve_closed(asked, objective, again, beside=lambda: rows_of(asked), start=start, lower_bound=bound)
    assert result.ticks.value is not None
    assert result.ticks.value <= ticks
    return result


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_never_worse_than_an_optimum_that_is_known(objective: Objective) -> None:
    def check(entry: Entry) -> None:
        known = entry[OBJECTIVES[objective]]
        asked = pipeline(entry, entry["retained"], entry["memory_limit"])
        result = reached(asked, objective, known, 60)
        if entry[f"{OBJECTIVES[objective]}_proven"]:
            assert (result.value or 0) == known  # else one of the two proofs is wrong
        assert result.lower_bound <= known

    optima = {f"{key}-limit-{e['memory_limit']}": e for key, e in of("optima").items() if OBJECTIVES[objective] in e}
    each(optima, check)


MEASURED = ("gpipe", "1f1b", "zb-h1", "zb-h2", "zb-heuristic", "zb-v", "v-half", "v-min")


@pytest.mark.slow
@pytest.mark.parametrize("schedule", MEASURED)
def test_never_worse_than_the_zero_bubble_schedulers(schedule: str) -> None:
    """With the memory that the zero-bubble papers' schedulers need for what they reach."""
    compared = 0

    def check(entry: Entry) -> None:
        nonlocal compared
        name, peaks = list(entry["peak_memory"].items())[-1]
        try:
            asked = pipeline(entry, float(name.split()[1]), [round(peak + 5e-4, 3) for peak in peaks])
        except PipelineError:
            return
        for objective, figure in OBJECTIVES.items():
            reached(asked, objective, entry[figure], 30)
            compared += 1

    each({key: e for key, e in of("zero_bubble", schedule).items() if e["kind"] == "measured"}, check)
    assert compared >= 40
