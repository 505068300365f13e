"""What ``ppopt solve`` prints for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ppopt.cli.render import figures, heading, new_table, number, percent, show, show_grid, show_named, unit
from ppopt.files import Model
from ppopt.files.result import gap
from ppopt.named import Row
from ppopt.pipeline import DataParallel, Pipeline
from ppopt.schedule import Schedule
from ppopt.timing import exposed_traffic

if TYPE_CHECKING:
    from ppopt.solve import Result
    from ppopt.study.placements import Placements

_LIMITS = {"time": "stopped at the time limit", "gap": "stopped at the gap", "interrupted": "interrupted"}


def show_result(model: Model, result: Result, binding: str | None, explain: bool) -> None:
    """The answer, its picture where it is small, and the named schedules beside it."""
    click.echo(heading(result.pipeline) + (f"; with the constraints of {binding}" if binding else ""))
    for line in answer(result):
        click.echo(line)
    if explain:
        show_steps(result)
    if result.schedule is not None:
        show_grid(result.schedule)
    if result.named:
        click.echo()
        show_named(result.pipeline, result.named, "Named schedules on this hardware", model.stands_for)
        for line in remarks(model, result):
            click.echo(line)


def answer(result: Result) -> list[str]:
    """Value, bound and proof in a few lines."""
    pipeline = result.pipeline
    unit = f" {pipeline.units.time}" if pipeline.units.time else ""
    stopped = f"; {_LIMITS[result.limit]}" if result.limit is not None else ""
    seconds = f"{result.seconds:.1f} s{stopped}"
    bound = f"{number(pipeline.time(result.lower_bound))}{unit}"
    if result.schedule is None or result.value is None:
        if result.reason == "infeasible":
            proof = f", proved by {result.proved_by}" if result.proved_by else ""
            return [f"infeasible: no schedule satisfies the model{proof} ({seconds})"]
        return [f"no schedule found; every schedule takes at least {bound} ({seconds})"]
    value = f"{result.objective} {number(pipeline.time(result.value))}{unit}"
    if result.reason == "optimal":
        lines = [f"{value}: optimal, proved by {result.proved_by} ({seconds})"]
    else:
        share = gap(result.value, result.lower_bound) or 0.0
        proof = f" by {result.proved_by}" if result.proved_by else ""
        idle = idle_gap(result.schedule, result.value, result.lower_bound)
        gaps = f"gap {percent(share)}" + (f", idle gap {percent(idle)}" if idle <= 1 else "")  # more: not even the work is proved
        lines = [f"{value}; lower bound {bound}{proof}, {gaps} ({seconds})"]
    makespan, span, bubble, span_bubble, peak = figures(result.schedule)
    lines.append(f"makespan {makespan}{unit}, device span {span}{unit}, bubble ratio {bubble}, span bubble ratio {span_bubble}")
    if pipeline.data_parallel != DataParallel():
        exposed = number(pipeline.time(exposed_traffic(result.schedule)))
        lines.append(f"all-gather and reduce-scatter make the makespan {exposed}{unit} longer")
    memory = f" {pipeline.units.memory}" if pipeline.units.memory else ""
    lines.append(f"peak memory {peak}{memory}")
    return lines


def idle_gap(schedule: Schedule, value: int, lower_bound: int) -> float:
    """``(value - lower_bound) / (value - max_d work_d)``: how much of the idle time might be avoidable."""
    idle = value - max(schedule.work)
    return (value - lower_bound) / idle if idle else 0.0


def remarks(model: Model, result: Result) -> list[str]:
    """What the named schedule that the model stands for costs against the answer, and rows of another placement that beat it."""
    if result.value is None:
        return []
    value = result.value / result.pipeline.ticks.per_unit
    rows = list(_fitting(result))
    lines = []
    for row, pipeline, time in rows:
        if row.name == model.stands_for and pipeline.routes == result.pipeline.routes:
            best = "the optimum" if result.reason == "optimal" else "the best found"
            against = "equals" if time == value else f"takes {percent(time / value - 1) if value else number(time)} more than"
            lines.append(f"{row.label} {against} {best}.")
    for row, pipeline, time in sorted(rows, key=lambda entry: entry[2]):
        if time < value and pipeline.routes != result.pipeline.routes:
            chunks = f" with {row.chunks} chunks" if row.chunks > 1 else ""
            lines.append(
                f"{row.label} ({number(time)}) is faster, on another placement: {row.placement}{chunks}; "
                f"the answer and its bound are for {placed(result.pipeline)}."
            )
    return lines


def placed(pipeline: Pipeline) -> str:
    """A placement in words."""
    return pipeline.placement + (f" with {pipeline.chunks} chunks" if pipeline.chunks > 1 else "")


def _fitting(result: Result) -> Iterator[tuple[Row, Pipeline, float]]:
    """The named schedules within the memory limit: row, pipeline on its placement, objective in the user's unit."""
    for row in result.named:
        if row.schedule is not None and row.within_memory:
            pipeline = row.schedule.pipeline
            yield row, pipeline, row.schedule.objective(result.objective) / pipeline.ticks.per_unit


def show_placements(found: Placements) -> None:
    """What each placement has reached and what is proved of it, and what that says of all of them."""
    best, unit_ = found.best, found.best.pipeline.units.time
    table = new_table("Placements", ["placement", "chunks"], [unit(best.objective, unit_), "lower bound", "seconds"], ["proof"])
    for result in found.results:
        time = result.pipeline.time
        value = "" if result.value is None else number(time(result.value))
        proof = result.proved_by or "" if result.reason == "optimal" else result.reason
        if result.reason == "feasible" and result.limit is None:
            proof = "cannot beat the best"
        figures_ = [value, number(time(result.lower_bound)), f"{result.seconds:.1f}"]
        table.add_row(result.pipeline.placement, str(result.pipeline.chunks), *figures_, proof)
    show(table)
    if found.proved:
        click.echo(f"None of these placements has anything better than {placed(best.pipeline)}.")
    else:
        click.echo(f"One of these placements may have something better; all take at least {number(found.bound)}.")


def show_steps(result: Result) -> None:
    """The steps of the solution and their times."""
    table = new_table("Steps", ["step"], ["seconds"], ["outcome"])
    for step in result.steps:
        table.add_row(step.name, f"{step.seconds:.2f}", step.outcome)
    show(table)
