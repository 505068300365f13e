"""The figures of a schedule, derived from its records, and the comparison with recorded ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

from ppopt.checker.facts import facts_of
from ppopt.checker.layers import by_stage
from ppopt.checker.memory import levels
from ppopt.checker.places import weights_of
from ppopt.checker.records import Entry, Record, Run, apart, length_of, read_rows, read_schedule
from ppopt.checker.violation import Rule, Violation
from ppopt.pipeline import Pipeline, plain
from ppopt.schedule import Schedule

RATIO_TOLERANCE = Fraction(1, 10**6)
"""Ratios, and amounts of memory relative to themselves, are compared to this."""


@dataclass(frozen=True)
class Metrics:
    """What follows from the times of a schedule, exactly, in the model's units.

    ``work`` is what the operations of each device cost. Ratios are 0 where they would divide by no time at all.
    """

    makespan: Fraction
    """Last end minus first start, the devices' all-gathers and reduce-scatters included."""
    device_span: Fraction
    """The largest over the devices of own last end minus own first start, likewise."""
    bubble_ratio: Fraction
    """``1 - sum(work) / (D * makespan)``."""
    span_bubble_ratio: Fraction
    """``1 - max(work) / device_span``."""
    summed_span_bubble_ratio: Fraction
    """``1 - sum(work) / sum(spans)``."""
    overhead: Fraction
    """``(makespan - mean(work)) / mean(work)``."""
    work: tuple[Fraction, ...]
    """Per device."""
    peak_memory: tuple[Fraction, ...]
    """Per device, the most that it holds, static memory included."""


def metrics(pipeline: Pipeline, schedule: Schedule) -> Metrics:
    """The figures of a schedule of ``pipeline``."""
    return _metrics(read_schedule(pipeline, schedule))


def metrics_of(pipeline: Pipeline, rows: Sequence[Iterable[Record]]) -> Metrics:
    """The figures of recorded operations; see :func:`~ppopt.checker.rules.violations_of` for ``rows``.

    Records that name no operation or no time count for nothing.
    """
    return _metrics(read_rows(pipeline, rows))


def mismatches(
    pipeline: Pipeline,
    rows: Sequence[Iterable[Record]],
    transfers: Iterable[Record] = (),
    *,
    metrics: Mapping[str, Any] | None = None,
    outcome: Mapping[str, Any] | None = None,
) -> list[Violation]:
    """Where recorded figures are not those that follow from recorded times.

    ``metrics`` are named as in :class:`Metrics`; of its ``devices`` the figures that these and the records give are compared,
    and whether work and idle times add up to the makespan. ``outcome`` is a solver's: ``objective`` (``makespan`` or ``span``),
    ``value``, ``lower_bound``, ``gap`` and ``reason``. Each figure that is given is compared; times as
    :func:`~ppopt.checker.rules.violations_of` does, the rest to a millionth.
    """
    run = read_rows(pipeline, rows, transfers)
    derived = _metrics(run)
    slack = Fraction(run.tolerance, run.facts.per_time)
    return [
        *_metric_mismatches(derived, metrics or {}, slack),
        *_device_mismatches(run, derived, (metrics or {}).get("devices"), slack),
        *_once_mismatches(run, derived, metrics or {}),
        *_outcome_mismatches(derived, outcome or {}, slack),
    ]


