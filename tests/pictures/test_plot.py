"""Pictures in files, several schedules in one."""

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from ppopt.named import find
from ppopt.pictures.figure import check_suffix, figure, figures_of, save
from ppopt.pipeline import Memory, Pipeline, Units
from tests.support.drawn import named


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".PNG"])
def test_pictures_are_saved_by_suffix(suffix: str, tmp_path: Path) -> None:
    schedules = [(name, named(name, 4, 8, memory=Memory(limit=6))) for name in ("1f1b", "zb-h1", "hanayo")]
    path = tmp_path / f"all{suffix}"
    save(figure(schedules, memory=True), str(path))
    start = path.read_bytes()[:5]
    assert start in {b"\x89PNG\r", b"<?xml", b"%PDF-"}
    with pytest.raises(ValueError, match=r"expected a name that ends in \.png, \.svg, \.pdf, got \.gif"):
        check_suffix("x.gif")


def test_schedules_share_one_time_axis() -> None:
    picture = figure([(name, named(name, 4, 8)) for name in ("1f1b", "zb-h1")])
    assert len({ax.get_xlim() for ax in picture.axes}) == 1
    texts = [text.get_text() for text in picture.texts]
    assert {"1f1b", "zb-h1"} <= set(texts)
    picture.canvas.draw()
    boxes = [text.get_window_extent() for text in picture.texts] + [ax.get_tightbbox() for ax in picture.axes]
    for a, b in itertools.combinations(boxes, 2):  # neither titles nor charts run into each other
        assert not (min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1)
    assert all(box.x0 >= 0 and box.x1 <= picture.bbox.width for box in boxes)


def test_the_title_has_the_figures() -> None:
    pipeline = Pipeline(4, 8, units=Units(time="ms", memory="GiB"), memory=Memory(limit=Fraction(9, 2)))
    line = figures_of(find("zb-h1").schedule(pipeline))
    assert "makespan 27 ms" in line
    assert "bubble ratio 11.1%" in line
    assert "peak memory 4 GiB (limit 4.5)" in line
    tenths = replace(pipeline, units=Units(time="0.1 ms"))
    assert "makespan 27 × 0.1 ms" in figures_of(find("zb-h1").schedule(tenths))
