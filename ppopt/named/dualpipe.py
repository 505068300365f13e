"""DualPipe and DualPipeV: microbatches enter from both ends, and a forward overlaps a backward of the other direction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ppopt.constraints import Listed, Together, Word, chain, run
from ppopt.named.definition import Definition, Parameters, Restriction
from ppopt.op import Kind, Op, Pair
from ppopt.pipeline import Pipeline


def dualpipe(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """The eight steps on every device; phases 0 and 1 are routes 0 and 1, swapped on the upper half of the devices.

    Raises:
        Restriction: an odd number of devices or microbatches, too few microbatches, or routes with unequal shares of them.
    """
    devices, microbatches = pipeline.devices, pipeline.microbatches
    if devices % 2:
        raise Restriction(f"dualpipe: devices must be even, got {devices}")
    if microbatches % 2:
        raise Restriction(f"dualpipe: microbatches must be even, got {microbatches}")
    if microbatches < 2 * devices:
        raise Restriction(f"dualpipe: microbatches must be >= 2*devices ({2 * devices}), got {microbatches}")
    on_routes = [of_route.tolist() for of_route in pipeline.microbatches_of]
    if len(on_routes[0]) != len(on_routes[1]):
        raise Restriction(f"dualpipe: each route needs half of the microbatches, got {len(on_routes[0])} and {len(on_routes[1])}")
    half = devices // 2
    for d in range(devices):
        routes = (0, 1) if d < half else (1, 0)
        phases = [Phase(pipeline.routes[route].index(d), on_routes[route]) for route in routes]
        yield from _pinned(eight_steps(half, min(d, devices - 1 - d), microbatches // 2, phases))


def dualpipe_v(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """The eight steps on a V: phase 0 is the stage on the way down, phase 1 the one on the way back.

    Raises:
        Restriction: other than two chunks per device, or fewer than two microbatches per device.
    """
    devices, microbatches = pipeline.devices, pipeline.microbatches
    if pipeline.chunks != 2:
        raise Restriction(f"dualpipe-v: chunks must be 2, got {pipeline.chunks}")
    if microbatches < 2 * devices:
        raise Restriction(f"dualpipe-v: microbatches must be >= 2*devices ({2 * devices}), got {microbatches}")
    every = list(range(microbatches))
    for d in range(devices):
        phases = [Phase(d, every), Phase(2 * devices - 1 - d, every)]
        yield from _pinned(eight_steps(devices, d, microbatches, phases))


@dataclass(frozen=True)
class Phase:
    """One direction of a device: its stage, and its microbatches in order."""

    stage: int
    microbatches: list[int]

    def ops(self, kind: Kind) -> Iterator[Op]:
        """Its operations of a kind, in order."""
        return (Op(self.stage, kind, m) for m in self.microbatches)


def eight_steps(half: int, h: int, count: int, phases: list[Phase]) -> list[Op | Pair]:
    """The order of a device ``h`` away from its end, ``half`` devices up to the middle, ``count`` microbatches each way."""
    forward = [phase.ops(Kind.F) for phase in phases]
    backward = [phase.ops(Kind.B) for phase in phases]
    pending: list[Op] = []
    row: list[Op | Pair] = []

    def input_(phase: int) -> Op:
        op = next(backward[phase])
        pending.append(op._replace(kind=Kind.W))
        return op._replace(kind=Kind.I)

    outer, inner = half - h - 1, h + 1
    row += [next(forward[0]) for _ in range(2 * outer)]
    row += [next(forward[phase]) for _ in range(inner) for phase in (0, 1)]
    for _ in range(outer):
        row += [input_(1), pending.pop(), next(forward[1])]
    for i in range(count - 2 * half + inner):
        if i == 0 and h == half - 1:
            row += [next(forward[0]), next(backward[1])]
        else:
            row.append(Pair(next(forward[0]), next(backward[1])))
        row.append(Pair(next(forward[1]), next(backward[0])))
    for _ in range(outer):
        row += [next(backward[1]), Pair(next(forward[1]), next(backward[0]))]
    for i in range(2 * inner):
        phase = 1 - i % 2
        row.append(next(backward[phase]) if i < inner else input_(phase))
    for _ in range(outer):
        row += [pending.pop(0), input_(0)]
    return row + pending


def _pinned(row: list[Op | Pair]) -> Iterable[Word]:
    """This order, its pairs, and the kinds that it runs."""
    pairs = [op for op in row if isinstance(op, Pair)]
    forwards, backwards = Listed(tuple(p.forward for p in pairs)), Listed(tuple(p.backward for p in pairs))
    yield from run([Listed(tuple(op for op in row if isinstance(op, Op))), forwards, backwards])
    yield Together(forwards, backwards)
    yield chain(Listed(tuple(row)))


DEFINITIONS = (
    Definition(
        name="dualpipe",
        summary="two directions with a copy of the weights each; steady state of overlapped pairs",
        source="DeepSeek-V3 2024, arXiv 2412.19437; deepseek-ai/DualPipe dualpipe/dualpipe.py",
        placement="bidirectional",
        constrain=dualpipe,
        split=True,
        needs="D even, M even, M >= 2D",
        peak="D + 1 (weights twice)",
        idle="(D/2-1)(2T_F+T_I-T_W) if T_O = T_F+T_B, T_W <= T_I <= T_F",
    ),
    Definition(
        name="dualpipe-v",
        summary="DualPipe folded into a V: two chunks per device, one copy of the weights",
        source="deepseek-ai/DualPipe dualpipe/dualpipev.py; PyTorch ScheduleDualPipeV",
        placement="wave",
        constrain=dualpipe_v,
        aliases=("dualpipe_v", "dualpipev"),
        split=True,
        least_chunks=2,
        needs="M >= 2D",
        peak="2D + 1",
        idle="(D-1)(2T_F+T_I-T_W) under DualPipe's conditions",
    ),
)
