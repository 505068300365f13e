"""What is wrong with a PyTorch schedule file, found before PyTorch sees it.

PyTorch checks nothing about the communication in a file, nor duplicates and holes among the microbatches: such files hang, or
train on wrong numbers. The rules here are re-derived from the rows alone. Source: the runtime in
torch/distributed/pipelining/schedules.py of PyTorch 2.13.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ppopt.files.torch_csv import TRANSFERS, Action, Comm, Rows, has_comms, parts_of
from ppopt.op import Kind, Op

COMMUNICATION = ("last-stage", "recv", "send", "reduce-grad", "unshard", "pair-order", "deadlock")
"""The rules about what only PyTorch's files have."""
Transfer = tuple[str, int, int]
"""``("F", s, m)``: the activation that stage s gets from stage s-1; ``("B", s, m)``: the gradient that stage s gets from s+1."""


@dataclass(frozen=True)
class Violation:
    """One broken rule, at an action of a rank (``column`` and ``action`` are ``None`` where something is not there)."""

    rule: str
    rank: int
    column: int | None
    action: str | None
    message: str

    def __str__(self) -> str:
        where = f"rank {self.rank}" + ("" if self.column is None else f", column {self.column}, {self.action}")
        return f"{where}: {self.message} [{self.rule}]"


def violations(rows: Rows, microbatches: int | None = None) -> list[Violation]:
    """Every violation in the rows of a file, with communication or without.

    ``microbatches`` is M where it is known, else one more than the largest number in the file. Whether the rows come to an
    end (transfers of a rank pair in their order, a send waiting until it is received) is looked at once all else is in order.
    """
    file = _File(rows, microbatches)
    found = [*_placement(file), *_computation(file), *_order(file)]
    if has_comms(rows):
        found += [*_communication(file), *_once_per_stage(file)]
        if not found:
            found += _pairs(file)
    return found or list(_deadlock(file))


class _File:
    """The rows, with where everything is."""

    def __init__(self, rows: Rows, microbatches: int | None) -> None:
        self.rows = rows
        self.at: dict[Op | Comm, list[tuple[int, int]]] = defaultdict(list)
        self.rank_of: dict[int, int] = {}
        stages = most = 0
        for rank, row in enumerate(rows):
            for column, action in enumerate(row):
                for part in parts_of(action):
                    self.at[part].append((rank, column))
                    stages = max(stages, part.stage + 1)
                    most = max(most, part.microbatch or 0)
                    if isinstance(part, Op):
                        self.rank_of.setdefault(part.stage, rank)
        self.stages = stages
        self.microbatches = most + 1 if microbatches is None else microbatches

    def found(self, rule: str, place: tuple[int, int], message: str) -> Violation:
        rank, column = place
        return Violation(rule, rank, column, str(self.rows[rank][column]), message)

    def first(self, part: Op | Comm) -> tuple[int, int] | None:
        places = self.at.get(part)
        return places[0] if places else None

    def crosses(self, a: int, b: int) -> bool:
        """Whether both stages exist and live on different ranks."""
        return a in self.rank_of and b in self.rank_of and self.rank_of[a] != self.rank_of[b]

    def incoming(self, op: Op) -> Transfer | None:
        """What ``op`` needs from another rank."""
        if op.kind == Kind.F and self.crosses(op.stage, op.stage - 1):
            return "F", op.stage, op.microbatch
        if op.kind in (Kind.B, Kind.I) and self.crosses(op.stage, op.stage + 1):
            return "B", op.stage, op.microbatch
        return None

    def outgoing(self, op: Op) -> Transfer | None:
        """What ``op`` makes for another rank."""
        if op.kind == Kind.F and self.crosses(op.stage, op.stage + 1):
            return "F", op.stage + 1, op.microbatch
        if op.kind in (Kind.B, Kind.I) and self.crosses(op.stage, op.stage - 1):
            return "B", op.stage - 1, op.microbatch
        return None


def _transfer(comm: Comm) -> Transfer:
    """What a SEND or RECV carries."""
    assert comm.microbatch is not None
    kind = comm.verb[-1]
    receiver = comm.stage if comm.verb.startswith("RECV") else comm.stage + (1 if kind == "F" else -1)
    return kind, receiver, comm.microbatch


def _send(transfer: Transfer) -> Comm:
    kind, stage, microbatch = transfer
    return Comm(stage + (-1 if kind == "F" else 1), f"SEND_{kind}", microbatch)


