"""What recomputes left open with the cut: where all layers are treated alike first."""

from fractions import Fraction
from itertools import product

import pytest

from ppopt.checker import violations
from ppopt.clock import Clock
from ppopt.pipeline import Layer, Layers, Memory, Pipeline
from ppopt.search import Settings, solve
from ppopt.search.alike import AlikeLayers
from ppopt.search.cutting import PartitionChoice
from tests.support.layered import MODEL, cuts

SETTINGS = Settings(seconds=20, workers=1)


def pipeline(limit: float | None, recompute: str = "choose", layers: Layers = MODEL) -> Pipeline:
    """Seven layers on two devices, four microbatches, the cut left open."""
    memory = Memory(limit=None if limit is None else Fraction(limit))
    return Pipeline(2, 4, layers=layers, memory=memory, partition="best", recompute=recompute)


def searched(given: Pipeline, names: list[str]) -> AlikeLayers:
    """One that notes which levels were searched."""

    def searching(own: Pipeline, seconds: float) -> PartitionChoice:
        names.append(str(own.recompute))
        return PartitionChoice(own, "makespan", SETTINGS)

    return AlikeLayers(given, "makespan", 1.0, searching)


@pytest.mark.parametrize("limit", [None, 40, 34, 30])
def test_finds_the_best_where_all_layers_are_treated_alike(limit: float | None) -> None:
    names: list[str] = []
    alike = searched(pipeline(limit), names)
    values: list[Fraction] = []
    found = alike.improved(10**6, Clock(60), values.append)
    alone = [solve(pipeline(limit, level), SETTINGS) for level in ("none", "half", "full")]
    assert found is not None
    schedule, words = found
    best = min(Fraction(result.value) for result in alone if result.value is not None)
    assert schedule.pipeline.time(schedule.makespan) == best == min(values)
    assert not violations(schedule.pipeline, schedule)
    assert not words
    assert sorted(names) == ["full", "half", "none"], "each is settled, and then the next one is searched"


def test_nothing_is_found_that_is_no_better_than_what_is_known() -> None:
    alone = [solve(pipeline(40, level), SETTINGS) for level in ("none", "half", "full")]
    best = min(Fraction(result.value) for result in alone if result.value is not None)
    values: list[Fraction] = []
    assert searched(pipeline(40), []).improved(best, Clock(60), values.append) is None
    assert not values


def test_a_settled_choice_is_not_searched() -> None:
    names: list[str] = []
    assert searched(pipeline(None, "half"), names).improved(10**6, Clock(10), lambda value: None) is None
    assert not names


def test_the_level_that_promises_most_comes_first() -> None:
    names: list[str] = []
    searched(pipeline(None), names).improved(10**6, Clock(60), lambda value: None)
    assert names[0] == "none"
    heavy = Layers([Layer("layer", 8, forward=3, backward=6, activation=8, recompute=[{"name": "full", "time": 1, "saved": 7}])])
    names.clear()
    searched(pipeline(40, layers=heavy), names).improved(10**6, Clock(60), lambda value: None)
    assert names[0] == "full", "one microbatch fits without, so that devices wait for each other"


def test_the_answer_is_the_best_over_every_cut_and_choice_of_stages() -> None:
    layers = Layers([Layer("layer", 4, forward=2, backward=4, activation=4, recompute=[{"name": "full", "time": 1, "saved": 3}])])
    given = Pipeline(2, 3, layers=layers, memory=Memory(limit=15), partition="best", recompute="choose")
    found = solve(given, SETTINGS)
    values = []
    for counts in cuts(4, 2):
        for chosen in product(*(range(n + 1) for n in counts)):
            tables = [({"layer": {"full": n}} if n else {}) for n in chosen]
            result = solve(given.changed(partition=counts, recompute=tables), SETTINGS, best_cut=False)
            if result.value is not None:
                assert result.reason == "optimal"
                values.append(result.value)
    assert (found.reason, found.value) == ("optimal", min(values))
    assert any(step.name.startswith("recompute none: ") for step in found.steps)
