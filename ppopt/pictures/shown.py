"""What pictures and pages show of a schedule besides its bars: its title, and what a solver has proved of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from ppopt.files import FileError, Model
from ppopt.files.exported import shown_in
from ppopt.files.result import binding_dict, outcome_dict
from ppopt.named import Row, find
from ppopt.named.verified import verified
from ppopt.pipeline import BEST, CHOOSE, Pipeline
from ppopt.schedule import Number, Objective, Schedule
from ppopt.search.result import Result
from ppopt.text import percent, place

Drawn: TypeAlias = Result | Row | Schedule | str
"""What can be drawn: what was solved, a row of a comparison, a schedule, or the path of a result (JSON) or an order (CSV)."""


class Undrawable(ValueError):
    """What is asked of a picture or a page cannot be drawn; says why."""


class Proof(NamedTuple):
    """What a solver says of a schedule, in the user's unit."""

    reason: str
    objective: Objective
    lower_bound: Number
    proved_by: str | None
    scope: str
    """What it holds over, in words."""


@dataclass(frozen=True)
class Shown:
    """A schedule that has passed the checker, with its title; ``proof``: what is proved of it, where it is an answer."""

    title: str
    schedule: Schedule
    proof: Proof | None = None
    source: str = ""
    """The file that it is from; empty: none."""

    @property
    def value(self) -> Number:
        """The objective of the proof, else the makespan, in the user's unit."""
        ticks = self.schedule.objective("makespan" if self.proof is None else self.proof.objective)
        return self.schedule.pipeline.time(ticks)

    @property
    def end(self) -> float:
        """When the last device ends, in the user's unit."""
        return end_time(self.schedule)

    @property
    def gap(self) -> float | None:
        """``(value - lower_bound) / value``; ``None`` without a proof."""
        value = self.value
        return None if self.proof is None else (value - self.proof.lower_bound) / value if value else 0.0


def end_time(schedule: Schedule) -> float:
    """When the last device ends, in the user's unit."""
    return float(schedule.pipeline.time(max(span[1] for span in schedule.spans if span)))


def shown(
    drawn: Drawn | Sequence[Drawn],
    model: Model | None = None,
    change: Callable[[Model], Model] = lambda model: model,
    *,
    labels: Sequence[str] = (),
    beside: Sequence[str] = (),
) -> list[Shown]:
    """What is to be drawn, checked and titled; then the named schedules ``beside`` it, on the hardware of the first.

    Files have a result's own model, or unit costs, unless ``model`` is given; ``change`` is made to either. A result whose model
    was changed has no proof any more. ``labels`` are titles, first come, first served. Two of the same title have the names of
    their files too, where they are from files.

    Raises:
        Undrawable: there is no schedule to draw, or there are more labels than schedules.
        FileError: a file cannot be read.
        Restriction, UnknownSchedule: a schedule beside it is not defined on this hardware, or nobody has its name.
    """
    several = [drawn] if isinstance(drawn, Result | Row | Schedule | str | os.PathLike) else drawn
    found = [_shown(each, model, change) for each in several]
    if not found:
        raise Undrawable("a picture needs at least one schedule")
    found += [named_beside(found[0], name) for name in beside]
    if len(labels) > len(found):
        raise Undrawable(f"there are {len(labels)} labels for {len(found)} schedule{'s' * (len(found) > 1)}")
    twice = {title for title, count in Counter(each.title for each in found).items() if count > 1}
    found = [
        replace(each, title=f"{each.title} ({each.source})") if each.title in twice and each.source else each for each in found
    ]
    titled = [replace(each, title=label) for each, label in zip(found, labels, strict=False)]
    return titled + found[len(titled) :]


def named_beside(first: Shown, name: str) -> Shown:
    """A named schedule on the devices of another, at the same costs per device.

    Raises:
        Restriction, UnknownSchedule: it is not defined on this hardware, or nobody has its name.
    """
    pipeline, definition = first.schedule.pipeline, find(name)
    return Shown(definition.name, verified(definition.schedule(pipeline), definition.name))


