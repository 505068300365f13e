"""``ppopt solve --microbatches 8..1024``: one table over the numbers of microbatches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppopt.pipeline import Pipeline

if TYPE_CHECKING:
    from ppopt.search import Result


def solve_all(
    pipeline: Pipeline, counts: tuple[int, ...], explain: bool, output: str | None, as_json: bool, **search: Any
) -> None:
    """Solve the pipeline for each number of microbatches; print the table, or the points as JSON."""
    from ppopt.cli.options import kept
    from ppopt.cli.summary import show_steps
    from ppopt.files import json_text
    from ppopt.study.microbatches import microbatches_dict, over_microbatches

    def report(result: Result) -> None:
        value = "nothing" if result.value is None else result.pipeline.time(result.value)
        click.echo(f"{result.pipeline.microbatches} microbatches: {value} ({result.seconds:.1f} s)", err=True)

    results = over_microbatches(pipeline, counts, progress=report, **search)
    text = json_text(microbatches_dict(results)) if as_json or output is not None else ""
    with kept(output, text):
        if as_json:
            click.echo(text, nl=False)
        else:
            _show(results)
            if explain:
                for result in results:
                    click.echo(f"{result.pipeline.microbatches} microbatches:")
                    show_steps(result)
    from ppopt.cli.solve import CODES, INTERRUPTED

    interrupted = results[-1].limit == "interrupted" and results[-1].schedule is None
    worst = max(CODES[result.reason] for result in results)
    click.get_current_context().exit(INTERRUPTED if interrupted else worst)


def _show(results: tuple[Result, ...]) -> None:
    from ppopt.cli.render import new_table, number, show, unit

    objective, unit_ = results[-1].objective, results[-1].pipeline.units.time
    columns = [unit(objective, unit_), "lower bound", "idle gap", "bubble ratio", "span bubble ratio", "seconds"]
    table = new_table("Microbatches", ["microbatches"], columns, ["proof"])
    for result in results:
        schedule, time = result.schedule, result.pipeline.time
        figures = ["", number(time(result.lower_bound)), "", "", ""]
        if schedule is not None and result.value is not None:
            idle = result.value - int(max(schedule.work))
            gap = (result.value - result.lower_bound) / idle if idle else 0.0
            ratios = (f"{gap:.3f}", f"{schedule.bubble_ratio:.4f}", f"{schedule.span_bubble_ratio:.4f}")
            figures = [number(time(result.value)), figures[1], *ratios]
        proof = result.proved_by or "" if result.reason == "optimal" else result.reason
        table.add_row(str(result.pipeline.microbatches), *figures, f"{result.seconds:.1f}", proof)
    show(table)
