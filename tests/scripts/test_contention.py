"""What a plan that knows nothing of contention costs."""

from typing import Any

import contention as contention_script

from ppopt import cpsat
from ppopt.constraints import Listed, chain, rules_of
from ppopt.files.model import read_model
from tests.support.links import solved
from tests.support.places import MODELS
from tests.support.tiers import thorough


def contention(name: str) -> Any:
    return contention_script.contention(read_model(str(MODELS / name)).pipeline, 60.0)


@thorough
def test_a_plan_without_contention_is_a_tenth_worse() -> None:
    found = contention("two-sites-v.toml")
    assert found.planned.reason == found.best.reason == "optimal"
    assert found.loss >= 0.1
    # and not only because its transfers go first come, first served: with the best order of the transfers for its computations
    pipeline, order = found.best.pipeline, found.planned.schedule.order
    fixed = tuple(chain(Listed(tuple(order.ops(device)))) for device in range(pipeline.devices))
    outcome = solved(cpsat.solve, pipeline, (*rules_of(pipeline), *fixed), "makespan", found.met)
    assert outcome.schedule is not None
    assert outcome.schedule.order == order
    assert outcome.lower_bound == outcome.schedule.makespan >= 1.1 * found.best.value


@thorough
def test_two_sites_is_solved() -> None:
    found = contention("two-sites.toml")
    assert found.planned.reason == found.best.reason == "optimal"
    assert found.loss > 0