def _metrics(run: Run) -> Metrics:
    devices = run.pipeline.devices
    rows = [*run.rows[:devices], *([] for _ in range(devices - len(run.rows)))]
    per_time, per_amount = run.facts.per_time, run.facts.per_amount
    begins = {d: min(e.start - run.traffic(run.facts.gather, e) for e in row) for d, row in enumerate(rows) if row}
    ends = {d: max(e.end + run.traffic(run.facts.scatter, e) for e in row) for d, row in enumerate(rows) if row}
    spans = [ends[d] - begins[d] if d in ends else 0 for d in range(devices)]
    makespan = max(ends.values(), default=0) - min(begins.values(), default=0)
    work = [sum(max(length_of(run, entry), 0) for entry in row) for row in rows]
    static = run.facts.static
    peaks = [
        max((held for _, held in levels(run, d)), default=static[d]) if d < len(run.rows) else static[d] for d in range(devices)
    ]
    return Metrics(
        makespan=Fraction(makespan, per_time),
        device_span=Fraction(max(spans), per_time),
        bubble_ratio=1 - Fraction(sum(work), devices * makespan) if makespan else Fraction(0),
        span_bubble_ratio=1 - Fraction(max(work), max(spans)) if max(spans) else Fraction(0),
        summed_span_bubble_ratio=1 - Fraction(sum(work), sum(spans)) if sum(spans) else Fraction(0),
        overhead=Fraction(makespan * devices, sum(work)) - 1 if sum(work) else Fraction(0),
        work=tuple(Fraction(w, per_time) for w in work),
        peak_memory=tuple(Fraction(peak, per_amount) for peak in peaks),
    )


def _metric_mismatches(derived: Metrics, recorded: Mapping[str, Any], slack: Fraction) -> Iterator[Violation]:
    for name in (field.name for field in fields(Metrics)):
        if name not in recorded:
            continue
        expected, given = getattr(derived, name), recorded[name]
        if not isinstance(expected, tuple):
            if not _close(name, given, expected, slack):
                yield _mismatch(None, f"metrics.{name}", given, expected)
            continue
        if not isinstance(given, list | tuple) or len(given) != len(expected):
            message = f"metrics.{name} has to list {len(expected)} devices, got {given!r}"
            yield Violation(Rule.METRIC, None, "", None, message)
            continue
        for device, (value, right) in enumerate(zip(given, expected, strict=True)):
            if not _close(name, value, right, slack):
                yield _mismatch(device, f"metrics.{name}[{device}]", value, right)


def _once_mismatches(run: Run, derived: Metrics, recorded: Mapping[str, Any]) -> Iterator[Violation]:
    """Whether ``efficiency`` and ``speed_up`` are what the records give, where no work is repeated; and, for the latter, none
    is paired."""
    if not derived.makespan or not {"efficiency", "speed_up"} & recorded.keys():
        return
    pipeline = run.pipeline
    memory = replace(pipeline.memory, limit=None)
    once = pipeline.changed(recompute="none", memory=memory, route_of_microbatch=pipeline.route_of_microbatch)
    kept = replace(run, pipeline=once, facts=facts_of(once, None))
    entries = [entry for row in run.rows for entry in row]
    work = sum(max(length_of(kept, entry), 0) for entry in entries)
    halves = [half for entry in entries for half in apart(entry)]
    alone = sum(max(length_of(kept, entry), 0) for entry in halves)
    expected = {
        "efficiency": Fraction(work, kept.facts.per_time) / (pipeline.devices * derived.makespan),
        "speed_up": Fraction(alone, kept.facts.per_time) / derived.makespan,
    }
    for name, right in expected.items():
        given = recorded.get(name)
        if given is not None and not _close(name, given, right, Fraction(0)):
            yield _mismatch(None, f"metrics.{name}", given, right)


def _device_mismatches(run: Run, derived: Metrics, recorded: Any, slack: Fraction) -> Iterator[Violation]:
    """What is wrong with ``metrics.devices``; nothing where there is none, as in files of earlier versions."""
    if recorded is None:
        return
    devices = run.pipeline.devices
    if not isinstance(recorded, list) or len(recorded) != devices or not all(isinstance(each, Mapping) for each in recorded):
        message = f"metrics.devices has to list {devices} devices, got {str(recorded)[:80]}"
        yield Violation(Rule.METRIC, None, "", None, message)
        return
    times = Fraction(1, run.facts.per_time)
    rows = [*run.rows[:devices], *([] for _ in range(devices - len(run.rows)))]
    starts = [min((e.start for e in row), default=None) for row in rows]
    ends = [max((e.end for e in row), default=None) for row in rows]
    begins = [entry.start - run.traffic(run.facts.gather, entry) for row in rows for entry in row]
    begin = min(begins, default=0) * times
    weights = list(weights_of(by_stage(run.pipeline), [_ran(run, row) for row in rows]))
    for device, given in enumerate(recorded):
        start, end = starts[device], ends[device]
        expected = {"work": derived.work[device], "peak_memory": derived.peak_memory[device]}
        if derived.makespan:
            expected["utilisation"] = derived.work[device] / derived.makespan
        if start is not None and end is not None:
            expected |= {"idle.start": start * times - begin, "idle.end": begin + derived.makespan - end * times}
        idle = derived.makespan - derived.work[device]
        for name in ("idle", "idle_by_phase"):
            expected[f"sum of {name}"] = idle
        expected |= weights[device]._asdict()
        for name, right in expected.items():
            value = _recorded(given, name)
            kind = "makespan" if "idle" in name else name
            if value is not None and not _close(kind, value, right, 8 * slack):
                yield _mismatch(device, f"metrics.devices[{device}]: {name}", value, right)


