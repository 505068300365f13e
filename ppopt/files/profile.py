"""A model file from a real run: PyTorch profiler traces, or the records of :class:`~ppopt.files.torch_timing.StageTimer`.

Every number is a median over steps and microbatches without the first steps; time that a stage waited for its input does not
count. As PyTorch computes nothing in stage 0's ``I`` and the full backward in its ``W``, stage 0 gets just these costs.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import median
from typing import Any, TypeAlias

from ppopt.files.inferred import infer_pipeline
from ppopt.files.model import Change, model_of_text
from ppopt.files.text import MAX_BYTES
from ppopt.files.torch_timing import VERSION
from ppopt.op import Kind, Op, Send, parse

Times: TypeAlias = dict[tuple[int, Kind | Send], list[float]]
"""(stage, kind) -> seconds, a sample per step and microbatch."""


class ProfileError(ValueError):
    """Records or traces that give no model; says which file, and what is missing."""


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

    @property
    def stages(self) -> frozenset[int]:
        """The stages of this rank."""
        return frozenset(stage for stage, _ in self.times)


# --- reading -----------------------------------------------------------------------------------------------------


def read_recorded(path: str, skip: int = 1) -> Recorded:
    """One rank's trace (also gzipped) or timing record; the first ``skip`` steps are left out.

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
    read = None
    if isinstance(tree, dict):
        read = _timing if "ppopt_timing" in tree else _trace if "traceEvents" in tree else None
    if read is None:
        raise ProfileError(f"{path}: neither a timing record (ppopt_timing) nor a profiler trace (traceEvents)")
    try:
        recorded = read(path, tree, skip)
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


def _trace(path: str, tree: dict[str, Any], skip: int) -> Recorded:
    """Ranges ``PP:3F0`` of a trace: those of the GPU where it has them, else the CPU's without the wait at their beginning."""
    ranges: dict[str, list[tuple[Op, float, float, Any]]] = {"gpu_user_annotation": [], "user_annotation": []}
    inside: dict[Any, list[float]] = defaultdict(list)
    for event in tree["traceEvents"]:
        if event.get("ph") != "X":
            continue
        category = event.get("cat")
        if category == "cpu_op":
            inside[event["tid"]].append(float(event["ts"]))
        elif category in ranges and (match := _RANGE.fullmatch(str(event["name"]))):
            op = parse(match[1])
            assert isinstance(op, Op)
            ranges[category].append((op, float(event["ts"]), _seconds(event["dur"]), event["tid"]))
    on_gpu = bool(ranges["gpu_user_annotation"])
    found = ranges["gpu_user_annotation" if on_gpu else "user_annotation"]
    if not found:
        raise ProfileError(f"{path}: has no ranges named PP:…, which PyTorch's schedules make while the profiler runs")
    if not on_gpu and not inside:
        raise ProfileError(f"{path}: has no operations (cpu_op) inside its ranges, so that waiting cannot be told from computing")
    for begins in inside.values():
        begins.sort()
    times: Times = defaultdict(list)
    step_of: dict[Op, int] = defaultdict(int)
    for op, began, duration, thread in sorted(found, key=lambda item: item[1]):
        step_of[op] += 1
        if step_of[op] <= skip:
            continue
        waited = 0.0
        if not on_gpu and op.kind != Kind.W:
            begins = inside[thread]
            first = bisect_left(begins, began)
            waited = begins[first] - began if first < len(begins) and begins[first] < began + duration else duration
        times[op.stage, op.kind].append((duration - waited) / 1e6)
    distributed = tree.get("distributedInfo") or {}
    rank = int(distributed["rank"]) if "rank" in distributed else None
    return Recorded(path, rank, 1 + max(op.microbatch for op in step_of), dict(times))


# --- one model of all ranks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Profile:
    """What all files say together."""

    sources: tuple[str, ...]
    held: tuple[tuple[int, ...], ...]
    """Per device, its stages."""
    microbatches: int
    times: Times
    activation: dict[int, float]
    latency: dict[tuple[int, int], float]
    """Pair of devices -> seconds."""

    @property
    def stages(self) -> int:
        """S."""
        return sum(map(len, self.held))


