"""A step of a run beside its plan: what took longer, what came later, and what it waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from statistics import median, quantiles
from typing import NamedTuple

import numpy as np

from ppopt.files.model import ModelError
from ppopt.files.recorded import ProfileError
from ppopt.files.torch_export import for_torch
from ppopt.op import Kind, Op, Pair
from ppopt.pipeline import microseconds
from ppopt.pipeline.runtimes import NotForTorch
from ppopt.runs.clocks import halves, needs
from ppopt.runs.run import Run
from ppopt.runs.timeline import RunSchedule, schedule_of
from ppopt.schedule import Schedule
from ppopt.timing.waits import Wait, Waited


@dataclass(frozen=True)
class Figures:
    """What the operations of a kind took on a device, in the unit of the plan; ``planned``: their median in the plan."""

    device: int
    kind: str
    count: int
    median: float
    low: float
    high: float
    """The middle half is from ``low`` to ``high``."""
    planned: float | None
    deviation: float | None
    """By how much an operation took longer than planned, as a part of that: the median over all of them."""


@dataclass(frozen=True)
class Late:
    """An operation that began later than planned; times in the unit of the plan."""

    op: str
    device: int
    planned: float
    began: float
    took: float
    planned_took: float
    waited_for: str | None
    """What it waited for: the last to end of the operation before it on its device and of what it needs. ``None``: nothing."""
    waited_device: int | None
    waited_late: float
    """By how much that ended later than planned."""
    planned_wait: tuple[str, ...]
    """What it would have waited for by the plan: ``data``, ``device``, ``memory``, ``link``, ``gather``."""

    @property
    def late(self) -> float:
        """By how much it began later than planned."""
        return self.began - self.planned

    @property
    def between(self) -> float:
        """How much of that came up between the end of what it waited for and its begin."""
        return self.late - self.waited_late

    @property
    def longer(self) -> float:
        """How much longer it took than planned."""
        return self.took - self.planned_took

    @property
    def added(self) -> float:
        """How much later its end is than the end of what it waited for, each beside the plan."""
        return self.between + self.longer


class _Times(NamedTuple):
    device: int
    begin: float
    end: float


@dataclass(frozen=True)
class Beside:
    """A run and its plan, both from the begin of their first operation."""

    run: Run
    measured: RunSchedule
    plan: Schedule
    notes: tuple[str, ...]

    @cached_property
    def planned(self) -> float:
        """From the begin of the first operation of the plan to the end of its last one; without all-gathers, reduce-scatters and
        the optimizer, which files of runs do not show."""
        return max(times.end for times in _times(self.plan).values())

    @property
    def unit(self) -> str:
        """Of all times."""
        return self.plan.pipeline.units.time

    @cached_property
    def _ran(self) -> dict[Op, _Times]:
        return _times(self.measured)

    @cached_property
    def _planned(self) -> dict[Op, _Times]:
        """By operation of the run; a backward that only one of both has in two parts is that of its parts."""
        times = _times(self.plan)
        for op in self._ran:
            if op in times or op.kind == Kind.F:
                continue
            whole, first, second = (op._replace(kind=kind) for kind in (Kind.B, Kind.I, Kind.W))
            if op.kind == Kind.B and first in times and second in times:
                device, begin, end = times[first]
                times[op] = _Times(device, begin, end + times[second].end - times[second].begin)
            elif op.kind == Kind.I and whole in times:
                times[op] = times[whole]
        return times

    @cached_property
    def lateness(self) -> tuple[Late, ...]:
        """All operations that were planned, with how late they were, in the order of their begin."""
        found = []
        waits = _planned_waits(self.plan)
        for device, row in enumerate(self.run.rows):
            before: Op | None = None
            for each in row:
                half = halves(each.op)[0]
                if half in self._planned:
                    found.append(self._late(device, each.op, before, waits))
                before = half
        return tuple(sorted(found, key=lambda late: late.began))

    def _late(self, device: int, op: Op | Pair, before: Op | None, waits: dict[Op, tuple[str, ...]]) -> Late:
        parts = halves(op)
        ran, planned = self._ran[parts[0]], self._planned[parts[0]]
        inputs = [need for half in parts for need in needs(half, self.run.stages) if need in self._ran]
        candidates = [each for each in (before, *inputs) if each is not None]
        last = max(candidates, key=lambda each: self._ran[each].end, default=None)
        known = last is not None and last in self._planned
        return Late(
            str(op),
            device,
            planned.begin,
            ran.begin,
            ran.end - ran.begin,
            planned.end - planned.begin,
            None if last is None else str(last),
            None if last is None else self._ran[last].device,
            self._ran[last].end - self._planned[last].end if known and last is not None else 0.0,
            waits.get(parts[0], ()),
        )

    @property
    def late(self) -> list[Late]:
        """Those that began later than planned, the ones first at which most was added."""
        return sorted((each for each in self.lateness if each.late > 0), key=lambda each: -each.added)

    @cached_property
    def path(self) -> list[Late]:
        """From the operation that ended last back to the first one, each with what it waited for; in the order of time.

        What was added on it is together how much later than planned the step ended, as far as the plan ends with the same
        operation.
        """
        by_op = {str(half): each for each in self.lateness for half in _halves_of(each.op)}
        last = max(self.lateness, key=lambda each: each.began + each.took)
        path, seen = [last], {last.op}
        while (before := path[-1].waited_for) in by_op and by_op[before].op not in seen:
            path.append(by_op[before])
            seen.add(by_op[before].op)
        return path[::-1]

    def figures(self) -> list[Figures]:
        """What operations took, by device and kind, beside the plan."""
        return figures_of(self.measured, {op: times.end - times.begin for op, times in self._planned.items()})


def _halves_of(text: str) -> Iterable[str]:
    """The texts of an operation, or of the two of a pair."""
    return text[1:].partition(")")[0].split(";") if text.startswith("(") else (text,)


def figures_of(schedule: RunSchedule, planned: dict[Op, float] | None = None) -> list[Figures]:
    """What operations took, by device and kind; ``planned``: what they take in the plan."""
    pipeline = schedule.pipeline
    groups: dict[tuple[int, str], list[tuple[Op, float]]] = {}
    for device in range(pipeline.devices):
        for op, ticks in zip(schedule.order.ops(device), schedule.took[device].tolist(), strict=True):
            kind = "F + B" if isinstance(op, Pair) else op.kind.name
            groups.setdefault((device, kind), []).append((halves(op)[0], ticks / pipeline.ticks.per_unit))
    found = []
    order = ["F", "B", "I", "W", "F + B"]
    for (device, kind), members in sorted(groups.items(), key=lambda item: (item[0][0], order.index(item[0][1]))):
        times = [time for _, time in members]
        low, _, high = quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
        there = [(time, planned[op]) for op, time in members if op in planned] if planned else []
        ratios = [time / plan - 1 for time, plan in there if plan > 0]
        expected = median(plan for _, plan in there) if there else None
        deviation = median(ratios) if ratios else None
        found.append(Figures(device, kind, len(times), median(times), low, high, expected, deviation))
    return found


def beside(run: Run, plan: Schedule) -> Beside:
    """A run beside its plan.

    Where the run has the operations that the plan has as PyTorch runs it (:func:`~ppopt.files.torch_export.for_torch`), it is
    compared with that.

    Raises:
        ProfileError: they are of other sizes or placements.
        ModelError: the plan's unit of time is not known.
    """
    pipeline = plan.pipeline
    if microseconds(pipeline.units.time) is None:
        problem = (
            f"expected a unit of time such as ms, got {pipeline.units.time!r}; the times of a run can be compared with no other"
        )
        raise ModelError("the plan", "units.time", problem)
    _check_sizes(run, plan)
    known, notes = _as_it_ran(run, plan)
    held = known.pipeline.flat().written_out().per_stage()
    measured = schedule_of(run, pipeline.units.time, held)
    if known.margins:
        notes.append("what the plan does before its first and after its last operation is left out, as the files do not show it")
    return Beside(run, measured, known, (*notes, *_differences(run, known)))


def _check_sizes(run: Run, plan: Schedule) -> None:
    pipeline = plan.pipeline
    sizes = (len(run.held), run.stages, run.microbatches)
    planned = (pipeline.devices, pipeline.stages, pipeline.microbatches)
    if sizes != planned:
        ours, theirs = (f"{d} devices, {s} stages and {m} microbatches" for d, s, m in (sizes, planned))
        raise ProfileError(f"the run has {ours}; the plan has {theirs}")
    if len(pipeline.ways) > 1:
        raise ProfileError("the plan has two routes (two copies of the weights); a run with one cannot be compared with it")
    if pipeline.backward_routes:
        raise ProfileError("the plan runs backwards on other devices than their forwards; a run cannot be compared with it")
    wrong = [stage for stage, device in enumerate(run.route) if pipeline.routes[0][stage] != device]
    if wrong:
        stage = wrong[0]
        planned_on = pipeline.routes[0][stage]
        hint = "; --placement says where the chunks of a Primus dump are" if run.format.startswith("Primus") else ""
        raise ProfileError(f"stage {stage} ran on device {run.route[stage]}; the plan has it on device {planned_on}{hint}")


def _as_it_ran(run: Run, plan: Schedule) -> tuple[Schedule, list[str]]:
    """The plan, or what was exported for PyTorch of it where the run agrees with that more."""
    try:
        exported = for_torch(plan)
    except NotForTorch:
        return plan, []
    ran = [[str(each.op) for each in row] for row in run.rows]

    def agreement(schedule: Schedule) -> int:
        return sum(sum(a == b for a, b in zip(*rows, strict=False)) for rows in zip(ran, schedule.order.texts(), strict=True))

    if agreement(exported.schedule) <= agreement(plan):
        return plan, []
    changed = [note for note in exported.notes if not note.startswith("PyTorch computes nothing")]
    return exported.schedule, [f"compared with the plan as it is exported for PyTorch: {'; '.join(changed)}"]


def _differences(run: Run, plan: Schedule) -> list[str]:
    """What is to be said of another order than the planned one."""
    notes = []
    for device, (ran, planned) in enumerate(zip(run.rows, plan.order.texts(), strict=True)):
        texts = [str(each.op) for each in ran]
        if not ran or texts == planned:
            continue
        if sorted(texts) == sorted(planned):
            place = next(i for i, (a, b) in enumerate(zip(texts, planned, strict=True)) if a != b)
            notes.append(f"device {device} ran another order from place {place + 1} on: {texts[place]}, planned {planned[place]}")
        else:
            other = len(set(texts) - set(planned))
            notes.append(f"device {device} ran {other} operation{'s' * (other != 1)} that the plan does not have")
    return notes


def _times(schedule: Schedule) -> dict[Op, _Times]:
    """When every single operation begins and ends, in the unit, from the begin of the first one on."""
    per_unit = Fraction(schedule.pipeline.ticks.per_unit)
    zero = min(int(row.min()) for row in schedule.start if len(row))
    found = {}
    for device in range(schedule.pipeline.devices):
        columns = (schedule.start[device].tolist(), schedule.end[device].tolist())
        for op, start, end in zip(schedule.order.ops(device), *columns, strict=True):
            for half in halves(op):
                found[half] = _Times(device, float((start - zero) / per_unit), float((end - zero) / per_unit))
    return found


_WAITS = (Wait.DATA, Wait.DEVICE, Wait.MEMORY, Wait.LINK, Wait.GATHER)


def _planned_waits(plan: Schedule) -> dict[Op, tuple[str, ...]]:
    found = {}
    for device, flags in enumerate(Waited(plan).operations):
        for op, flag in zip(plan.order.ops(device), np.asarray(flags).tolist(), strict=True):
            for half in halves(op):
                found[half] = tuple(str(wait.name).lower() for wait in _WAITS if flag & wait)
    return found


def shares(path: Sequence[Late]) -> tuple[float, float]:
    """What operations on a path took longer than planned, all together, and what more passed between them."""
    return sum(each.longer for each in path), sum(each.between for each in path)
