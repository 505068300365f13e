"""Pictures: the text grid equals the known drawings; charts show every operation, at small and at large sizes."""

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from ppopt.cli.plot import plot
from ppopt.files import Model, document, json_text
from ppopt.named import find
from ppopt.op import Kind
from ppopt.pictures import gantt as gantt_module
from ppopt.pictures.curves import curves
from ppopt.pictures.figure import check_suffix, figure, figures_of, save
from ppopt.pictures.gantt import bars_of, gantt
from ppopt.pictures.links import names_of
from ppopt.pictures.memory import held_over_time, memory
from ppopt.pictures.palette import IDLE, ink, rgb, shades
from ppopt.pictures.text import grid
from ppopt.pictures.timeaxis import TimeAxis, time_axis
from ppopt.pipeline import Costs, Links, Memory, Pipeline, Units
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order


def named(name: str, devices: int, microbatches: int, chunks: int | None = None, **fields: object) -> Schedule:
    return find(name).schedule(Pipeline(devices, microbatches, **fields), chunks)  # type: ignore[arg-type]


def cells(text: str) -> list[list[str]]:
    """The cells of each device's row."""
    return [line.split(": ")[1].split() for line in text.splitlines() if ": " in line and line.strip().startswith("device")]


# --- text --------------------------------------------------------------------------------------------------------

ONE_F_ONE_B = """
F0 F1 F2 F3 .  .  .  B0 F4 B1 F5 B2 F6 B3 F7 B4 .  B5 .  B6 .  B7
.  F0 F1 F2 .  .  B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 .  B6 .  B7 .
.  .  F0 F1 .  B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 .  B7 .  .
.  .  .  F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 .  .  .
"""


def test_1f1b_is_drawn_as_everywhere() -> None:
    text = grid(named("1f1b", 4, 8, costs=Costs(backward=1)))
    assert cells(text) == [row.split() for row in ONE_F_ONE_B.strip().splitlines()]
    assert text.splitlines()[0].split()[2:] == [str(time) for time in range(22)]


