"""A run as text: its clocks, its devices, and beside its plan what took longer and came later."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ppopt.cli.render import shown, width
from ppopt.files.recorded import Clock
from ppopt.pipeline import microseconds
from ppopt.runs import Run, RunSchedule, idle_of
from ppopt.runs.beside import Beside, Late, figures_of, shares
from ppopt.text import figure, new_table, percent, sizes, unit, wrapped
from ppopt.timing.waits import Cause

LESS = {"idle: start": 2, "idle: end": 2, "idle: memory": 1, "idle: order": 1, "began": 1, "half within": 1}
"""Columns that are left out first where there is no room."""
SHOWN = 8
"""Most devices whose clocks are listed."""


def report(run: Run, measured: RunSchedule, found: Beside | None, top: int) -> str:
    """All that is printed of a run, beside its plan where there is one; ``top``: rows of the table of what came late."""
    label = measured.pipeline.units.time
    columns = width()
    parts = [
        *(wrapped(line, columns) for line in _head(run, measured)),
        "",
        _devices(measured, found),
        "",
        "What operations took",
        _operations(measured, found, label),
    ]
    if found is None:
        return "\n".join(parts)
    parts[3:3] = [wrapped(line, columns) for line in _summary(found)]
    late = found.late
    if late and top:
        which = f"the {top} of {len(late)} at which most was added" if len(late) > top else f"all {len(late)}"
        parts += ["", f"Operations that began later than planned, {which}", _late(late[:top], label)]
    return "\n".join(parts)


def _number(value: float) -> str:
    """Five significant digits."""
    return figure(value) if abs(value) >= 1e-9 else "0"


def _signed(value: float) -> str:
    return f"{value:+.4g}" if abs(value) >= 1e-9 else "0"


def _seconds(label: str) -> float:
    """Units of time in a second."""
    return float(Fraction(1_000_000) / (microseconds(label) or 1))


def _head(run: Run, measured: RunSchedule) -> Iterator[str]:
    label = measured.pipeline.units.time
    scale = _seconds(label)
    name = f"{sizes(measured.pipeline)}, {measured.pipeline.placement}"
    count = len(run.sources)
    line = f"{run.format} of {count} rank{'s' * (count > 1)}: {name}"
    others = [length for number, length in run.lengths.items() if number != run.step]
    if others:
        low, high = (_number(scale * of(others)) for of in (min, max))
        several = f"{len(others)} others took {low} to {high}" if len(others) > 1 else f"the other one took {low}"
        line += f"; step {run.step} ({several} {label} at the busiest rank)"
    yield line
    yield _clocks(run, label, scale)
    yield (
        f"makespan {_number(float(measured.pipeline.time(measured.makespan)))} {label}, "
        f"bubble ratio {percent(measured.bubble_ratio)}, span bubble ratio {percent(measured.span_bubble_ratio)}"
    )


def _clocks(run: Run, label: str, scale: float) -> str:
    """What the times count from, and what was done about it."""
    clocks = run.clocks
    text = f"clocks: from {clocks.basis.value}"
    moved = [f"device {d} {_signed(scale * offset)}" for d, offset in enumerate(clocks.offsets) if abs(offset) > 1e-9]
    shown = ", ".join(moved[:SHOWN]) + ", …" * (len(moved) > SHOWN)
    if clocks.fitted:
        within = "" if clocks.uncertain is None else f", within {_number(scale * clocks.uncertain)} {label}"
        text += f"; fitted to the messages{within}" + (f": {shown} {label}" if moved else "")
        if clocks.uncertain is None and len([row for row in run.rows if row]) > 1:
            text += " (messages in one direction alone: taken as if they took no time)"
    elif moved:
        text += f"; moved so that nothing begins before its input is there: {shown} {label}"
    if clocks.early > 1e-9:
        text += f"; {_number(scale * clocks.early)} {label} remain by which something begins before its input is there"
        if clocks.basis == Clock.OWN or run.format.startswith("Primus"):
            text += " (are the stages where they were? --placement)"
    return text


def _summary(found: Beside) -> Iterator[str]:
    """How much longer the step took than planned, and where that came up."""
    label = found.unit
    planned = found.planned
    took = float(found.measured.pipeline.time(found.measured.makespan))
    share = f" ({100 * (took / planned - 1):+.1f} %)" if planned else ""
    more = f"{_signed(took - planned)} {label}{share}"
    bubbles = 1 - sum(_work(found, d) for d in range(len(found.plan.work))) / (len(found.plan.work) * planned)
    yield f"plan: makespan {_number(planned)} {label}, bubble ratio {percent(bubbles)}; the step took {more}"
    path = found.path
    last = path[-1]
    longer, between = shares(path)
    end = last.late + last.longer
    when = f"{_number(abs(end))} {label} {'later' if end > 0 else 'earlier'} than planned" if abs(end) > 1e-9 else "as planned"
    yield (
        f"the last operation, {last.op}, ended {when}; on the path to it operations took {_signed(longer)}, "
        f"and {_signed(between)} passed between them"
    )


def _work(found: Beside, device: int) -> float:
    return found.plan.work[device] / found.plan.pipeline.ticks.per_unit


def _devices(measured: RunSchedule, found: Beside | None) -> str:
    """Where the time of each device went."""
    pipeline = measured.pipeline
    label = pipeline.units.time
    idle = idle_of(measured)
    causes = [cause for cause in Cause if any(of[cause] for of in idle)]
    heads = [unit("work", label), *(f"idle: {cause}" for cause in causes), "bubble ratio", *(["planned"] if found else [])]
    table = new_table(None, ["device"], heads, ranks=LESS)
    for device, (work, of) in enumerate(zip(measured.work, idle, strict=True)):
        times = (_number(float(pipeline.time(ticks))) for ticks in (work, *(of[cause] for cause in causes)))
        planned = [] if found is None else [percent(1 - _work(found, device) / found.planned)]
        table.add_row(str(device), *times, percent(1 - work / measured.makespan), *planned)
    return shown(table)


def _operations(measured: RunSchedule, found: Beside | None, label: str) -> str:
    """By device and kind."""
    heads = ["count", unit("median", label), "half within", *(["planned", "deviation"] if found else [])]
    table = new_table(None, ["device", "kind"], heads, ranks=LESS)
    before = None
    for each in figures_of(measured) if found is None else found.figures():
        cells = [str(each.count), _number(each.median), f"{_number(each.low)} to {_number(each.high)}"]
        if found is not None:
            cells.append("" if each.planned is None else _number(each.planned))
            cells.append("" if each.deviation is None else f"{100 * each.deviation:+.1f} %")
        table.add_row("" if each.device == before else str(each.device), each.kind, *cells)
        before = each.device
    return shown(table)


def _late(late: list[Late], label: str) -> str:
    heads = [unit("planned", label), "began", "late", "took longer"]
    table = new_table(None, ["operation", "device"], heads, ["waited for"], ranks=LESS)
    for each in late:
        times = (_number(each.planned), _number(each.began), _signed(each.late), _signed(each.longer))
        table.add_row(each.op, str(each.device), *times, _waited(each))
    return shown(table)


def _waited(each: Late) -> str:
    """What an operation waited for, how late that was, and what came up after it."""
    if each.waited_for is None:
        return "nothing"
    where = "before it" if each.waited_device == each.device else f"on device {each.waited_device}"
    return f"{each.waited_for} {where}, {_signed(each.waited_late)}; then {_signed(each.between)}"
