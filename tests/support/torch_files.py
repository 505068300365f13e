"""Files for PyTorch: golden, random and broken ones."""

import random
from collections import Counter
from collections.abc import Callable

from ppopt.files.torch_check import Violation
from ppopt.files.torch_csv import Action, Comm, rows_of_text
from ppopt.files.torch_export import for_torch, with_comms
from ppopt.named import find
from ppopt.op import Kind, Op, Pair
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from tests.support import golden
from tests.support.many import each

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


def on_each(name: str, check: Callable[[Schedule], None]) -> None:
    """Check all golden schedules of a name."""
    each(golden.timings(name), lambda timing: check(timing.schedule))


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
                    for stage, kind, m, _ in halves_:
                        neighbour = stage - 1 if kind == Kind.F else stage + 1
                        if kind != Kind.W and 0 <= neighbour < len(route) and route[neighbour] != rank:
                            needs.append(("F" if kind == Kind.F else "B", stage, m))
                    if any(need not in arrived for need in needs):
                        break
                    begin = max([clock[rank], *(arrived[need] for need in needs)])
                    duration = sum(int(ticks.duration[0, kind, stage]) for stage, kind, *_ in halves_)
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


def lowered(name: str, pipeline: Pipeline) -> Rows:
    return with_comms(for_torch(find(name).schedule(pipeline)).schedule)


def rows_from(*lines: str) -> Rows:
    return rows_of_text("\n".join(lines) + "\n", "file")


def random_rows(pipeline: Pipeline, chance: random.Random) -> list[list[Op]]:
    """One operation after the other, at random among those whose inputs are there."""
    last = pipeline.stages - 1
    rows: list[list[Op]] = [[] for _ in range(pipeline.devices)]
    ready = [Op(0, Kind.F, m) for m in range(pipeline.microbatches)]
    while ready:
        op = ready.pop(chance.randrange(len(ready)))
        rows[pipeline.routes[0][op.stage]].append(op)
        stage, kind, m = op[:3]
        if kind == Kind.F and stage < last:
            ready.append(Op(stage + 1, Kind.F, m))
        if kind == Kind.I:
            ready.append(Op(stage, Kind.W, m))
        if kind in (Kind.B, Kind.I) and stage:
            ready.append(Op(stage - 1, chance.choice((Kind.B, Kind.I)), m))
        if kind == Kind.F and stage == last:
            ready.append(Op(stage, chance.choice((Kind.B, Kind.I)), m))
    return rows


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
