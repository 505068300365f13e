"""Never worse than the best schedules that are known from elsewhere, at the same memory."""

from __future__ import annotations

from fractions import Fraction

import pytest
from peers import Entry, entries, label, pipeline_of

from ppopt.bounds import Objective
from ppopt.named import rows_of
from ppopt.pipeline import Memory, Pipeline, PipelineError
from ppopt.search import Result, Settings, solve, solve_closed

OBJECTIVES: dict[Objective, str] = {"makespan": "makespan", "span": "device_span"}


def pipeline(entry: Entry, retained: float, limit: float | list[float] | None) -> Pipeline:
    """The pipeline of an entry: activations of one microbatch, shared out equally over the chunks of a device."""
    chunks = entry["chunks"]
    limits = limit if isinstance(limit, list | None) else Fraction(str(limit))
    memory = Memory(activation=Fraction(1, chunks), retained=Fraction(str(retained)) / chunks, limit=limits)
    return pipeline_of(entry, "linear" if chunks == 1 else "wave", memory=memory)


def reached(of: Pipeline, objective: Objective, known: float, seconds: float) -> Result:
    """A result that is no worse than ``known``; one second first, since that is mostly enough."""
    ticks = Fraction(str(known)) * of.ticks.per_unit
    result = solve(of, objective=objective, seconds=1, workers=1)
    if result.ticks.value is None or result.ticks.value > ticks:
        start, bound = result.schedule, result.ticks.lower_bound
        again = Settings(seconds=seconds)
        result = solve_closed(of, objective, again, beside=lambda: rows_of(of), start=start, lower_bound=bound)
    assert result.ticks.value is not None
    assert result.ticks.value <= ticks
    return result


OPTIMA = [
    pytest.param(entry, objective, id=f"{label(entry)}-limit-{entry['memory_limit']}-{objective}")
    for entry in entries("optima")
    for objective, name in OBJECTIVES.items()
    if name in entry
]


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "objective"), OPTIMA)
def test_never_worse_than_an_optimum_that_is_known(entry: Entry, objective: Objective) -> None:
    known = entry[OBJECTIVES[objective]]
    of = pipeline(entry, entry["retained"], entry["memory_limit"])
    result = reached(of, objective, known, 60)
    if entry[f"{OBJECTIVES[objective]}_proven"]:
        assert (result.value or 0) == known  # else one of the two proofs is wrong
    assert result.lower_bound <= known


def zero_bubble() -> list[Entry]:
    """What the zero-bubble papers' schedulers reach, with the memory that they need for it."""
    return [entry for entry in entries("zero_bubble") if entry["kind"] == "measured" and "fails" not in entry]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", sorted({entry["schedule"] for entry in zero_bubble()}))
def test_never_worse_than_the_zero_bubble_schedulers(schedule: str) -> None:
    compared = 0
    for entry in zero_bubble():
        if entry["schedule"] != schedule:
            continue
        name, peaks = list(entry["peak_memory"].items())[-1]
        try:
            of = pipeline(entry, float(name.split()[1]), [round(peak + 5e-4, 3) for peak in peaks])
        except PipelineError:
            continue
        for objective, figure in OBJECTIVES.items():
            reached(of, objective, entry[figure], 30)
            compared += 1
    assert compared >= 40
