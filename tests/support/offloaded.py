"""The least makespan of tiny pipelines with copies to the host, by stepping through all states tick by tick."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction

from ppopt.op import Kind
from ppopt.pipeline import Costs, IntArray, Memory, Mix, Offload, Pipeline, TooLittleMemory

WAITS, FORWARD, HELD, OUT, AWAY, BACK, RETURNED, BACKWARD, DONE, GRADIENT, HALF, WEIGHT = range(12)
ON_DEVICE = (FORWARD, HELD, OUT, BACK, RETURNED, BACKWARD, GRADIENT)
BEFORE = ((WAITS, FORWARD), (WAITS, FORWARD, HELD, OUT, AWAY, BACK, RETURNED, BACKWARD, GRADIENT))
"""What a stage does with a microbatch before its forward has ended, and before its backward has."""
Cell = tuple[int, int]
"""What a stage does with a microbatch, and for how many ticks more."""
State = tuple[Cell, ...]


class Stepping:
    """All that can happen in a pipeline on one way, without links: whole numbers of ticks are enough.

    Of words for what is copied it knows "choose" and "all", and one fraction.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        ticks, amounts, mix = pipeline.ticks, pipeline.amounts, pipeline.mix
        self.pipeline, self.stages, self.count = pipeline, pipeline.stages, pipeline.microbatches
        self.device = pipeline.device_of[0].tolist()
        route = pipeline.route_of_microbatch
        self.cells = [(stage, m) for stage in range(self.stages) for m in range(self.count)]
        """By place in a state: the stage and the microbatch."""

        def of(table: IntArray) -> list[int]:
            return [int(table[route[m], stage]) for stage, m in self.cells]

        self.time = {kind: of(ticks.duration[:, kind]) for kind in Kind}
        self.out, self.back, self.margin = of(ticks.copying[:, 0]), of(ticks.copying[:, 1]), of(ticks.margin)
        self.holds, self.keeps, self.away = of(amounts.activation), of(amounts.kept), of(amounts.away)
        scales = {mix.scales(m, self.stages) for m in range(self.count)} if mix.differs else set()
        self.alike = len(scales) < 2 and not mix.pieces
        size = mix.pieces[0] if mix.pieces else 1
        first, last = ([size * (m // size) + k for m in range(self.count)] for k in (0, size - 1))
        ordered = mix.microbatch_order == "given" and not self.alike
        self.turn = (
            [[o for o in range(m) if ordered or o >= first[m]] for m in range(self.count)],
            [[o for o in range(self.count) if (o < first[m] and ordered) or m < o <= last[m]] for m in range(self.count)],
        )
        """By microbatch those that run before it forward, and those that do backward."""
        which = "choose" if pipeline.offload is None else pipeline.offload.stages
        share = Fraction(int(which == "all")) if isinstance(which, str) else which
        numbers = {m for m in range(self.count) if int((m + 1) * share) > int(m * share)}  # type: ignore[arg-type]
        self.must = None if which == "choose" else [self.out[i] >= 0 and m in numbers for i, (_, m) in enumerate(self.cells)]
        """By place whether the copies have to be made; ``None``: that is open everywhere."""
        self.alike = self.alike and len(numbers) in (0, self.count)
        self.limit = None if amounts.limit is None else (amounts.limit - amounts.static).tolist()
        given = pipeline.memory.working or Fraction(0)
        each = given if isinstance(given, tuple) else (given,) * pipeline.devices
        self.working = [
            int(each[self.device[stage]] * (mix.scale(m, stage).held if mix.differs else 1) * amounts.per_unit)
            for stage, m in self.cells
        ]
        self.host = amounts.host
        offload = pipeline.offload
        self.both = offload is not None and offload.engines == 1
        groups = () if offload is None else offload.shared
        self.engine = [next((min(g) for g in groups if d in g), d) for d in range(pipeline.devices)]

    def shorter(self, than: int) -> int | None:
        """Ticks of the shortest schedule that takes less; ``None``: there is none."""
        states: set[State] = {((WAITS, 0),) * (self.stages * self.count)}
        for time in range(than):
            reached: set[State] = set()
            stack = list(states)
            while stack:
                state = stack.pop()
                if state not in reached and time + self.left(state) < than:
                    reached.add(state)
                    stack += map(self.sorted, self.starts(state))
            if any(all(phase == DONE for phase, _ in state) for state in reached):
                return time
            states = {self.ticked(state) for state in reached}
        return None

    def sorted(self, state: State) -> State:
        """The same state with the microbatches, where they are alike, in an order of their own."""
        if not self.alike:
            return state
        columns = sorted(tuple(state[m :: self.count]) for m in range(self.count))
        return tuple(column[stage] for stage in range(self.stages) for column in columns)

    def left(self, state: State) -> int:
        """Ticks that there are still to come, at least: on one device, or of one microbatch."""
        device, chain = [0] * self.pipeline.devices, [0] * self.count
        for i, (phase, more) in enumerate(state):
            stage = i // self.count
            forward, full = self.time[Kind.F][i], self.time[Kind.B][i]
            gradient, weight = full, 0
            if self.pipeline.costs.split:
                gradient = min(full, self.time[Kind.I][i])
                weight = min(self.time[Kind.W][i], max(0, full - gradient))
            todo = {
                WAITS: forward + gradient,
                FORWARD: more + gradient,
                BACKWARD: more,
                GRADIENT: more,
                HALF: 0,
                WEIGHT: 0,
                DONE: 0,
            }
            path = todo.get(phase, gradient)
            chain[i % self.count] += path
            later = {HALF: weight, WEIGHT: more, DONE: 0, BACKWARD: 0}.get(phase, weight)
            device[self.device[stage]] += path + later
        return max(*device, *chain)

    def ticked(self, state: State) -> State:
        """One tick later."""
        return tuple(self.ended((phase, left - 1)) if left else (phase, left) for phase, left in state)

    @staticmethod
    def ended(cell: Cell) -> Cell:
        """What follows once nothing is left of it."""
        following = {FORWARD: HELD, OUT: AWAY, BACKWARD: DONE, GRADIENT: HALF, WEIGHT: DONE}
        return (following.get(cell[0], cell[0]), 0) if not cell[1] else cell

    def starts(self, state: State) -> Iterator[State]:
        """The states in which one thing more has started."""
        busy = {self.device[i // self.count] for i, (p, _) in enumerate(state) if p in (FORWARD, BACKWARD, GRADIENT, WEIGHT)}
        copying = {
            (self.engine[self.device[i // self.count]], p == BACK and not self.both)
            for i, (p, left) in enumerate(state)
            if p == OUT or (p == BACK and left > self.margin[i])
        }
        for i, (phase, left) in enumerate(state):
            stage, m = self.cells[i]
            free = self.device[stage] not in busy
            engine = self.engine[self.device[stage]]
            own = state[i - m : i - m + self.count]
            turn, back = (all(own[o][0] not in phases for o in of[m]) for of, phases in zip(self.turn, BEFORE, strict=True))
            if phase == WAITS and free and turn and (not stage or state[i - self.count][0] not in (WAITS, FORWARD)):
                yield from self.now(state, i, FORWARD, self.time[Kind.F][i])
            ready = (phase == HELD and not (self.must and self.must[i])) or (phase == BACK and not left)
            behind = stage == self.stages - 1 or state[i + self.count][0] in (DONE, HALF, WEIGHT)
            if ready and free and behind and back:
                yield from self.now(state, i, BACKWARD, self.time[Kind.B][i])
                if self.pipeline.costs.split:
                    yield from self.now(state, i, GRADIENT, self.time[Kind.I][i])
            if phase == HALF and free:
                yield from self.now(state, i, WEIGHT, self.time[Kind.W][i])
            may = self.out[i] >= 0 if self.must is None else self.must[i]
            if phase == HELD and may and (engine, False) not in copying:
                yield from self.now(state, i, OUT, self.out[i])
            if phase == AWAY and (engine, not self.both) not in copying:
                yield from self.now(state, i, BACK, self.back[i] + self.margin[i])

    def now(self, state: State, i: int, phase: int, takes: int) -> Iterator[State]:
        """The state in which that has started, if there is room for it."""
        changed = (*state[:i], self.ended((phase, takes)), *state[i + 1 :])
        during = (*state[:i], (phase, takes), *state[i + 1 :])
        if self.fits(during, self.device[i // self.count]):
            yield changed

    def fits(self, state: State, device: int) -> bool:
        """Whether what is held on a device, and on the host, is within the limits."""
        held = outside = 0
        for i, (phase, left) in enumerate(state):
            stage = i // self.count
            if phase in (OUT, AWAY) or (phase == BACK and left > self.margin[i]):
                outside += self.away[i]
            if self.device[stage] == device:
                held += self.holds[i] if phase in ON_DEVICE else 0
                held += self.holds[i] - self.away[i] if phase == AWAY else 0
                held += self.keeps[i] if phase in (HALF, WEIGHT) else 0
                held += self.working[i] if phase in (BACKWARD, GRADIENT, WEIGHT) else 0
        return (self.limit is None or held <= self.limit[device]) and (self.host is None or outside <= self.host)


def tiny(seed: int, working: int | None = None) -> Pipeline:
    """A pipeline that is small enough for that; ``working``: what backwards take while they run, which limits have room for."""
    rng = random.Random(seed)
    devices, chunks = rng.choice([(2, 1), (2, 1), (3, 1), (2, 2)])
    microbatches = 2 if devices * chunks > 2 else rng.choice([2, 3])
    split = microbatches == 2 and rng.random() < 0.5
    times = {"forward": [rng.randint(1, 2) for _ in range(devices)]}
    if split:
        times |= {name: [rng.randint(1, 2) for _ in range(devices)] for name in ("backward_input", "backward_weight")}
    else:
        times |= {"backward": [rng.randint(1, 3) for _ in range(devices)]}
    if chunks > 1:
        times = {name: [2 * t for t in of] for name, of in times.items()}
    activation = [Fraction(rng.randint(2, 3)) * chunks for _ in range(devices)]
    amount = [a if rng.random() < 0.5 else a - 1 for a in activation]
    retained = [a - rng.randint(0, 1) for a in activation] if split else None
    limit = [rng.choice([a, a + 1, 2 * a]) + (working or 0) for a in activation]
    offload = Offload(
        time=rng.choice([0, 1, 2]) * chunks,
        time_in=rng.choice([None, 1 * chunks, 2 * chunks]),
        amount=amount,
        engines=rng.choice([1, 2]),
        shared=rng.choice([[], [[0, 1]]]),
        margin=rng.choice([0, 0, 1]),
        host_limit=rng.choice([None, None, 4]),
    )
    return Pipeline(
        devices,
        microbatches,
        placement="linear" if chunks == 1 else rng.choice(["loop", "wave"]),
        chunks=chunks,
        costs=Costs(**times),  # type: ignore[arg-type]
        memory=Memory(activation=activation, retained=retained, limit=limit, working=working),
        offload=offload,
    )


def tiny_mix(seed: int, working: int | None = None) -> Pipeline:
    """One of microbatches that differ, which is small enough for that; ``working``: what a backward of one that holds what the
    memory says takes while it runs."""
    rng = random.Random(seed)
    devices = rng.choice([2, 2, 3])
    microbatches = 2 if devices > 2 else rng.choice([2, 3])
    split = microbatches == 2 and rng.random() < 0.5
    names = ("forward", "backward_input", "backward_weight") if split else ("forward", "backward")
    times: dict[str, object] = {name: [rng.randint(1, 2) for _ in range(devices)] for name in names}
    order = rng.choice(["given", "choose"])
    pieces = rng.choice([1, 1, microbatches])
    if rng.random() < 0.5:
        times["forward_quadratic"] = [rng.randint(0, 1) for _ in range(devices)]
        lengths = [rng.choice([1, 2, [1, 1]]) for _ in range(microbatches)]
        mix = Mix(lengths=lengths, length=1, microbatch_order=order, pieces=pieces)
        most = max(2 if isinstance(of, list) else of for of in lengths)
    else:
        factors, held = ([rng.randint(1, 2) for _ in range(microbatches)] for _ in range(2))
        mix = Mix(microbatch_costs=factors, microbatch_activations=held, microbatch_order=order, pieces=pieces)
        most = max(held)
    activation = [rng.randint(1, 2) for _ in range(devices)]
    speed = {"rate": rng.choice([1, 2]), "rate_in": rng.choice([None, 1])}
    if rng.random() < 0.5:
        speed = {"time": rng.choice([0, 1]), "time_in": rng.choice([None, 1])}
    offload = Offload(
        **speed,  # type: ignore[arg-type]
        amount=rng.choice([None, 1]),
        engines=rng.choice([1, 2]),
        shared=rng.choice([[], [[0, 1]]]),
        margin=rng.choice([0, 0, 1]),
        host_limit=rng.choice([None, None, 3]),
        stages=rng.choice(["choose", "choose", "all", Fraction(1, 2)]),
    )
    limit = [a * rng.choice([1, most, most, most + 1]) for a in activation]
    while True:
        with suppress(TooLittleMemory):
            memory = Memory(activation=activation, limit=limit, working=working)
            return Pipeline(devices, microbatches, costs=Costs(**times), memory=memory, mix=mix, offload=offload)  # type: ignore[arg-type]
        limit = [a + 1 for a in limit]
