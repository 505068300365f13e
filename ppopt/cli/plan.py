"""``ppopt plan``: sizes, microbatch, placement, cut, recompute and order for a model on a cluster."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ppopt.cli.progress import Form, Progress, progress_option
from ppopt.cli.searching import search_options
from ppopt.interrupt import held, uninterrupted
from ppopt.pipeline.runtimes import RUNTIMES
from ppopt.search.settings import Settings

if TYPE_CHECKING:
    from ppopt.files.estimates import Source
    from ppopt.study.planning import Plans

CODES = {"infeasible": 3, "no-solution": 4}


WORDS = "ppopt.plan.words"


class _Kept(click.Command):
    """A command that keeps the words that it was given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = list(args)
        return super().parse_args(ctx, args)


@click.command(cls=_Kept, short_help="The best sizes, cut and schedule for a model on a cluster.")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Set a key of the file, such as search.tensor=[2,4].")
@search_options(50.0, solvers=("auto", "cp-sat"), objective=False)
@click.option("--runtime", type=click.Choice(RUNTIMES), help="Keep to what this runtime can run; sets search.runtime.")
@click.option("--dask", metavar="ADDRESS", help="Take the steps on the Dask cluster with this scheduler (extra: dask).")
@click.option("--store", metavar="DB", help="Keep every step in this file; a plan that was stopped goes on where it was.")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Combinations to show.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="The best: a result (.json), or a model file (.toml)."
)
@progress_option
@click.option("--json", "as_json", is_flag=True, help="Print all combinations that were solved as JSON.")
def plan(
    file: str,
    changes: tuple[str, ...],
    settings: Settings,
    runtime: str | None,
    dask: str | None,
    store: str | None,
    top: int,
    output: str | None,
    form: Form,
    as_json: bool,
) -> None:
    """How a transformer is best trained on a cluster: FILE has [transformer], [training], [cluster] and maybe [search].

    Tensor, data, pipeline, context and expert size, microbatch and ZeRO stage are chosen among all that divide, or those listed;
    and with them the placement, the cut of the layers, what recomputes, and the order. The bound holds for all of them. Ctrl-C
    ends the search and keeps the best so far.

    \b
    Examples:
      ppopt plan models/plans/llama-3-70b.toml
      ppopt plan training.toml --set search.pipeline=[4,8] --json
      ppopt plan training.toml --runtime megatron-interleaved
      ppopt plan training.toml --store plan.db -o best.json
      ppopt export best.json --to megatron
    """
    with uninterrupted():
        from ppopt.cli.planned import report, written
        from ppopt.cli.render import say
        from ppopt.files import json_text, write_text
        from ppopt.study.plan import StudyError
        from ppopt.study.planning import plan as find_best
        from ppopt.study.planning import question_of
        from ppopt.study.store import StoreError
        from ppopt.transformer import EstimateError

    if output is not None and os.path.splitext(output)[1] not in (".json", ".toml"):
        raise click.BadParameter(f"expected a name that ends in .json or .toml, got {output}", param_hint="-o")
    if dask is not None and settings.deterministic:
        raise click.UsageError("--deterministic goes with no --dask: steps on a cluster end when they end")
    source = _read(file, changes, runtime)
    try:
        question = question_of(source.tables, source.name)
        with Progress("step", "s", form) as show, _cluster(dask, settings) as (executor, slots):
            plans = find_best(question, settings, store=store, progress=show, executor=executor, slots=slots)
    except EstimateError as error:
        raise source.error(error) from None
    except (StoreError, StudyError) as error:
        raise click.UsageError(str(error)) from error
    with held():
        if output is not None and plans:
            write_text(output, written(plans[0], output))
        if as_json:
            click.echo(json_text(plans.as_dict()), nl=False)
        else:
            say(report(plans, top))
    if plans.limit == "interrupted" and store is not None:
        click.echo(f"what was found is in {store}; go on with: {_again()}", err=True)
    click.get_current_context().exit(_code(plans))


def _read(file: str, changes: tuple[str, ...], runtime: str | None) -> Source:
    """The file with what options change in it."""
    from ppopt.files import setting
    from ppopt.files.estimates import read_source
    from ppopt.files.model import Change

    changed = [setting(text, example="search.tensor=[2,4]") for text in changes]
    if runtime is not None:
        changed.append(Change("search.runtime", runtime, f"--runtime {runtime}"))
    return read_source(file, changed)


@contextmanager
def _cluster(address: str | None, settings: Settings) -> Iterator[tuple[Executor | None, int]]:
    """Where steps are taken, and how many at once; ``None``: here."""
    if address is None:
        yield None, 1
        return
    from ppopt.study.cluster import connected

    with connected(address, settings.workers or 1) as found:
        yield found


def _again() -> str:
    """The command as it was given."""
    context = click.get_current_context()
    return shlex.join(["ppopt", "plan", *context.meta[WORDS]])


def _code(plans: Plans) -> int:
    from ppopt.cli import INTERRUPTED

    if plans.reason == "no-solution" and plans.limit == "interrupted":
        return INTERRUPTED
    return CODES.get(plans.reason, 0)
