"""Schedules as a text grid."""

import itertools
import re
from fractions import Fraction

import numpy as np
import pytest

from ppopt.named import find
from ppopt.pictures.text import Grid, grid
from ppopt.pipeline import Costs, Links, Pipeline, Units
from ppopt.schedule import Schedule
from tests.support.drawn import cells, named

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


@pytest.mark.parametrize("microbatches", [97, 98, 99, 100, 101])
@pytest.mark.parametrize("width", range(60, 100, 7))
def test_times_stand_above_their_cells_where_the_middle_is_lost(microbatches: int, width: int) -> None:
    drawn = Grid(named("1f1b", 4, microbatches, costs=Costs(forward=4, backward=7)))
    assert drawn.cell == 2
    ruler, _, row, *_ = drawn.text(width).splitlines()
    head, lost = row.index(":") + 2, row.index(" … ") + 3
    cells = (len(row) - lost) // drawn.cell
    assert len(ruler) <= len(row)
    times = list(re.finditer(r"\d+", ruler))
    assert times[0].group() == "0"
    for time in times:
        behind = time.start() >= lost
        at = (time.start() - (lost if behind else head)) // drawn.cell
        assert int(time.group()) == at + (drawn.columns - cells if behind else 0)
    assert times[-1].start() >= lost


def test_of_very_many_cells_only_those_shown_are_drawn() -> None:
    """One operation takes a nanosecond where others take days: all cells would be a thousand trillion."""
    pipeline = Pipeline(2, 2, costs=Costs(per="stage", forward=(Fraction("1e-9"), 1), backward=10**6))
    drawn = Grid(find("gpipe").schedule(pipeline))
    assert drawn.columns > 10**15
    assert drawn.width > 10**15
    lines = drawn.text(80).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].split()[2:4] == ["F0", "F1"]
    assert lines[3].startswith("device 1:   . F0--")


def test_operations_that_take_no_time_have_no_cell() -> None:
    pipeline = Pipeline(2, 2, costs=Costs(per="stage", forward=1, backward_input=(0, 1), backward_weight=1))
    assert cells(grid(find("zb-h1").schedule(pipeline)))[0].count("I0") == 0
    nothing = Pipeline(1, 1, costs=Costs(forward=0, backward=0))
    assert grid(find("gpipe").schedule(nothing)).splitlines()[-1] == "device 0:"


def test_a_schedule_that_does_not_start_at_zero_is_drawn_from_its_start() -> None:
    schedule = named("1f1b", 2, 2)
    late = Schedule(schedule.pipeline, schedule.order, tuple(row + 7 for row in schedule.start))
    assert cells(grid(late)) == cells(grid(schedule))


def test_a_coarse_grid_rounds_to_the_shortest_operation() -> None:
    schedule = named("zb-v", 3, 5, links=Links(0.2))  # a chunk takes 0.5; all times are multiples of 0.1
    fine, coarse = grid(schedule), grid(schedule, coarse=True)
    assert len(coarse.splitlines()[2]) < len(fine.splitlines()[2]) / 3
    assert coarse.splitlines()[-1] == "one cell is 0.5 × the time unit; times are rounded to it"
    assert grid(named("1f1b", 2, 2), coarse=True) == grid(named("1f1b", 2, 2))
