"""Transfers in a Gantt chart."""

import pytest

from ppopt.named import find
from ppopt.pictures import gantt as gantt_module
from ppopt.pictures.figure import figure
from ppopt.pictures.gantt import bars_of
from ppopt.pictures.links import names_of
from ppopt.pipeline import Links, Memory, Pipeline
from tests.support.drawn import drawn


def test_transfers_are_on_rows_of_their_links(monkeypatch: pytest.MonkeyPatch) -> None:
    links = Links(1, 2, True, [[[0, 1], [2, 3]], [[1, 0]], [[1, 2], [2, 1]]])
    schedule = find("zb-h1").schedule(Pipeline(4, 4, links=links))
    names = names_of(schedule.pipeline)
    assert names == ["0→1, 2→3", "1→0", "1↔2", "3→2"]
    _, ax = drawn(schedule, size=(12, 6))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1", "2", "3", *names]
    bars = bars_of(schedule)
    boxes = [path.vertices for path in ax.collections[0].get_paths()]
    assert len(boxes) == 4 * 12 + 2 * 3 * 4 == len(bars.row)
    sent = sorted((int(row), float(start)) for row, start, kind in zip(bars.row, bars.start, bars.kind, strict=True) if kind > 3)
    starts = [sorted(row.tolist()) for row in schedule.transfers.start]
    assert sent == [(4 + link, time) for link, row in enumerate(starts) for time in row]
    below = [box for box in boxes if box[:, 1].min() > 3.5 + gantt_module.APART - 0.5]
    assert len(below) == 24
    assert all(box[:, 0].max() - box[:, 0].min() == pytest.approx(2) for box in below)
    monkeypatch.setattr(gantt_module, "MOST_BARS", 10)
    _, ax = drawn(schedule)
    assert [image.get_array().shape[0] for image in ax.images] == [4, 4]
    assert [image.get_extent()[2:] for image in ax.images] == [[3.5, -0.5], [8.0, 4.0]]


def test_nothing_of_a_picture_with_links_runs_off_its_edge() -> None:
    far = ((0, 1, 2, 3), (4, 5, 6, 7))
    shared = [[(a, b) for a in far[i] for b in far[1 - i]] for i in range(2)]
    pipeline = Pipeline(8, 4, "loop", 2, links=Links(1, 1, shared=shared), memory=Memory(limit=20, static=1))
    assert "0→7, 3→4" in names_of(pipeline)
    picture = figure([("interleaved-1f1b", find("interleaved-1f1b").schedule(pipeline))], memory=True)
    picture.canvas.draw()
    boxes = [ax.get_tightbbox() for ax in picture.axes] + [legend.get_window_extent() for legend in picture.legends]
    assert all(box.x0 >= 0 and box.x1 <= picture.bbox.width for box in boxes)
    assert all(box.y0 >= 0 and box.y1 <= picture.bbox.height for box in boxes)
