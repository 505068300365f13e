"""Random pipelines whose weight gradients come in pieces, and their optimum by trying every order of starts."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product

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
    best: int | None = None

    @cached_property
    def _times(self) -> dict[tuple[int, str], int]:
        """In parts of the user's unit, as many as a weight gradient has pieces."""
        costs = self.p.costs
        full = costs.backward or [i + w for i, w in zip(costs.backward_input, costs.backward_weight, strict=True)]  # type: ignore[arg-type]
        rows = {"F": costs.forward, "B": full, "I": costs.backward_input}
        found = {(s, kind): self._parts(row[s]) for kind, row in rows.items() for s in range(self.p.stages)}  # type: ignore[index]
        return found | {(s, "W"): _whole(costs.backward_weight[s]) for s in range(self.p.stages)}  # type: ignore[index]

    def _parts(self, time: Fraction | None) -> int:
        return _whole(time or Fraction(0)) * self.p.costs.weight_pieces

    def optimum(self) -> Fraction | None:
        """The least makespan, in the user's unit; ``None``: there is no schedule."""
        self.seen: set[object] = set()
        self.lag, self.step = self._parts(self.p.links.latency), self._parts(self.p.costs.optimizer)  # type: ignore[arg-type]
        self.least = [
            min(self._times[s, "B"], self._times[s, "I"] + self._times[s, "W"] * self.p.costs.weight_pieces)
            for s in range(self.p.stages)
        ]
        self.left = [0] * self.p.devices
        for s, device in enumerate(self.p.routes[0]):
            self.left[device] += self.p.microbatches * (self._times[s, "F"] + self.least[s])
        self._go({}, [0] * self.p.devices, 0, tuple(self.left))
        return None if self.best is None else Fraction(self.best, self.p.costs.weight_pieces)

    def _go(self, ends: dict[Part, tuple[int, int]], free: list[int], last: int, left: tuple[int, ...]) -> None:
        step = self.step
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
                least = self.least[op[0]]
                work = {"F": self._times[op[0], "F"], "B": least, "I": min(least, self._times[op[0], "I"])}
                rest = (least - work["I"]) // self.p.costs.weight_pieces  # whole, as each is a multiple of the pieces
                now = list(left)
                now[device] -= work.get(op[1], rest)
                self._go({**ends, op: (start, end)}, [*free[:device], end, *free[device + 1 :]], start, tuple(now))

    def _next(self, ends):  # type: ignore[no-untyped-def]
        lag, route = self.lag, self.p.routes[0]
        for m in range(self.p.microbatches):
            for s in range(self.p.stages):
                if (s, "F", m, 0) not in ends:
                    if s == 0 or (s - 1, "F", m, 0) in ends:
                        before = ends[s - 1, "F", m, 0][1] + (lag if route[s - 1] != route[s] else 0) if s else 0
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

    def _changes(self, op: Part) -> tuple[int, int]:
        """What an operation takes at its start and gives back at its end, of the microbatch's own and of the working set."""
        return self._changed[op[0], op[1], op[3] == self.p.costs.weight_pieces - 1]

    @cached_property
    def _changed(self) -> dict[tuple[int, str, bool], tuple[int, int]]:
        found = {key: self._change(*key) for key in product(range(self.p.stages), "FBIW", (False, True))}
        return {key: (_whole(taken), _whole(given)) for key, (taken, given) in found.items()}

    def _change(self, stage: int, kind: str, last: bool) -> tuple[Fraction, Fraction]:
        held = self.p.memory.activation[stage]  # type: ignore[index]
        kept = held if self.p.memory.retained is None else self.p.memory.retained[stage]  # type: ignore[index]
        working = self.p.memory.working or Fraction(0)
        if kind == "F":
            return held, Fraction(0)
        if kind == "B":
            return working, held + working  # type: ignore[operator]
        if kind == "I":
            return max(kept - held, Fraction(0)) + working, max(held - kept, Fraction(0)) + working  # type: ignore[operator]
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


def _whole(time: Fraction) -> int:
    assert time.denominator == 1
    return int(time)


def by_trying(pipeline: Pipeline) -> int | None:
    """The optimum in ticks; ``None``: there is no schedule."""
    found = ByTrying(pipeline).optimum()
    if found is None:
        return None
    ticks = found * pipeline.ticks.per_unit
    assert ticks.denominator == 1
    return int(ticks)
