"""Why a device is idle at one instant, as the definitions say it: no arrays, no sweeps, every operation looked at anew."""

from ppopt.op import Kind, Op, Pair, Send
from ppopt.schedule import Schedule, durations, memory_changes

Run = tuple[int, int]
"""Start and end, in ticks."""


class Instants:
    """A schedule, read operation by operation."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.pipeline = schedule, schedule.pipeline
        self.runs: dict[Op, Run] = {}
        self.rows: list[list[tuple[tuple[Op, ...], int, int]]] = []
        for device in range(self.pipeline.devices):
            row = []
            times = zip(schedule.start[device].tolist(), schedule.end[device].tolist(), strict=True)
            for op, (start, end) in zip(schedule.order.ops(device), times, strict=True):
                ops = (op.forward, op.backward) if isinstance(op, Pair) else (op,)
                self.runs |= dict.fromkeys(ops, (start, end))
                row.append((ops, start, end))
            self.rows.append(row)
        for numbers, starts in zip(*schedule.transfers, strict=True):
            for number, start, held in zip(numbers, starts, durations(self.pipeline, numbers), strict=True):
                op = self.pipeline.index.op(int(number))
                assert isinstance(op, Op)
                self.runs[op] = (int(start), int(start + held))

    def home(self, stage: int, microbatch: int) -> int:
        return self.pipeline.routes[self.pipeline.route_of_microbatch[microbatch]][stage]

    def inputs(self, op: Op) -> list[Run]:
        """When each input is made, and when it arrives."""
        stage, kind, m = op[:3]
        route = self.pipeline.route_of_microbatch[m]
        gathered = self.schedule.begin + int(self.pipeline.ticks.lead[route, kind, stage])
        found = [(gathered, gathered)]
        if kind == Kind.W:
            found.append((self.runs[Op(stage, Kind.I, m)][1],) * 2)
        if kind in (Kind.B, Kind.I):
            found.append((self.runs[Op(stage, Kind.F, m)][1],) * 2)
        if kind == Kind.F and stage:
            found.append(self.arrival(Op(stage - 1, Kind.F, m), Op(stage - 1, Send.SEND_F, m), self.home(stage, m)))
        if kind in (Kind.B, Kind.I) and stage + 1 < self.pipeline.stages:
            whole, split = (Op(stage + 1, each, m) for each in (Kind.B, Kind.I))
            maker = whole if whole in self.runs else split
            found.append(self.arrival(maker, Op(stage + 1, Send.SEND_B, m), self.home(stage, m)))
        return found

    def arrival(self, maker: Op, send: Op, here: int) -> Run:
        made = self.runs[maker][1]
        latency = int(self.pipeline.ticks.latency[self.home(maker.stage, maker.microbatch), here])
        return made, (self.runs[send][1] if send in self.runs else made) + latency

    def ready(self, ops: tuple[Op, ...]) -> int:
        return max(arrival for op in ops for _, arrival in self.inputs(op))

    def held(self, device: int, time: int) -> int:
        """What is held from ``time`` on; what ends then is given back."""
        claimed, released = memory_changes(self.pipeline, self.schedule.order.rows[device])
        row = self.rows[device]
        return int(self.pipeline.amounts.static[device]) + sum(
            int(claim) - int(release) * (end <= time)
            for claim, release, (_, start, end) in zip(claimed, released, row, strict=True)
            if start <= time
        )

    def stopped(self, device: int, time: int) -> bool:
        """Whether a transfer that blocks runs then."""
        if not self.pipeline.links.blocking:
            return False
        return any(device in self.ends(op) and start <= time < end for op, (start, end) in self.runs.items() if op.kind > 3)

    def ends(self, op: Op) -> tuple[int, int]:
        to = op.stage + (1 if op.kind == Send.SEND_F else -1)
        return self.home(op.stage, op.microbatch), self.home(to, op.microbatch)

    def why(self, device: int, time: int) -> str:
        """The cause; empty: the device computes."""
        row = self.rows[device]
        if not row or time < row[0][1]:
            return "start"
        if time >= row[-1][2]:
            return "end"
        if any(start <= time < end for _, start, end in row):
            return ""
        left = [place for place, (_, start, _) in enumerate(row) if start > time]
        ops, begin, _ = row[left[0]]
        missing = [made for op in ops for made, arrival in self.inputs(op) if arrival > time]
        if missing and max(missing) <= time:
            return "link"
        ready = [place for place in left if self.ready(row[place][0]) <= time]
        if not ready:
            return "data"
        waits = self.pipeline.links.blocking and not missing
        if self.stopped(device, time) or (waits and self.ended_at(device, begin)):
            return "link"
        limit = self.pipeline.amounts.limit
        claimed, _ = memory_changes(self.pipeline, self.schedule.order.rows[device])
        free = None if limit is None else int(limit[device]) - self.held(device, time)
        return "order" if free is None or any(claimed[place] <= free for place in ready) else "memory"

    def ended_at(self, device: int, time: int) -> bool:
        """Whether a transfer of the device ends then."""
        return any(end == time and device in self.ends(op) for op, (_, end) in self.runs.items() if op.kind > 3)
