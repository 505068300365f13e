"""The columns of figures that a table of schedules may have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from ppopt.named.registry import shows_maps
from ppopt.named.row import Row
from ppopt.pipeline import Units
from ppopt.schedule import Objective, Schedule
from ppopt.text import figure, percent, unit
from ppopt.timing.weights import device_figures

OBJECTIVES = {"makespan": "makespan", "span": "device span"}
"""Objective -> its column."""


class Best(NamedTuple):
    """The least value of an objective that any row within the memory has (of any row, where none is), in the user's unit."""

    objective: Objective
    value: Fraction

    def share(self, schedule: Schedule) -> float:
        """Best / this; 1 where a schedule takes no time."""
        own = _value(schedule, self.objective)
        return float(self.value / own) if own else 1.0


def best_of(rows: Iterable[Row], objective: Objective) -> Best:
    """What a table's rows are compared with."""
    schedules = [row.schedule for row in rows if row.schedule is not None]
    fitting = [schedule for schedule in schedules if schedule.within_memory]
    return Best(objective, min((_value(schedule, objective) for schedule in fitting or schedules), default=Fraction(0)))


def _value(schedule: Schedule, objective: Objective) -> Fraction:
    return Fraction(schedule.objective(objective), schedule.pipeline.ticks.per_unit)


class Column(NamedTuple):
    """A column of figures; ``rank`` as in :class:`ppopt.text.Column`."""

    name: str
    rank: int
    cell: Callable[[Schedule, Best], str]
    unit: Callable[[Units, Sequence[Row]], str] = lambda units, rows: ""
    wanted: Callable[[Sequence[Row]], bool] = lambda rows: True
    """Whether it is shown where nothing is said."""
    there: Callable[[Sequence[Row]], bool] = lambda rows: True
    """Whether ``all`` has it: where the rows have such figures."""

    def head(self, units: Units, rows: Sequence[Row]) -> str:
        """Its name with its unit."""
        return unit(self.name, self.unit(units, rows))


def columns_for(rows: Sequence[Row], names: Sequence[str] | None = None) -> list[Column]:
    """The columns of these names, or those that are shown where none is given.

    Args:
        rows: those of the table.
        names: of :data:`COLUMNS`, in any order; ``-`` and ``_`` may stand for a space; ``all`` alone: all that the rows have.

    Raises:
        ValueError: there is no such column, or none is named.
    """
    if names is None:
        return [column for column in COLUMNS if column.wanted(rows)]
    if list(names) == ["all"]:
        return [column for column in COLUMNS if column.there(rows)]
    known = {column.name: column for column in COLUMNS}
    found = []
    for name in names:
        plain = name.strip().replace("-", " ").replace("_", " ")
        column = known.get(plain) or known.get(plain.replace("speed up", "speed-up"))
        if column is None:
            raise ValueError(f"expected columns among {', '.join(known)}, or all; got {name!r}")
        found.append(column)
    if not found:
        raise ValueError(f"expected columns among {', '.join(known)}, or all; got none")
    return [column._replace(rank=0) for column in COLUMNS if column in found]


def _time(ticks: Callable[[Schedule], int]) -> Callable[[Schedule, Best], str]:
    return lambda schedule, best: figure(schedule.pipeline.time(ticks(schedule)))


def _ratio(of: Callable[[Schedule], float]) -> Callable[[Schedule, Best], str]:
    return lambda schedule, best: percent(of(schedule))


def _rates(rows: Sequence[Row]) -> list[tuple[float, str]]:
    found = (row.schedule.throughput for row in rows if row.schedule is not None)
    return [rate for rate in found if rate is not None]


def _has_rates(rows: Sequence[Row]) -> bool:
    return bool(_rates(rows))


def _peak(schedule: Schedule, best: Best) -> str:
    """The largest peak, with a mark where a device, or the host, exceeds its limit."""
    amounts = schedule.pipeline.amounts
    held = figure(schedule.pipeline.amount(max(schedule.peak_memory)))
    return held if amounts.limit is None and amounts.host is None else f"{held} {' ' if schedule.within_memory else '!'}"


def _repeats(rows: Sequence[Row]) -> bool:
    return any(row.schedule is not None and row.schedule.repeated > 0 for row in rows)


def _maps(rows: Sequence[Row]) -> bool:
    """Whether what devices do with weights is of interest: where weights or backwards are said to be elsewhere, or are."""
    return any(row.schedule is not None and shows_maps(row.schedule.pipeline, (row.name,)) for row in rows)


def _each_device(field: str) -> Callable[[Schedule, Best], str]:
    """A figure of every device: from the least to the largest."""

    def cell(schedule: Schedule, best: Best) -> str:
        values = [getattr(figures, field) for figures in device_figures(schedule)]
        shown = [f"{100 * value:.0f}" if isinstance(value, float) else str(value) for value in (min(values), max(values))]
        return "-".join(dict.fromkeys(shown)) + (" %" if isinstance(values[0], float) else "")

    return cell


def _asked(rows: Sequence[Row]) -> bool:
    return False


COLUMNS = (
    Column("makespan", 3, _time(lambda schedule: schedule.makespan), lambda units, rows: units.time),
    Column("device span", 6, _time(lambda schedule: schedule.device_span), lambda units, rows: units.time),
    Column("bubble ratio", 1, _ratio(lambda schedule: schedule.bubble_ratio)),
    Column("span bubble ratio", 7, _ratio(lambda schedule: schedule.span_bubble_ratio)),
    Column("summed span bubble ratio", 9, _ratio(lambda schedule: schedule.summed_span_bubble_ratio), wanted=_asked),
    Column("efficiency", 2, _ratio(lambda schedule: schedule.efficiency), wanted=_repeats),
    Column("relative efficiency", 4, lambda schedule, best: percent(best.share(schedule)), wanted=_asked),
    Column("speed-up", 5, lambda schedule, best: f"{schedule.speed_up:.3g}", wanted=_asked),
    Column(
        "throughput",
        3,
        lambda schedule, best: "" if schedule.throughput is None else figure(schedule.throughput[0]),
        lambda units, rows: next((rate[1] for rate in _rates(rows)), ""),
        wanted=_has_rates,
        there=_has_rates,
    ),
    Column("peak memory", 0, _peak, lambda units, rows: units.memory),
    *(
        Column(name, 4, _each_device(field), wanted=_maps, there=_maps)
        for name, field in (
            ("stages stored", "stages_stored"),
            ("weight fetches", "weight_fetches"),
            ("activations sent", "activations_sent"),
            ("peak activations", "peak_activations"),
            ("utilisation", "utilisation"),
        )
    ),
)
"""All columns, from left to right."""
