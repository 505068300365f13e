"""``ppopt sweep``: many pipelines, resumable."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ppopt.study.sweep import Progress


@click.command(short_help="Many pipelines, resumable.")
@click.argument("study")
@click.option("-o", "--store", metavar="FILE", help="Where results are kept; by default the study's name with .db, beside STUDY.")
@click.option("--workers", type=click.IntRange(1), help="Processes; by default as many as the cores allow.")
@click.option("--dask", metavar="ADDRESS", help="Run on the Dask cluster with this scheduler (extra: dask).")
@click.option("--retry", is_flag=True, help="Run failed instances again.")
def sweep(study: str, store: str | None, workers: int | None, dask: str | None, retry: bool) -> None:
    """Run every instance of STUDY (a TOML file, docs/studies.md; - is standard input) that has no result yet.

    Results go to one SQLite file as they come. A sweep may be stopped or killed at any moment: started again, it goes on.
    Several sweeps may share a file. An instance that fails is recorded and the others go on; the exit code is then 1.

    \b
    Examples:
      ppopt sweep models/studies/tight-memory.toml
      ppopt sweep study.toml -o all.db --workers 4
      ppopt sweep study.toml --dask tcp://10.0.0.1:8786
      ppopt results study.db --csv > study.csv
    """
    from ppopt.study.plan import StudyError, read_study
    from ppopt.study.store import StoreError
    from ppopt.study.sweep import sweep as run

    own_store = store is not None
    if store is None and study == "-":
        raise click.UsageError("a study from standard input needs --store FILE")
    try:
        plan = read_study(study)
        store = store or os.path.join(os.path.dirname(study), plan.name.replace(os.sep, "-") + ".db")
        with _shown(len(plan.instances)) as show:
            if dask is None:
                state = run(plan, store, workers=workers, retry=retry, progress=show)
            else:
                from ppopt.study.cluster import connected

                with connected(dask, plan.threads) as (executor, slots):
                    state = run(plan, store, executor=executor, slots=workers or slots, retry=retry, progress=show)
    except (StudyError, StoreError) as error:
        raise click.UsageError(str(error)) from error
    except KeyboardInterrupt:
        options = [("-o", store if own_store else None), ("--workers", workers), ("--dask", dask)]
        words = [word for option, value in options if value is not None for word in (option, str(value))]
        again = shlex.join(["ppopt", "sweep", study, *words, *["--retry"] * retry])
        click.echo(f"what is finished is in {store}; go on with: {again}", err=True)
        raise
    click.echo(f"{state.finished} of {state.total} instances have a result in {store}; {state.run} run now", err=True)
    if state.failed:
        click.echo(f"{state.failed} failed; see `ppopt results {store} --status failed`", err=True)
        raise SystemExit(1)


@contextmanager
def _shown(total: int) -> Iterator[Callable[[Progress], None]]:
    """Progress on standard error: a bar on a terminal, elsewhere a line now and then."""
    import rich.console
    import rich.progress

    console = rich.console.Console(stderr=True)
    if not console.is_terminal:
        last = time.monotonic()

        def line(state: Progress) -> None:
            nonlocal last
            if time.monotonic() - last > 10:
                last = time.monotonic()
                click.echo(_words(state), err=True)

        yield line
        return
    columns = (rich.progress.BarColumn(), rich.progress.TextColumn("{task.description}"))
    with rich.progress.Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=total)
        yield lambda state: bar.update(task, total=state.total, completed=state.finished, description=_words(state))


def _words(state: Progress) -> str:
    left = "" if state.remaining is None else f", about {_duration(state.remaining)} left"
    failed = f", {state.failed} failed" if state.failed else ""
    return f"{state.finished} of {state.total}{failed}, {state.rate:.3g} per second{left}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
