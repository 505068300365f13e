"""Traces of PyTorch's profiler."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from ppopt.files.blocks import Ranges, check_names, parts_of_backward, parts_of_forward
from ppopt.files.recorded.record import BlockError, Clock, ProfileError, Ran, Recorded, as_seconds, in_time
from ppopt.op import Kind, Op, parse

FORMAT = "profiler traces"
_RANGE = re.compile(r"PP:(\d+[FBIW]\d+)")
_CATEGORIES = ("gpu_user_annotation", "user_annotation")


class _Operation(NamedTuple):
    """A range ``PP:3F0`` of a trace, in microseconds; ``thread``: or the stream of a GPU."""

    op: Op
    began: float
    duration: float
    thread: Any


def read_trace(path: str, tree: dict[str, Any], skip: int, blocks: str) -> Recorded:
    """Ranges ``PP:3F0`` of a trace: those of the GPU where it has them, else the CPU's without the wait at their beginning.

    ``blocks``: a regular expression for the whole name of the ranges that are layers.

    Raises:
        ProfileError: the trace has no such ranges, or blocks that are no layers.
        KeyError, TypeError, ValueError: it is no trace.
    """
    found: dict[str, list[_Operation]] = {category: [] for category in _CATEGORIES}
    named: dict[tuple[str, Any], Ranges] = defaultdict(lambda: Ranges(re.compile(blocks)))
    inside: dict[Any, list[float]] = defaultdict(list)
    for event in tree["traceEvents"]:
        if event.get("ph") != "X":
            continue
        category = event.get("cat")
        if category == "cpu_op":
            inside[event["tid"]].append(float(event["ts"]))
        elif category in found:
            name, began, duration, thread = str(event["name"]), float(event["ts"]), as_seconds(event["dur"]), event["tid"]
            match = _RANGE.fullmatch(name)
            if match:
                op = parse(match[1])
                assert isinstance(op, Op)
                found[category].append(_Operation(op, began, duration, thread))
            else:
                named[category, thread].add(name, began, duration)
    category = next((category for category in _CATEGORIES if found[category]), None)
    if category is None:
        raise ProfileError(
            "has no ranges named PP:…, which PyTorch's schedules of several stages and those from a CSV file make while the "
            "profiler runs; of Schedule1F1B there are none: use StageTimer, or run the same order as a CSV file"
        )
    on_gpu = category == _CATEGORIES[0]
    if not on_gpu and not inside:
        raise ProfileError("has no operations (cpu_op) inside its ranges, so that waiting cannot be told from computing")
    for begins in inside.values():
        begins.sort()
    for ranges in named.values():
        ranges.sort()
    operations = _of_one_stream(found[category]) if on_gpu else found[category]
    distributed = tree.get("distributedInfo") or {}
    rank, ranks = (int(distributed[key]) if key in distributed else None for key in ("rank", "world_size"))
    microbatches = 1 + max(operation.op.microbatch for operation in operations)
    recorded = Recorded(path, rank, microbatches, {}, format=FORMAT, ranks=ranks)
    if "baseTimeNanoseconds" in tree:
        recorded.clock, recorded.zero = Clock.HOST, int(tree["baseTimeNanoseconds"])
    seen: dict[Op, int] = defaultdict(int)
    # the forwards first: they say which blocks a stage has
    for operation in sorted(operations, key=lambda each: (each.op.kind != Kind.F, each.began)):
        seen[operation.op] += 1
        ranges = named[category, operation.thread]
        ops = None if on_gpu else inside[operation.thread]
        begin = _measure(recorded, operation, ops, ranges, counts=seen[operation.op] > skip)
        ran = Ran(operation.op, begin / 1e6, (operation.began + operation.duration) / 1e6)
        recorded.steps.setdefault(seen[operation.op], []).append(ran)
    recorded.steps = {step: in_time(ran) for step, ran in sorted(recorded.steps.items())}
    return recorded


def _of_one_stream(operations: Sequence[_Operation]) -> list[_Operation]:
    """Those of the stream that computes: a range is on every stream on which something ran for it."""
    busy: Counter[Any] = Counter()
    for operation in operations:
        busy[operation.thread] += operation.duration  # type: ignore[assignment]
    stream = max(busy, key=lambda thread: busy[thread])
    return [operation for operation in operations if operation.thread == stream]


def _measure(recorded: Recorded, operation: _Operation, inside: list[float] | None, named: Ranges, *, counts: bool) -> float:
    """When an operation began to compute, in microseconds; with ``counts`` it is one more sample.

    ``inside``: when operations of its thread on the CPU begin, which tell when waiting is over.
    """
    op, began, duration, _ = operation
    end = began + duration
    forward = op.kind == Kind.F
    try:
        spans = named.inside(op, began, end, None if forward else recorded.blocks[op.stage]) if counts else []
        begin = began
        if inside is not None and op.kind != Kind.W:
            first = bisect_left(inside, began)
            begin = min([*inside[first : first + 1], *(span.begin for span in spans[:1]), end])
        if not counts:
            return begin
        if forward:
            check_names(op, spans, recorded.blocks.setdefault(op.stage, tuple(span.name for span in spans)))
    except ValueError as error:
        raise BlockError(str(error)) from None
    recorded.times.setdefault((op.stage, op.kind), []).append((end - begin) / 1e6)
    parts = parts_of_forward(spans, begin, end) if forward else parts_of_backward(spans, recorded.blocks[op.stage], begin, end)
    if parts:
        recorded.parts.setdefault((op.stage, op.kind), []).append(parts)
    return begin
