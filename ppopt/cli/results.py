"""``ppopt results``: what sweeps have found."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import click

from ppopt.text import figure


@click.command(short_help="What sweeps have found, as table, CSV or JSON.")
@click.argument("store", type=click.Path(exists=True, dir_okay=False))
@click.option("--study", metavar="NAME", help="Only this study.")
@click.option("--status", type=click.Choice(["done", "excluded", "failed"]), multiple=True, help="Only these results.")
@click.option("--where", multiple=True, metavar="CONDITION", help="Only rows such as makespan<=30; may be given again.")
@click.option("--sort", multiple=True, metavar="COLUMN", help="Sort by a column; -COLUMN: the largest first.")
@click.option("--top", type=click.IntRange(1), metavar="N", help="Only the first N.")
@click.option("--json", "form", flag_value="json", help="All that is stored, as JSON.")
@click.option("--csv", "form", flag_value="csv", help="A line per result, with a column per varied key and figure.")
def results(
    store: str,
    study: str | None,
    status: tuple[str, ...],
    where: tuple[str, ...],
    sort: tuple[str, ...],
    top: int | None,
    form: str | None,
) -> None:
    """Print the results in STORE, the file of `ppopt sweep` or of `ppopt plan --store`.

    \b
    Examples:
      ppopt results study.db
      ppopt results study.db --status failed
      ppopt results study.db --where schedule=1f1b --sort makespan --top 5
      ppopt results study.db --study weak-scaling --csv > weak.csv
    """
    from ppopt.study.store import Store, StoreError
    from ppopt.study.table import chosen, columns_of, rows_of

    try:
        with Store(store, create=False) as opened:
            known = opened.studies()
            found = opened.results(study, status)
    except StoreError as error:
        raise click.UsageError(str(error)) from error
    if study is not None and study not in known:
        raise click.UsageError(f"{store} has no study {study!r}; it has {', '.join(known) or 'none'}")
    all_rows = rows_of(found)
    try:
        rows = chosen(all_rows, where, sort, top)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if form == "json":
        from dataclasses import asdict

        of_row = {id(row): result for row, result in zip(all_rows, found, strict=True)}
        kept = [asdict(of_row[id(row)]) for row in rows]
        click.echo(json.dumps({"studies": known, "results": kept}, indent=1, ensure_ascii=False))
        return
    columns = columns_of(rows)
    if form == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        click.echo(text.getvalue(), nl=False)
        return
    filled = [column for column in columns if any(row.get(column) is not None for row in rows)]
    _table(rows, _kept(filled))
    for name, (instances, finished) in known.items():
        if study in (None, name):
            click.echo(f"{name}: {finished} of {instances} instances have a result", err=True)


_HIDDEN = {"study", "position", "key", "finished", "work", "overhead", "seed", "objective", "placement", "device_span"}
_HIDDEN |= {"order", "settled", "recompute", "summed_span_bubble_ratio", "speed_up", "relative_efficiency"}
_RANKS = {"error": 0, "seconds": 9, "span_bubble_ratio": 8, "proved_by": 7, "stopped_by": 6, "gap": 5, "lower_bound": 4}
_RANKS |= {"efficiency": 7, "reason": 4, "value": 5}
_RANKS |= {"chunks": 6, "within_memory": 3, "bubble_ratio": 2, "peak_memory": 2}
"""Columns that a terminal has no room for."""


def _table(rows: list[dict[str, Any]], columns: list[str]) -> None:
    from ppopt.cli.render import shown, width
    from ppopt.named import NAMED
    from ppopt.text import Column, Table, wrapped

    table = Table(
        None,
        tuple(Column(_head(c), _is_figure(rows, c), _RANKS.get(c, 0), c in ("error", "excluded", "proved_by")) for c in columns),
    )
    counted = {row["schedule"]: NAMED[row["schedule"]].counted for row in rows if row["schedule"] in NAMED}
    for row in rows:
        cells = [_shown(row.get(column)) for column in columns]
        if counted.get(row["schedule"]):
            cells[columns.index("schedule")] += " ‡"
        table.add_row(*cells)
    click.echo(shown(table))
    for note in dict.fromkeys(filter(None, counted.values())):
        click.echo(wrapped(f"‡ {note}", width()))


def _kept(columns: list[str]) -> list[str]:
    """Those that are shown: of a key that is varied not what was found for it."""
    varied = {column.rpartition(".")[2] for column in columns if "." in column}
    return [column for column in columns if column not in _HIDDEN and column not in varied]


def _head(column: str) -> str:
    return column.split(".")[-1].replace("_", " ")


def _is_figure(rows: list[dict[str, Any]], column: str) -> bool:
    values = [row.get(column) for row in rows]
    return all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return figure(value) if isinstance(value, int | float) else str(value)
