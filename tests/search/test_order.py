"""Solving under a named order, or freeing parts of it."""

import pytest

from ppopt.named import Restriction, find
from ppopt.op import Kind
from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.search import Binding, solve
from tests.support.search import proved


def test_binding_order_is_reproduced():
    for name in ("gpipe", "1f1b", "zb-h1"):
        result = proved(Pipeline(4, 8), order=name)
        assert result.schedule.order == find(name).order(Pipeline(4, 8))


def test_binding_order_is_solved_on_its_own_placement():
    result = solve(Pipeline(2, 4), order="interleaved-1f1b", workers=1)
    assert (result.pipeline.placement, result.pipeline.chunks, result.reason) == ("loop", 2, "optimal")


def test_binding_order_that_exceeds_the_memory_is_infeasible():
    result = solve(Pipeline(4, 8, memory=Memory(limit=4)), order="gpipe")
    assert (result.reason, result.schedule, result.value, result.limit) == ("infeasible", None, None, None)


def test_freed_weights_fill_gaps_and_the_rest_keeps_its_order():
    pipeline = Pipeline(4, 8)
    fixed, free = proved(pipeline, order="1f1b"), proved(pipeline, order=Binding("1f1b", free=(Kind.W,)))
    assert (fixed.value, free.value) == (33, 27)  # 1f1b with W set free is no worse than zb-h1, which is optimal
    for before, after in zip(fixed.schedule.order.texts(), free.schedule.order.texts(), strict=True):
        kept = [text.replace("I", "B") for text in after if "W" not in text]
        assert kept == before


def test_freeing_everything_gives_the_optimum_of_the_placement():
    pipeline = Pipeline(2, 3, memory=Memory(limit=1))
    assert proved(pipeline, order=Binding("zb-h1", free=tuple(Kind))).value == proved(pipeline).value


@pytest.mark.parametrize("name", ["1f1b", "zb-h1"])
def test_freeing_is_never_slower_where_a_fused_backward_takes_less(name):
    pipeline = Pipeline(2, 4, costs=Costs(forward=(1, 2), backward_input=2, backward_weight=2, backward=(1, 3)))
    fixed, free, all_free = (proved(pipeline, order=Binding(name, free=kinds)) for kinds in ((), (Kind.W,), tuple(Kind)))
    assert all_free.value == proved(pipeline).value <= free.value <= fixed.value
    fully = proved(pipeline, order=Binding(name, free=(Kind.B, Kind.W)))
    assert fully.value <= free.value  # of a fused schedule only the order of F is left


def test_freeing_the_weights_of_lists_and_pairs():
    pipeline = Pipeline(2, 4, placement="bidirectional")
    fixed, free = proved(pipeline, order="dualpipe"), proved(pipeline, order=Binding("dualpipe", free=(Kind.W,)))
    assert free.value <= fixed.value
    pairs = [text for row in fixed.schedule.order.texts() for text in row if "OVERLAP" in text]
    assert pairs
    assert pairs == [text for row in free.schedule.order.texts() for text in row if "OVERLAP" in text]
    assert proved(pipeline, order=Binding("dualpipe", free=(Kind.F,))).schedule.order.texts() != fixed.schedule.order.texts()


def test_restrictions_are_named():
    with pytest.raises(Restriction, match="microbatches"):
        solve(Pipeline(4, 2), order="zb-h1")
