"""Schedule files for PyTorch: written, read back, lowered with communication, checked. No PyTorch needed."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from golden import cases, entries, order_of, pipeline_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ppopt.cli import main
from ppopt.files.torch_check import Violation, grid, violations
from ppopt.files.torch_csv import Action, Comm, CsvError, compute_only, lines_of, parse_action, read_order, rows_of_text
from ppopt.files.torch_export import NotForTorch, actions_of, for_torch, with_comms
from ppopt.files.torch_export import settings as torch_settings
from ppopt.named import find
from ppopt.op import Kind, Op, Pair
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.pipeline.runtimes import as_torch_runs
from ppopt.schedule import Order, Schedule, halves
from ppopt.timing import time_order

Rows = list[list[Action]]


def by_rule(found: list[Violation]) -> Counter[str]:
    return Counter(violation.rule for violation in found)


def starts(schedule: Schedule) -> dict[str, int]:
    """Start of every operation, in ticks; a pair's under both of its halves."""
    found = {}
    for device in range(schedule.pipeline.devices):
        for action, start in zip(schedule.order.ops(device), schedule.start[device].tolist(), strict=True):
            for op in (action.forward, action.backward) if isinstance(action, Pair) else (action,):
                found[str(op)] = start
    return found


def one_route() -> list[tuple[Schedule, str]]:
    timed = [(pipeline_of(e, t), e, name) for e, t, name in cases()]
    return [(time_order(p, order_of(e, p)), name) for p, e, name in timed if len(p.routes) == 1]


ONE_ROUTE = one_route()
by_name = pytest.mark.parametrize("schedule", [s for s, _ in ONE_ROUTE], ids=[name for _, name in ONE_ROUTE])


# --- every named schedule ----------------------------------------------------------------------------------------


@by_name
def test_golden_orders_become_files_without_violation_that_read_back_unchanged(schedule: Schedule) -> None:
    runnable = for_torch(schedule).schedule
    assert runnable.makespan <= schedule.makespan
    for rows in (actions_of(runnable), with_comms(runnable)):
        assert violations(rows, schedule.pipeline.microbatches) == []
        assert rows_of_text("".join(lines_of(rows)), "file") == rows
    assert compute_only(with_comms(runnable)) == actions_of(runnable)


@by_name
def test_at_its_planned_time_every_send_finds_its_receive_posted(schedule: Schedule) -> None:
    runnable = for_torch(schedule).schedule
    assert rendezvous(runnable.pipeline, with_comms(runnable)) == starts(runnable)


@by_name
def test_transfers_that_block_both_sides_do_not_deadlock(schedule: Schedule) -> None:
    both_sides(schedule.pipeline, with_comms(for_torch(schedule).schedule))


@pytest.mark.parametrize("entry", [e for e in entries() if isinstance(e["placement"], dict)], ids=lambda e: e["id"])
def test_two_copies_of_a_stage_are_refused_by_name(entry: dict) -> None:
    pipeline = pipeline_of(entry, entry["timing"]["unit"])
    last = entry["devices"] - 1
    with pytest.raises(NotForTorch, match=f"stage 0 lives on ranks 0 and {last}"):
        for_torch(time_order(pipeline, order_of(entry, pipeline)))