def combine(files: Sequence[Recorded]) -> Profile:
    """All ranks together. Files of the same stages are the same rank (two runs, or replicas), in the order of their ranks.

    Raises:
        ProfileError: stages are missing or on two ranks, or the files are of different runs.
    """
    by_stages: dict[frozenset[int], list[Recorded]] = defaultdict(list)
    for file in files:
        by_stages[file.stages].append(file)
    groups = list(by_stages.items())
    if all(file.rank is not None for file in files):
        groups.sort(key=lambda group: min(file.rank or 0 for file in group[1]))
    owner: dict[int, str] = {}
    for stages, of_rank in groups:
        for stage in stages:
            if stage in owner:
                raise ProfileError(f"stage {stage} is in {owner[stage]} with other stages than in {of_rank[0].source}")
            owner[stage] = of_rank[0].source
    missing = sorted(set(range(max(owner) + 1)) - owner.keys())
    if missing:
        raise ProfileError(f"stage {missing[0]} of 0..{max(owner)} is in no file; give the files of all ranks")
    sizes = {file.microbatches: file.source for file in files}
    if len(sizes) > 1:
        (a, first), (b, second) = list(sizes.items())[:2]
        raise ProfileError(f"{first} has {a} microbatches, {second} {b}")
    times: Times = defaultdict(list)
    activation: dict[int, float] = {}
    links: dict[tuple[int, int], list[float]] = defaultdict(list)
    for file in files:
        for family, samples in file.times.items():
            times[family] += samples
        for stage, size in file.activation.items():
            activation[stage] = max(size, activation.get(stage, 0.0))
        for pair, samples in file.links.items():
            links[pair] += samples
    latency = {pair: median(samples) for pair, samples in links.items() if samples}
    held = tuple(tuple(sorted(stages)) for stages, _ in groups)
    return Profile(tuple(file.source for file in files), held, next(iter(sizes)), dict(times), activation, latency)


def durations(profile: Profile) -> tuple[dict[str, list[float]], list[str]]:
    """Seconds per stage for each key of ``costs``, and what is to be said of them.

    Raises:
        ProfileError: a stage has no forward, no backward, or (where others have) no split backward.
    """
    medians = {family: median(samples) for family, samples in profile.times.items()}
    stages = range(profile.stages)

    def missing(kind: str, needed: Iterable[int]) -> None:
        for stage in needed:
            if (stage, Kind[kind]) not in medians:
                raise ProfileError(
                    f"stage {stage} never ran {kind}; profile a run in which every stage runs it "
                    "(several runs together give F, B, I and W)"
                )

    missing("F", stages)
    costs = {"forward": [medians[s, Kind.F] for s in stages]}
    split = any((s, Kind.W) in medians for s in stages)
    notes = []
    if (0, Kind.B) in medians:
        full = medians[0, Kind.B]
    else:
        missing("W", [0])
        full = medians.get((0, Kind.I), 0.0) + medians[0, Kind.W]
    if split:
        missing("I", stages[1:])
        missing("W", stages[1:])
        costs["backward_input"] = [0.0, *(medians[s, Kind.I] for s in stages[1:])]
        costs["backward_weight"] = [full, *(medians[s, Kind.W] for s in stages[1:])]
        notes.append("stage 0 needs no input gradient: PyTorch's 0I computes nothing, its 0W the full backward")
        sums = [i + w for i, w in zip(costs["backward_input"], costs["backward_weight"], strict=True)]
    fused = [s for s in stages[1:] if (s, Kind.B) in medians]
    if fused or not split:
        if not split:
            missing("B", stages[1:])
        costs["backward"] = [full, *(medians[s, Kind.B] if s in fused else sums[s] for s in stages[1:])]
        if len(fused) < len(stages[1:]):
            summed = ", ".join(str(s) for s in stages[1:] if s not in fused)
            notes.append(f"B of stage {summed} was not run: the sum of its I and W")
    return costs, notes


