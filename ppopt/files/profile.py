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
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from ppopt.files.blocks import Parts
from ppopt.files.inferred import infer_pipeline
from ppopt.files.link_fit import LinkFit, fits, said_of
from ppopt.files.model import Change, ModelError, model_of_text
from ppopt.files.ranks import by_device, missing_ranks, stages_of
from ppopt.files.recorded import BlockError, ProfileError, Recorded, Times, timing, traces
from ppopt.files.recorded.record import Messages
from ppopt.op import Kind, Op, Send

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
    links: dict[tuple[int, int], LinkFit]
    """Pair of devices -> what their messages take."""
    blocks: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Stage -> its blocks, as in :class:`~ppopt.files.recorded.Recorded`; stages without any are left out."""
    parts: Parts = field(default_factory=dict)
    pairs: dict[int, list[float]] = field(default_factory=dict)
    """Stage of the forward -> seconds of the overlapped pairs."""
    output: dict[int, float] = field(default_factory=dict)
    """Stage -> bytes of what it sends on."""
    warnings: tuple[str, ...] = ()
    """What is to be said of ranks that no file is of."""
    torch: bool = True
    """Whether PyTorch's runtime ran it, which runs all of the backward of stage 0 at once."""

    @property
    def stages(self) -> int:
        """S."""
        return sum(map(len, self.held))

    @property
    def occupied(self) -> bool:
        """Whether the links were measured with messages of several sizes, so that it is known how long one holds them."""
        devices = range(len(self.held))
        known = (self.links.get((a, b)) for a in devices for b in devices if a < b)
        return len(devices) > 1 and all(found is not None and len(found.sizes) > 1 for found in known)


def combine(files: Sequence[Recorded]) -> Profile:
    """All ranks together. Files of the same stages are the same rank (two runs, or replicas), in the order of their ranks.

    Raises:
        ProfileError: stages are missing or on two ranks, or the files are of different runs.
    """
    groups = by_device(files)
    warnings = missing_ranks(files, groups)
    held = stages_of(groups)
    for device, group in enumerate(groups):
        if not group:
            raise ProfileError(f"device {device}, with {_stages(held[device])}, is in no file; give the files of all ranks")
    times: Times = defaultdict(list)
    pairs: dict[int, list[float]] = defaultdict(list)
    activation: dict[int, float] = {}
    output: dict[int, float] = {}
    links: dict[tuple[int, int], Messages] = defaultdict(lambda: defaultdict(list))
    parts: Parts = defaultdict(list)
    for file in files:
        for part, rows in file.parts.items():
            parts[part] += rows
        for family, samples in file.times.items():
            times[family] += samples
        for stage, samples in file.pairs.items():
            pairs[stage] += samples
        for known, sizes in ((activation, file.activation), (output, file.output)):
            for stage, size in sizes.items():
                known[stage] = max(size, known.get(stage, 0.0))
        for pair, messages in file.links.items():
            for size, samples in messages.items():
                links[pair][int(size)] += samples
    return Profile(
        tuple(file.source for file in files),
        held,
        files[0].microbatches,
        dict(times),
        activation,
        fits(links),
        _blocks(files),
        dict(parts),
        dict(pairs),
        output,
        tuple(warnings),
        all(file.format in (timing.FORMAT, traces.FORMAT, "") for file in files),
    )