# --- random orders -----------------------------------------------------------------------------------------------


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Any valid order on any placement, with costs of zero, latencies and backwards fused or split at random."""
    devices = draw(st.integers(1, 4))
    extra = draw(st.lists(st.integers(0, devices - 1), max_size=3))
    route = draw(st.permutations([*range(devices), *extra]))
    duration = st.lists(st.integers(0, 3), min_size=len(route), max_size=len(route)).map(tuple)
    latency = draw(st.sampled_from([0, Fraction(1, 2), 4]))
    costs = Costs("stage", draw(duration), draw(duration), draw(duration), draw(st.none() | duration))
    pipeline = Pipeline(devices, draw(st.integers(1, 5)), routes=(tuple(route),), costs=costs, links=Links(latency))
    chance = random.Random(draw(st.integers(0, 2**32)))
    return time_order(pipeline, Order.of(pipeline, random_rows(pipeline, chance)))


def random_rows(pipeline: Pipeline, chance: random.Random) -> list[list[Op]]:
    """One operation after the other, at random among those whose inputs are there."""
    last = pipeline.stages - 1
    rows: list[list[Op]] = [[] for _ in range(pipeline.devices)]
    ready = [Op(0, Kind.F, m) for m in range(pipeline.microbatches)]
    while ready:
        op = ready.pop(chance.randrange(len(ready)))
        rows[pipeline.routes[0][op.stage]].append(op)
        stage, kind, m = op
        if kind == Kind.F and stage < last:
            ready.append(Op(stage + 1, Kind.F, m))
        if kind == Kind.I:
            ready.append(Op(stage, Kind.W, m))
        if kind in (Kind.B, Kind.I) and stage:
            ready.append(Op(stage - 1, chance.choice((Kind.B, Kind.I)), m))
        if kind == Kind.F and stage == last:
            ready.append(Op(stage, chance.choice((Kind.B, Kind.I)), m))
    return rows


@settings(max_examples=150, deadline=None)
@given(schedules())
def test_any_order_on_any_placement_can_be_exported(schedule: Schedule) -> None:
    runnable = for_torch(schedule).schedule
    rows = with_comms(runnable)
    assert violations(actions_of(runnable)) == violations(rows) == []
    assert rendezvous(runnable.pipeline, rows) == starts(runnable)
    both_sides(runnable.pipeline, rows)
    assert same_order_on_both_ends(runnable.pipeline, rows)


@settings(max_examples=150, deadline=None)
@given(schedules())
def test_fusing_and_renumbering_make_nothing_later(schedule: Schedule) -> None:
    runnable = for_torch(schedule).schedule
    before = [sorted(row.tolist()) for row in schedule.start]
    number = renumbering(schedule)
    old = {f"{op.stage}{op.kind.name}{number[op.microbatch]}": start for op, start in ops_with(schedule)}
    for op, start in ops_with(runnable):
        known = old.get(str(op), old.get(str(op).replace("B", "I")))
        assert known is not None
        assert start <= known
    assert runnable.makespan <= schedule.makespan
    assert sum(map(len, before)) >= sum(len(row) for row in runnable.start)


def ops_with(schedule: Schedule) -> Iterator[tuple[Op, int]]:
    for device in range(schedule.pipeline.devices):
        for op, start in zip(schedule.order.ops(device), schedule.start[device].tolist(), strict=True):
            assert isinstance(op, Op)
            yield op, start


def renumbering(schedule: Schedule) -> dict[int, int]:
    pipeline = schedule.pipeline
    ops = schedule.order.ops(pipeline.routes[0][-1])
    forwards = [op.microbatch for op in ops if isinstance(op, Op) and op[:2] == (pipeline.stages - 1, Kind.F)]
    return {old: new for new, old in enumerate(forwards)}


# --- what the runs of a file must obey, said a second time -------------------------------------------------------


def ends(pipeline: Pipeline, comm: Comm) -> tuple[str, int, int]:
    """What a SEND or RECV carries: its letter, the stage that gets it and the microbatch."""
    letter, step = comm.verb[-1], 1 if comm.verb[-1] == "F" else -1
    assert comm.microbatch is not None
    return letter, comm.stage + (step if comm.verb.startswith("SEND") else 0), comm.microbatch


def rendezvous(pipeline: Pipeline, rows: Rows) -> dict[str, int]:
    """Start times where a SEND waits for its RECV to be posted, a RECV takes no time, and computing waits for its input."""
    route, ticks = pipeline.routes[0], pipeline.ticks
    clock, place = [0] * len(rows), [0] * len(rows)
    posted: dict[tuple[str, int, int], int] = {}
    arrived: dict[tuple[str, int, int], int] = {}
    start: dict[str, int] = {}
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while place[rank] < len(row):
                action = row[place[rank]]
                if isinstance(action, Comm):
                    if action.microbatch is not None:
                        what = ends(pipeline, action)
                        if action.verb.startswith("RECV"):
                            posted[what] = clock[rank]
                        elif what not in posted:
                            break
                        else:
                            clock[rank] = max(clock[rank], posted[what])
                            arrived[what] = clock[rank] + int(ticks.latency[rank, route[what[1]]])
                else:
                    halves_ = (action.forward, action.backward) if isinstance(action, Pair) else (action,)
                    needs = []
                    for stage, kind, m in halves_:
                        neighbour = stage - 1 if kind == Kind.F else stage + 1
                        if kind != Kind.W and 0 <= neighbour < len(route) and route[neighbour] != rank:
                            needs.append(("F" if kind == Kind.F else "B", stage, m))
                    if any(need not in arrived for need in needs):
                        break
                    begin = max([clock[rank], *(arrived[need] for need in needs)])
                    duration = sum(int(ticks.duration[0, kind, stage]) for stage, kind, _ in halves_)
                    if isinstance(action, Pair) and ticks.overlap[0, action.forward.stage] >= 0:
                        duration = int(ticks.overlap[0, action.forward.stage])
                    start.update({str(op): begin for op in halves_})
                    clock[rank] = begin + duration
                place[rank] += 1
                moved = True
    assert place == [len(row) for row in rows]
    return start


def both_sides(pipeline: Pipeline, rows: Rows) -> None:
    """Run the rows where a transfer happens only while both ranks stand at it."""
    route = pipeline.routes[0]
    left = [[a for a in row if isinstance(a, Comm) and a.microbatch is not None] for row in rows]
    place = [0] * len(rows)

    def at(rank: int) -> Comm | None:
        return left[rank][place[rank]] if place[rank] < len(left[rank]) else None

    moved = True
    while moved:
        moved = False
        for rank in range(len(rows)):
            send = at(rank)
            if send is not None and send.verb.startswith("SEND"):
                peer = route[ends(pipeline, send)[1]]
                receive = at(peer)
                if receive and receive.verb.startswith("RECV") and ends(pipeline, receive) == ends(pipeline, send):
                    place[rank] += 1
                    place[peer] += 1
                    moved = True
    assert place == [len(row) for row in left]


def same_order_on_both_ends(pipeline: Pipeline, rows: Rows) -> bool:
    route = pipeline.routes[0]
    seen: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    for rank, row in enumerate(rows):
        for action in row:
            if isinstance(action, Comm) and action.microbatch is not None:
                letter, to, m = ends(pipeline, action)
                source = to - 1 if letter == "F" else to + 1
                peer = route[to] if route[source] == rank else route[source]
                seen.setdefault((rank, peer), []).append((letter, to, m))
    return all(seen[a, b] == seen[b, a] for a, b in seen)


# --- what export does to a schedule ------------------------------------------------------------------------------


def test_adjacent_i_and_w_become_b_only_where_nobody_waits_longer() -> None:
    pipeline = Pipeline(2, 1)
    # on rank 1 the B would hand its gradient over at 3 instead of 2, when 0I0 starts; nobody waits for rank 0
    schedule = time_order(pipeline, Order.of(pipeline, [["0F0", "0I0", "0W0"], ["1F0", "1I0", "1W0"]]))
    assert [list(map(str, row)) for row in actions_of(for_torch(schedule).schedule)] == [["0F0", "0B0"], ["1F0", "1I0", "1W0"]]


def test_i_and_w_stay_where_b_takes_longer() -> None:
    pipeline = Pipeline(1, 1, costs=Costs(backward_input=1, backward_weight=1, backward=Fraction(5, 2)))
    schedule = time_order(pipeline, Order.of(pipeline, [["0F0", "0I0", "0W0"]]))
    assert list(map(str, actions_of(for_torch(schedule).schedule)[0])) == ["0F0", "0I0", "0W0"]


def test_microbatches_are_renumbered_for_the_last_stage() -> None:
    pipeline = Pipeline(2, 3)
    rows = [["0F2", "0F0", "0F1", "0B2", "0B1", "0B0"], ["1F2", "1F1", "1B2", "1F0", "1B1", "1B0"]]
    rows[0][1:3] = ["0F1", "0F0"]
    runnable = for_torch(time_order(pipeline, Order.of(pipeline, rows)))
    assert [list(map(str, row)) for row in actions_of(runnable.schedule)] == [
        ["0F0", "0F1", "0F2", "0B0", "0B1", "0B2"],
        ["1F0", "1F1", "1B0", "1F2", "1B1", "1B2"],
    ]
    assert "renumbered" in runnable.notes[0]


def test_a_second_route_that_no_microbatch_takes_is_no_obstacle() -> None:
    pipeline = Pipeline(2, 2, routes=((0, 1), (1, 0)), route_of_microbatch=(0, 0))
    schedule = time_order(pipeline, Order.of(pipeline, [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]))
    assert violations(with_comms(for_torch(schedule).schedule)) == []


def test_stage_0_with_a_costly_input_gradient_is_remarked() -> None:
    rows = [["0F0", "0F1", "0I0", "0I1", "0W0", "0W1"], ["1F0", "1B0", "1F1", "1B1"]]

    def remarked(pipeline: Pipeline) -> bool:
        runnable = for_torch(time_order(pipeline, Order.of(pipeline, rows)))
        return any("--runtime torch" in note for note in runnable.notes)

    assert remarked(Pipeline(2, 2))
    assert not remarked(as_torch_runs(Pipeline(2, 2)))
    rows[0] = ["0F0", "0F1", "0B0", "0B1"]
    assert not remarked(Pipeline(2, 2))


def test_one_device_has_no_transfers() -> None:
    rows = with_comms(for_torch(find("gpipe").schedule(Pipeline(1, 2))).schedule)
    assert "".join(lines_of(rows)) == "0UNSHARD,0F0,0F1,0B0,0B1,0REDUCE_GRAD,0RESHARD\n"


def test_the_rows_of_1f1b_with_communication() -> None:
    """0F1 and 1F0 end together; where ends tie, the lower rank comes first: 1RECV_F1 is posted before 1F0."""
    rows = with_comms(for_torch(find("1f1b").schedule(Pipeline(2, 2))).schedule)
    assert "".join(lines_of(rows)) == (
        "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
        "1RECV_F0,1RECV_F1,1UNSHARD,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\n"
    )


# --- the pipeline as PyTorch runs it -----------------------------------------------------------------------------


def test_as_torch_runs_prices_stage_0_as_pytorch_runs_it() -> None:
    pipeline = Pipeline(2, 4, "wave", 2, costs=Costs("device", (2, 4), 6, (2, 8)), memory=Memory(activation=(4, 2), retained=1))
    target = as_torch_runs(pipeline)
    assert target.costs.per == "stage"
    assert target.costs.forward == (1, 2, 2, 1)
    assert target.costs.backward_input == (0, 3, 3, 3)
    assert target.costs.backward_weight == (4, 4, 4, 1)
    assert target.memory.activation == (2, 1, 1, 2)
    assert target.memory.retained is None
    assert target.placement == "wave"
    assert np.array_equal(target.work, pipeline.work)
    assert as_torch_runs(target) == target


def test_as_torch_runs_takes_the_fused_backward_where_it_is_given() -> None:
    target = as_torch_runs(Pipeline(2, 4, costs=Costs(backward_input=1, backward_weight=1, backward=Fraction(3, 2))))
    assert target.costs.backward_weight == (Fraction(3, 2), 1)
    assert target.costs.backward == (Fraction(3, 2), Fraction(3, 2))


def test_as_torch_runs_leaves_fused_costs_as_they_are() -> None:
    target = as_torch_runs(Pipeline(2, 4, costs=Costs(forward=1, backward=2)))
    assert (target.costs.forward, target.costs.backward) == ((1, 1), (2, 2))
    assert target.costs.backward_input is None


def test_as_torch_runs_refuses_two_routes() -> None:
    with pytest.raises(NotForTorch, match="stage 0 lives on ranks 0 and 1"):
        as_torch_runs(Pipeline(2, 4, "bidirectional"))


# --- reading -----------------------------------------------------------------------------------------------------

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


# --- corrupted files ---------------------------------------------------------------------------------------------

SOURCES = [
    ("1f1b", Pipeline(3, 4)),
    ("zb-h1", Pipeline(2, 4)),
    ("interleaved-1f1b", Pipeline(2, 4)),
    ("zb-v", Pipeline(2, 4)),
    ("dualpipe-v", Pipeline(2, 5)),
]


def lowered(name: str, pipeline: Pipeline) -> Rows:
    return with_comms(for_torch(find(name).schedule(pipeline)).schedule)


sources = pytest.mark.parametrize("rows", [lowered(*source) for source in SOURCES], ids=[name for name, _ in SOURCES])


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


@sources
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


@sources
def test_every_missing_operation_is_caught(rows: Rows) -> None:
    for rank, column in places(rows, "op"):
        assert "missing" in by_rule(violations(without(rows, (rank, column))))


@sources
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


@sources
def test_every_operation_twice_is_caught(rows: Rows) -> None:
    for rank, column in places(rows, "op"):
        mutant = [list(row) for row in rows]
        mutant[rank].insert(column + 1, rows[rank][column])
        found = violations(mutant)
        assert Violation("once", rank, column + 1, str(rows[rank][column]), "runs a second time") in found


@sources
def test_every_operation_on_another_rank_is_caught(rows: Rows) -> None:
    for rank, column in places(rows, "op"):
        mutant = without(rows, (rank, column))
        mutant[(rank + 1) % len(rows)].append(rows[rank][column])
        assert "placement" in by_rule(violations(mutant))


def rows_from(*lines: str) -> Rows:
    return rows_of_text("\n".join(lines) + "\n", "file")


BROKEN = {
    "last stage's forwards out of order": (
        ("0F0,0F1,0B0,0B1", "1F1,1F0,1B0,1B1"),
        ("last-stage", 1, 0, "1F1", "expected 1F0 here"),
    ),
    "B and I of one microbatch": (("0F0,0B0,0I0,0W0",), ("once", 0, 2, "0I0", "also runs as 0B0")),
    "I without W": (("0F0,0I0",), ("missing", 0, None, None, "0W0 is missing")),
    "a hole": (("0F0,0B0,0F2,0B2",), ("missing", 0, None, None, "0F1 and its backward are missing")),
    "backward before forward": (("0B0,0F0",), ("order", 0, 0, "0B0", "runs before 0F0")),
    "W before I": (("0F0,0W0,0I0",), ("order", 0, 1, "0W0", "runs before 0I0")),
    "a neighbour on the same rank too early": (("1F0,0F0,1B0,0B0",), ("order", 0, 0, "1F0", "runs before 0F0")),
    "no such stage": (("0F0,0B0,2F0,2B0",), ("missing", 0, None, None, "stage 1 is on no rank")),
    "a deadlock": (
        ("0F0,0B0,0F1,0B1", "1F1,1B1,1F0,1B0"),
        ("last-stage", 1, 0, "1F1", "expected 1F0"),
    ),
    "a cycle": (("0F0,0B0,0F1,0B1", "1F0,1F1,1B0,1B1"), ("deadlock", 0, 1, "0B0", "rank 1 never gets to 1B0")),
    "a transfer inside a rank": (
        ("0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0,0REDUCE_GRAD,1REDUCE_GRAD",),
        ("send", 0, 1, "0SEND_F0", "nothing is to be transferred"),
    ),
    "RECV after its use": (
        ("0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD", "1F0,1RECV_F0,1B0,1SEND_B0,1REDUCE_GRAD"),
        ("recv", 1, 1, "1RECV_F0", "comes after 1F0"),
    ),
    "SEND before its result": (
        ("0SEND_F0,0F0,0RECV_B0,0B0,0REDUCE_GRAD", "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD"),
        ("send", 0, 0, "0SEND_F0", "comes before 0F0"),
    ),
    "REDUCE_GRAD too early": (("0F0,0REDUCE_GRAD,0B0",), ("reduce-grad", 0, 1, "0REDUCE_GRAD", "comes before 0B0")),
    "UNSHARD twice": (
        ("0UNSHARD,0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD",),
        ("unshard", 0, 1, "0UNSHARD", "is not sharded"),
    ),
    "left unsharded": (("0UNSHARD,0F0,0B0,0REDUCE_GRAD",), ("unshard", 0, None, None, "left unsharded")),
    "a pair in different orders": (
        (
            "0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1,0REDUCE_GRAD",
            "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD",
        ),
        ("pair-order", 0, 3, "0RECV_B0", "where that rank has 1RECV_F1 (column 2)"),
    ),
    "swapped sends that load and run in PyTorch": (
        (
            "0F0,0F1,0SEND_F1,0SEND_F0,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD",
            "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD",
        ),
        ("pair-order", 0, 2, "0SEND_F1", "match by position"),
    ),
}


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


def test_what_the_grid_shows() -> None:
    rows = rows_from("0F0,0F1,0B0,0B1", "1F1,1F0,1B0,1B1")
    assert grid(rows, violations(rows)[0], around=1) == (
        "        Rank 0 Rank 1\nStep 0: 0F0    1F1  <-- rank 1\nStep 1: 0F1    1F0\n"
    )


def test_enormous_numbers_cost_nothing() -> None:
    found = violations(rows_from("4095F0,0F262143,0B262143,4095B0"))
    assert len(found) < 10000
    assert "missing" in by_rule(found)


# --- the command -------------------------------------------------------------------------------------------------


def test_export_writes_the_file_to_standard_output_and_the_rest_to_standard_error(tmp_path: Path) -> None:
    runner = CliRunner()
    ordered = runner.invoke(main, ["order", "zb-v", "-d", "2", "-m", "4", "--json"])
    path = tmp_path / "zb-v.json"
    path.write_text(ordered.stdout)
    for target in ("torch-csv", "torch-csv-comms"):
        done = runner.invoke(main, ["export", str(path), "--to", target])
        assert done.exit_code == 0, done.output
        assert violations(rows_of_text(done.stdout, "stdout"), 4) == []
        assert "rank 0: 0 3; rank 1: 1 2" in done.stderr
        assert ("ZBVZeroBubble" in done.stderr) == (target == "torch-csv")
    assert json.loads(path.read_text())["schedule"]["order"] is not None


def test_export_says_which_stage_pytorch_cannot_place() -> None:
    runner = CliRunner()
    order = runner.invoke(main, ["order", "dualpipe", "-d", "4", "-m", "8"])
    done = runner.invoke(main, ["export", "-", "--to", "torch-csv"], input=order.stdout)
    assert done.exit_code == 2
    assert "stage 0 lives on ranks 0 and 3" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("target", ["torch-csv", "chrome-trace"])
def test_what_cannot_be_read_or_written_is_one_line(target: str, tmp_path: Path) -> None:
    runner = CliRunner()
    order = runner.invoke(main, ["order", "1f1b", "-d", "2", "-m", "2"]).stdout
    for arguments, text in ((["-", "-o", str(tmp_path / "none" / "file")], order), ([str(tmp_path / "none")], ""), (["-"], "{}")):
        done = runner.invoke(main, ["export", *arguments, "--to", target], input=text)
        assert done.exit_code == 2
        assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert list(tmp_path.iterdir()) == []


def test_the_placement_that_torchtitan_cannot_reach_is_said() -> None:
    lines = "\n".join(torch_settings(Pipeline(2, 2, routes=((0, 0, 1, 1),)), comms=False))
    assert "rank 0: 0 1; rank 1: 2 3" in lines
    assert "neither can place" in lines


def test_pairs_count_for_both_halves() -> None:
    schedule = find("dualpipe-v").schedule(Pipeline(2, 5))
    assert any((halves(schedule.pipeline.index, row)[1] >= 0).any() for row in schedule.order.rows)
    assert violations(with_comms(for_torch(schedule).schedule)) == []


@pytest.mark.parametrize(
    ("remove", "message"),
    [("0REDUCE_GRAD,", "gradients of stage 0 stay M times too large"), ("1RECV_F1,", "1RECV_F1 is missing"), ("", "")],
)
def test_check_looks_at_the_communication_of_a_file(remove: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    text = "".join(lines_of(lowered("zb-v", Pipeline(2, 4))))
    assert remove in text
    path.write_text(text.replace(remove, ""))
    done = CliRunner().invoke(main, ["check", str(path)])
    assert done.exit_code == (1 if remove else 0), done.output
    assert message in done.stdout


def test_solve_for_torch_plans_with_stage_0_as_pytorch_runs_it() -> None:
    arguments = ["solve", "-d", "2", "-m", "4", "--set", "costs.backward_weight=2", "--json", "--runtime", "torch"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    tree = json.loads(done.stdout)
    assert tree["model"]["costs"]["backward_input"] == [0, 1]
    assert tree["model"]["costs"]["backward_weight"] == [3, 2]
    exported = CliRunner().invoke(main, ["export", "-", "--to", "torch-csv-comms"], input=done.stdout)
    assert exported.exit_code == 0, exported.output
    assert "--runtime torch" not in exported.stderr
    assert violations(rows_of_text(exported.stdout, "stdout"), 4) == []
