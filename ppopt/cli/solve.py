"""``ppopt solve``: the best schedule, with its proof."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import click

from ppopt.cli.options import (
    MOST_WORKERS,
    Given,
    Seconds,
    find_schedule,
    json_option,
    kept,
    model_options,
    output_path,
    parameters_option,
)
from ppopt.cli.verified import verified_rows
from ppopt.files import Model, json_text, result_dict, write_text
from ppopt.op import Kind
from ppopt.pipeline import CHOOSE, Pipeline
from ppopt.solvers.interrupt import uninterrupted

CODES = {"optimal": 0, "feasible": 0, "infeasible": 3, "no-solution": 4}
"""Reason -> exit code."""
INTERRUPTED = 130


def _kinds(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[Kind, ...]:
    """``F,W`` as kinds."""
    if text is None:
        return ()
    kinds = [part.strip() for part in text.split(",")]
    if not set(kinds) <= set(Kind.__members__):
        raise click.BadParameter(f"expected kinds of {', '.join(Kind.__members__)} with commas between, got {text!r}")
    return tuple(dict.fromkeys(Kind[kind] for kind in kinds))


@click.command(short_help="The best schedule, with its proof.")
@model_options("any", many=True)
@click.option(
    "--objective", type=click.Choice(["makespan", "span"]), default="makespan", show_default=True, help="What to minimise."
)
@click.option("--solver", type=click.Choice(["auto", "cp-sat", "ilp"]), default="auto", show_default=True, help="Which solver.")
@click.option("--time-limit", type=Seconds(positive=True), default=60.0, show_default=True, metavar="S", help="Seconds.")
@click.option("--gap", type=Seconds(most=1.0), default=0.0, show_default=True, metavar="G", help="Stop at this gap, a fraction.")
@click.option("--workers", type=click.IntRange(1, MOST_WORKERS), help="Threads of the solver.  [default: all cores]")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of the search.")
@click.option("--deterministic", is_flag=True, help="One worker and deterministic time: the same answer every time.")
@click.option("--order", "order", metavar="NAME", help="Make the constraints of a named schedule binding.")
@click.option("--free", callback=_kinds, metavar="KIND,…", help="With --order: free these kinds (F, B, I, W) again.")
@parameters_option
@click.option("--target", type=click.Choice(["torch"]), help="Plan with what this runtime really does (docs/torch.md).")
@click.option("--verify", is_flag=True, help="A second opinion: prove it again by another route, in as much time again.")
@click.option("--explain", is_flag=True, help="Show the steps of the solution, and their times.")
@click.option(
    "--export-model",
    "exported",
    type=click.Path(dir_okay=False),
    callback=output_path,
    metavar="FILE",
    help="Write the model that is minimised: for CP-SAT (text format) or, with --solver ilp, as LP.",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), callback=output_path, metavar="FILE", help="Write the result as JSON."
)
@json_option
def solve(
    given: Given,
    any_placement: bool,
    order: str | None,
    free: tuple[Kind, ...],
    params: dict[str, Any],
    target: str | None,
    verify: bool,
    explain: bool,
    exported: str | None,
    output: str | None,
    as_json: bool,
    **search: Any,
) -> None:
    """The best schedule of MODEL with its proof, beside every named schedule that applies.

    The proof holds for the model's placement and number of chunks; --placement any solves linear, loop and wave (each of
    --chunks) and keeps the best. Ctrl-C ends the search and keeps the best so far.

    \b
    Examples:
      ppopt solve models/gpt-1.5b.toml
      ppopt solve -d 4 -m 8 --memory-limit 3 --time-limit 20 -o best.json
      ppopt solve models/zb-h1.toml --order zb-h1 --free W
      ppopt solve -d 4 -m 8 --memory-limit 4 --placement any --chunks 2,4 --verify
      ppopt solve -d 4 -m 8..1024 --memory-limit 3
    """
    with uninterrupted():
        from ppopt.cli.progress import Progress
        from ppopt.cli.second_opinion import ask, opinion_dict, opinion_lines
        from ppopt.cli.summary import show_placements, show_result
        from ppopt.solve import model_text
        from ppopt.solve import solve as find_best
        from ppopt.study.placements import placements, placements_list, solve_placements
        from ppopt.study.recompute import solve_choice

    if order is None and (free or params):
        raise click.UsageError("--free and --param need --order NAME")
    if order is not None and any_placement:
        raise click.UsageError("--order brings its own placement; leave out --placement any")
    if search["deterministic"] and search["workers"] not in (None, 1):
        raise click.UsageError("--deterministic has one worker; leave out --workers")
    model = asked = given.read()
    if given.microbatches:
        for flag, used in (
            ("--placement any", any_placement),
            ("--verify", verify),
            ("--export-model", exported),
            ("--target", target),
        ):
            if used:
                raise click.UsageError(f"{flag} is for one number of microbatches; got {len(given.microbatches)}")
    name = None
    if order is not None:
        model, name, params = _bound(given, model, order, params)
    choosing = model.pipeline.recompute == CHOOSE
    for flag, given_ in (("--order", order), ("--placement any", any_placement), ("--target", target), ("--verify", verify)):
        if choosing and given_:
            raise click.UsageError(f'{flag} needs to know which stages recompute; pipeline.recompute is "choose"')
    pipelines = placements(model.pipeline, _chunks(given, model)) if any_placement else [model.pipeline]
    if target == "torch":
        from ppopt.files.torch_export import target_torch

        pipelines = [target_torch(pipeline) for pipeline in pipelines]
        asked = asked if asked.order is None else replace(asked, pipeline=target_torch(asked.pipeline))
    named_params = {**asked.named_params, **({} if name is None else {name: params})}
    own_rows = asked.own_rows_freely(search["objective"]) if choosing else asked.own_rows
    beside: dict[str, Any] = {"chunks": given.chunks, "named_params": named_params, "own": own_rows}

    def shown(pipeline: Pipeline) -> Progress:
        return Progress(pipeline, search["objective"])

    if given.microbatches:
        if choosing:
            raise click.UsageError('several numbers of microbatches need pipeline.recompute to be settled; it is "choose"')
        from ppopt.cli.microbatches import solve_all

        solve_all(
            model.pipeline, given.microbatches, explain, output, as_json, order=name, params=params, free=free, **beside, **search
        )
        return
    found = None
    if any_placement:
        found = solve_placements(pipelines, progress=shown, **beside, **search)
        result = found.best
        own = result.pipeline.routes == model.pipeline.routes
        model = replace(model, pipeline=result.pipeline) if own else Model(result.pipeline)
    elif choosing:
        with shown(model.pipeline.resolved("all")) as progress:
            result = solve_choice(model.pipeline, progress=progress, **beside, **search)
        model = replace(model, pipeline=result.pipeline)
    else:
        model = replace(model, pipeline=pipelines[0])
        with shown(model.pipeline) as progress:
            result = find_best(model.pipeline, order=name, params=params, free=free, progress=progress, **beside, **search)
    result = replace(result, named=tuple(row.seen_from(asked.pipeline) for row in result.named))
    with suppress(KeyboardInterrupt), uninterrupted():  # the search is over, and what it found is kept
        verified_rows(result.named, known=result.schedule)
    tree = result_dict(model, result=result)
    if found is not None:
        tree["placements"] = placements_list(found)
    if name is not None:
        tree["binding"] = {"schedule": name, "params": params, "free": [kind.name for kind in free]}
    if explain:
        tree["steps"] = [step._asdict() for step in result.steps]
    opinion = ask(result, search) if verify else None
    if verify:
        tree["verification"] = opinion_dict(result, opinion)
    text = json_text(tree)
    with kept(output, text):
        if as_json:
            click.echo(text, nl=False)
        else:
            show_result(model, result, name, explain)
            if found is not None:
                show_placements(found)
            for line in opinion_lines(result, opinion) if verify else ():
                click.echo(line)
    if exported is not None:
        write_text(exported, model_text(result, search["solver"]))
    if opinion is not None and opinion.confirmed is False:
        raise click.ClickException("the second opinion refutes the first proof (please report this)")
    interrupted = result.schedule is None and result.limit == "interrupted"
    click.get_current_context().exit(INTERRUPTED if interrupted else CODES[result.reason])


def _chunks(given: Given, model: Model) -> tuple[int, ...]:
    """How many chunks placements with several have: as asked for, else the model's own, else two."""
    return given.chunks or ((model.pipeline.chunks,) if model.pipeline.chunks > 1 else (2,))


def _bound(given: Given, model: Model, order: str, params: dict[str, Any]) -> tuple[Model, str, dict[str, Any]]:
    """The model on the placement of the schedule that binds, its name, and its parameters."""
    definition = find_schedule(order)
    own = model.params if model.schedule == definition.name else {}
    read = definition.read({**own, **params})
    placed = definition.place(model.pipeline, None, **read)
    if placed.routes == model.pipeline.routes:
        return model, definition.name, read
    chunks = f" with {placed.chunks} chunks" if placed.chunks > 1 else ""
    where = f"its own placement, {placed.placement}{chunks}"
    if given.placed:
        raise click.UsageError(f"--order {definition.name} runs on {where}; the command line gives another")
    click.echo(f"Note: {definition.name} is solved on {where}.", err=True)
    return Model(placed, definition.name, read), definition.name, read