# --- the file ----------------------------------------------------------------------------------------------------


def model_text(profile: Profile, name: str, changes: Sequence[Change] = ()) -> str:
    """A model file with a comment on every number: measured, given (``changes``), or assumed.

    Raises:
        ProfileError: see :func:`durations`.
        ModelError: a change does not fit.
    """
    costs, notes = durations(profile)
    placed = infer_pipeline([[Op(stage, Kind.F, 0) for stage in stages] for stages in profile.held])
    table: dict[str, Any] = {"devices": placed.devices, "microbatches": profile.microbatches}
    table |= (
        {"routes": [list(route) for route in placed.routes]}
        if placed.placement == "routes"
        else {"placement": placed.placement, "chunks": placed.chunks}
    )
    steps = {len(samples) for samples in profile.times.values()}
    counted = f"{min(steps)}" if len(steps) == 1 else f"{min(steps)} to {max(steps)}"
    tree: dict[str, dict[str, Any]] = {
        "pipeline": table,
        "costs": {"per": "stage", **_milliseconds(costs)},
        "links": _links(profile, placed.devices),
        "memory": _memory(profile),
        "units": {"time": "ms", "memory": "MiB"} if profile.activation else {"time": "ms"},
    }
    comments = {f"costs.{key}": "measured" for key in costs}
    comments["links.latency"] = _said(bool(profile.latency), "one way, for a message of the largest stage's output")
    comments["memory.activation"] = _said(bool(profile.activation), "per stage, what autograd keeps and what is sent")
    for change in changes:
        section, _, key = change.key.partition(".")
        if section in tree and key:
            tree[section][key] = change.value
            comments[change.key] = f"given: {change.flag}"
    lines = [
        f"# Measured by ppopt profile from {', '.join(map(os.path.basename, profile.sources))}.",
        f"# Medians of {counted} samples (steps x microbatches); first steps and waiting for messages left out.",
        *(f"# {note[0].upper()}{note[1:]}." for note in notes),
        "format = 1",
        f"name = {_toml(name)}",
    ]
    for section, values in tree.items():
        lines.append(f"\n[{section}]")
        for key, value in values.items():
            comment = comments.get(f"{section}.{key}")
            lines.append(f"{key} = {_toml(value)}" + (f"  # {comment}" if comment else ""))
    text = "\n".join(lines) + "\n"
    model_of_text(text, "profile", changes)
    return text


def _said(measured: bool, what: str) -> str:
    return f"measured: {what}" if measured else "not measured: assumed; set it"


def _milliseconds(costs: dict[str, list[float]]) -> dict[str, list[Decimal]]:
    """In milliseconds, to four digits of the largest: more is noise, and makes solvers slow."""
    largest = max(max(values) for values in costs.values()) * 1000
    digits = 3 - math.floor(math.log10(largest)) if largest else 0
    return {key: [_rounded(value * 1000, digits) for value in values] for key, values in costs.items()}


def _rounded(value: float, digits: int) -> Decimal:
    number = Decimal(value).quantize(Decimal(1).scaleb(-digits))
    return number.normalize() + 0 if number else Decimal(0)


def _links(profile: Profile, devices: int) -> dict[str, Any]:
    pairs = {(a, b) for a in range(devices) for b in range(a + 1, devices)}
    if not profile.latency or not pairs <= profile.latency.keys():
        return {"latency": 0}
    table = [[0.0] * devices for _ in range(devices)]
    for a, b in pairs:
        table[a][b] = table[b][a] = profile.latency[a, b]
    return {"latency": [[_rounded(seconds * 1000, 4) for seconds in row] for row in table]}


def _memory(profile: Profile) -> dict[str, Any]:
    if profile.activation.keys() != set(range(profile.stages)):
        return {"activation": 1}
    return {"activation": [_rounded(math.ceil(held / 2**20 * 1000) / 1000, 3) for _, held in sorted(profile.activation.items())]}


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return json.dumps(value, ensure_ascii=False)
