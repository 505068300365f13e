"""Beginning with fewer microbatches, or with fewer devices."""

from __future__ import annotations

from ppopt.pipeline import Memory, Pipeline
from ppopt.search.steps.modulo_scheduling import ModuloScheduling
from ppopt.search.steps.smaller_pipelines import FewMicrobatches
from ppopt.search.turns import Turn
from tests.support.search import run_of


def test_few_microbatches_begin_a_search_for_spans() -> None:
    """Modulo scheduling is for makespans, but a schedule of few microbatches is repeated for either objective."""
    run = run_of(Pipeline(2, 200, memory=Memory(limit=2)), objective="span")
    run.take(Turn(FewMicrobatches), 5)
    assert run.step(ModuloScheduling).best is not None
    assert run.incumbent.best is not None
