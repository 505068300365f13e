"""Every golden order and timing of the named schedules."""

from typing import Any

import golden
import pytest

from ppopt.checker import violations
from ppopt.named import NAMED, Definition, find
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule

EXACT = [pytest.param(e, id=e["id"]) for e in golden.entries() if e["order_is"] == "exact"]
EXAMPLES = [pytest.param(e, id=e["id"]) for e in golden.entries() if e["order_is"] == "example"]


def named(entry: dict[str, Any], timing: dict[str, Any]) -> tuple[Definition, Pipeline, Schedule]:
    """The named schedule of an entry, on a pipeline in its own placement."""
    definition = find(entry["schedule"])
    pipeline = golden.pipeline_of(entry, timing)
    return definition, pipeline, definition.schedule(pipeline, entry["chunks"], **entry["params"])


def test_every_schedule_of_the_file_is_tested() -> None:
    assert {e["schedule"] for e in golden.entries()} <= set(NAMED)
    assert len(EXACT) + len(EXAMPLES) == len(golden.entries()) > 100


@pytest.mark.parametrize("entry", EXACT)
def test_orders_and_timings(entry: dict[str, Any]) -> None:
    for case, timing in entry["timing"].items():
        _, pipeline, schedule = named(entry, timing)
        assert schedule.order.texts() == entry["order"], case
        assert schedule.pipeline.routes == pipeline.routes
        assert schedule.makespan == timing["makespan"], case
        assert schedule.device_span == timing["max_device_span"], case
        assert list(schedule.peak_memory) == timing["peak_in_flight"], case


@pytest.mark.parametrize("entry", EXAMPLES)
def test_free_orders_do_as_well_as_the_examples_at_unit_costs(entry: dict[str, Any]) -> None:
    for case, timing in entry["timing"].items():
        _, pipeline, schedule = named(entry, timing)
        assert not violations(pipeline, schedule), case
        assert max(schedule.peak_memory) <= max(timing["peak_in_flight"]), case
        if case == "unit":
            assert schedule.makespan <= timing["makespan"]
            assert schedule.device_span <= timing["max_device_span"]


@pytest.mark.parametrize("entry", EXACT)
def test_the_checker_accepts_them(entry: dict[str, Any]) -> None:
    _, pipeline, schedule = named(entry, entry["timing"]["uneven"])
    assert not violations(pipeline, schedule)
