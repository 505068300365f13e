"""Random maps of work and weights, and their optimum by trying every order of starts."""

from fractions import Fraction

from hypothesis import strategies as st

from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Memory, Pipeline


@st.composite
def mapped(draw: st.DrawFn, limits: bool = True) -> Pipeline:
    """Up to 3 devices, stages and microbatches and 2 routes; backwards and weights anywhere; ``limits``: of memory, some."""
    stages, microbatches = draw(st.sampled_from([(1, 3), (2, 2), (2, 3), (3, 2)]))
    devices = draw(st.integers(2, 3))
    anywhere = st.lists(st.integers(0, devices - 1), min_size=stages, max_size=stages)
    count = draw(st.integers(1, 2))

    def rows() -> list[list[int]]:
        return [draw(anywhere) for _ in range(count)]

    routes, back = rows(), rows()
    used = {d for row in (*routes, *back) for d in row}
    number = {d: i for i, d in enumerate(sorted(used))}
    routes, back = ([[number[d] for d in row] for row in table] for table in (routes, back))
    size = len(used)
    kept = draw(st.none() | st.just([[draw(st.integers(0, size - 1)) for _ in range(stages)] for _ in range(count)]))
    split = stages * microbatches <= 4 and draw(st.booleans())
    per = draw(st.sampled_from(["stage", "device"]))
    length = stages if per == "stage" else size

    def each(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=length, max_size=length))

    costs = {"backward_input": each(1, 3), "backward_weight": each(1, 3)} if split else {"backward": each(1, 4)}
    lag = [[0 if a == b else draw(st.integers(0, 3)) for b in range(size)] for a in range(size)]
    wait = draw(st.none() | st.just([[0 if a == b else draw(st.integers(0, 2)) for b in range(size)] for a in range(size)]))
    fields = {
        "routes": routes,
        "route_of_microbatch": [draw(st.integers(0, count - 1)) for _ in range(microbatches)],
        "backward_routes": back,
        "costs": Costs(per=per, forward=each(1, 3), optimizer=draw(st.sampled_from([None, 1])), **costs),
        "links": Links(latency=lag, weights=wait),
    }
    memory = Memory(weights=draw(st.sampled_from([None, 1])), weights_on=kept, weights_kept=draw(st.sampled_from([None, "step"])))
    free = Pipeline(size, microbatches, memory=memory, **fields)
    if not limits or draw(st.booleans()):
        return free
    room = max(free.amounts.static.tolist()) + stages + draw(st.integers(0, 1))
    limited = Memory(weights=memory.weights, weights_on=kept, weights_kept=memory.weights_kept, limit=room)
    return Pipeline(size, microbatches, memory=limited, **fields)


Ends = dict[tuple[int, str, int], tuple[Fraction, Fraction]]


