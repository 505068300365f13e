"""``ppopt solve``: the best schedule, with its proof."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ppopt.cli.answer import exit_code, show_result, tell_placement, tell_untried
from ppopt.cli.options import (
    Given,
    columns_option,
    find_schedule,
    json_option,
    kept,
    kinds,
    model_options,
    output_path,
    parameters_option,
)
from ppopt.cli.progress import Form, Progress, progress_option
from ppopt.cli.searching import best_cut_option, search_options, within_all
from ppopt.interrupt import held, uninterrupted
from ppopt.op import Kind
from ppopt.pipeline import PipelineError
from ppopt.pipeline.runtimes import RUNTIMES

if TYPE_CHECKING:
    from ppopt.files import Model
    from ppopt.search import Settings


@click.command(short_help="The best schedule, with its proof.")
@model_options()
@search_options(seconds=60.0)
@click.option("--order", "order", metavar="NAME", help="Make the constraints of a named schedule binding.")
@click.option("--free", callback=kinds, metavar="KIND,…", help="With --order: free these kinds (F, B, I, W) again.")
@parameters_option
@click.option("--runtime", type=click.Choice(RUNTIMES), help="Keep to what this runtime can run, as it runs it.")
@best_cut_option
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
@progress_option
@columns_option
@json_option
def solve(
    given: Given,
    objective: Any,
    settings: Settings,
    order: str | None,
    free: tuple[Kind, ...],
    params: dict[str, Any],
    runtime: str | None,
    best_cut: bool | None,
    verify: bool,
    explain: bool,
    exported: str | None,
    output: str | None,
    form: Form,
    columns: tuple[str, ...] | None,
    as_json: bool,
) -> None:
    """The best schedule of MODEL with its proof, beside every named schedule that applies.

    The proof holds for the model's placement and chunks, and for all that is left open: --placement any takes linear, loop and
    wave, a list of --chunks each of them, --recompute choose every choice of the stages. Ctrl-C ends the search and keeps the
    best so far.

    \b
    Examples:
      ppopt solve models/gpt-1.5b.toml
      ppopt solve -d 4 -m 8 --memory-limit 3 --time-limit 20 -o best.json
      ppopt solve models/zb-h1.toml --order zb-h1 --free W
      ppopt solve -d 4 -m 8 --memory-limit 4 --placement any --chunks 2,4 --verify
      ppopt solve models/llama-3-70b.toml --recompute choose --runtime megatron
      ppopt solve -d 4 -m 8..1024 --memory-limit 3
    """
    with uninterrupted():
        from ppopt.files import json_text, result_dict, write_text
        from ppopt.search import Binding, model_text
        from ppopt.search import solve as find_best
        from ppopt.search import verify as second_opinion
        from ppopt.search.running import ORDERS
        from ppopt.search.verifying import check_asked

    order, model, settings = _order(order, runtime, params, free), given.read(), within_all(settings)
    _check_runtime(model, runtime, params, best_cut)
    check_asked(model, verify=verify, model_text=exported is not None)
    binding = None if order is None else Binding(find_schedule(order).name, params, free)
    if binding is not None and runtime not in ORDERS:
        tell_placement(given, model, binding)
    with Progress(objective, model.pipeline.units.time, form) as progress:
        ask = partial(find_best, model, settings, objective=objective, order=binding, runtime=runtime, best_cut=best_cut)
        result = ask(progress=progress, each=progress.point)
    tell_untried(result)
    opinion = second_opinion(result, settings) if verify else None
    with held():
        text = json_text(result_dict(result, explain=explain, opinion=opinion)) if as_json or output is not None else ""
        with kept(output, text):
            show_result(result, explain, opinion, text if as_json else None, columns)
    if exported is not None:
        write_text(exported, model_text(result, settings.solver))
    if opinion is not None and opinion.confirmed is False:
        raise click.ClickException("the second opinion refutes the first proof (please report this)")
    click.get_current_context().exit(exit_code(result))


def _order(order: str | None, runtime: str | None, params: dict[str, Any], free: tuple[Kind, ...]) -> str | None:
    """The schedule that binds: the one that is given, or that of the runtime."""
    from ppopt.search.running import ORDERS

    own = ORDERS.get(runtime or "")
    if own is not None and (free or (order is not None and find_schedule(order).name != own)):
        raise click.UsageError(f"--runtime {runtime} has an order of its own, {own}; it goes with no other, and with no --free")
    if order is None and own is None and (free or params):
        raise click.UsageError("--free and --param need --order NAME")
    return order or own


def _check_runtime(model: Model, runtime: str | None, params: dict[str, Any], best_cut: bool | None) -> None:
    """Raise where a runtime cannot run what the model settles.

    Raises:
        PipelineError: it cannot.
        UsageError: the best cut is asked for beside it.
    """
    from ppopt.search.running import best_cut_asked, check

    if runtime is None:
        return
    try:
        best_cut_asked(runtime, best_cut)
        check(model, runtime, params)
    except PipelineError:  # a mistake of the model, not of the flags: the command says where
        raise
    except ValueError as error:
        message = str(error)
        raise click.UsageError(
            f"--{message.replace('best_cut', 'best-cut', 1)}" if message.startswith("best_cut") else message
        ) from None
