"""Traces of PyTorch's profiler."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from ppopt.files.blocks import Ranges, Span, check_names, parts_of_backward, parts_of_forward
from ppopt.files.recorded.kernels import Kernels, Launched
from ppopt.files.recorded.record import BlockError, Clock, ProfileError, Ran, Recorded, as_seconds, in_time
from ppopt.op import Kind, Op, parse

FORMAT = "profiler traces"
_RANGE = re.compile(r"PP:(\d+[FBIW]\d+)")


class _Operation(NamedTuple):
    """A range ``PP:3F0`` of a thread, in microseconds."""

    op: Op
    began: float
    duration: float
    thread: Any

    @property
    def ended(self) -> float:
        """Its end."""
        return self.began + self.duration


def read_trace(path: str, tree: dict[str, Any], skip: int, blocks: str) -> Recorded:
    """Ranges ``PP:3F0`` of a trace: when the GPU did what was launched in them, where the trace has a GPU, else the processor's
    without the wait at their beginning.

    ``blocks``: a regular expression for the whole name of the ranges that are layers.

    Raises:
        ProfileError: the trace has no such ranges, or blocks that are no layers.
        KeyError, TypeError, ValueError: it is no trace.
    """
    operations: list[_Operation] = []
    named: dict[Any, Ranges] = defaultdict(lambda: Ranges(re.compile(blocks)))
    inside: dict[Any, list[float]] = defaultdict(list)
    kernels = Kernels()
    for event in tree["traceEvents"]:
        if event.get("ph") != "X":
            continue
        category = event.get("cat")
        if category == "cpu_op":
            inside[event["tid"]].append(float(event["ts"]))
        elif category == "user_annotation":
            name, began, duration, thread = str(event["name"]), float(event["ts"]), as_seconds(event["dur"]), event["tid"]
            match = _RANGE.fullmatch(name)
            if match:
                op = parse(match[1])
                assert isinstance(op, Op)
                operations.append(_Operation(op, began, duration, thread))
            else:
                named[thread].add(name, began, duration)
        else:
            kernels.add(event)
    if not operations:
        raise ProfileError(
            "has no ranges named PP:…, which PyTorch's schedules of several stages and those from a CSV file make while the "
            "profiler runs; of Schedule1F1B there are none: use StageTimer, or run the same order as a CSV file"
        )
    for begins in inside.values():
        begins.sort()
    for ranges in named.values():
        ranges.sort()
    launched = kernels.on_one_stream((operation.began, operation.ended) for operation in operations)
    if launched is None and not inside:
        raise ProfileError("has no operations (cpu_op) inside its ranges, so that waiting cannot be told from computing")
    reader = _Processor(inside, named) if launched is None else _GPU(launched, named)
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
        ran = _measure(recorded, operation, reader, counts=seen[operation.op] > skip)
        recorded.steps.setdefault(seen[operation.op], []).append(ran)
    recorded.steps = {step: in_time(ran) for step, ran in sorted(recorded.steps.items())}
    return recorded


class _Processor(NamedTuple):
    """Operations that the processor computes, and when those of PyTorch inside them begin, by thread."""

    inside: Mapping[Any, list[float]]
    named: Mapping[Any, Ranges]

    def blocks(self, operation: _Operation, names: tuple[str, ...] | None) -> list[Span]:
        """The ranges of layers inside an operation."""
        return self.named[operation.thread].inside(operation.op, operation.began, operation.ended, names)

    def computed(self, operation: _Operation, spans: list[Span]) -> tuple[float, float]:
        """From when to when an operation computed: what comes before the first thing inside it is waiting."""
        began, end = operation.began, operation.ended
        if operation.op.kind == Kind.W:
            return began, end
        begins = self.inside[operation.thread]
        first = bisect_left(begins, began)
        return min([*begins[first : first + 1], *(span.begin for span in spans[:1]), end]), end


class _GPU(NamedTuple):
    """Operations that a GPU computes: what they and their layers launched."""

    launched: Launched
    named: Mapping[Any, Ranges]

    def blocks(self, operation: _Operation, names: tuple[str, ...] | None) -> list[Span]:
        """When the GPU did what the layers of an operation launched; the threads of a backward have their ranges, too."""
        threads = [operation.thread] if names is None else list(self.named)
        spans = [
            Span(span.name, *self.launched.done(span.begin, span.end))
            for thread in threads
            for span in self.named[thread].inside(operation.op, operation.began, operation.ended, names)
        ]
        return sorted(spans, key=lambda span: span.begin)

    def computed(self, operation: _Operation, spans: list[Span]) -> tuple[float, float]:
        """From when to when the GPU did what an operation launched."""
        return self.launched.done(operation.began, operation.ended)


def _measure(recorded: Recorded, operation: _Operation, reader: _Processor | _GPU, *, counts: bool) -> Ran:
    """When an operation computed; with ``counts`` it is one more sample."""
    op = operation.op
    forward = op.kind == Kind.F
    try:
        spans = reader.blocks(operation, None if forward else recorded.blocks[op.stage]) if counts else []
        if counts and forward:
            check_names(op, spans, recorded.blocks.setdefault(op.stage, tuple(span.name for span in spans)))
    except ValueError as error:
        raise BlockError(str(error)) from None
    begin, end = reader.computed(operation, spans)
    if counts:
        recorded.times.setdefault((op.stage, op.kind), []).append((end - begin) / 1e6)
        names = recorded.blocks[op.stage]
        parts = parts_of_forward(spans, begin, end) if forward else parts_of_backward(spans, names, begin, end)
        if parts:
            recorded.parts.setdefault((op.stage, op.kind), []).append(parts)
    return Ran(op, begin / 1e6, end / 1e6)
