"""The copies of activations to the host and back: made in pairs, in time, one at a time, and within what the host holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from ppopt.checker.copied import must_of
from ppopt.checker.records import Copied, Run
from ppopt.checker.violation import Rule, Violation
from ppopt.checker.waits import Ran
from ppopt.op import Kind

Found: TypeAlias = Iterator[Violation]


def copy_violations(run: Run, ran: Ran) -> Found:
    """Everything that is wrong with the copies of a run."""
    if run.pipeline.offload is None:
        return
    made: dict[tuple[int, int], list[Copied | None]] = {}
    for copy in sorted(run.copied, key=lambda copy: (copy.start, copy.end)):
        both = made.setdefault((copy.stage, copy.microbatch), [None, None])
        if both[copy.back] is not None:
            at = run.time(copy.start)
            yield Violation(Rule.TWICE, _device(run, copy), str(copy), at, f"the copy {copy} is made again at {at}")
        else:
            both[copy.back] = copy
    yield from _complete(run, made)
    for (stage, microbatch), (out, back) in made.items():
        yield from _times(run, ran, stage, microbatch, out, back)
    yield from _engines(run)
    yield from _host(run)


def _complete(run: Run, made: dict[tuple[int, int], list[Copied | None]]) -> Found:
    pipeline = run.pipeline
    for microbatch, route in enumerate(pipeline.route_of_microbatch):
        for stage in range(pipeline.stages):
            out, back = made.get((stage, microbatch), (None, None))
            device, place = pipeline.routes[route][stage], f"stage {stage} and microbatch {microbatch}"
            if (out is None) != (back is None):
                copy = out or back
                assert copy is not None
                way = "never comes back from the host" if back is None else "was never copied to the host"
                at = run.time(copy.start)
                yield Violation(Rule.COPY, device, str(copy), at, f"{copy}: the activation of {place} {way}")
            must = must_of(pipeline, route, stage) if run.facts.copy_out[route][stage] >= 0 else None
            if must is not None and (microbatch in must) != (out is not None):
                what = "has to be copied to the host" if microbatch in must else "is not to be copied to the host"
                op = f"{stage}OFFLOAD{microbatch}"
                yield Violation(Rule.COPY, device, op, None, f"{op}: the activation of {place} {what} (offload.stages)")


def _times(run: Run, ran: Ran, stage: int, microbatch: int, out: Copied | None, back: Copied | None) -> Found:
    pipeline, slack = run.pipeline, run.tolerance
    route = pipeline.route_of_microbatch[microbatch]
    for copy in (out, back):
        if copy is None:
            continue
        at, device = run.time(copy.start), _device(run, copy)
        takes = (run.facts.copy_out, run.facts.copy_in)[copy.back][route][stage]
        if abs(copy.end - copy.start - takes) > slack:
            message = f"the copy {copy} holds its engine for {run.time(copy.end - copy.start)}; it takes {run.time(takes)}"
            yield Violation(Rule.DURATION, device, str(copy), at, message)
    slots = pipeline.stages * pipeline.microbatches
    slot = stage * pipeline.microbatches + microbatch
    forward = ran.end[slot]
    if out is not None and forward is not None and out.start < forward - slack:
        message = f"the copy {out} starts at {run.time(out.start)}, before its forward ends at {run.time(forward)}"
        yield Violation(Rule.COPY, _device(run, out), str(out), run.time(out.start), message)
    if out is not None and back is not None and back.start < out.end - slack:
        message = f"the copy {back} starts at {run.time(back.start)}, before {out} ends at {run.time(out.end)}"
        yield Violation(Rule.COPY, _device(run, back), str(back), run.time(back.start), message)
    ready = None if back is None else back.end + run.facts.margin[route][stage]
    for kind in (Kind.B, Kind.I):
        start = ran.start[kind * slots + slot]
        if back is not None and ready is not None and start is not None and start < ready - slack:
            op, at = run.text(kind * slots + slot), run.time(start)
            margin = "" if ready == back.end else f" and {run.time(ready - back.end)} more"
            message = f"{op} starts at {at}, before the copy {back} of its activation ends at {run.time(back.end)}{margin}"
            yield Violation(Rule.COPY, _device(run, back), op, at, message)


def _engines(run: Run) -> Found:
    last: dict[tuple[int, bool], Copied] = {}
    for copy in sorted(run.copied, key=lambda copy: (copy.start, copy.end)):
        engine = _engine(run, copy)
        other = last.get(engine)
        if other is not None and copy.start < other.end - run.tolerance:
            at = run.time(copy.start)
            message = f"the copy {copy} starts at {at} while {other} holds the engine until {run.time(other.end)}"
            yield Violation(Rule.ENGINE, _device(run, copy), str(copy), at, message)
        if other is None or copy.end >= other.end:
            last[engine] = copy


def _host(run: Run) -> Found:
    if run.facts.host is None:
        return
    changes = []
    for copy in run.copied:
        away = run.facts.away[run.pipeline.route_of_microbatch[copy.microbatch]][copy.stage]
        changes.append((copy.end, 0, -away, copy) if copy.back else (copy.start, 1, away, copy))
    held = 0
    for time, _, amount, copy in sorted(changes, key=lambda change: change[:2]):
        held += amount
        if amount > 0 and held > run.facts.host:
            most, at = run.amount(run.facts.host), run.time(time)
            message = f"the host holds {run.amount(held)} from the start of {copy} at {at} on; its limit is {most}"
            yield Violation(Rule.MEMORY, _device(run, copy), str(copy), at, message)


def _engine(run: Run, copy: Copied) -> tuple[int, bool]:
    """The group of devices, by its first, and the direction where each has its own engine."""
    assert run.pipeline.offload is not None
    device = _device(run, copy)
    group = next((group for group in run.pipeline.offload.shared if device in group), (device,))
    return min(group), copy.back and run.pipeline.offload.engines == 2


def _device(run: Run, copy: Copied) -> int:
    return run.pipeline.routes[run.pipeline.route_of_microbatch[copy.microbatch]][copy.stage]