def _ran(run: Run, row: Sequence[Entry]) -> list[tuple[int, int, int]]:
    """Route, kind and stage of what a device has run."""
    found = []
    for key in (key for entry in row for key in entry.keys):
        family, microbatch = divmod(key, run.pipeline.microbatches)
        found.append((run.pipeline.route_of_microbatch[microbatch], *divmod(family, run.pipeline.stages)))
    return found


def _recorded(given: Mapping[str, Any], name: str) -> Any:
    """A figure of an entry of ``metrics.devices``; ``None``: it has none."""
    if name.startswith("sum of "):
        parts = given.get(name.removeprefix("sum of "))
        if parts is None:
            return None
        try:
            return sum(map(Fraction, parts.values()), Fraction(0))
        except (AttributeError, TypeError, ValueError, OverflowError):
            return parts
    table, dot, key = name.partition(".")
    part = given.get(table)
    return part if not dot else part.get(key) if isinstance(part, Mapping) else part


def _outcome_mismatches(derived: Metrics, outcome: Mapping[str, Any], slack: Fraction) -> Iterator[Violation]:
    objective, value, bound, reason = (outcome.get(key) for key in ("objective", "value", "lower_bound", "reason"))
    if reason in ("infeasible", "no-solution"):
        yield Violation(Rule.METRIC, None, "", None, f"result.reason is {reason}, but there is a schedule")
    elif reason is not None and value is None:
        yield Violation(Rule.METRIC, None, "", None, f"result.reason is {reason}, but there is no value")
    if objective is not None and value is not None:
        expected = derived.makespan if objective == "makespan" else derived.device_span
        if not _close("makespan", value, expected, slack):
            yield _mismatch(None, f"result.value ({objective})", value, expected)
    if value is None or bound is None:
        return
    value, bound = Fraction(value), Fraction(bound)
    if bound > value + slack:
        message = f"result.lower_bound is {plain(bound)}, more than the value {plain(value)} that a schedule reaches"
        yield Violation(Rule.BOUND, None, "", None, message)
    elif reason == "optimal" and bound < value - slack:
        message = f"result.reason is optimal, but the lower bound {plain(bound)} is less than the value {plain(value)}"
        yield Violation(Rule.BOUND, None, "", None, message)
    if outcome.get("gap") is not None:
        gap = (value - bound) / value if value else Fraction(0)
        if not _close("gap", outcome["gap"], gap, slack):
            yield _mismatch(None, "result.gap", outcome["gap"], gap)


def _close(name: str, given: Any, expected: Fraction, slack: Fraction) -> bool:
    if isinstance(given, bool) or not isinstance(given, int | float | Fraction):
        return False
    try:
        difference: Fraction = abs(Fraction(given) - expected)
    except (ValueError, OverflowError):  # not finite
        return False
    if name in ("makespan", "device_span", "work"):
        return difference <= slack
    if name == "peak_memory":
        return difference <= RATIO_TOLERANCE * expected
    return difference <= RATIO_TOLERANCE * max(Fraction(1), abs(expected))


def _mismatch(device: int | None, key: str, given: Any, expected: Fraction) -> Violation:
    return Violation(Rule.METRIC, device, "", None, f"{key} is {given!r}; the recorded operations give {plain(expected)}")
