"""``ppopt results``: what sweeps have found."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import click


@click.command(short_help="What sweeps have found, as table, CSV or JSON.")
@click.argument("store", type=click.Path(exists=True, dir_okay=False))
@click.option("--study", metavar="NAME", help="Only this study.")
@click.option("--status", type=click.Choice(["done", "excluded", "failed"]), multiple=True, help="Only these results.")
@click.option("--json", "form", flag_value="json", help="All that is stored, as JSON.")
@click.option("--csv", "form", flag_value="csv", help="A line per result, with a column per varied key and figure.")
def results(store: str, study: str | None, status: tuple[str, ...], form: str | None) -> None:
    """Print the results in STORE, the file of `ppopt sweep`.

    \b
    Examples:
      ppopt results study.db
      ppopt results study.db --status failed
      ppopt results study.db --study weak-scaling --csv > weak.csv
    """
    from ppopt.study.store import Store, StoreError
    from ppopt.study.table import columns_of, rows_of

    try:
        with Store(store, create=False) as opened:
            known = opened.studies()
            found = opened.results(study, status)
    except StoreError as error:
        raise click.UsageError(str(error)) from error
    if study is not None and study not in known:
        raise click.UsageError(f"{store} has no study {study!r}; it has {', '.join(known) or 'none'}")
    if form == "json":
        from dataclasses import asdict

        click.echo(json.dumps({"studies": known, "results": [asdict(result) for result in found]}, indent=1, ensure_ascii=False))
        return
    rows = rows_of(found)
    columns = columns_of(rows)
    if form == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        click.echo(text.getvalue(), nl=False)
        return
    _table(rows, [column for column in columns if column not in _HIDDEN])
    for name, (instances, finished) in known.items():
        if study in (None, name):
            click.echo(f"{name}: {finished} of {instances} instances have a result", err=True)


_HIDDEN = {"study", "position", "key", "finished", "work", "overhead", "limit", "seed", "objective", "placement", "device_span"}
"""Columns that a terminal has no room for."""


def _table(rows: list[dict[str, Any]], columns: list[str]) -> None:
    import rich.box
    import rich.console
    import rich.table

    table = rich.table.Table(box=rich.box.SIMPLE)
    for column in columns:
        table.add_column(column.split(".")[-1].replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_shown(row.get(column)) for column in columns))
    console = rich.console.Console()
    if not console.is_terminal:
        console.width = 10_000  # a pipe has no width
    console.print(table)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
