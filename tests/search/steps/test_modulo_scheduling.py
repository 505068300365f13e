"""Modulo scheduling as a step."""

from ppopt.checker import violations
from ppopt.pipeline import DataParallel, Memory, Pipeline
from ppopt.search.steps.modulo_scheduling import ModuloScheduling
from tests.support.search import run_of, take

PIPELINE = Pipeline(4, 40, memory=Memory(limit=4))


def test_a_kernel_at_full_speed_is_found_and_kept() -> None:
    run = run_of(PIPELINE)
    assert not run.step(ModuloScheduling).full_speed
    take(run, ModuloScheduling)
    step = run.step(ModuloScheduling)
    assert step.full_speed
    assert step.best is not None
    assert step.best.period == 3 * step.best.unroll
    assert run.incumbent.best is not None
    assert violations(PIPELINE, run.incumbent.best) == []
    found, value = step.best, run.incumbent.value
    take(run, ModuloScheduling, 0.2)
    assert step.best.makespan_for((40,)) <= found.makespan_for((40,))  # type: ignore[operator]
    assert run.incumbent.value <= value
    assert run.versions.keys() == {"ortools"}


def test_memory_makes_it_slower() -> None:
    run = run_of(Pipeline(4, 40, memory=Memory(limit=2)))
    take(run, ModuloScheduling)
    best = run.step(ModuloScheduling).best
    assert best is not None
    assert best.period == 5 * best.unroll
    assert not run.step(ModuloScheduling).full_speed


def test_traffic_counts_in_what_is_offered() -> None:
    pipeline = PIPELINE.changed(data_parallel=DataParallel(3, 2))
    run = run_of(pipeline)
    take(run, ModuloScheduling)
    assert run.incumbent.best is not None
    assert violations(pipeline, run.incumbent.best) == []
    assert any("sought without what devices do before and after" in taken.outcome for taken in run.taken)
