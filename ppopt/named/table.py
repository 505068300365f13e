"""Rows of named schedules, and the user's own, on the same devices: a table by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import overload

from ppopt.named.columns import OBJECTIVES, best_of, columns_for
from ppopt.named.definition import UnknownSchedule
from ppopt.named.registry import NAMED, find
from ppopt.named.row import Row
from ppopt.pipeline import Pipeline
from ppopt.schedule import Objective
from ppopt.text import Style, figure, heading, new_table, rendered, wrapped

EQUAL_WORK = (
    "the model's costs are uneven, and this row assumes that each device has the same work here as on the model's placement; "
    "a network would be cut differently here"
)
"""What a dagger after a placement means."""


class Table(Sequence[Row]):
    """The rows of a comparison, in the order of the catalogue; printed, those that fit the memory come first, the fastest at
    the top, then those that do not.

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
        self._marked = {place.places for place in (places if moved is None else (*places, moved))}

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
        return (
            row.name == self.stands_for
            and not row.turns
            and row.schedule is not None
            and row.schedule.pipeline.places in self._marked
        )

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Table: {len(self.rows)} rows for {heading(self.pipeline)}>"

    def text(
        self,
        title: str | None = None,
        width: int | None = None,
        *,
        answer: Row | None = None,
        objective: Objective = "makespan",
        styled: bool = False,
        columns: Sequence[str] | None = None,
    ) -> str:
        """The table in at most ``width`` columns, then what its marks mean, then what does not apply, with the reasons.

        Those that fit the memory come first, the fastest at the top, the ``answer`` among them; then those that do not. With
        ``styled`` the answer is bold, and what does not fit dim. ``columns``: names of :data:`~ppopt.named.columns.COLUMNS` to
        show, or ``all``; by default those that say most.

        Raises:
            ValueError: there is no such column.
        """
        rows = [row for row in self.rows if row.schedule is not None]
        rows += [answer] if answer is not None and answer.schedule is not None else []
        shown = columns_for(rows, columns)
        units, best = self.pipeline.units, best_of(rows, objective)
        heads = [column.head(units, rows) for column in shown]
        ranks = {column.name: 0 if column.name == OBJECTIVES[objective] else column.rank for column in shown}
        table = new_table(title, ["schedule", "placement", "chunks"], heads, ranks={**ranks, "placement": 3, "chunks": 5})
        for row in sorted(rows, key=lambda row: (*_rank(row, objective)[:3], row is not answer, row.name)):
            assert row.schedule is not None
            style: Style = "bold" if row is answer else "" if row.schedule.within_memory else "dim"
            cells = [column.cell(row.schedule, best) for column in shown]
            table.add_row(
                self._name(row), row.placement + _mark(row.assumes_equal_work, " †"), str(row.chunks), *cells, style=style
            )
        return "\n".join([rendered(table, width, styled=styled), *(wrapped(line, width) for line in self._notes(rows))])

    def best_elsewhere(self, objective: Objective = "makespan", value: float | None = None) -> str:
        """The fastest row that fits, in a line, where it is on a placement that the model neither has nor leaves open, and faster
        than ``value``; else empty."""
        places = {place.places for place in self.pipeline.placements()}
        fitting = [row for row in self.rows if row.schedule is not None and row.within_memory]
        best = min(fitting, key=partial(_rank, objective=objective), default=None)
        if best is None or best.schedule is None or best.schedule.pipeline.places in places:
            return ""
        time = best.objective(objective)
        if value is not None and time >= value:
            return ""
        chunks = f", {best.chunks} chunks" if best.chunks > 1 else ""
        time_ = f"{figure(time)} {self.pipeline.units.time}".rstrip()
        return f"best: {best.placement}{_mark(best.assumes_equal_work, ' †')}{chunks}, {time_} ({best.label})"

    def _name(self, row: Row) -> str:
        return f"{row.label}{_mark(self.marks(row), ' *')}{_mark(bool(_counted(row)), ' ‡')}"

    def _notes(self, rows: Sequence[Row]) -> list[str]:
        """What the marks mean, and what does not apply."""
        lines = []
        if any(map(self.marks, rows)):
            lines.append(f"* the schedule that the model stands for ({self.stands_for})")
        if any(row.assumes_equal_work for row in rows):
            lines.append(f"† {EQUAL_WORK}")
        lines += [f"‡ {text}" for text in dict.fromkeys(filter(None, map(_counted, rows)))]
        if not all(row.within_memory for row in rows):
            lines.append("! over the memory limit")
        late = [row.label for row in self.rows if row.late]
        if late:
            lines.append(f"Left out, no time was left to make and check them: {', '.join(late)}")
        excluded = [row.excluded for row in self.rows if row.excluded is not None and not row.late]
        if excluded:
            lines += ["Not applicable:", *(f"  {reason}" for reason in excluded)]
        return lines


def _mark(there: bool, mark: str) -> str:
    return mark if there else ""


def _counted(row: Row) -> str:
    """What the microbatches of a named schedule are, where that is not what those of others are."""
    return NAMED[row.name].counted if row.name in NAMED else ""


def _rank(row: Row, objective: Objective = "makespan") -> tuple[bool, bool, float, str]:
    """What fits before what does not, and both before what does not apply; the fastest first."""
    return row.schedule is None, not row.within_memory, row.objective(objective), row.name
