"""Pictures of runs: the plan above, the run below, on one axis."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from ppopt.op import Kind
from ppopt.pictures.measured import FADED, PITCH, draw, picture_of
from ppopt.pictures.palette import rgb, shades
from ppopt.runs import Beside, beside, schedule_of
from tests.support.runs import SPLIT, planned, run_of
from tests.support.tiers import thorough


@pytest.fixture
def found() -> Beside:
    plan = planned("1f1b", 2, 4)
    return beside(run_of(plan, lambda op: 3.0 * (op == "1F0")), plan)


def test_each_device_has_its_plan_above_its_run(found: Beside) -> None:
    picture = picture_of(found.measured, "a run", found)
    lanes, deviations = picture.axes
    upper, lower = (each for each in lanes.collections if isinstance(each, PolyCollection) and len(each.get_paths()) == 16)
    for collection, schedule, lane in ((upper, found.plan, 0), (lower, found.measured, 1)):
        boxes = [path.get_extents() for path in collection.get_paths()]
        times = np.concatenate(schedule.start) / schedule.pipeline.ticks.per_unit
        assert [box.x0 for box in boxes] == pytest.approx(times)
        assert sorted({round((box.y0 + box.y1) / 2, 6) for box in boxes}) == [lane, PITCH + lane]
    first = upper.get_facecolor()[0][:3], lower.get_facecolor()[0][:3]
    blue = shades(Kind.F, 1)[0]
    assert first[0] == pytest.approx(blue * (1 - FADED) + FADED)
    assert first[1] == pytest.approx(rgb("#4062d7"))
    assert len(deviations.patches) == 4
    assert {round(patch.get_height(), 6) for patch in deviations.patches} == {0}  # medians
    assert [text.get_text() for text in picture.texts][:3] == [
        "a run",
        "plan: makespan 60.8 ms · bubble ratio 21.1%",
        "measured: makespan 63.8 ms · bubble ratio 22.4%",
    ]


@thorough
@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_with_memory_both_have_a_chart_and_without_a_plan_the_run_alone(suffix: str, found: Beside, tmp_path: Path) -> None:
    assert len(picture_of(found.measured, "a run", found, memory=True).axes) == 4
    run = run_of(planned("zb-v", 2, 4, SPLIT))
    assert len(picture_of(schedule_of(run), "a run", None).axes) == 1
    draw(run, schedule_of(run), None, str(tmp_path / f"run.{suffix}"), begin=2, end=9)
    assert (tmp_path / f"run.{suffix}").stat().st_size > 5000


def test_a_page_has_both(found: Beside, tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    path = tmp_path / "run.html"
    draw(found.run, found.measured, found, str(path))
    text = path.read_text(encoding="utf-8")
    assert text.count('<section class="schedule"') == 2
    assert "63.8" in text
