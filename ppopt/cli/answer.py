"""What ``ppopt solve`` says: notes before it, the answer, and the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ppopt.cli.options import Given
from ppopt.text import place

if TYPE_CHECKING:
    from ppopt.named import Model
    from ppopt.search import Binding, Result
    from ppopt.search.second_opinion import Opinion

CODES = {"optimal": 0, "feasible": 0, "infeasible": 3, "no-solution": 4}
"""Reason -> exit code."""
INTERRUPTED = 130


def tell_placement(given: Given, model: Model, binding: Binding) -> None:
    """Say it where the schedule that binds is not on the model's placement; refuse it where the command line gave that."""
    moved = binding.read(model).moved(model.pipeline)
    if moved is None:
        return
    if given.placed:
        raise click.UsageError(
            f"--order {binding.schedule} runs on its own placement, {place(moved)}; the command line gives another"
        )
    click.echo(f"Note: {binding.schedule} is solved on its own placement, {place(moved)}.", err=True)


def exit_code(result: Result) -> int:
    """The documented exit code; of several numbers of microbatches the worst."""
    if result.points:
        return max(map(exit_code, result.points))
    interrupted = result.schedule is None and result.limit == "interrupted"
    return INTERRUPTED if interrupted else CODES[result.reason]


def show_result(result: Result, explain: bool, opinion: Opinion | None) -> None:
    """The answer, its picture where it is small, and the named schedules beside it."""
    from ppopt.cli.render import show_grid, width
    from ppopt.search import summary

    if result.points:
        click.echo(summary.points_text(result))
        for point in result.points if explain else ():
            click.echo(f"{point.pipeline.microbatches} microbatches:\n{summary.steps_text(point)}")
        return
    click.echo("\n".join([summary.title(result), *summary.answer(result)]))
    if explain:
        click.echo(summary.steps_text(result))
    if result.schedule is not None:
        show_grid(result.schedule)
    if len(result.named):
        click.echo(f"\n{result.named.text('Named schedules on this hardware', width())}")
    for line in summary.remarks(result):
        click.echo(line)
    if len(result.placements) > 1:
        click.echo("\n".join([summary.placements_text(result), *summary.scope_lines(result)]))
    for line in [] if opinion is None else summary.opinion_lines(result, opinion):
        click.echo(line)
