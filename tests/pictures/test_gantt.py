"""Gantt charts."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from ppopt.pictures import gantt as gantt_module
from ppopt.pictures.figure import figure, save
from ppopt.pictures.gantt import bars_of, gantt
from ppopt.pictures.memory import memory
from ppopt.pictures.palette import IDLE, rgb
from ppopt.pictures.text import grid
from ppopt.pictures.timeaxis import TimeAxis, time_axis
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order
from ppopt.timing import time_order
from tests.support.drawn import cells, drawn, named


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "interleaved-1f1b", "dualpipe-v"])
def test_a_bar_for_every_operation_at_its_time(name: str) -> None:
    schedule = named(name, 4, 8)
    _, ax = drawn(schedule)
    boxes = [path.vertices for path in ax.collections[0].get_paths()]
    halves = [1 + (";" in str(op)) for device in range(4) for op in schedule.order.ops(device)]
    assert len(boxes) == sum(halves)
    per_unit = schedule.pipeline.ticks.per_unit
    area = sum((box[:, 0].max() - box[:, 0].min()) * (box[:, 1].max() - box[:, 1].min()) for box in boxes)
    assert area == pytest.approx(sum(schedule.work) / per_unit * gantt_module.BAR)
    assert max(box[:, 0].max() for box in boxes) == pytest.approx(schedule.makespan / per_unit)


@pytest.mark.parametrize(
    ("name", "devices", "microbatches"), [("1f1b", 4, 8), ("dualpipe", 4, 8), ("zb-h1", 16, 64), ("gpipe", 2, 300)]
)
@pytest.mark.parametrize("size", [(4, 1.5), (12, 3), (24, 8)])
def test_numbers_stay_inside_their_bars(name: str, devices: int, microbatches: int, size: tuple[float, float]) -> None:
    schedule = named(name, devices, microbatches)
    _, ax = drawn(schedule, size=size)
    boxes = [path.get_extents(ax.transData) for path in ax.collections[0].get_paths()]
    edges = np.array([[box.x0, box.x1, box.y0, box.y1] for box in boxes])
    for text in ax.texts:
        if text.get_text().isdigit():
            own = text.get_window_extent()
            x, y = (own.x0 + own.x1) / 2, (own.y0 + own.y1) / 2
            holder = edges[(edges[:, 0] <= x) & (x <= edges[:, 1]) & (edges[:, 2] <= y) & (y <= edges[:, 3])]
            assert len(holder) == 1
            assert own.x0 >= holder[0, 0] - 0.5
            assert own.x1 <= holder[0, 1] + 0.5


def test_numbers_are_shown_where_there_is_room() -> None:
    _, ax = drawn(named("zb-h1", 4, 8))
    assert sorted(int(text.get_text()) for text in ax.texts) == sorted(m for m in range(8) for _ in range(12))


def test_short_schedules_are_drawn_whole_and_long_ones_in_three_parts() -> None:
    assert len(time_axis([named("1f1b", 4, 8)]).parts) == 1
    schedule = named("1f1b", 4, 1024)
    axis = time_axis([schedule])
    assert axis.parts[0][0] == 0
    assert axis.parts[-1][1] == schedule.makespan
    assert all(a[1] < b[0] for a, b in itertools.pairwise(axis.parts))
    _, ax = drawn(schedule)
    labels = [float(label.get_text()) for label in ax.get_xticklabels()]
    assert labels == sorted(labels)
    assert all(any(a <= label <= b for a, b in axis.parts) for label in labels)


def test_an_interval_is_seen_in_each_part_that_it_meets() -> None:
    axis = TimeAxis(((0.0, 10.0), (20.0, 30.0)))
    seen_, left, right = axis.clipped(np.array([5.0, 12.0]), np.array([25.0, 14.0]))
    assert seen_.tolist() == [0, 0]
    assert left.tolist() == [5.0, 10.0 + axis.gap]
    assert right.tolist() == [10.0, 15.0 + axis.gap]


def test_bands_show_the_mean_of_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gantt_module, "MOST_BARS", 10)
    monkeypatch.setattr(gantt_module, "BINS", 33)
    schedule = named("1f1b", 4, 8)
    _, ax = drawn(schedule)
    image = ax.images[0].get_array()
    bars = bars_of(schedule)
    expected = np.broadcast_to(rgb(IDLE), (4, 33, 3)).copy()
    for device, start, end, colour in zip(bars.row, bars.start, bars.end, bars.colour, strict=True):
        expected[device, int(start) : int(end)] = colour
    assert np.allclose(image, expected)


def test_hundreds_of_devices_are_no_problem(tmp_path: Path) -> None:
    save(figure([("gpipe", named("gpipe", 256, 8))]), str(tmp_path / "large.png"))
    assert (tmp_path / "large.png").stat().st_size > 10_000


def test_an_empty_device_is_drawn() -> None:
    pipeline = Pipeline(3, 2, routes=((0, 2), (1, 1)), route_of_microbatch=(0, 0))
    order = Order.of(pipeline, [["0F0", "0F1", "0B0", "0B1"], [], ["1F0", "1B0", "1F1", "1B1"]])
    schedule = time_order(pipeline, order)
    assert set(cells(grid(schedule))[1]) == {"."}
    save_to = Figure()
    memory(schedule, save_to.subplots())
    gantt(schedule, Figure().subplots())
    save_to.canvas.draw()
