"""A run beside its plan."""

from fractions import Fraction

import pytest
from hypothesis import strategies as st

from ppopt.files.model import ModelError
from ppopt.files.recorded import ProfileError
from ppopt.named import find
from ppopt.pipeline import Costs, Links, Memory, Pipeline, Units
from ppopt.runs import beside, document
from ppopt.runs.beside import shares
from ppopt.runs.timeline import schedule_of
from tests.support.runs import FUSED, SPLIT, planned, run_of
from tests.support.tiers import drawn, thorough


@pytest.mark.parametrize(
    "name", ["1f1b", "dualpipe-v", *(pytest.param(n, marks=thorough) for n in ("zb-v", "interleaved-1f1b", "gpipe"))]
)
def test_nothing_is_late_in_a_run_that_went_as_planned(name: str) -> None:
    plan = planned(name, costs=SPLIT)
    found = beside(run_of(plan), plan)
    assert found.notes == ()
    assert max(late.late for late in found.lateness) == pytest.approx(0, abs=1e-6)
    assert all(figures.deviation == pytest.approx(0, abs=1e-9) for figures in found.figures())


def test_an_operation_that_takes_longer_and_what_comes_late_after_it() -> None:
    """1F1B on two devices, worked out by hand: 1F0 takes 3 ms longer, on the critical path."""
    plan = planned("1f1b", 2, 2)
    found = beside(run_of(plan, lambda op: 3.0 * (op == "1F0")), plan)
    by_op = {late.op: late for late in found.lateness}
    assert by_op["1F0"].late == pytest.approx(0)
    assert by_op["1F0"].longer == pytest.approx(3)
    assert {late.op for late in found.late if late.late > 1e-6} == {"1B0", "1F1", "0B0", "1B1", "0B1"}
    first = by_op["1B0"]
    assert (first.waited_for, first.waited_device, first.waited_late) == ("1F0", 1, pytest.approx(3))
    assert (by_op["0B0"].waited_for, by_op["0B0"].waited_device) == ("1B0", 1)
    assert by_op["0B0"].between == pytest.approx(0, abs=1e-6)
    assert by_op["0B0"].planned_wait == ("data",)
    assert [late.op for late in found.path] == ["0F0", "1F0", "1B0", "1F1", "1B1", "0B1"]
    assert shares(found.path) == (pytest.approx(3), pytest.approx(0, abs=1e-6))


def test_what_is_added_comes_first_not_what_is_late_after_it() -> None:
    """1B1 begins 3 ms late after 1F0, and takes 2 ms longer itself; 0B1 begins 5 ms late, and adds nothing."""
    plan = planned("1f1b", 2, 2)
    found = beside(run_of(plan, lambda op: {"1F0": 3.0, "1B1": 2.0}.get(op, 0.0)), plan)
    assert found.late[0].op == "1B1"
    assert found.late[0].added == pytest.approx(2)
    assert max(found.late, key=lambda late: late.late).op == "0B1"
    assert shares(found.path) == (pytest.approx(5), pytest.approx(0, abs=1e-6))


def test_time_between_operations_is_told_from_longer_ones() -> None:
    """Messages take 0.2 ms in the plan, and 1.2 ms in the run."""
    plan = planned("1f1b", 2, 2)
    slow = find("1f1b").schedule(plan.pipeline.changed(links=Links(Fraction(6, 5))))
    found = beside(run_of(slow), plan)
    by_op = {late.op: late for late in found.lateness}
    assert by_op["1F0"].between == pytest.approx(1)
    assert by_op["1B0"].between == pytest.approx(0, abs=1e-6)
    assert by_op["0B1"].late == pytest.approx(2)
    assert shares(found.path) == (pytest.approx(0, abs=1e-6), pytest.approx(2))


@st.composite
def delays(draw: st.DrawFn) -> tuple[str, dict[str, float]]:
    name = draw(st.sampled_from(["1f1b", "zb-h1", "zb-v", "interleaved-1f1b", "dualpipe-v"]))
    ops = [text for row in planned(name, costs=SPLIT).order.texts() for text in row]
    return name, draw(st.dictionaries(st.sampled_from(ops), st.floats(0.1, 20.0), min_size=1, max_size=5))


@drawn(2, 60, delays())
def test_what_is_added_on_the_path_is_how_late_the_last_operation_ends(case: tuple[str, dict[str, float]]) -> None:
    name, late = case
    plan = planned(name, costs=SPLIT)
    found = beside(run_of(plan, lambda op: late.get(op, 0.0)), plan)
    last = found.path[-1]
    assert sum(shares(found.path)) == pytest.approx(last.late + last.longer, abs=1e-6)
    assert last.began + last.took == pytest.approx(float(found.measured.pipeline.time(found.measured.makespan)))
    assert min(each.late for each in found.lateness) >= -1e-6  # nothing is earlier where everything takes at least as long
    for each in found.lateness:  # an operation is late by what it waited for, and by what came up after that
        assert each.late == pytest.approx(each.waited_late + each.between)


