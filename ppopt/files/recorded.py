"""What one file of a real run says of one rank: a trace of PyTorch's profiler, or a record of
:class:`~ppopt.files.torch_timing.StageTimer`."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ppopt.files.blocks import BLOCK, Parts, Ranges, check_names, parts_of_backward, parts_of_forward
from ppopt.files.text import MAX_BYTES
from ppopt.files.torch_timing import VERSION
from ppopt.op import Kind, Op, Send, parse

Times: TypeAlias = dict[tuple[int, Kind | Send], list[float]]
"""(stage, kind) -> seconds, a sample per step and microbatch."""


class ProfileError(ValueError):
    """Records or traces that give no model; says which file, and what is missing."""


class BlockError(ProfileError):
    """Ranges in the forwards of a trace that cannot be the layers of a model."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem} (--blocks says which ranges are layers; --layers none writes times of stages)")


@dataclass
class Recorded:
    """What one file says of one rank."""

    source: str
    rank: int | None
    microbatches: int
    times: Times
    activation: dict[int, float] = field(default_factory=dict)
    """Stage -> bytes."""
    links: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    """Pair of ranks -> seconds, one way."""
    blocks: dict[int, tuple[str, ...]] = field(default_factory=lambda: defaultdict(tuple))
    """Stage -> the names of its blocks, in the order in which its forward runs them."""
    parts: Parts = field(default_factory=dict)
    """How the times of stages with blocks are made up of theirs."""

    @property
    def stages(self) -> frozenset[int]:
        """The stages of this rank."""
        return frozenset(stage for stage, _ in self.times)


def read_recorded(path: str, skip: int = 1, blocks: str = BLOCK) -> Recorded:
    """One rank's trace (also gzipped) or timing record; the first ``skip`` steps are left out.

    ``blocks``: a regular expression for the whole name of the ranges of a trace that are layers.

    Raises:
        ProfileError: the file cannot be read, is neither, or holds no step beyond those.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if data[:2] == b"\x1f\x8b":
            with gzip.open(path) as unpacked:
                data = unpacked.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ProfileError(f"{path}: is larger than {MAX_BYTES} bytes, the most that is read")
        tree = json.loads(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ProfileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ProfileError(f"{path}: not a JSON file: {error}") from None
    if not isinstance(tree, dict) or not {"ppopt_timing", "traceEvents"} & tree.keys():
        raise ProfileError(f"{path}: neither a timing record (ppopt_timing) nor a profiler trace (traceEvents)")
    try:
        recorded = _timing(path, tree, skip) if "ppopt_timing" in tree else _trace(path, tree, skip, blocks)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, ProfileError):
            raise
        raise ProfileError(f"{path}: not as expected: {type(error).__name__}: {error}") from None
    if not recorded.times:
        raise ProfileError(f"{path}: no stage ran after the first {skip} step{'s' * (skip != 1)}, which are left out")
    return recorded


def _timing(path: str, tree: dict[str, Any], skip: int) -> Recorded:
    if tree["ppopt_timing"] != VERSION:
        raise ProfileError(f"{path}: expected a timing record of version {VERSION}, got {tree['ppopt_timing']!r}")
    times: Times = {}
    activation = {}
    for of_stage in tree["stages"]:
        stage = int(of_stage["stage"])
        for kind, steps in of_stage["seconds"].items():
            samples = [_seconds(sample) for step in steps[skip:] for sample in step]
            if samples:
                times[stage, Kind[kind]] = samples
        if "activation_bytes" in of_stage:
            activation[stage] = _seconds(of_stage["activation_bytes"])
    links = {(int(link["from"]), int(link["to"])): [_seconds(s) for s in link["seconds"]] for link in tree["links"]}
    return Recorded(path, int(tree["rank"]), int(tree["microbatches"]), times, activation, links)


def _seconds(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"expected a finite number >= 0, got {value!r}")
    return number


_RANGE = re.compile(r"PP:(\d+[FBIW]\d+)")
_CATEGORIES = ("gpu_user_annotation", "user_annotation")


class _Operation(NamedTuple):
    """A range ``PP:3F0`` of a trace, in microseconds; ``thread``: or the stream of a GPU."""

    op: Op
    began: float
    duration: float
    thread: Any


def _trace(path: str, tree: dict[str, Any], skip: int, blocks: str) -> Recorded:
    """Ranges ``PP:3F0`` of a trace: those of the GPU where it has them, else the CPU's without the wait at their beginning."""
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
            name, began, duration, thread = str(event["name"]), float(event["ts"]), _seconds(event["dur"]), event["tid"]
            match = _RANGE.fullmatch(name)
            if match:
                op = parse(match[1])
                assert isinstance(op, Op)
                found[category].append(_Operation(op, began, duration, thread))
            else:
                named[category, thread].add(name, began, duration)
    category = next((category for category in _CATEGORIES if found[category]), None)
    if category is None:
        raise ProfileError(f"{path}: has no ranges named PP:…, which PyTorch's schedules make while the profiler runs")
    on_gpu = category == _CATEGORIES[0]
    if not on_gpu and not inside:
        raise ProfileError(f"{path}: has no operations (cpu_op) inside its ranges, so that waiting cannot be told from computing")
    for begins in inside.values():
        begins.sort()
    for ranges in named.values():
        ranges.sort()
    distributed = tree.get("distributedInfo") or {}
    rank = int(distributed["rank"]) if "rank" in distributed else None
    microbatches = 1 + max(operation.op.microbatch for operation in found[category])
    recorded = Recorded(path, rank, microbatches, {})
    seen: dict[Op, int] = defaultdict(int)
    # the forwards first: they say which blocks a stage has
    for operation in sorted(found[category], key=lambda each: (each.op.kind != Kind.F, each.began)):
        seen[operation.op] += 1
        if seen[operation.op] > skip:
            ranges = named[category, operation.thread]
            _measure(recorded, operation, None if on_gpu else inside[operation.thread], ranges)
    return recorded


def _measure(recorded: Recorded, operation: _Operation, inside: list[float] | None, named: Ranges) -> None:
    """One more sample; ``inside``: when operations of its thread on the CPU begin, which tell when waiting is over."""
    op, began, duration, _ = operation
    end = began + duration
    forward = op.kind == Kind.F
    try:
        spans = named.inside(op, began, end, None if forward else recorded.blocks[op.stage])
        begin = began
        if inside is not None and op.kind != Kind.W:
            first = bisect_left(inside, began)
            begin = min([*inside[first : first + 1], *(span.begin for span in spans[:1]), end])
        if forward:
            check_names(op, spans, recorded.blocks.setdefault(op.stage, tuple(span.name for span in spans)))
    except ValueError as error:
        raise BlockError(f"{recorded.source}: {error}") from None
    recorded.times.setdefault((op.stage, op.kind), []).append((end - begin) / 1e6)
    parts = parts_of_forward(spans, begin, end) if forward else parts_of_backward(spans, recorded.blocks[op.stage], begin, end)
    if parts:
        recorded.parts.setdefault((op.stage, op.kind), []).append(parts)