def _shown(drawn: Drawn, model: Model | None, change: Callable[[Model], Model]) -> Shown:
    if isinstance(drawn, str | os.PathLike):
        return _of_file(os.fspath(drawn), model, change)
    if isinstance(drawn, Schedule):
        return Shown(drawn.pipeline.name or "schedule", verified(drawn, "the schedule"))
    proof = None
    title = drawn.label if isinstance(drawn, Row) else ": ".join(filter(None, (drawn.pipeline.name, drawn.reason)))
    if drawn.schedule is None:
        raise Undrawable(f"{title}: there is no schedule to draw")
    if isinstance(drawn, Result):
        binding = None if drawn.order is None else binding_dict(drawn.order)
        proof = _proof(drawn.pipeline, outcome_dict(drawn) | {"binding": binding})
    return _titled(drawn.schedule, title, proof)


def _of_file(path: str, model: Model | None, change: Callable[[Model], Model]) -> Shown:
    file = shown_in(path, model, change)
    stem, source = "order" if path == "-" else os.path.splitext(os.path.basename(path))[0], os.path.basename(path)
    schedule, outcome = file.schedule, file.outcome
    own = schedule.pipeline.name
    if outcome is None:
        verified(schedule, path)
        name = (None if file.searched else file.model.schedule) or stem
        return Shown(name if own in ("", name) else f"{own}: {name}", schedule, source=source)
    proof = _proof(schedule.pipeline, outcome)
    _check(schedule, proof, path)
    return replace(_titled(schedule, stem, proof), source=source)


def _titled(schedule: Schedule, title: str, proof: Proof | None) -> Shown:
    """With the name of the pipeline and what is proved as title, where a solver has said something; ``title`` where it has not,
    or where there is no name."""
    if proof is None:
        return Shown(title, schedule)
    untitled = Shown(title, schedule, proof)
    gap = untitled.gap or 0.0
    said = "optimal" if proof.reason == "optimal" else f"best found, gap {percent(gap)}"
    return replace(untitled, title=f"{schedule.pipeline.name or title}: {said}".removeprefix(": "))


def _proof(pipeline: Pipeline, outcome: Mapping[str, Any]) -> Proof:
    """What a solver says of its answer for a pipeline; ``outcome``: the ``result`` of a file, with the ``binding``."""
    scope = f"on {place(pipeline)}" if outcome.get("scope") is None else _left_open(outcome["scope"])
    bound, runtime = outcome.get("binding"), outcome.get("runtime")
    if bound is not None:
        scope += f" under {bound['schedule']}" + (f", its {' and '.join(bound['free'])} free" if bound["free"] else "")
    if outcome.get("constraints"):
        scope += " under constraints of the user's own"
    if runtime is not None:
        scope += f", of what {runtime['name']} runs"
    return Proof(outcome["reason"], outcome["objective"], outcome["lower_bound"], outcome["proved_by"], scope)


def _left_open(scope: Mapping[str, Any]) -> str:
    """All that was left open, in words."""
    chunks = [count for count in scope["chunks"] if count > 1]
    words = " or ".join(scope["placements"]) + (f" with {' or '.join(map(str, chunks))} chunks" if chunks else "")
    cut = ", any cut" if scope.get("partition") == BEST else ""
    recompute = ", whatever recomputes" if scope["recompute"] == CHOOSE else ""
    return f"on {words}{cut}{recompute}"


def _check(schedule: Schedule, proof: Proof, path: str) -> None:
    """Raise where a file says that its schedule is better than possible.

    Raises:
        FileError: it does.
    """
    value = Shown("", schedule, proof).value
    if value < proof.lower_bound * (1 - 1e-9):
        problem = f"is more than the {proof.objective} of the schedule, {value}; `ppopt check` says what is wrong"
        raise FileError(f"{path}: result.lower_bound: {proof.lower_bound} {problem}")
