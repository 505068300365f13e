"""The checker of files for PyTorch."""

from itertools import pairwise

import pytest

from ppopt.files.torch_check import Violation, violations
from ppopt.files.torch_csv import Comm
from ppopt.files.torch_export import for_torch, with_comms
from ppopt.named import find
from ppopt.op import Op
from ppopt.pipeline import Pipeline
from ppopt.schedule import halves
from tests.support.torch_files import BROKEN, Rows, by_rule, lowered, rows_from

SOURCES = [
    ("1f1b", Pipeline(3, 4)),
    ("zb-h1", Pipeline(2, 4)),
    ("interleaved-1f1b", Pipeline(2, 4)),
    ("zb-v", Pipeline(2, 4)),
    ("dualpipe-v", Pipeline(2, 5)),
]


@pytest.fixture(params=SOURCES, ids=[name for name, _ in SOURCES])
def rows(request: pytest.FixtureRequest) -> Rows:
    """The file of each source."""
    return lowered(*request.param)


def places(rows: Rows, verb: str) -> list[tuple[int, int]]:
    return [
        (rank, column)
        for rank, row in enumerate(rows)
        for column, action in enumerate(row)
        if (action.verb if isinstance(action, Comm) else "op").startswith(verb)
    ]


def without(rows: Rows, place: tuple[int, int]) -> Rows:
    rank, column = place
    return [row[:column] + row[column + 1 :] if r == rank else list(row) for r, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("verb", "rule"),
    [("RECV", "recv"), ("SEND", "send"), ("REDUCE", "reduce-grad"), ("UNSHARD", "unshard"), ("RESHARD", "unshard")],
)
def test_every_missing_communication_is_caught_and_named(rows: Rows, verb: str, rule: str) -> None:
    for place in places(rows, verb):
        found = violations(without(rows, place))
        assert rule in by_rule(found)
        stage = rows[place[0]][place[1]].stage  # type: ignore[union-attr]
        assert any(v.rank == place[0] and f"{stage}" in v.message for v in found if v.rule == rule)


def test_every_missing_operation_is_caught(rows: Rows) -> None:
    for rank, column in places(rows, "op"):
        assert "missing" in by_rule(violations(without(rows, (rank, column))))


def test_every_swap_of_neighbouring_transfers_of_a_pair_is_caught(rows: Rows) -> None:
    """Also where all data are there and all are used later: messages match by position, not by name."""
    home = {action.stage: rank for rank, row in enumerate(rows) for action in row if isinstance(action, Op)}
    swapped = 0
    for rank, row in enumerate(rows):
        peers: dict[int, list[int]] = {}
        for column, action in enumerate(row):
            if isinstance(action, Comm) and action.microbatch is not None:
                neighbour = action.stage + (1 if action.verb in ("SEND_F", "RECV_B") else -1)
                peers.setdefault(home[neighbour], []).append(column)
        for first, second in (pair for columns in peers.values() for pair in pairwise(columns)):
            mutant = [list(r) for r in rows]
            mutant[rank][first], mutant[rank][second] = row[second], row[first]
            assert {violation.rule for violation in violations(mutant)} & {"pair-order", "send", "recv"}
            swapped += 1
    assert swapped


def test_every_operation_twice_is_caught(rows: Rows) -> None:
    for rank, column in places(rows, "op"):
        mutant = [list(row) for row in rows]
        mutant[rank].insert(column + 1, rows[rank][column])
        found = violations(mutant)
        assert Violation("once", rank, column + 1, str(rows[rank][column]), "runs a second time") in found


def test_every_operation_on_another_rank_is_caught(rows: Rows) -> None:
    for rank, column in places(rows, "op"):
        mutant = without(rows, (rank, column))
        mutant[(rank + 1) % len(rows)].append(rows[rank][column])
        assert "placement" in by_rule(violations(mutant))


@pytest.mark.parametrize(("lines", "expected"), BROKEN.values(), ids=BROKEN.keys())
def test_violations_name_rank_column_and_action(
    lines: tuple[str, ...], expected: tuple[str, int, int | None, str | None, str]
) -> None:
    rule, rank, column, action, message = expected
    found = [v for v in violations(rows_from(*lines)) if v.rule == rule]
    assert (found[0].rank, found[0].column, found[0].action) == (rank, column, action)
    assert message in found[0].message


def test_a_ring_of_blocking_sends_is_a_deadlock() -> None:
    """Every pair has its transfers in one order, and yet each of three ranks sends before it posts what the last one sends."""
    rows = rows_from(
        "0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,3RECV_F0,3F0,3RECV_F1,3F1,3RECV_F2,3F2,3B0,3SEND_B0,3B1,3SEND_B1,0RECV_B0,3B2,3SEND_B2,"
        "0B0,0RECV_B1,0B1,0RECV_B2,0B2,0REDUCE_GRAD,3REDUCE_GRAD",
        "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,1RECV_F2,1F2,1SEND_F2,"
        "1RECV_B0,1B0,1SEND_B0,1RECV_B1,1B1,1SEND_B1,1RECV_B2,1B2,1SEND_B2,1REDUCE_GRAD",
        "2RECV_F0,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1,2RECV_F2,2F2,2SEND_F2,"
        "2RECV_B0,2B0,2SEND_B0,2RECV_B1,2B1,2SEND_B1,2RECV_B2,2B2,2SEND_B2,2REDUCE_GRAD",
    )
    assert [(v.rule, v.action) for v in violations(rows)] == [
        ("deadlock", "0SEND_F2"),
        ("deadlock", "1SEND_F1"),
        ("deadlock", "2SEND_F0"),
    ]
    assert "rank 0 never gets to 3RECV_F0" in violations(rows)[2].message
    posted_first = rows[0].pop(6)
    rows[0].insert(4, posted_first)
    assert violations(rows) == []


def test_pairs_count_for_both_halves() -> None:
    schedule = find("dualpipe-v").schedule(Pipeline(2, 5))
    assert any((halves(schedule.pipeline.index, row)[1] >= 0).any() for row in schedule.order.rows)
    assert violations(with_comms(for_torch(schedule).schedule)) == []