def _recv(transfer: Transfer) -> Comm:
    kind, stage, microbatch = transfer
    return Comm(stage, f"RECV_{kind}", microbatch)


# --- computation -------------------------------------------------------------------------------------------------


def _placement(file: _File) -> Iterator[Violation]:
    for part, places in file.at.items():
        for rank, column in places:
            home = file.rank_of.get(part.stage)
            if home is None:
                yield file.found("placement", (rank, column), f"stage {part.stage} computes nowhere")
            elif rank != home:
                yield file.found("placement", (rank, column), f"stage {part.stage} lives on rank {home}")


def _computation(file: _File) -> Iterator[Violation]:
    """Every stage runs every microbatch once: F, and B or I and W."""
    for part, places in file.at.items():
        if not (isinstance(part, Comm) and part.verb in ("UNSHARD", "RESHARD")):  # a stage may come and go several times
            for place in places[1:]:
                yield file.found("once", place, "runs a second time")
        if isinstance(part, Op) and part.microbatch >= file.microbatches:
            yield file.found("microbatch", places[0], f"there are {file.microbatches} microbatches, 0..{file.microbatches - 1}")
    kinds: dict[int, dict[int, set[Kind]]] = {stage: defaultdict(set) for stage in range(file.stages)}
    for part in file.at:
        if isinstance(part, Op) and isinstance(part.kind, Kind):
            kinds[part.stage][part.microbatch].add(part.kind)
    for stage, run_of in kinds.items():
        rank = file.rank_of.get(stage)
        if rank is None:
            yield Violation("missing", 0, None, None, f"stage {stage} is on no rank; stages are 0..{file.stages - 1}")
            continue
        for microbatch, run in sorted(run_of.items()):
            split = run & {Kind.I, Kind.W}
            for kind in sorted(({Kind.F} | _backward(run)) - run):
                yield Violation("missing", rank, None, None, f"{Op(stage, kind, microbatch)} is missing")
            for kind in sorted(split if Kind.B in run else ()):
                place = file.at[Op(stage, kind, microbatch)][0]
                yield file.found("once", place, f"the backward also runs as {stage}B{microbatch}")
        holes = file.microbatches - sum(microbatch < file.microbatches for microbatch in run_of)
        if holes:
            hole = next(microbatch for microbatch in range(file.microbatches) if microbatch not in run_of)
            more = f" (of stage {stage}, {holes} microbatches are missing)" if holes > 1 else ""
            yield Violation("missing", rank, None, None, f"{Op(stage, Kind.F, hole)} and its backward are missing{more}")


def _backward(run: set[Kind]) -> set[Kind]:
    """What the backward of a microbatch is, judged by what is run of it."""
    return {Kind.I, Kind.W} if Kind.B not in run and run & {Kind.I, Kind.W} else {Kind.B}


def _order(file: _File) -> Iterator[Violation]:
    """What a rank needs from itself it has computed before; the last stage runs its forwards in order 0..M-1."""
    for part, places in file.at.items():
        if not isinstance(part, Op):
            continue
        stage, kind, microbatch, _ = part
        needed = [Op(stage, Kind.I if kind == Kind.W else Kind.F, microbatch)] if kind != Kind.F else []
        if kind == Kind.F and stage and not file.crosses(stage, stage - 1):
            needed.append(Op(stage - 1, Kind.F, microbatch))
        if kind in (Kind.B, Kind.I) and stage + 1 < file.stages and not file.crosses(stage, stage + 1):
            needed += [Op(stage + 1, Kind.B, microbatch), Op(stage + 1, Kind.I, microbatch)]
        for need in needed:
            before = file.first(need)
            if before is not None and before[0] == places[0][0] and before[1] >= places[0][1]:
                yield file.found("order", places[0], f"runs before {need}, which it needs")
    forwards = [(file.at[op][0], op.microbatch) for op in file.at if isinstance(op, Op) and op[:2] == (file.stages - 1, Kind.F)]
    forwards.sort()
    for expected, (place, microbatch) in enumerate(forwards):
        if microbatch != expected:
            message = f"the last stage must run its forwards in microbatch order: expected {file.stages - 1}F{expected} here"
            yield file.found("last-stage", place, f"{message} (PyTorch looks up losses by position)")
            return


# --- communication -----------------------------------------------------------------------------------------------


