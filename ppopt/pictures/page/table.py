"""The schedules of a page summed up in a table (HTML)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from html import escape

from ppopt.pictures.shown import Shown
from ppopt.pipeline import Pipeline
from ppopt.text import number, percent


def summary(several: Sequence[Shown]) -> str:
    """A row for each schedule, the best one marked; what cannot be compared with the first one is said, and has no efficiency."""
    reasons = [incomparable(several[0].schedule.pipeline, each.schedule.pipeline) for each in several]
    best = _best(several, reasons)
    time, memory = several[0].schedule.pipeline.units.time, several[0].schedule.pipeline.units.memory
    heads = [
        *("schedule", "placement", "chunks", _unit("makespan", time), _unit("device span", time), "bubble ratio"),
        *("relative efficiency", "lower bound", "gap", _unit("peak memory", memory), "limit"),
    ]
    rows = [_row(each, reason, best, each is best) for each, reason in zip(several, reasons, strict=True)]
    notes = [f"{each.title}: {reason}; not compared" for each, reason in zip(several, reasons, strict=True) if reason]
    if best is not None:
        notes.insert(
            0, f"Relative efficiency: the makespan of {best.title}, the shortest within its memory limit, over a schedule's own."
        )
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    said = "".join(f"<p>{escape(note)}</p>" for note in notes)
    body = "\n".join(rows)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n{said}'


def incomparable(first: Pipeline, other: Pipeline) -> str:
    """Why makespans of these two cannot be compared; empty: they can."""
    if first.microbatches != other.microbatches:
        several = "es" * (other.microbatches > 1)
        return f"it has {other.microbatches} microbatch{several}, the first schedule {first.microbatches}"
    if first.units.time != other.units.time:
        return f"its times are in {other.units.time or 'no unit'}, those of the first schedule in {first.units.time or 'no unit'}"
    if _work(first) != _work(other):
        return f"its work is {_shown(_work(other))}, that of the first schedule {_shown(_work(first))}"
    return ""


def _work(pipeline: Pipeline) -> Fraction:
    """What all devices have to do together, without recomputing, which a schedule may choose."""
    plain = pipeline
    if pipeline.recompute != "none":
        plain = pipeline.changed(
            recompute="none",
            memory=replace(pipeline.memory, limit=None),
            route_of_microbatch=pipeline.route_of_microbatch,
        )
    return Fraction(int(plain.work.sum()), plain.ticks.per_unit)


def _shown(work: Fraction) -> str:
    return number(work.numerator if work.denominator == 1 else float(work))


def _best(several: Sequence[Shown], reasons: Sequence[str]) -> Shown | None:
    fit = [each for each, reason in zip(several, reasons, strict=True) if not reason and each.schedule.within_memory]
    return min(fit, key=_makespan, default=None)


def _makespan(each: Shown) -> Fraction:
    return Fraction(each.schedule.makespan, each.schedule.pipeline.ticks.per_unit)


def _row(each: Shown, reason: str, best: Shown | None, is_best: bool) -> str:
    schedule, pipeline = each.schedule, each.schedule.pipeline
    efficiency = "–"
    if best is not None and not reason and schedule.makespan:
        efficiency = percent(float(_makespan(best) / _makespan(each)))
    bound = gap = "–"
    if each.proof is not None:
        bound = number(each.proof.lower_bound) + (" (device span)" if each.proof.objective == "span" else "")
        gap = percent(each.gap or 0.0)
    cells = [
        pipeline.placement,
        str(pipeline.chunks),
        number(pipeline.time(schedule.makespan)),
        number(pipeline.time(schedule.device_span)),
        percent(schedule.bubble_ratio),
        efficiency,
        bound,
        gap,
        number(pipeline.amount(max(schedule.peak_memory))),
    ]
    limited = pipeline.amounts.limit is not None or pipeline.amounts.host is not None
    within = "none" if not limited else "kept" if schedule.within_memory else "exceeded"
    mark = ' class="best"' if is_best else ' class="over"' if within == "exceeded" else ""
    title = escape(each.title) + (" <em>best</em>" if is_best else "")
    middle = "".join(f"<td>{escape(cell)}</td>" for cell in (*cells, within))
    return f'<tr{mark}><th scope="row">{title}</th>{middle}</tr>'


def _unit(name: str, unit: str) -> str:
    return f"{name} [{unit}]" if unit else name