def test_figures_by_device_and_kind_have_medians_quartiles_and_the_plan() -> None:
    plan = planned("1f1b", 2, 5)
    longer = {"0F0": 1.0, "0F1": 2.0, "0F2": 3.0, "0F3": 4.0, "0F4": 5.0}
    figures = beside(run_of(plan, lambda op: longer.get(op, 0.0)), plan).figures()
    assert [(each.device, each.kind, each.count) for each in figures] == [(0, "F", 5), (0, "B", 5), (1, "F", 5), (1, "B", 5)]
    first = figures[0]
    assert (first.median, first.low, first.high, first.planned) == pytest.approx((7, 6, 8, 4))
    assert first.deviation == pytest.approx(0.75)


def test_a_run_from_a_file_for_pytorch_is_compared_with_what_was_exported() -> None:
    """There I and W one after the other are B."""
    from ppopt.files.torch_export import for_torch

    plan = planned("zb-h1", 2, 4, SPLIT)
    exported = for_torch(plan)
    assert exported.notes
    found = beside(run_of(exported.schedule), plan)
    assert found.notes[0].startswith("compared with the plan as it is exported for PyTorch: ")
    assert len(found.notes) == 1
    assert found.plan.order == exported.schedule.order


def test_a_backward_in_one_piece_is_compared_with_the_two_of_the_plan() -> None:
    plan = planned("zb-h1", 2, 4, SPLIT)
    fused = planned("1f1b", 2, 4, SPLIT)
    found = beside(run_of(fused), plan)
    by_op = {late.op: late for late in found.lateness}
    assert "1B2" in by_op
    assert by_op["1B2"].planned_took >= 8
    assert any("that the plan does not have" in note for note in found.notes)


def test_another_order_is_said() -> None:
    pipeline = Pipeline(2, 4, costs=FUSED, units=Units("ms"))
    one, other = (find(name).schedule(pipeline) for name in ("1f1b", "gpipe"))
    notes = beside(run_of(other), one).notes
    assert notes[0] == "device 0 ran another order from place 3 on: 0F2, planned 0B0"


def test_what_a_device_holds_is_the_plans() -> None:
    pipeline = Pipeline(2, 4, costs=FUSED, units=Units("ms", "GB"), memory=Memory(activation=(3, 5), static=1, limit=9))
    plan = find("1f1b").schedule(pipeline)
    found = beside(run_of(plan), plan)
    assert [found.measured.pipeline.amount(peak) for peak in found.measured.peak_memory] == [7, 6]
    assert found.measured.within_memory


def test_what_cannot_be_compared_is_refused() -> None:
    plan = planned("1f1b", 2, 4)
    refused = [
        (planned("1f1b", 2, 6), "the run has 2 devices, 2 stages and 4 microbatches; the plan has 2 devices, 2 stages and 6"),
        (planned("1f1b", 4, 4), "the plan has 4 devices"),
    ]
    for other, message in refused:
        with pytest.raises(ProfileError, match=message):
            beside(run_of(plan), other)
    with pytest.raises(ProfileError, match="stage 2 ran on device 1; the plan has it on device 0"):
        beside(run_of(planned("zb-v", 2, 4, SPLIT)), planned("interleaved-zb", 2, 4, SPLIT))
    with pytest.raises(ModelError, match=r"units.time: expected a unit of time such as ms, got ''"):
        beside(run_of(plan), find("1f1b").schedule(Pipeline(2, 4, costs=Costs(forward=4, backward=8))))


def test_the_document_says_all_of_it() -> None:
    plan = planned("1f1b", 2, 2)
    run = run_of(plan, lambda op: 3.0 * (op == "1F0"))
    tree = document(run, beside(run, plan).measured, beside(run, plan))
    assert tree["metrics"]["makespan"] == pytest.approx(39.4)
    assert tree["plan"]["metrics"]["makespan"] == pytest.approx(36.4)
    assert tree["plan"]["path_longer"] == pytest.approx(3)
    assert tree["schedule"]["order"] == tree["plan"]["schedule"]["order"]
    for device in tree["metrics"]["devices"]:
        assert device["work"] + sum(device["idle"].values()) == pytest.approx(tree["metrics"]["makespan"])
    alone = document(run, schedule_of(run), None)
    assert alone["plan"] is None
    assert all(figures["planned"] is None for figures in alone["operations"])
