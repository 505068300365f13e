"""A model file from a real run: PyTorch profiler traces, or the records of :class:`~ppopt.files.torch_timing.StageTimer`.

Every number is a median over steps and microbatches without the first steps; time that a stage waited for its input does not
count. As PyTorch computes nothing in stage 0's ``I`` and the full backward in its ``W``, stage 0 gets just these costs.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import median
from typing import TYPE_CHECKING, Any

from ppopt.files.blocks import Parts
from ppopt.files.inferred import infer_pipeline
from ppopt.files.model import Change, ModelError, model_of_text
from ppopt.files.recorded import BlockError, ProfileError, Recorded, Times
from ppopt.op import Kind, Op

if TYPE_CHECKING:
    from ppopt.files.profiled_layers import ProfiledLayers

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
    blocks: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Stage -> its blocks, as in :class:`~ppopt.files.recorded.Recorded`; stages without any are left out."""
    parts: Parts = field(default_factory=dict)

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
    parts: Parts = defaultdict(list)
    for file in files:
        for part, rows in file.parts.items():
            parts[part] += rows
        for family, samples in file.times.items():
            times[family] += samples
        for stage, size in file.activation.items():
            activation[stage] = max(size, activation.get(stage, 0.0))
        for pair, samples in file.links.items():
            links[pair] += samples
    latency = {pair: median(samples) for pair, samples in links.items() if samples}
    held = tuple(tuple(sorted(stages)) for stages, _ in groups)
    sources = tuple(file.source for file in files)
    return Profile(sources, held, next(iter(sizes)), dict(times), activation, latency, _blocks(files), dict(parts))


def _blocks(files: Sequence[Recorded]) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[tuple[str, ...], str]] = {}
    for file in files:
        for stage, names in file.blocks.items():
            others, source = found.setdefault(stage, (names, file.source)) if names else (names, "")
            if names != others:
                shown = ", ".join(map(repr, names)), ", ".join(map(repr, others))
                raise BlockError(f"stage {stage} runs the blocks {shown[0]} in {file.source}, and {shown[1]} in {source}")
    return {stage: names for stage, (names, _) in found.items()}


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


def model_text(profile: Profile, name: str, changes: Sequence[Change] = (), layers: ProfiledLayers | None = None) -> str:
    """A model file with a comment on every number: measured, given (``changes``), or assumed.

    ``layers``: those of the run, with the cut that it had; without, the file has the times of the stages.

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
    measured = bool(profile.activation)
    tree: dict[str, dict[str, Any]] = {
        "pipeline": table,
        "costs": {"per": "stage", **milliseconds(costs)},
        "links": _links(profile, placed.devices),
        "memory": _memory(profile),
        "units": {"time": "ms", "memory": "MiB"} if measured else {"time": "ms"},
    }
    comments = {f"costs.{key}": "measured" for key in costs}
    comments["links.latency"] = said(bool(profile.latency), "one way, for a message of the largest stage's output")
    comments["memory.activation"] = said(measured, "per stage, what autograd keeps and what is sent")
    if layers is not None:
        tree["costs"], tree["memory"] = {}, {}
        table["partition"] = list(layers.partition)
        comments["pipeline.partition"] = "layers of each stage in the run"
        notes = list(layers.notes)
    for change in changes:
        section, _, key = change.key.partition(".")
        if key:
            tree.setdefault(section, {})[key] = change.value
            comments[change.key] = f"given: {change.flag}"
        elif section == "name":
            name = change.value
        elif section == "layers":
            raise ModelError(change.flag, "layers", "they are those of the run; expected another key")
    text = "\n".join([*_head(profile, name, notes), *_tables(tree, comments, layers)]) + "\n"
    model_of_text(text, "profile", changes)
    return text


def _head(profile: Profile, name: str, notes: Sequence[str]) -> list[str]:
    steps = {len(samples) for samples in profile.times.values()}
    counted = f"{min(steps)}" if len(steps) == 1 else f"{min(steps)} to {max(steps)}"
    return [
        f"# Measured by ppopt profile from {', '.join(map(os.path.basename, profile.sources))}.",
        f"# Medians of {counted} samples (steps x microbatches); first steps and waiting for messages left out.",
        *(f"# {note[0].upper()}{note[1:]}." for note in notes),
        "format = 1",
        f"name = {toml(name)}",
    ]


def _tables(tree: Mapping[str, Mapping[str, Any]], comments: Mapping[str, str], layers: ProfiledLayers | None) -> list[str]:
    lines = []
    for section, values in tree.items():
        if values:
            lines.append(f"\n[{section}]")
        for key, value in values.items():
            comment = comments.get(f"{section}.{key}")
            lines.append(f"{key} = {toml(value)}" + (f"  # {comment}" if comment else ""))
        if section == "pipeline" and layers is not None:
            lines += layers.lines()
    return lines


def said(measured: bool, what: str) -> str:
    """The comment of a number that was measured, or was not."""
    return f"measured: {what}" if measured else "not measured: assumed; set it"


def milliseconds(costs: dict[str, list[float]]) -> dict[str, list[Decimal]]:
    """Seconds in milliseconds, to four digits of the largest: more is noise, and makes solvers slow."""
    largest = max(max(values) for values in costs.values()) * 1000
    digits = 3 - math.floor(math.log10(largest)) if largest else 0
    return {key: [_rounded(value * 1000, digits) for value in values] for key, values in costs.items()}


def mebibytes(held: float) -> Decimal:
    """Bytes in MiB, rounded up to three decimals."""
    return _rounded(math.ceil(held / 2**20 * 1000) / 1000, 3)


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
    return {"activation": [mebibytes(held) for _, held in sorted(profile.activation.items())]}


def toml(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml(item)}' for key, item in value.items())} }}"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return json.dumps(value, ensure_ascii=False)
