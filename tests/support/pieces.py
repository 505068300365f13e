"""Random pipelines whose weight gradients come in pieces, and their optimum by trying every order of starts."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from hypothesis import strategies as st

from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.pipeline.parts import PipelineError

Part = tuple[int, str, int, int]
"""Stage, kind, microbatch, piece."""


@st.composite
def pieced(draw: st.DrawFn, *, most: int = 3, limits: bool = True, fused: bool = True) -> Pipeline:
    """Up to 3 stages on one or two devices and 3 microbatches, 1 to ``most`` pieces; costs uneven, some zero; perhaps a limit of
    memory. ``fused``: the full backward may be shorter than its parts."""
    routes, microbatches = draw(
        st.sampled_from([([0, 1], 2), ([0, 1], 3), ([0, 1, 0], 1), ([0, 0], 2), ([0, 1, 1], 1), ([0], 3)])
    )
    stages, devices = len(routes), max(routes) + 1
    pieces = draw(st.integers(1, most if stages * microbatches <= 4 else min(most, 2)))
    low = draw(st.sampled_from([0, 1, 1]))

    def each(least: int, largest: int) -> list[int]:
        return draw(st.lists(st.integers(least, largest), min_size=stages, max_size=stages))

    input_, weight = each(low, 4), each(low, 5)
    full = [i + w + draw(st.sampled_from([0, 0, -1, 1])) for i, w in zip(input_, weight, strict=True)] if fused else None
    activation = each(1, 2)
    retained = [draw(st.integers(0, held + 1)) for held in activation]
    memory = {"activation": activation, "retained": draw(st.none() | st.just(retained))}
    fields = {
        "routes": [routes],
        "costs": Costs(
            per="stage",
            forward=each(1, 3),
            backward_input=input_,
            backward_weight=weight,
            backward=None if full is None else [max(0, x) for x in full],
            optimizer=draw(st.sampled_from([None, None, 1])),
            weight_pieces=pieces,
        ),
        "links": Links(draw(st.integers(0, 2))),
    }
    free = Pipeline(devices, microbatches, memory=Memory(**memory), **fields)  # type: ignore[arg-type]
    if not limits or draw(st.booleans()):
        return free
    room = draw(st.integers(sum(activation), sum(activation) + 2))
    working = draw(st.sampled_from([None, None, 1]))
    try:
        return Pipeline(devices, microbatches, memory=Memory(**memory, working=working, limit=room), **fields)  # type: ignore[arg-type]
    except PipelineError:
        return free


@dataclass
class ByTrying:
    """Operations are started in the order of their starts, each as early as can be: some such order is a best schedule."""

    p: Pipeline
    best: Fraction | None = None

    @cached_property
    def _times(self) -> dict[tuple[int, str], Fraction]:
        costs = self.p.costs
        full = costs.backward or [i + w for i, w in zip(costs.backward_input, costs.backward_weight, strict=True)]  # type: ignore[arg-type]
        rows = {"F": costs.forward, "B": full, "I": costs.backward_input}
        found = {(s, kind): row[s] for kind, row in rows.items() for s in range(self.p.stages)}  # type: ignore[index]
        return found | {(s, "W"): costs.backward_weight[s] / costs.weight_pieces for s in range(self.p.stages)}  # type: ignore[index]

    def optimum(self) -> Fraction | None:
        """The least makespan, in the user's unit; ``None``: there is no schedule."""
        self.seen: set[object] = set()
        self.left = [Fraction(0)] * self.p.devices
        for s, device in enumerate(self.p.routes[0]):
            backward = min(self._times[s, "B"], self._times[s, "I"] + self._times[s, "W"] * self.p.costs.weight_pieces)
            self.left[device] += self.p.microbatches * (self._times[s, "F"] + backward)
        self._go({}, [Fraction(0)] * self.p.devices, Fraction(0), tuple(self.left))
        return self.best

    def _go(
        self, ends: dict[Part, tuple[Fraction, Fraction]], free: list[Fraction], last: Fraction, left: tuple[Fraction, ...]
    ) -> None:
        step = self.p.costs.optimizer or Fraction(0)
        if self.best is not None and any(
            max(f, last if w else f) + w + step >= self.best for f, w in zip(free, left, strict=True)
        ):
            return
        state = (last, tuple(free), frozenset((op, max(end, last)) for op, (_, end) in ends.items()))
        if state in self.seen:
            return
        self.seen.add(state)
        options = list(self._next(ends))
        if not options:
            value = max(end for _, end in ends.values()) + step
            self.best = value if self.best is None else min(self.best, value)
            return
        for op, ready in options:
            device = self.p.routes[0][op[0]]
            start = self._fits(ends, op, max(last, ready, free[device]))
            if start is not None:
                end = start + self._times[op[:2]]
                least = min(
                    self._times[op[0], "B"], self._times[op[0], "I"] + self._times[op[0], "W"] * self.p.costs.weight_pieces
                )
                work = {"F": self._times[op[0], "F"], "B": least, "I": min(least, self._times[op[0], "I"])}
                rest = (least - work["I"]) / self.p.costs.weight_pieces
                now = list(left)
                now[device] -= work.get(op[1], rest)
                self._go({**ends, op: (start, end)}, [*free[:device], end, *free[device + 1 :]], start, tuple(now))

    def _next(self, ends):  # type: ignore[no-untyped-def]
        lag, route = self.p.links.latency, self.p.routes[0]
        for m in range(self.p.microbatches):
            for s in range(self.p.stages):
                if (s, "F", m, 0) not in ends:
                    if s == 0 or (s - 1, "F", m, 0) in ends:
                        before = ends[s - 1, "F", m, 0][1] + (lag if route[s - 1] != route[s] else 0) if s else Fraction(0)
                        yield (s, "F", m, 0), before
                    continue
                if (s, "B", m, 0) in ends:
                    continue
                if (s, "I", m, 0) in ends:
                    done = sum((s, "W", m, k) in ends for k in range(self.p.costs.weight_pieces))
                    if done < self.p.costs.weight_pieces:
                        needed = (s, "W", m, done - 1) if done else (s, "I", m, 0)
                        yield (s, "W", m, done), ends[needed][1]
                    continue
                ready = ends[s, "F", m, 0][1]
                if s + 1 < self.p.stages:
                    after = ends.get((s + 1, "B", m, 0)) or ends.get((s + 1, "I", m, 0))
                    if after is None:
                        continue
                    ready = max(ready, after[1] + (lag if route[s] != route[s + 1] else 0))
                yield (s, "B", m, 0), ready
                yield (s, "I", m, 0), ready

    def _changes(self, op: Part) -> tuple[Fraction, Fraction]:
        """What an operation takes at its start and gives back at its end, of the microbatch's own and of the working set."""
        held = self.p.memory.activation[op[0]]  # type: ignore[index]
        kept = held if self.p.memory.retained is None else self.p.memory.retained[op[0]]  # type: ignore[index]
        working = self.p.memory.working or Fraction(0)
        if op[1] == "F":
            return held, Fraction(0)
        if op[1] == "B":
            return working, held + working  # type: ignore[operator]
        if op[1] == "I":
            return max(kept - held, Fraction(0)) + working, max(held - kept, Fraction(0)) + working  # type: ignore[operator]
        last = op[3] == self.p.costs.weight_pieces - 1
        return working, working + (kept if last else 0)  # type: ignore[operator, return-value]

    def _fits(self, ends, op, start):  # type: ignore[no-untyped-def]
        """When there is room for it from ``start`` on; ``None``: only what has not begun yet would make some."""
        if self.p.memory.limit is None:
            return start
        device = self.p.routes[0][op[0]]
        mine = {done: times for done, times in ends.items() if self.p.routes[0][done[0]] == device}
        for time in sorted({start, *(end for _, end in mine.values() if end > start)}):
            held = sum(self._changes(done)[0] for done in mine)
            held -= sum(self._changes(done)[1] for done, (_, end) in mine.items() if end <= time)
            if held + self._changes(op)[0] <= self.p.memory.limit:
                return time
        return None


def by_trying(pipeline: Pipeline) -> int | None:
    """The optimum in ticks; ``None``: there is no schedule."""
    found = ByTrying(pipeline).optimum()
    if found is None:
        return None
    ticks = found * pipeline.ticks.per_unit
    assert ticks.denominator == 1
    return int(ticks)