def _communication(file: _File) -> Iterator[Violation]:
    """One SEND after what it sends, one RECV before what needs it, for everything that changes its rank; and no others."""
    wanted: set[Comm] = set()
    for op, places in file.at.items():
        if not isinstance(op, Op):
            continue
        rank, column = places[0]
        incoming, outgoing = file.incoming(op), file.outgoing(op)
        if incoming:
            wanted.add(recv := _recv(incoming))
            place = file.first(recv)
            if place is None:
                yield file.found("recv", places[0], f"{recv} is missing: the input never arrives")
            elif place[0] == rank and place[1] > column:
                yield file.found("recv", place, f"comes after {op}, which needs it")
        if outgoing:
            wanted.add(send := _send(outgoing))
            place = file.first(send)
            if place is None:
                yield file.found("send", places[0], f"{send} is missing: the result is never sent")
            elif place[0] == rank and place[1] < column:
                yield file.found("send", place, f"comes before {op}, which makes what it sends")
    for comm, places in file.at.items():
        if isinstance(comm, Comm) and comm.verb in TRANSFERS and comm not in wanted:
            yield file.found(comm.verb[:4].lower(), places[0], "nothing is to be transferred here")


def _once_per_stage(file: _File) -> Iterator[Violation]:
    """REDUCE_GRAD after a stage's last W or B; where the file has UNSHARD, everything between an UNSHARD and its RESHARD."""
    last: dict[int, tuple[int, int]] = {}
    for part, places in file.at.items():
        if isinstance(part, Op) and part.kind in (Kind.B, Kind.W):
            last[part.stage] = max(places[-1], last.get(part.stage, (-1, -1)))
    for stage, home in sorted(file.rank_of.items()):
        reduce = file.first(Comm(stage, "REDUCE_GRAD"))
        if reduce is None:
            message = f"{stage}REDUCE_GRAD is missing: the gradients of stage {stage} stay M times too large"
            yield Violation("reduce-grad", home, None, None, message)
        elif stage in last and reduce < last[stage]:
            rank, column = last[stage]
            yield file.found("reduce-grad", reduce, f"comes before {file.rows[rank][column]}, which adds to the gradients")
    if any(comm.verb in ("UNSHARD", "RESHARD") for comm in file.at if isinstance(comm, Comm)):
        for rank, row in enumerate(file.rows):
            yield from _sharding(file, rank, row)


def _sharding(file: _File, rank: int, row: Sequence[Action]) -> Iterator[Violation]:
    whole: set[int] = set()
    for column, action in enumerate(row):
        for part in parts_of(action):
            stage = part.stage
            if isinstance(part, Op):
                if stage not in whole:
                    yield file.found("unshard", (rank, column), f"stage {stage} is sharded here; {stage}UNSHARD comes first")
            elif part.verb == "UNSHARD":
                if stage in whole:
                    yield file.found("unshard", (rank, column), "the stage is not sharded")
                whole.add(stage)
            elif part.verb == "RESHARD":
                if stage not in whole:
                    yield file.found("unshard", (rank, column), "the stage is sharded already")
                whole.discard(stage)
    for stage in sorted(whole):
        yield Violation("unshard", rank, None, None, f"stage {stage} is left unsharded; the next step starts with {stage}UNSHARD")


def _pairs(file: _File) -> Iterator[Violation]:
    """Both ranks of a pair list the same transfers in the same order: they match by position, not by name."""
    for pair, sides in sorted(_transfers_of_pairs(file).items()):
        for (transfer, place), (other, other_place) in zip(sides[pair[0]], sides[pair[1]], strict=True):
            if transfer != other:
                rank, column = other_place
                message = f"is transfer with rank {rank} where that rank has {file.rows[rank][column]} (column {column})"
                yield file.found("pair-order", place, f"{message}; transfers of two ranks match by position")
                break


def _transfers_of_pairs(file: _File) -> dict[tuple[int, int], dict[int, list[tuple[Transfer, tuple[int, int]]]]]:
    """For each pair of ranks, and each of the two, its transfers in order with their places."""
    pairs: dict[tuple[int, int], dict[int, list[tuple[Transfer, tuple[int, int]]]]] = {}
    for rank, row in enumerate(file.rows):
        for column, action in enumerate(row):
            if isinstance(action, Comm) and action.verb in TRANSFERS:
                transfer = _transfer(action)
                peer = file.rank_of[(_send if action.verb.startswith("RECV") else _recv)(transfer).stage]
                pair = (min(rank, peer), max(rank, peer))
                pairs.setdefault(pair, {pair[0]: [], pair[1]: []})[rank].append((transfer, (rank, column)))
    return pairs