class _Search:
    """Operations are started in the order of their starts, each as early as can be: some such order is a best schedule."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.p = pipeline
        self.split = pipeline.costs.split
        fetches = pipeline.links.weights
        self.kept = pipeline.memory.weights_on or pipeline.routes
        self.step = pipeline.memory.weights_kept == "step"
        self.fetches, self.latency = (
            table if isinstance(table, tuple) else [[table or Fraction(0)] * pipeline.devices] * pipeline.devices
            for table in (fetches, pipeline.links.latency)
        )
        self.back = pipeline.backward_routes or pipeline.routes
        self.lead = [self._before(d) for d in range(pipeline.devices)]
        self.tail = pipeline.costs.optimizer or Fraction(0)
        self.best: Fraction | None = None
        self.seen: set[object] = set()

    def place(self, op: tuple[int, str, int]) -> int:
        table = self.p.routes if op[1] == "F" else self.back
        return table[self.p.route_of_microbatch[op[2]]][op[0]]

    def _before(self, device: int) -> Fraction:
        if not self.step:
            return Fraction(0)
        lacking = {
            (s, self.kept[r][s])
            for r in set(self.p.route_of_microbatch)
            for s in range(self.p.stages)
            for table in (self.p.routes, self.back)
            if table[r][s] == device != self.kept[r][s]
        }
        return sum((self.fetches[home][device] for _, home in lacking), Fraction(0))

    def time(self, op: tuple[int, str, int]) -> Fraction:
        stage, kind, m = op[:3]
        costs, device, route = self.p.costs, self.place(op), self.p.route_of_microbatch[m]
        full = costs.backward
        parts = {"F": costs.forward, "I": costs.backward_input, "W": costs.backward_weight, "B": full}

        def of(value: object) -> Fraction:
            own = stage if costs.per == "stage" else device
            share = 1 if costs.per == "stage" else self.p.routes[route].count(self.p.routes[route][stage])
            assert isinstance(value, tuple | Fraction)
            return (value[own] if isinstance(value, tuple) else value) / share

        took = of(parts["I"]) + of(parts["W"]) if kind == "B" and full is None else of(parts[kind])
        home = self.kept[route][stage]
        return took + (self.fetches[home][device] if kind != "W" and not self.step else 0)

    def optimum(self) -> Fraction | None:
        """The least makespan; ``None``: there is no schedule."""
        self._go({}, [None] * self.p.devices, Fraction(0))
        return self.best

    def _go(
        self, ends: dict[tuple[int, str, int], tuple[Fraction, Fraction]], free: list[Fraction | None], last: Fraction
    ) -> None:
        state = (last, frozenset((op, end) for op, (_, end) in ends.items()))
        if state in self.seen:
            return
        self.seen.add(state)
        options = list(self._next(ends))
        if not options:
            begin = min(start - self.lead[self.place(op)] for op, (start, _) in ends.items())
            value = max(end for _, end in ends.values()) + self.tail - begin
            self.best = value if self.best is None else min(self.best, value)
            return
        for op, ready in options:
            device = self.place(op)
            start = max(last, ready, self.lead[device] if free[device] is None else free[device])
            start = self._fits(ends, op, start)
            if start is None:
                continue
            end = start + self.time(op)
            if self.best is None or end + self.tail < self.best + max(self.lead):
                self._go({**ends, op: (start, end)}, [*free[:device], end, *free[device + 1 :]], start)

    def _next(self, ends):  # type: ignore[no-untyped-def]
        for m in range(self.p.microbatches):
            for s in range(self.p.stages):
                if (s, "F", m) not in ends:
                    if s == 0:
                        yield (s, "F", m), Fraction(0)
                    elif (s - 1, "F", m) in ends:
                        yield (s, "F", m), self._arrival(ends, (s - 1, "F", m), (s, "F", m))
                    break
            for s in reversed(range(self.p.stages)):
                if (s, "I", m) in ends and (s, "W", m) not in ends:
                    yield (s, "W", m), ends[s, "I", m][1]
            for s in reversed(range(self.p.stages)):
                if (s, "B", m) in ends or (s, "I", m) in ends:
                    continue
                above = next(((s + 1, k, m) for k in "BI" if (s + 1, k, m) in ends), None)
                if (s, "F", m) in ends and (s == self.p.stages - 1 or above is not None):
                    for kind in "BI" if self.split else "B":
                        op = (s, kind, m)
                        ready = self._arrival(ends, (s, "F", m), op)
                        yield op, ready if above is None else max(ready, self._arrival(ends, above, op))
                break

    def _arrival(self, ends, before, op):  # type: ignore[no-untyped-def]
        a, b = self.place(before), self.place(op)
        return ends[before][1] + (self.latency[a][b] if a != b else 0)

    def _fits(self, ends, op, start):  # type: ignore[no-untyped-def]
        """The first time from ``start`` on at which there is room for what a forward leaves behind."""
        stage, kind, m = op[:3]
        limit = self.p.memory.limit
        if kind != "F" or limit is None:
            return start
        room = self.p.amounts.limit - self.p.amounts.static  # type: ignore[operator]
        on = self.back[self.p.route_of_microbatch[m]][stage]

        def size(of: tuple[int, str, int]) -> int:
            return int(self.p.amounts.activation[self.p.route_of_microbatch[of[2]], of[0]])

        gone = {other[::2]: end for other, (_, end) in ends.items() if other[1] in "BW"}
        held = [o for o in ends if o[1] == "F" and self.back[self.p.route_of_microbatch[o[2]]][o[0]] == on]
        for time in sorted({start, *(end for end in gone.values() if end > start)}):
            there = sum(size(o) for o in held if gone.get(o[::2], time + 1) > time)
            if there + size(op) <= room[on]:
                return time
        return None


def by_trying(pipeline: Pipeline) -> int | None:
    """The least makespan in ticks; ``None``: there is no schedule."""
    best = _Search(pipeline).optimum()
    assert Kind.F == 0
    return None if best is None else int(best * pipeline.ticks.per_unit)
