"""A step of a real run: its operations, device by device, on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ppopt.files.blocks import NO_BLOCK
from ppopt.files.ranks import by_device, missing_ranks, stages_of
from ppopt.files.recorded import Clock, ProfileError, Ran, Recorded, read_files
from ppopt.op import Kind, Op
from ppopt.runs.clocks import Clocks, How, aligned, halves, moved

ROUNDING = 1e-6, 0.01
"""Seconds, or part of the shorter one, by which two operations of a device may seem to run at once."""


@dataclass(frozen=True)
class Run:
    """One step of a run; times are in seconds from the begin of its first operation."""

    format: str
    sources: tuple[str, ...]
    """The files of the ranks that are shown."""
    held: tuple[tuple[int, ...], ...]
    """Per device, its stages."""
    microbatches: int
    step: int
    lengths: dict[int, float]
    """Of each step that the files have, how long the busiest rank was at it."""
    rows: tuple[tuple[Ran, ...], ...]
    """Per device what it ran, in the order of time; empty where no file is of it."""
    clocks: Clocks
    warnings: tuple[str, ...]

    @property
    def stages(self) -> int:
        """S."""
        return 1 + max(stage for stages in self.held for stage in stages)

    @property
    def route(self) -> tuple[int, ...]:
        """The device of each stage."""
        home = {stage: device for device, stages in enumerate(self.held) for stage in stages}
        return tuple(home[stage] for stage in range(self.stages))


def read_run(
    paths: Sequence[str],
    *,
    step: int | None = None,
    skip: int = 1,
    clocks: How = "auto",
    placement: str | None = None,
    group_size: int | None = None,
) -> Run:
    """A step of a run from the files of its ranks, in any of the formats that ``ppopt profile`` reads.

    ``step``: its number in the files; by default the one of median length, without the first ``skip`` where there are more. Of
    several ranks that are one device, the first is taken. ``placement``, ``group_size``: see
    :func:`~ppopt.files.recorded.read_files`.

    Raises:
        ProfileError: a file cannot be read, has no begins, they do not go together, or have no such step.
    """
    files = read_files(paths, 0, NO_BLOCK, placement=placement, group_size=group_size)
    for file in files:
        if not file.steps:
            raise ProfileError(f"{file.source}: does not say when operations began; record it again with StageTimer")
    formats = {file.format: file.source for file in files}
    if len(formats) > 1:
        (one, first), (other, second) = list(formats.items())[:2]
        raise ProfileError(f"{first} is one of {one}, {second} of {other}; give the files of one run")
    groups = by_device(files)
    held = stages_of(groups)
    shown = [_of_first_rank(group) for group in groups]
    warnings = missing_ranks(files, groups)
    if more := sum(map(len, groups)) - sum(map(len, shown)):
        warnings.append(f"several ranks are one device; the first of each is shown, {more} file{'s' * (more > 1)} left out")
    steps = [_steps(group, device) for device, group in enumerate(shown)]
    lengths = _lengths(steps)
    whole = [number for number in lengths if not _missing(steps, held, files[0].microbatches, number)]
    step = _chosen(lengths, whole, skip) if step is None else step
    if step not in lengths:
        raise ProfileError(f"{files[0].source}: there is no step {step} in all files; expected one of {_numbers(lengths)}")
    if gone := _missing(steps, held, files[0].microbatches, step):
        shown_ops = ", ".join(map(str, gone[:5])) + ", …" * (len(gone) > 5)
        warnings.append(f"step {step} lacks {len(gone)} operation{'s' * (len(gone) > 1)}: {shown_ops}")
    rows = [of.get(step, []) for of in steps]
    _check_order(rows, step)
    basis = files[0].clock
    rows = _on_one_zero(rows, shown, basis)
    found = aligned(rows, 1 + max(max(stages, default=0) for stages in held), basis, clocks)
    rows = moved(rows, found.offsets)
    zero = min(row[0].begin for row in rows if row)
    rows = moved(rows, [-zero] * len(rows))
    sources = tuple(file.source for group in shown for file in group)
    placed = tuple(tuple(row) for row in rows)
    return Run(files[0].format, sources, held, files[0].microbatches, step, lengths, placed, found, tuple(warnings))


def _of_first_rank(group: Sequence[Recorded]) -> list[Recorded]:
    """The files of one rank alone."""
    first = min(((file.replica, file.rank or 0) for file in group), default=None)
    return [file for file in group if (file.replica, file.rank or 0) == first]


def _steps(files: Sequence[Recorded], device: int) -> dict[int, list[Ran]]:
    """The steps of a device; those of a second file come after those of the first."""
    found: dict[int, list[Ran]] = {}
    for file in files:
        last = max(found, default=0)
        found |= {number + (last if found else 0): ran for number, ran in file.steps.items()}
    return found


def _lengths(steps: Sequence[dict[int, list[Ran]]]) -> dict[int, float]:
    """Of each step that all devices have, the longest time from the first begin to the last end on a device."""
    there = [of for of in steps if of]
    return {
        number: max(max(each.end for each in of[number]) - of[number][0].begin for of in there)
        for number in sorted(set.intersection(*(set(of) for of in there)))
        if all(of[number] for of in there)
    }


def _chosen(lengths: dict[int, float], whole: Sequence[int], skip: int) -> int:
    """The step of median length among the whole ones, if there are any, without the first ones, if there are others."""
    numbers = [number for number in whole or lengths if number not in list(lengths)[:skip]] or list(whole) or list(lengths)
    if not numbers:
        raise ProfileError("the files have no step in common; give the files of one run")
    return sorted(numbers, key=lambda number: lengths[number])[(len(numbers) - 1) // 2]


def _numbers(lengths: dict[int, float]) -> str:
    numbers = list(lengths)
    return ", ".join(map(str, numbers)) if len(numbers) < 9 else f"{numbers[0]} to {numbers[-1]}"


def _missing(steps: Sequence[dict[int, list[Ran]]], held: Sequence[Sequence[int]], microbatches: int, number: int) -> list[Op]:
    """What of a whole step is not in the files of those devices that have any."""
    gone = []
    for of, stages in zip(steps, held, strict=True):
        ran = {half for each in of.get(number, ()) for half in halves(each.op)}
        for stage in stages if of else ():
            for m in range(microbatches):
                backward, parts = Op(stage, Kind.B, m), (Op(stage, Kind.I, m), Op(stage, Kind.W, m))
                split = any(part in ran for part in parts)
                gone += [op for op in (Op(stage, Kind.F, m), *(parts if split else (backward,))) if op not in ran]
    return gone


def _check_order(rows: Sequence[list[Ran]], step: int) -> None:
    """Raise where a device runs two operations at once; what is rounding is cut off in place.

    Raises:
        ProfileError: it does.
    """
    for device, row in enumerate(rows):
        for i in range(1, len(row)):
            before, after = row[i - 1], row[i]
            over = before.end - after.begin
            if over <= 0:
                continue
            if over > max(ROUNDING[0], ROUNDING[1] * min(before.end - before.begin, after.end - after.begin)):
                times = (f"{each.op} from {1000 * each.begin:.6g} to {1000 * each.end:.6g} ms" for each in (before, after))
                raise ProfileError(f"device {device} ran two operations at once in step {step}: {' and '.join(times)}")
            row[i] = after._replace(begin=before.end, end=max(before.end, after.end))


def _on_one_zero(rows: Sequence[list[Ran]], files: Sequence[Sequence[Recorded]], basis: Clock) -> list[list[Ran]]:
    """Times of hosts' clocks from one zero; those of others as they are."""
    if basis != Clock.HOST:
        return list(rows)
    zeros = [group[0].zero if group else None for group in files]
    first = min(zero for zero in zeros if zero is not None)
    return moved(rows, [0.0 if zero is None else (zero - first) / 1e9 for zero in zeros])
