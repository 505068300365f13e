"""Rows of named schedules, and the user's own, on the same devices: a table by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from ppopt.named.definition import UnknownSchedule
from ppopt.named.registry import find
from ppopt.named.row import Row, figures
from ppopt.pipeline import Pipeline
from ppopt.text import heading, new_table, rendered, unit

EQUAL_WORK = (
    "the model's costs are uneven, and this row assumes that each device has the same work here as on the model's placement; "
    "a network would be cut differently here"
)
"""What a dagger after a placement means."""


class Table(Sequence[Row]):
    """The rows of a comparison, in the order of the catalogue; printed, those that apply come first, the fastest at the top.

    ``table["1f1b"]`` is the row of a schedule (of several rows with that name the fastest that fits the memory, see
    :meth:`rows_of`), ``table[0]`` the first row. ``pipeline`` is the one that was asked about, ``stands_for`` the name of the row
    that it stands for; that may have been ``moved`` to another placement.
    """

    def __init__(
        self, rows: Iterable[Row], pipeline: Pipeline, stands_for: str | None = None, moved: Pipeline | None = None
    ) -> None:
        places = pipeline.placements()
        self.rows = tuple(row.seen_from(places) for row in rows)
        self.pipeline = pipeline
        self.stands_for = stands_for
        self._marked = {place.routes for place in (places if moved is None else (*places, moved))}

    @overload
    def __getitem__(self, key: int | str) -> Row: ...

    @overload
    def __getitem__(self, key: slice) -> tuple[Row, ...]: ...

    def __getitem__(self, key: int | str | slice) -> Row | tuple[Row, ...]:
        """The row of a name (an alias will do), or the rows at a place.

        Raises:
            KeyError: no row has this name.
        """
        return min(self.rows_of(key), key=_rank) if isinstance(key, str) else self.rows[key]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def rows_of(self, name: str) -> tuple[Row, ...]:
        """All rows of a schedule: one for each number of chunks, and for each choice of what recomputes, that is shown.

        Raises:
            KeyError: no row has this name.
        """
        found = self._named(name)
        if not found:
            try:
                found = self._named(find(name).name)
            except UnknownSchedule as error:
                raise KeyError(str(error)) from None
        if not found:
            raise KeyError(f"{name} is not in this table")
        return found

    def _named(self, name: str) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.name == name)

    def marks(self, row: Row) -> bool:
        """Whether a row is the one that the model stands for: it has that name, and a placement of the model."""
        return row.name == self.stands_for and row.schedule is not None and row.schedule.pipeline.routes in self._marked

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Table: {len(self.rows)} rows for {heading(self.pipeline)}>"

    def text(self, title: str | None = None, width: int | None = None) -> str:
        """The table in at most ``width`` columns, then what its marks mean, then what does not apply, with the reasons."""
        units = self.pipeline.units
        heads = [unit("makespan", units.time), unit("device span", units.time), "bubble ratio", "span bubble ratio"]
        table = new_table(title, ["schedule", "placement", "chunks"], [*heads, unit("peak memory", units.memory)], ["memory"])
        for row in sorted(self.rows, key=_rank_by_makespan):
            if row.schedule is not None:
                name = f"{row.label} *" if self.marks(row) else row.label
                placement = f"{row.placement} †" if row.assumes_equal_work else row.placement
                within = "" if row.schedule.within_memory else "over the limit"
                table.add_row(name, placement, str(row.chunks), *figures(row.schedule), within)
        lines = [rendered(table, width)]
        if any(map(self.marks, self.rows)):
            lines.append(f"* the schedule that the model stands for ({self.stands_for})")
        if any(row.assumes_equal_work for row in self.rows):
            lines.append(f"† {EQUAL_WORK}")
        late = [row.label for row in self.rows if row.late]
        if late:
            lines.append(f"Left out, no time was left to make and check them: {', '.join(late)}")
        excluded = [row.excluded for row in self.rows if row.excluded is not None and not row.late]
        if excluded:
            lines += ["Not applicable:", *(f"  {reason}" for reason in excluded)]
        return "\n".join(lines)


def _rank(row: Row) -> tuple[bool, bool, float]:
    """What fits before what does not, and both before what does not apply; the fastest first."""
    return row.schedule is None, not row.within_memory, row.makespan or 0


def _rank_by_makespan(row: Row) -> tuple[float, str]:
    return row.makespan or 0, row.name
