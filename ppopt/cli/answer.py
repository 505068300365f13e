"""What ``ppopt solve`` says: notes before it, the answer, and the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ppopt.cli.options import Given
from ppopt.text import place, wrapped

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


def tell_untried(result: Result) -> None:
    """Say what might have something better and was not begun."""
    from ppopt.search import summary

    if result.untried:
        click.echo(f"{summary.stopped(result)} before these were begun: {', '.join(result.untried)}.", err=True)


def exit_code(result: Result) -> int:
    """The documented exit code; of several numbers of microbatches the worst."""
    if result.points:
        return max(map(exit_code, result.points))
    interrupted = result.schedule is None and result.limit == "interrupted"
    return INTERRUPTED if interrupted else CODES[result.reason]


def show_result(
    result: Result, explain: bool, opinion: Opinion | None, text: str | None = None, columns: tuple[str, ...] | None = None
) -> None:
    """The ``text`` that is asked for (JSON); or the answer, its picture where it is small, and the named schedules beside it,
    with these ``columns``."""
    if text is not None:
        click.echo(text, nl=False)
        return
    from ppopt.cli.render import show_grid, shown, styled, width
    from ppopt.search import summary

    if result.points:
        click.echo(shown(summary.points_table(result)))
        for point in result.points if explain else ():
            click.echo(f"{point.pipeline.microbatches} microbatches:\n{shown(summary.steps_table(point))}")
        return
    lines = [summary.best_line(result), summary.title(result), *summary.answer(result)]
    click.echo("\n".join(wrapped(line, width()) for line in lines if line))
    if explain:
        click.echo(shown(summary.steps_table(result)))
    if result.schedule is not None:
        show_grid(result.schedule)
    if len(result.named):
        answer = summary.answer_row(result)
        title = "Named schedules on this hardware" if answer is None else "The answer among the named schedules on this hardware"
        shown_rows = result.named.text(
            title, width(), answer=answer, objective=result.objective, styled=styled(), columns=columns
        )
        click.echo(f"\n{shown_rows}")
    for line in summary.remarks(result):
        click.echo(wrapped(line, width()))
    if len(result.placements) > 1:
        click.echo(shown(summary.placements_table(result)))
        click.echo("\n".join(wrapped(line, width()) for line in summary.scope_lines(result)))
    for line in [] if opinion is None else summary.opinion_lines(result, opinion):
        click.echo(wrapped(line, width()))
