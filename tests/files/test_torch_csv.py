"""Reading and writing PyTorch's notation."""

from pathlib import Path

import pytest

from ppopt.files.torch_check import grid, violations
from ppopt.files.torch_csv import CsvError, lines_of, parse_action, read_order, rows_of_text
from ppopt.files.torch_export import actions_of, for_torch, with_comms
from ppopt.named import find
from ppopt.op import Kind, Op, Pair
from ppopt.pipeline import Pipeline
from tests.support.torch_files import by_rule, rows_from

BAD = {
    "nothing": ("", "empty"),
    "blank last line": ("0F0,0B0\n\n", "row 1 computes nothing"),
    "only idle": ("0F0,0B0\n,,\n", "row 1 computes nothing"),
    "only communication": ("0F0,0SEND_F0\n1RECV_F0\n", "row 1 computes nothing"),
    "tail": ("0F0xyz,0B0\n", "row 0, column 0: expected an action"),
    "two in one": ("0F0,0B0;0F1\n", "row 0, column 1"),
    "no microbatch": ("0F,0B0\n", "row 0, column 0"),
    "lower case": ("0f0,0B0\n", "row 0, column 0"),
    "none": ("0F0,None\n", "row 0, column 1"),
    "minus": ("0F0,-1B0\n", "row 0, column 1"),
    "leading zero": ("00F0,0B0\n", "row 0, column 0"),
    "other digits": ("٠F0,0B0\n", "row 0, column 0"),
    "tab": ("0F0,\t0B0\n", "row 0, column 1"),
    "send without microbatch": ("0F0,0SEND_F,0B0\n1F0,1B0\n", "row 0, column 1"),
    "reduce with microbatch": ("0F0,0B0,0REDUCE_GRAD0\n", "row 0, column 2"),
    "pair of two forwards": ("(0F0;0F1)OVERLAP_F_B\n", "row 0, column 0"),
    "pair of three": ("(0F0;0B1;0F2)OVERLAP_F_B\n", "row 0, column 0"),
    "pair of something else": ("(0F0;0B1)OVERLAP\n", "row 0, column 0"),
    "idle among communication": ("0F0,,0B0,0REDUCE_GRAD\n", "row 0, column 1: an empty cell"),
    "too many stages": ("0F0,99999F0\n", "row 0, column 1: at most 4096 stages"),
    "too many digits": (f"0F0,{'9' * 5000}F0\n", "row 0, column 1"),
    "an open quote": ('0F0,"0B0\n', "line"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_what_is_no_schedule_file_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(CsvError, match=message) as error:
        rows_of_text(text, "file.csv")
    assert str(error.value).startswith("file.csv: ")
    assert len(str(error.value)) < 300


def test_idle_cells_blanks_and_line_ends_of_pytorch_are_read() -> None:
    text = ' 0F0, 0B0 ,, 0F1,0B1\r\n,1F0,1I0,"1W0",(1F1;1B1)OVERLAP_F_B\r\n'
    assert list(lines_of(rows_of_text(text, "file"))) == ["0F0,0B0,0F1,0B1\n", "1F0,1I0,1W0,(1F1;1B1)OVERLAP_F_B\n"]


@pytest.mark.parametrize("text", ["12F3", "0SEND_B7", "3REDUCE_GRAD", "3UNSHARD", "3RESHARD", "(0F3;7B2)OVERLAP_F_B"])
def test_actions_print_as_they_are_read(text: str) -> None:
    assert str(parse_action(text)) == text


def test_a_pair_with_its_backward_first_is_the_same_pair() -> None:
    assert parse_action("(7B2;0F3)OVERLAP_F_B") == Pair(Op(0, Kind.F, 3), Op(7, Kind.B, 2))


@pytest.mark.parametrize(
    ("name", "sizes", "placement"),
    [("1f1b", (3, 4), ("linear", 1)), ("zb-v", (2, 4), ("wave", 2)), ("looped-bfs", (3, 4), ("loop", 2))],
)
def test_a_file_gives_its_placement_and_its_order_back(
    tmp_path: Path, name: str, sizes: tuple[int, int], placement: tuple[str, int]
) -> None:
    schedule = for_torch(find(name).schedule(Pipeline(*sizes))).schedule
    for rows in (actions_of(schedule), with_comms(schedule)):
        path = tmp_path / "file.csv"
        path.write_text("".join(lines_of(rows)))
        pipeline, order = read_order(str(path))
        assert (pipeline.placement, pipeline.chunks) == placement
        assert order == schedule.order


def test_what_the_grid_shows() -> None:
    rows = rows_from("0F0,0F1,0B0,0B1", "1F1,1F0,1B0,1B1")
    assert grid(rows, violations(rows)[0], around=1) == (
        "        Rank 0 Rank 1\nStep 0: 0F0    1F1  <-- rank 1\nStep 1: 0F1    1F0\n"
    )


def test_enormous_numbers_cost_nothing() -> None:
    found = violations(rows_from("4095F0,0F262143,0B262143,4095B0"))
    assert len(found) < 10000
    assert "missing" in by_rule(found)
