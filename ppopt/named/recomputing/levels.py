"""How many layers of each stage recompute at which level: as few as fit the memory, for a named schedule."""

from __future__ import annotations

from collections.abc import Callable

from ppopt.pipeline import Pipeline, PipelineError
from ppopt.pipeline.recompute_choices import Choice, RecomputeChoices
from ppopt.schedule import Schedule


def least_levels(pipeline: Pipeline, made: Callable[[Pipeline], Schedule]) -> Schedule:
    """The schedule that ``made`` gives with as little recomputing as fits the memory.

    Without recomputing where that fits. Else the stages of a device recompute more and more, one stage after the other, the
    first stage first since it holds its activations longest; every device recomputes the least on that way that fits, by
    bisection of all devices at once. Where the order is made from the costs, less may fit after all, or no more than the most.
    Where even the most does not fit, the schedule is over the limit.

    Raises:
        PipelineError: there is no room for a microbatch, whatever recomputes.
    """
    choices = RecomputeChoices(pipeline)
    first = _made(choices, choices.lowest, made)
    if first is not None and first.within_memory:
        return first
    best = made(choices.resolved(choices.highest))
    if not best.within_memory:
        return best
    ways = _Ways(pipeline, choices)
    low, high = [0] * pipeline.devices, ways.ends
    while any(a < b for a, b in zip(low, high, strict=True)):
        middle = [(a + b) // 2 for a, b in zip(low, high, strict=True)]
        found = _made(choices, ways.choice(middle), made)
        for device in range(pipeline.devices):
            if low[device] < high[device]:
                # what no microbatch fits in says nothing of single devices: each has to recompute more
                fits = found is not None and _fits(found, best, device)
                low[device], high[device] = (low[device], middle[device]) if fits else (middle[device] + 1, high[device])
        if found is not None and found.within_memory:
            best = found
    last = _made(choices, ways.choice(high), made)
    return last if last is not None and last.within_memory else best


class _Ways:
    """For each device the choices of its stages, from what takes no time to what saves most."""

    def __init__(self, pipeline: Pipeline, choices: RecomputeChoices) -> None:
        self.highest = choices.highest
        device_of = {stage: device for route in pipeline.routes for stage, device in enumerate(route)}
        self.stages = [[s for s, d in device_of.items() if d == device] for device in range(pipeline.devices)]

    @property
    def ends(self) -> list[int]:
        """The length of each way."""
        return [sum(self.highest[stage] for stage in own) for own in self.stages]

    def choice(self, steps: list[int]) -> Choice:
        """What the stages recompute after so many steps of each device."""
        found = [0] * len(self.highest)
        for own, left in zip(self.stages, steps, strict=True):
            for stage in own:
                found[stage] = min(left, self.highest[stage])
                left -= found[stage]
        return tuple(found)


def _fits(found: Schedule, best: Schedule, device: int) -> bool:
    """Whether a device keeps the limit that it has in ``best``; all have the host's in common, where that is the only one."""
    amounts, limited = found.pipeline.amounts, best.pipeline.amounts
    if limited.limit is None:
        return found.within_memory
    return found.peak_memory[device] * limited.per_unit <= int(limited.limit[device]) * amounts.per_unit


def _made(choices: RecomputeChoices, choice: Choice, made: Callable[[Pipeline], Schedule]) -> Schedule | None:
    """The schedule with a choice; ``None``: there is no room for a microbatch."""
    try:
        return made(choices.resolved(choice))
    except PipelineError:
        return None