@pytest.mark.parametrize(("devices", "microbatches"), [(1, 1), (2, 4), (4, 2), (4, 8), (8, 16)])
def test_gpipe_is_drawn_as_everywhere(devices: int, microbatches: int) -> None:
    total = 2 * (microbatches + devices - 1)
    expected = [["."] * total for _ in range(devices)]
    for device, m in itertools.product(range(devices), range(microbatches)):
        expected[device][device + m] = f"F{m}"
        expected[device][total // 2 + devices - 1 - device + m] = f"B{m}"
    assert cells(grid(named("gpipe", devices, microbatches, costs=Costs(backward=1)))) == expected


def test_every_cell_is_as_wide_as_the_others() -> None:
    for name, devices, microbatches in [("1f1b", 12, 120), ("interleaved-1f1b", 4, 8), ("dualpipe", 4, 8), ("zb-v", 3, 11)]:
        lines = grid(named(name, devices, microbatches)).splitlines()
        head = lines[2].index(":") + 2
        rows = [line[head:] for line in lines[2 : 2 + devices]]
        schedule = named(name, devices, microbatches)
        unit = int(np.gcd.reduce(np.concatenate([*schedule.duration, *schedule.start])))
        width = max(map(len, rows)) / (schedule.makespan // unit)
        assert width == int(width)
        for device, row in enumerate(rows):
            for start, end, op in zip(schedule.start[device], schedule.end[device], schedule.order.ops(device), strict=True):
                text = row[int(start // unit * width) : int(end // unit * width)].strip().rstrip("-")
                full = str(op).strip("()").replace(")OVERLAP_F_B", "")
                assert text == full or (name == "1f1b" and full.endswith(text) and text), (device, op)


def test_a_longer_operation_goes_on_with_dashes() -> None:
    assert cells(grid(named("1f1b", 1, 2))) == [["F0", "B0---", "F1", "B1---"]]


def test_times_that_share_no_unit_are_rounded_and_said_to_be() -> None:
    costs = Costs(forward=185, backward_input=181, backward_weight=93)
    schedule = named("zb-h1", 4, 8, costs=costs, links=Links(latency=6), units=Units(time="ms"))
    text = grid(schedule)
    assert text.splitlines()[-1] == "one cell is 93 × ms; times are rounded to it"
    for device, row in enumerate(cells(text)):
        shown = [cell.rstrip("-") for cell in row if cell != "."]
        assert shown == [str(op)[1:] for op in schedule.order.ops(device)]


def test_long_lines_lose_their_middle() -> None:
    lines = grid(named("1f1b", 4, 100), width=80).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert all(" … " in line for line in lines if line.startswith("device"))
    assert lines[2].split()[2] == "F0"
    assert lines[2].split()[-1].startswith("B99")


def test_operations_that_take_no_time_have_no_cell() -> None:
    pipeline = Pipeline(2, 2, costs=Costs(per="stage", forward=1, backward_input=(0, 1), backward_weight=1))
    assert cells(grid(find("zb-h1").schedule(pipeline)))[0].count("I0") == 0
    nothing = Pipeline(1, 1, costs=Costs(forward=0, backward=0))
    assert grid(find("gpipe").schedule(nothing)).splitlines()[-1] == "device 0:"


def test_a_schedule_that_does_not_start_at_zero_is_drawn_from_its_start() -> None:
    schedule = named("1f1b", 2, 2)
    late = Schedule(schedule.pipeline, schedule.order, tuple(row + 7 for row in schedule.start))
    assert cells(grid(late)) == cells(grid(schedule))


# --- colours -----------------------------------------------------------------------------------------------------

VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def seen(colour: np.ndarray, vision: str) -> np.ndarray:
    """CIE Lab of a colour as seen with a colour-vision deficiency (Machado et al. 2009, severity 1)."""
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.asarray(VISION[vision]) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    xyz = xyz / np.array([0.9505, 1, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("count", [1, 2, 8])
def test_kinds_are_told_apart_in_every_shade_by_every_reader(vision: str, count: int) -> None:
    for a, b in itertools.combinations(Kind, 2):
        for x, y in itertools.product(shades(a, count), shades(b, count)):
            assert np.linalg.norm(seen(x, vision) - seen(y, vision)) > 17
    for kind in Kind:
        for x in shades(kind, count):
            assert np.linalg.norm(seen(x, vision) - seen(rgb(IDLE), vision)) > 17


def test_numbers_contrast_with_their_bars() -> None:
    for kind in Kind:
        for shade in shades(kind, 4):
            linear = np.where(shade <= 0.04045, shade / 12.92, ((shade + 0.055) / 1.055) ** 2.4)
            luminance = float(linear @ [0.2126, 0.7152, 0.0722])
            contrast = 1.05 / (luminance + 0.05) if ink(shade) == "white" else (luminance + 0.05) / 0.05
            assert contrast >= 4.5


# --- charts ------------------------------------------------------------------------------------------------------


def drawn(schedule: Schedule, axis: TimeAxis | None = None, size: tuple[float, float] = (12, 3)):  # type: ignore[no-untyped-def]
    picture = Figure(figsize=size)
    ax = picture.subplots()
    assert gantt(schedule, ax, axis) is ax
    picture.canvas.draw()
    return picture, ax


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
    save(figure([("gpipe", named("gpipe", 256, 128))]), str(tmp_path / "large.png"))
    assert (tmp_path / "large.png").stat().st_size > 10_000


def test_memory_rises_with_forwards_and_never_passes_the_peak() -> None:
    pipeline = Pipeline(4, 8, memory=Memory(activation=1.5, retained=0.5, static=2, limit=20))
    schedule = find("zb-h1").schedule(pipeline)
    for device in range(4):
        times, held = held_over_time(schedule, device)
        assert held.max() == schedule.peak_memory[device]
        assert held[-1] == pipeline.amounts.static[device]
        assert (np.diff(times) >= 0).all()


def test_memory_shows_limits_and_peaks() -> None:
    schedule = find("1f1b").schedule(Pipeline(4, 1024, memory=Memory(limit=(4, 3, 3, 3)), units=Units(memory="GiB")))
    picture = Figure(figsize=(10, 4))
    ax = memory(schedule, picture.subplots())
    picture.canvas.draw()
    texts = [text.get_text() for text in ax.texts]
    assert [text for text in texts if "of" in text] == ["4 of 4 GiB", "3 of 3 GiB", "2 of 3 GiB", "1 of 3 GiB"]


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


def test_an_empty_device_is_drawn() -> None:
    pipeline = Pipeline(3, 2, routes=((0, 2), (1, 1)), route_of_microbatch=(0, 0))
    order = Order.of(pipeline, [["0F0", "0F1", "0B0", "0B1"], [], ["1F0", "1B0", "1F1", "1B1"]])
    schedule = time_order(pipeline, order)
    assert set(cells(grid(schedule))[1]) == {"."}
    save_to = Figure()
    memory(schedule, save_to.subplots())
    gantt(schedule, Figure().subplots())
    save_to.canvas.draw()


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


def test_curves_leave_gaps_and_never_rely_on_colour() -> None:
    ax = Figure().subplots()
    curves([2, 4, 8], {"1f1b": [0.3, None, 0.1], "zb-h1": [0.2, 0.1, 0.05], "optimal": [0.1, 0.1, 0.0]}, ax, xlabel="devices")
    lines = ax.get_lines()
    assert [line.get_label() for line in lines] == ["1f1b", "zb-h1", "optimal"]
    assert np.isnan(lines[0].get_ydata()[1])
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines}) == 3
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2", "4", "8"]


def test_plot_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("1f1b", "zb-h1"):
        tree = document(Model(Pipeline(4, 8, name=name)), schedule=named(name, 4, 8))
        Path(f"{name}.json").write_text(json_text(tree))
    Path("order.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    for arguments in (
        ["1f1b.json", "zb-h1.json", "-o", "both.pdf"],
        ["order.csv", "-o", "order.svg", "--memory", "--set", "costs.forward=2", "--memory-limit", "2"],
        ["zb-h1.json", "-o", "wide.png", "--width", "14"],
    ):
        run = CliRunner().invoke(plot, arguments)
        assert run.exit_code == 0, run.output
    assert Path("both.pdf").read_bytes().startswith(b"%PDF")
    assert Path("order.svg").read_text().startswith("<?xml")
    assert CliRunner().invoke(plot, ["1f1b.json", "-o", "x.gif"]).exit_code == 2
    assert CliRunner().invoke(plot, ["-", "-", "-o", "x.png"]).exit_code == 2
    assert CliRunner().invoke(plot, ["1f1b.json", "-o", "nowhere/x.png"]).exit_code == 1
