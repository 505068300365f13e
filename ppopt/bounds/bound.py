"""What a lower bound is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule

Objective: TypeAlias = Literal["makespan", "span"]


@dataclass(frozen=True)
class Bound:
    """No schedule is shorter than ``value`` ticks.

    ``argument`` names the argument ("work", "one-machine", "memory", "window certificate", "event graph"), ``proof`` gives its
    figures in words. ``schedule``: one that comes with the argument, if any; often as short.
    """

    value: int
    argument: str
    proof: str = ""
    schedule: Schedule | None = None


def pairs_save_time(pipeline: Pipeline) -> bool:
    """Whether some overlapped pair is shorter than its forward and its backward run one after the other.

    The bounds count each half in full, so they hold for schedules with pairs only where this is false. A free solve has no
    pairs; a named order with pairs (DualPipe) has.
    """
    ticks = pipeline.ticks
    for overlap, duration, route in zip(ticks.overlap, ticks.duration, pipeline.routes, strict=True):
        for stage, device in enumerate(route):
            backward = max(
                int(ticks.duration[r, Kind.B, s])
                for r, other in enumerate(pipeline.routes)
                for s, of in enumerate(other)
                if of == device
            )
            if 0 <= overlap[stage] < duration[Kind.F, stage] + backward:
                return True
    return False


def check_objective(objective: str) -> None:
    """Raise ``ValueError`` unless ``objective`` is ``makespan`` or ``span``."""
    if objective not in ("makespan", "span"):
        raise ValueError(f'objective: expected "makespan" or "span", got {objective!r}')
