"""The rules a third time, as dumb as can be: whole numbers, quadratic loops, nothing of the package but its notation."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from ppopt.pipeline import Costs, Links, Memory, Pipeline

Single = tuple[int, str, int]
Ops = tuple[Single, ...]
Row = list[tuple[Ops, int, int]]
"""Entries of a device: one operation or the two of a pair, start and end."""


@dataclass
class World:
    """A pipeline in whole numbers, per stage."""

    devices: int
    microbatches: int
    routes: list[list[int]]
    route_of: list[int]
    costs: dict[str, list[int]]
    overlap: list[int] | None
    latency: list[list[int]]
    activation: list[int]
    retained: list[int]
    fused: bool
    static: int = 0
    limit: list[int] | None = field(default=None)

    @property
    def stages(self) -> int:
        return len(self.routes[0])

    def home(self, op: Single) -> int:
        return self.routes[self.route_of[op[2]]][op[0]]

    def duration(self, ops: Ops) -> int:
        if len(ops) == 2 and self.overlap is not None:
            return self.overlap[ops[0][0]]
        return sum(self.costs[kind][stage] for stage, kind, _ in ops)

    def needs(self, op: Single) -> list[tuple[list[Single], int]]:
        """What an operation waits for: one of these, and how long that travels."""
        stage, kind, m = op[:3]
        here = self.home(op)
        if kind == "W":
            return [([(stage, "I", m)], 0)]
        found: list[tuple[list[Single], int]] = []
        if kind == "F":
            if stage:
                found.append(([(stage - 1, "F", m)], self.latency[self.home((stage - 1, "F", m))][here]))
            return found
        found.append(([(stage, "F", m)], 0))
        if stage + 1 < self.stages:
            after = [(stage + 1, "B", m), (stage + 1, "I", m)]
            found.append((after, self.latency[self.home(after[0])][here]))
        return found

    def pipeline(self, unit: Fraction = Fraction(1)) -> Pipeline:
        """The same for the package, with times and amounts in units of ``unit``."""

        def scaled(values: list[int]) -> list[Any]:
            return [unit * value for value in values]

        split = {} if self.fused else {"backward_input": scaled(self.costs["I"]), "backward_weight": scaled(self.costs["W"])}
        return Pipeline(
            self.devices,
            self.microbatches,
            routes=self.routes,
            route_of_microbatch=tuple(self.route_of),
            costs=Costs(
                per="stage",
                forward=scaled(self.costs["F"]),
                backward=scaled(self.costs["B"]),
                overlap=None if self.overlap is None else scaled(self.overlap),
                **split,
            ),
            links=Links([scaled(row) for row in self.latency]),
            memory=Memory(
                activation=scaled(self.activation),
                retained=scaled(self.retained),
                static=unit * self.static,
                limit=None if self.limit is None else scaled(self.limit),
            ),
        )

    def copies(self, device: int) -> int:
        """Only for routes on which a device has one stage each, or for one route."""
        return len({tuple(s for s, d in enumerate(route) if d == device) for route in self.routes if device in route})


def timed(world: World, order: list[list[Ops]]) -> list[Row] | None:
    """The order with every operation as early as can be; ``None`` if it gets stuck."""
    ends: dict[Single, int] = {}
    rows: list[Row] = [[] for _ in order]
    moved = True
    while moved:
        moved = False
        for device, ops_of_device in enumerate(order):
            while len(rows[device]) < len(ops_of_device):
                ops = ops_of_device[len(rows[device])]
                start = rows[device][-1][2] if rows[device] else 0
                arrivals = [
                    [ends[other] + lag for other in others if other in ends] for op in ops for others, lag in world.needs(op)
                ]
                if not all(arrivals):
                    break
                start = max([start, *(max(times) for times in arrivals)])
                end = start + world.duration(ops)
                rows[device].append((ops, start, end))
                ends.update(dict.fromkeys(ops, end))
                moved = True
    return rows if all(len(row) == len(ops) for row, ops in zip(rows, order, strict=True)) else None


def peaks(world: World, rows: list[Row]) -> list[int]:
    """What each device holds at most, by its list."""
    result = []
    for device, row in enumerate(rows):
        held = most = world.static * world.copies(device)
        for ops, _, _ in row:
            during = held
            for stage, kind, _ in ops:
                whole, kept = world.activation[stage], world.retained[stage]
                before, while_it_runs, after = {
                    "F": (0, whole, whole),
                    "B": (whole, whole, 0),
                    "I": (whole, max(whole, kept), kept),
                    "W": (kept, kept, 0),
                }[kind]
                during += while_it_runs - before
                held += after - before
            most = max(most, during)
        result.append(most)
    return result


def wrong(world: World, rows: list[Row]) -> str:
    """The first thing that is wrong, or nothing."""
    ops = [op for row in rows for entry in row for op in entry[0]]
    for stage, kind, m in ops:
        if not (0 <= stage < world.stages and 0 <= m < world.microbatches) or (world.fused and kind in "IW"):
            return f"no such operation {stage}{kind}{m}"
    if len(set(ops)) < len(ops):
        return "twice"
    for stage in range(world.stages):
        for m in range(world.microbatches):
            kinds = {kind for s, kind, n in ops if (s, n) == (stage, m)}
            if kinds not in ({"F", "B"}, {"F", "I", "W"}):
                return f"stage {stage}, microbatch {m} runs {kinds}"
    ends = {op: end for row in rows for done, _, end in row for op in done}
    for device, row in enumerate(rows):
        for position, (done, start, end) in enumerate(row):
            if any(world.home(op) != device for op in done):
                return f"{done} on device {device}"
            if start < 0 or end - start != world.duration(done):
                return f"times of {done}"
            if any(start < earlier[2] for earlier in row[:position]):
                return f"{done} before the end of one that is listed earlier"
            for op in done:
                for others, lag in world.needs(op):
                    if all(start < ends[other] + lag for other in others if other in ends):
                        return f"{done} before its data"
    if timed(world, [[entry[0] for entry in row] for row in rows]) is None:
        return "stuck"
    if world.limit is not None and any(peak > most for peak, most in zip(peaks(world, rows), world.limit, strict=True)):
        return "memory"
    return ""


def text(ops: Ops) -> str:
    """In PyTorch's notation."""
    words = [f"{stage}{kind}{m}" for stage, kind, m in ops]
    return words[0] if len(words) == 1 else f"({';'.join(words)})OVERLAP_F_B"


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Up to 3 devices and 3 microbatches; any placement, uneven costs, many of them zero."""
    devices, microbatches = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    up = list(range(devices))
    routes = draw(
        st.sampled_from([[up], [up + up], [up + up[::-1]], [up, up[::-1]]])
        | st.permutations(up).map(lambda route: [route])
        | st.lists(st.sampled_from(up), max_size=2).map(lambda more: [up + more])
    )
    stages = len(routes[0])
    numbers = draw(st.sampled_from([st.integers(0, 3), st.integers(0, 1), st.integers(1, 4)]))

    def per_stage(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=stages, max_size=stages))

    activation = per_stage(st.integers(0, 3))
    latency = [[0 if a == b else draw(st.sampled_from([0, 0, 1, 3])) for b in up] for a in up]
    return World(
        devices,
        microbatches,
        routes,
        [draw(st.integers(0, len(routes) - 1)) for _ in range(microbatches)],
        {kind: per_stage(numbers) for kind in "FBIW"},
        draw(st.none() | st.just(per_stage(numbers))),
        latency,
        activation,
        [draw(st.integers(0, held + 2)) for held in activation],
        draw(st.sampled_from([False, False, True])),
        draw(st.sampled_from([0, 0, 2])),
    )


@st.composite
def schedules(draw: st.DrawFn) -> tuple[World, list[Row]]:
    """A world with a valid schedule, perhaps with pairs; its limit, if it has one, is what the schedule needs."""
    world = draw(worlds())
    queues: list[list[Single]] = []
    for m in range(world.microbatches):
        up: list[Single] = [(stage, "F", m) for stage in range(world.stages)]
        down: list[Single] = []
        for stage in reversed(range(world.stages)):
            down += [(stage, kind, m) for kind in draw(st.sampled_from(["B"] if world.fused else ["B", "IW"]))]
        queues.append(up + down)
    order: list[list[Ops]] = [[] for _ in range(world.devices)]
    while any(queues):
        op = draw(st.sampled_from([queue for queue in queues if queue])).pop(0)
        order[world.home(op)].append((op,))
    for device, row in enumerate(order):
        for position in range(len(row) - 1):
            if position + 1 < len(row) and {row[position][0][1], row[position + 1][0][1]} == {"F", "B"} and draw(st.booleans()):
                a, b = row[position][0], row[position + 1][0]
                pair = (a, b) if a[1] == "F" else (b, a)
                merged = [*order[:device], [*row[:position], pair, *row[position + 2 :]], *order[device + 1 :]]
                if timed(world, merged) is not None:
                    order = merged
                    row = merged[device]
    rows = timed(world, order)
    assert rows is not None
    if len(set(world.route_of)) == len(world.routes) and draw(st.booleans()):  # a limit has to allow for every route
        world.limit = peaks(world, rows)
    return world, rows