def _stages(stages: Sequence[int]) -> str:
    return f"stage{'s' * (len(stages) > 1)} {', '.join(map(str, stages))}"


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
                paired = ", but in overlapped pairs" if profile.pairs and kind in "FB" else ""
                raise ProfileError(
                    f"stage {stage} never ran {kind}{paired}; profile a run in which every stage runs it "
                    "(several runs together give F, B, I and W)"
                )

    missing("F", stages)
    costs = {"forward": [medians[s, Kind.F] for s in stages]}
    split = any((s, Kind.W) in medians for s in stages)
    notes = []
    if profile.torch:
        if (0, Kind.B) not in medians:
            missing("W", [0])
            medians[0, Kind.B] = medians.get((0, Kind.I), 0.0) + medians[0, Kind.W]
        if split:
            medians[0, Kind.I], medians[0, Kind.W] = 0.0, medians[0, Kind.B]
            notes.append("stage 0 needs no input gradient: PyTorch's 0I computes nothing, its 0W the full backward")
    if split:
        missing("I", stages)
        missing("W", stages)
        costs["backward_input"] = [medians[s, Kind.I] for s in stages]
        costs["backward_weight"] = [medians[s, Kind.W] for s in stages]
        sums = [i + w for i, w in zip(costs["backward_input"], costs["backward_weight"], strict=True)]
    own = stages[1:] if profile.torch else stages
    fused = [s for s in own if (s, Kind.B) in medians]
    if fused or not split:
        if not split:
            missing("B", stages)
        costs["backward"] = [medians[s, Kind.B] if (s, Kind.B) in medians else sums[s] for s in stages]
        if summed := ", ".join(str(s) for s in own if s not in fused):
            notes.append(f"B of stage {summed} was not run: the sum of its I and W")
    if profile.pairs:
        back = costs.get("backward") or sums
        alone = [forward + backward for forward, backward in zip(costs["forward"], back, strict=True)]
        costs["overlap"] = [median(profile.pairs[s]) if s in profile.pairs else alone[s] for s in stages]
        if summed := ", ".join(str(s) for s in stages if s not in profile.pairs):
            notes.append(f"a forward of stage {summed} was in no overlapped pair: the sum of its F and B")
    return costs, notes


def spreads(profile: Profile) -> list[str]:
    """How far the samples are apart: by kind, within what part of the median the middle half of them lies; the widest stage."""
    widest: dict[Kind | Send, tuple[float, float]] = {}
    for (_, kind), samples in profile.times.items():
        middle = median(samples)
        if len(samples) > 1 and middle:
            low, _, high = quantiles(samples, n=4, method="inclusive")
            known = widest.get(kind, (0.0, 0.0))
            widest[kind] = min(known[0], low / middle - 1), max(known[1], high / middle - 1)
    return [f"{kind.name} {100 * low:+.1f} to {100 * high:+.1f} %" for kind, (low, high) in sorted(widest.items())]


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
    comments |= _of_links(profile)
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
    apart = spreads(profile)
    return [
        f"# Measured by ppopt profile from {', '.join(map(os.path.basename, profile.sources))}.",
        f"# Medians of {counted} samples (steps x microbatches); first steps and waiting for messages left out.",
        *([f"# Half of the samples lie within: {', '.join(apart)} of their median, in the widest stage."] if apart else []),
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
    """Latency, and occupancy where messages of several sizes tell it, of the largest message between two devices."""
    pairs = [(a, b) for a in range(devices) for b in range(a + 1, devices)]
    if not profile.links or not set(pairs) <= profile.links.keys():
        return {"latency": 0}
    latency, occupancy = ([[0.0] * devices for _ in range(devices)] for _ in range(2))
    for low, high in pairs:
        found = profile.links[low, high]
        for a, b in ((low, high), (high, low)):
            latency[a][b] = found.latency
            occupancy[a][b] = found.per_byte * _largest_message(profile, a, b, found)
    tables = {"latency": latency, **({"occupancy": occupancy} if profile.occupied else {})}
    return {key: [[_rounded(seconds * 1000, 4) for seconds in row] for row in table] for key, table in tables.items()}


def _largest_message(profile: Profile, a: int, b: int, found: LinkFit) -> float:
    """Bytes of the largest output, or gradient of one, that goes from device ``a`` to ``b``; of any stage where none does."""
    home = {stage: device for device, stages in enumerate(profile.held) for stage in stages}
    ends = ((home[stage], home[stage + 1], stage) for stage in range(profile.stages - 1))
    sent = [profile.output.get(stage) for first, second, stage in ends if (a, b) in ((first, second), (second, first))]
    sizes = [size for size in sent or list(profile.output.values()) if size is not None]
    return max(sizes, default=float(found.sizes[-1]))


def _of_links(profile: Profile) -> dict[str, str]:
    """The comments on the links."""
    if not profile.occupied:
        return {"links.latency": said(bool(profile.links), "one way, for a message of the largest stage's output")}
    return {
        "links.latency": f"measured, one way: {said_of(profile.links)}",
        "links.occupancy": "measured: what the largest message between two devices takes beside that",
    }


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
