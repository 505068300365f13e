"""Files of runs, as runtimes write them, made of schedules whose times are known."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

from ppopt.files.recorded import Clock, Ran
from ppopt.named import find
from ppopt.op import Op, Pair
from ppopt.pipeline import Costs, Links, Pipeline, Units
from ppopt.runs import Run
from ppopt.runs.clocks import Clocks
from ppopt.schedule import Schedule

Tree: TypeAlias = dict[str, Any]
SPLIT = Costs(forward=4, backward_input=5, backward_weight=3)
FUSED = Costs(forward=4, backward=8)


@functools.cache
def planned(name: str, devices: int = 4, microbatches: int = 8, costs: Costs = FUSED, chunks: int | None = None) -> Schedule:
    """A named schedule in ms, with some latency."""
    links = Links(Fraction(1, 5))
    return find(name).schedule(Pipeline(devices, microbatches, costs=costs, links=links, units=Units("ms"), name=name), chunks)


def times_of(schedule: Schedule) -> Iterator[list[tuple[Op | Pair, float, float]]]:
    """Per device its operations with begin and end in the unit."""
    unit = schedule.pipeline.ticks.per_unit
    for device in range(schedule.pipeline.devices):
        columns = (schedule.start[device].tolist(), schedule.end[device].tolist())
        yield [(op, a / unit, b / unit) for op, a, b in zip(schedule.order.ops(device), *columns, strict=True)]


def halves(op: Op | Pair) -> tuple[Op, ...]:
    return (op.forward, op.backward) if isinstance(op, Pair) else (op,)


def event_times(schedule: Schedule, begin: float = 0.21) -> list[tuple[str, Tree]]:
    """Names and contents of Megatron's event times, which begin so many ms after the barrier."""
    devices, chunks = schedule.pipeline.devices, schedule.pipeline.chunks
    files = []
    for device, row in enumerate(times_of(schedule)):
        tree: Tree = {}
        for op, a, b in row:
            assert isinstance(op, Op)
            chunk = f"{op.stage // devices}-" if chunks > 1 else ""
            key = f"{'forward' if op.kind.name == 'F' else 'backward'}-{chunk}{op.microbatch}"
            tree |= {f"{key}-start": round(a + begin, 4), f"{key}-end": round(b + begin, 4)}
        tree["total-execution-time"] = round(row[-1][2] + begin, 4) + 0.4
        files.append((f"event_times_PP{devices}_VPP{chunks}_TPxCPxDP_rank_0_pp_rank_{device}_rank_{device}.json", tree))
    return files


def primus(
    schedule: Schedule, offsets: Sequence[float], *, named: bool = True, scales: Sequence[float] = (1.0,)
) -> list[tuple[str, Tree]]:
    """Names and contents of Primus's dumps: device d counts from ``offsets[d]`` ms on; an iteration for each of ``scales``."""
    pipeline = schedule.pipeline
    files: list[tuple[str, Tree]] = []
    for device, row in enumerate(times_of(schedule)):
        stages = [stage for stage, home in enumerate(pipeline.routes[0]) if home == device]
        tree: Tree = {}
        for number, scale in enumerate(scales, 1):
            of: Tree = {f"{n}_{c}": [] for n in ("fwd", "bwd", "wgrad") for c in ("start", "end", "minibatch", "chunk")}
            for op, a, b in row:
                for half in halves(op):
                    name = {"F": "fwd", "B": "bwd", "I": "bwd", "W": "wgrad"}[half.kind.name]
                    of[f"{name}_start"].append((a - offsets[device]) * scale)
                    of[f"{name}_end"].append((b - offsets[device]) * scale)
                    if named:
                        of[f"{name}_minibatch"].append(half.microbatch)
                        of[f"{name}_chunk"].append(stages.index(half.stage))
            tree[str(number)] = {"total": row[-1][2] * scale, "memory": 12.5, **of}
        files.append((f"pp_rank_{device}.json", tree))
    sizes = {"pp_size": pipeline.devices, "vp_size": pipeline.chunks, "num_mbs": pipeline.microbatches, "world_size": 32}
    return [*files, ("config.json", sizes)]


def written(folder: Path, files: Sequence[tuple[str, Tree]], change: Callable[[Tree], object] | None = None) -> list[str]:
    """The paths of the files in a folder; ``change`` is made to the first."""
    for place, (name, tree) in enumerate(files):
        if change is not None and place == 0:
            change(tree)
        (folder / name).write_text(json.dumps(tree))
    return [str(folder / name) for name, _ in files]


def run_of(schedule: Schedule, late: Callable[[str], float] = lambda op: 0.0) -> Run:
    """A run of a schedule in ms in which some operations take longer: what follows is later as far as it has to be.

    The times are made here, operation by operation, by going round the devices until nothing is left.
    """
    pipeline = schedule.pipeline
    lag = pipeline.ticks.lag / pipeline.ticks.per_unit
    rows = [[(op, b - a) for op, a, b in row] for row in times_of(schedule)]
    ended: dict[Op, tuple[int, float]] = {}
    ran: list[list[Ran]] = [[] for _ in rows]
    while any(len(done) < len(row) for done, row in zip(ran, rows, strict=True)):
        for device, row in enumerate(rows):
            if len(ran[device]) == len(row):
                continue
            op, took = row[len(ran[device])]
            inputs = [need for half in halves(op) for need in _inputs(half, pipeline.stages, schedule)]
            if any(need not in ended for need in inputs):
                continue
            ready = [end + float(lag[home, device]) for home, end in (ended[need] for need in inputs)]
            begin = max([ran[device][-1].end if ran[device] else 0.0, *ready])
            end = begin + took + late(str(op))
            ran[device].append(Ran(op, begin, end))
            ended |= dict.fromkeys(halves(op), (device, end))
    seconds = tuple(tuple(Ran(op, begin / 1000, end / 1000) for op, begin, end in row) for row in ran)
    held = tuple(
        tuple(stage for stage, home in enumerate(pipeline.routes[0]) if home == device) for device in range(pipeline.devices)
    )
    clocks = Clocks(Clock.HOST, False, (0.0,) * pipeline.devices, None, 0.0)
    return Run("timing records", ("a",), held, pipeline.microbatches, 1, {1: 1.0}, seconds, clocks, ())


def _inputs(op: Op, stages: int, schedule: Schedule) -> list[Op]:
    texts = {text for row in schedule.order.texts() for text in row}
    found = []
    if op.kind.name == "F" and op.stage:
        found = [op._replace(stage=op.stage - 1)]
    elif op.kind.name in "BI" and op.stage + 1 < stages:
        after = [op._replace(stage=op.stage + 1, kind=type(op.kind)[name]) for name in ("B", "I")]
        found = [each for each in after if str(each) in texts]
    return found