# --- does it come to an end? -------------------------------------------------------------------------------------


def _deadlock(file: _File) -> Iterator[Violation]:
    """Run the rows: a SEND waits until it is received, a RECV is only posted, the transfers of a rank pair go in their order.

    Stricter than PyTorch over gloo, where a SEND never waits, and what NCCL does at worst. Without communication in the
    file, what another rank needs is there as soon as it is computed.
    """
    with_comms = has_comms(file.rows)
    place = [0] * len(file.rows)
    done: set[Transfer | Op] = set()
    sent: set[Transfer] = set()
    posted: set[Transfer] = set()
    queues = {}
    for sides in _transfers_of_pairs(file).values():
        queue = [transfer for transfer, _ in next(iter(sides.values()))][::-1]
        queues.update(dict.fromkeys(queue, queue))

    def settle(transfer: Transfer) -> None:
        queue = queues[transfer]
        while queue and queue[-1] in sent and queue[-1] in posted:
            done.add(queue.pop())

    def waits_for(action: Action) -> Transfer | Op | None:
        if isinstance(action, Comm):
            if action.verb.startswith("SEND"):
                sent.add(transfer := _transfer(action))
                settle(transfer)
                return None if transfer in done else transfer
            return None
        for op in parts_of(action):
            assert isinstance(op, Op)
            incoming = file.incoming(op)
            if incoming is None:
                continue
            if with_comms:
                if incoming not in done:
                    return incoming
            elif not any(source in done for source in _sources(incoming)):
                return next(source for source in _sources(incoming) if source in file.at)
        return None

    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(file.rows):
            while place[rank] < len(row) and waits_for(action := row[place[rank]]) is None:
                if isinstance(action, Comm):
                    if action.verb.startswith("RECV"):
                        posted.add(transfer := _transfer(action))
                        settle(transfer)
                else:
                    done.update(part for part in parts_of(action) if isinstance(part, Op))
                place[rank] += 1
                moved = True
    for rank, row in enumerate(file.rows):
        if place[rank] < len(row):
            wait = waits_for(row[place[rank]])
            assert wait is not None
            source = wait if isinstance(wait, Op) else _send(wait)
            yield file.found("deadlock", (rank, place[rank]), f"waits for ever: {_waiting(row[place[rank]], source, file)}")


def _waiting(action: Action, source: Op | Comm, file: _File) -> str:
    if action == source:
        assert isinstance(source, Comm)
        receive = _recv(_transfer(source))
        return f"rank {file.rank_of[receive.stage]} never gets to {receive}"
    return f"rank {file.rank_of[source.stage]} never gets to {source}"


def _sources(transfer: Transfer) -> tuple[Op, ...]:
    """The operations that can make what is transferred."""
    kind, stage, microbatch = transfer
    if kind == "F":
        return (Op(stage - 1, Kind.F, microbatch),)
    return Op(stage + 1, Kind.B, microbatch), Op(stage + 1, Kind.I, microbatch)


# --- picture -----------------------------------------------------------------------------------------------------


def grid(rows: Rows, violation: Violation, around: int = 3) -> str:
    """The columns around a violation, a line per column and a column per rank, with an arrow, as PyTorch prints its own."""
    if violation.column is None:
        return ""
    first, last = max(0, violation.column - around), violation.column + around + 1
    last = min(last, max(map(len, rows)))
    cells = [[str(row[i]) if i < len(row) else "" for row in rows] for i in range(first, last)]
    width = [max(len(f"Rank {r}"), *(len(line[r]) for line in cells)) for r in range(len(rows))]
    label = len(f"Step {last - 1}") + 2
    head = " " * label + " ".join(f"Rank {r}".ljust(width[r]) for r in range(len(rows)))
    lines = [head.rstrip()]
    for i, line in enumerate(cells, first):
        text = f"Step {i}: ".ljust(label) + " ".join(cell.ljust(width[r]) for r, cell in enumerate(line))
        lines.append(text.rstrip() + (f"  <-- rank {violation.rank}" if i == violation.column else ""))
    return "\n".join(lines) + "\n"
