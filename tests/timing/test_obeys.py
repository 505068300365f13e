"""Which words a schedule breaks, and times that wait for words."""

import numpy as np
import pytest
from hypothesis import strategies as st

from ppopt.constraints import Capacity, Dealt, Exclusive, Family, Hold, Listed, OneOf, Pairable, Precede, Together, Word, chain
from ppopt.named import find
from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, Links, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.search import solve
from ppopt.timing import broken, time_order
from tests.support.strategies import few_ops
from tests.support.tiers import drawn
from tests.support.words import moved, obeyed

F, B, I, W = Kind  # noqa: E741


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1", "pipedream"])
def test_a_named_schedules_own_words_are_its_order(name: str) -> None:
    pipeline = Pipeline(3, 6, costs=Costs(forward=2, backward_input=3, backward_weight=1), links=Links(1))
    words = find(name).words(pipeline)
    bound, own = solve(pipeline, order=name), solve(pipeline, constraints=words)
    assert bound.schedule is not None
    assert own.schedule is not None
    assert (own.reason, own.ticks.value, own.ticks.lower_bound) == (bound.reason, bound.ticks.value, bound.ticks.lower_bound)
    assert own.schedule.order == bound.schedule.order


def test_every_word_is_broken_by_some_schedule_and_told() -> None:
    pipeline = Pipeline(2, 2, costs=Costs(overlap=2))
    order = Order.of(pipeline, [["0F0", "0F1", "0I0", "0W0", "0B1"], ["1F0", "(1F1;1B0)OVERLAP_F_B", "1B1"]])
    schedule = time_order(pipeline, order)
    pair = Together(Listed((Op(1, F, 1),)), Listed((Op(1, B, 0),)))
    kept: list[Word] = [
        pair,
        Precede(Family(0, F), Family(1, F)),
        Precede(Family(1, B), Family(0, B)),
        Exclusive((Family(0, F), Family(0, I))),
        OneOf(((Family(1, B),),)),
        OneOf(((Listed((Op(0, B, 0),)),), (Listed((Op(0, I, 0),)),))),
        Capacity((Hold(Family(0, F), (Family(0, B), Family(0, W)), 1),), 2),
        Capacity((Hold(Family(0, F), (Family(1, F),), 1),), 2),
        chain(Listed((Op(0, F, 0), Op(0, F, 1), Op(0, W, 0)))),
        chain(Dealt((Family(0, F), Family(0, W)), 2)),
    ]
    assert broken(schedule, kept) == []
    wrong: dict[str, Word] = {
        "1F0 starts at 1, before the end of 0F0 at 1 + 1": Precede(Family(0, F), Family(1, F), lag=1),
        "do not run as a pair": Together(Listed((Op(0, F, 1),)), Listed((Op(0, B, 1),))),
        "exclude each other": Exclusive((Family(0, F), Family(1, F))),
        "0B0: nothing is run": OneOf(((Family(0, B),),)),
        "2 are held at 1, with room for 1": Capacity((Hold(Family(0, F), (Family(0, B), Family(0, W)), 1),), 1),
        "runs without a forward": Pairable((Family(1, F),), (Family(1, B),), alone=False),
    }
    for text, word in wrong.items():
        assert any(text in line for line in broken(schedule, [pair, word])), text
    assert broken(schedule, [chain(Family(0, F))]) == ["1F1 and 1B0 run as a pair, which no word allows"]


@drawn(5, 25, few_ops(), st.integers(0, 1), st.integers(1, 3))
def test_a_schedule_that_is_shifted_until_a_word_breaks_is_caught(pipeline: Pipeline, shift: int, lag: int) -> None:
    """Whatever starts as early as it can: its words' ``before`` later, and the word is broken, and told by name."""
    fused = [OneOf(((Family(s, B),),)) for s in range(pipeline.stages)] if pipeline.costs.split else []
    relation = Precede(Family(0, F), Family(pipeline.stages - 1, F), shift, lag)
    limited = Exclusive(tuple(Family(s, F) for s in range(pipeline.stages)))
    result = solve(pipeline, constraints=[relation, limited, *fused], seconds=60, workers=1)
    if result.schedule is None:
        return
    assert broken(result.schedule, result.binding) == []
    columns = starts_of(result.schedule)
    for k in range(relation.shift, pipeline.microbatches):
        a, b = Op(0, F, k - relation.shift), Op(pipeline.stages - 1, F, k)
        room = columns[b][0] - (columns[a][1] + relation.lag)
        assert broken(moved(result.schedule, a, room), [relation]) == [] or room == 0
        found = broken(moved(result.schedule, a, room + 1), [relation])
        assert len([line for line in found if f"{b} starts" in line]) >= 1


def starts_of(schedule: Schedule) -> dict[Op, tuple[int, int]]:
    rows = zip(schedule.order.rows, schedule.start, schedule.end, strict=True)
    op = schedule.pipeline.index.op
    return {op(int(n)): (int(a), int(b)) for row in rows for n, a, b in zip(*row, strict=True)}  # type: ignore[misc]


def test_times_wait_for_words_between_devices_with_links_that_are_held() -> None:
    pipeline = Pipeline(2, 3, links=Links(1, occupancy=1))
    wait = Precede(Family(1, F), Family(0, F), shift=1, lag=4)
    order = find("1f1b").order(pipeline)
    schedule = time_order(pipeline, order, words=[wait])
    assert broken(time_order(pipeline, order), [wait])
    obeyed(schedule, [wait])
    assert np.array_equal(np.diff(schedule.start[0][:2]), [1 + 2 + 1 + 4])  # 0F0, its transfer, 1F0, the wait
    result = solve(pipeline, constraints=[wait], seconds=20)
    assert result.reason == "optimal"
