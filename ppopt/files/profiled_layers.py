"""The layers of a real run: the blocks that a trace names in the forwards of the stages, or stages that are divided evenly.

The times of a stage are measured as a whole; each is divided over the layers of the stage, so that these add up to it again:

- the forward in proportion to the blocks' own ranges. What is in none of them belongs to the block before it (at the beginning of
  a stage to the one after it); but where the first or the last block of the model is one of several with a number, what comes
  before or after it is a layer of its own (an embedding, a head with the loss that got no name);
- the backward in proportion to the times in the forward; where it shows all blocks of the stage by name, to those ranges.

PyTorch computes no input gradient in stage 0, and all of the backward at once. Of its layers but the first, the parts of the
backward are in the proportion that they have in layers of the same name elsewhere, or in all layers.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Literal, TypeAlias

from ppopt.files.profile import Profile, durations, mebibytes, milliseconds, said, toml
from ppopt.files.recorded import BlockError, ProfileError
from ppopt.op import Kind
from ppopt.pipeline.layers import TIMES, kind_of

Grouping: TypeAlias = Literal["alike", "names", "each"]
"""Which neighbours are a group: those of one name but for its number whose times agree, all those of one name, or none."""
AGREE = 1.25
"""Forward times agree where the longest is at most this many times the shortest. Medians of a real run differ by some percent."""
NEGLIGIBLE = 0.002
"""What comes before or after all blocks is no layer of its own where it is less than this part of its stage's forward."""

_KINDS = {"forward": Kind.F, "backward_input": Kind.I, "backward_weight": Kind.W, "backward": Kind.B}


@dataclass(frozen=True)
class MeasuredLayer:
    """One layer of the run: ``times`` in seconds by key of ``[[layers]]``, ``activation`` in bytes where it was measured."""

    name: str
    stage: int
    times: dict[str, float]
    activation: float | None


@dataclass(frozen=True)
class MeasuredGroup:
    """Layers in a row that are alike, and what one of them takes: medians."""

    name: str
    layers: tuple[MeasuredLayer, ...]
    times: dict[str, float]
    activation: float | None


@dataclass(frozen=True)
class ProfiledLayers:
    """All layers, the cut that the run had, and what is to be said of the numbers."""

    groups: tuple[MeasuredGroup, ...]
    partition: tuple[int, ...]
    divided: str
    """How the times of a stage became those of its layers, for the comments of the file."""
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """The tables ``[[layers]]``, with a comment on every number."""
        keys = [key for key in TIMES if key in self.groups[0].times]
        numbers = milliseconds({key: [group.times[key] for group in self.groups] for key in keys})
        lines = []
        for i, group in enumerate(self.groups):
            lines += ["\n[[layers]]", f"name = {toml(group.name)}"]
            lines += [f"count = {len(group.layers)}"] * (len(group.layers) > 1)
            several = f", median of {len(group.layers)} layers" if _spread(group.layers) > 1 else ""
            said_of = f"measured: {self.divided}{several}"
            lines += [f"{key} = {toml(numbers[key][i])}  # {said_of}" for key in keys]
            held = 1 if group.activation is None else mebibytes(group.activation)
            lines.append(f"activation = {toml(held)}  # {said(group.activation is not None, self.divided)}")
        return lines


# --- dividing the stages -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    """A layer of a stage, and by kind in which proportion it gets the stage's times."""

    name: str
    weights: dict[Kind, float]


def named_layers(profile: Profile, grouping: Grouping = "alike") -> ProfiledLayers:
    """The layers that the forwards name.

    Raises:
        BlockError: a stage names none, or two stages name the same one.
        ProfileError: times are missing (:func:`~ppopt.files.profile.durations`).
    """
    home: dict[str, int] = {}
    for stage in range(profile.stages):
        if stage not in profile.blocks:
            hint = "put torch.profiler.record_function around every layer, or divide the stages by --layers-per-stage"
            raise BlockError(f"the forward of stage {stage} names no layers; {hint}")
        for name in profile.blocks[stage]:
            if name in home:
                problem = f"the layer {name!r} is in stages {home[name]} and {stage}; expected a name of its own for every layer"
                raise BlockError(problem)
            home[name] = stage
    pieces = [_named(profile, stage) for stage in range(profile.stages)]
    notes = ["layers are the ranges that the forwards name; the times of each stage are divided over its layers"]
    shown = sorted({kind.name for kind in (Kind.B, Kind.I, Kind.W) for of in pieces if all(kind in p.weights for p in of)})
    rest = "the backward (and what is held) is divided in proportion to the times in the forward"
    notes.append(rest + (f"; {', '.join(shown)} by its own ranges where it shows all layers of a stage" if shown else ""))
    layers, more = _divided(profile, pieces)
    groups, spreads = _grouped(layers, grouping)
    counts = tuple(map(len, pieces))
    return ProfiledLayers(groups, counts, "the stage's, divided over its layers", (*notes, *more, *spreads))


def dealt_layers(profile: Profile, counts: Sequence[int]) -> ProfiledLayers:
    """Every stage divided evenly over so many layers; one number is that of every stage.

    Raises:
        ProfileError: there is not a number for each stage, or times are missing (:func:`~ppopt.files.profile.durations`).
    """
    counts = tuple(counts) * profile.stages if len(counts) == 1 else tuple(counts)
    if len(counts) != profile.stages:
        raise ProfileError(
            f"--layers-per-stage has {len(counts)} numbers; expected one, or one for each of {profile.stages} stages"
        )
    pieces = [[_Piece(f"stage {stage}", {Kind.F: 1.0})] * count for stage, count in enumerate(counts)]
    shown = ", ".join(map(str, counts))
    notes = [f"no single layer was measured: the times of the stages are divided evenly over {shown} layers"]
    layers, more = _divided(profile, pieces)
    groups = _with_times([list(run) for _, run in groupby(layers, key=lambda layer: layer.stage)])
    return ProfiledLayers(groups, counts, "the stage's, divided evenly", (*notes, *more))


def _named(profile: Profile, stage: int) -> list[_Piece]:
    """The blocks of a stage, and what comes before and after them where that is a layer of its own."""
    names = profile.blocks[stage]
    before, *own, after = _columns(profile.parts[stage, Kind.F])
    small = NEGLIGIBLE * (before + sum(own) + after)
    pieces: list[_Piece] = []
    if stage == 0 and before > small and kind_of(names[0]) != names[0]:
        pieces.append(_Piece(f"before {names[0]}", {Kind.F: before}))
    else:
        own[0] += before
    last = stage == profile.stages - 1 and after > small and kind_of(names[-1]) != names[-1]
    if not last:
        own[-1] += after
    backwards = [kind for kind in (Kind.B, Kind.I, Kind.W) if (stage, kind) in profile.parts]
    shown = {kind: _columns(profile.parts[stage, kind])[1:-1] for kind in backwards}
    alone = not pieces and not last  # else a backward that shows all blocks does not show all layers
    for i, name in enumerate(names):
        pieces.append(_Piece(name, {Kind.F: own[i], **({kind: of[i] for kind, of in shown.items()} if alone else {})}))
    if last:
        pieces.append(_Piece(f"after {names[-1]}", {Kind.F: after}))
    return pieces


def _columns(rows: Sequence[Sequence[float]]) -> list[float]:
    return [median(column) for column in zip(*rows, strict=True)]


def _divided(profile: Profile, pieces: Sequence[Sequence[_Piece]]) -> tuple[list[MeasuredLayer], list[str]]:
    """Every layer of every stage with its part of the stage's times, and what is to be said of that."""
    costs, notes = durations(profile)
    notes = [note for note in notes if not note.startswith("stage 0 ")]
    one_pass = "backward_input" in costs  # that of stage 0, which has its parts from other stages
    if one_pass and profile.stages == 1:
        costs["backward"] = costs.pop("backward_weight")
        del costs["backward_input"]
        notes.append("the only stage computes no input gradient by itself: its backward is fused")
        one_pass = False
    layers = []
    for stage, of_stage in enumerate(pieces):
        divided: dict[str, list[float]] = {}
        for key, values in costs.items():
            kind = Kind.B if stage == 0 and key == "backward_weight" and (0, Kind.B) in profile.times else _KINDS[key]
            divided[key] = _shared(values[stage], of_stage, kind)
        whole = profile.activation.get(stage)
        measured = profile.activation.keys() == set(range(profile.stages)) and whole is not None
        held = _shared(whole or 0.0, of_stage, Kind.F)
        for i, piece in enumerate(of_stage):
            times = {key: shares[i] for key, shares in divided.items()}
            layers.append(MeasuredLayer(piece.name, stage, times, held[i] if measured else None))
    if one_pass:
        layers = list(_in_parts(layers))
        notes.append(
            "stage 0 runs its backward at once: its layers have I and W in the proportion of layers of the same name elsewhere, "
            "or of all others; the first one has no I"
        )
    return layers, notes


def _shared(whole: float, pieces: Sequence[_Piece], kind: Kind) -> list[float]:
    """A stage's time or bytes, divided over its layers; evenly where there is nothing to go by."""
    weights = [piece.weights.get(kind, piece.weights[Kind.F]) for piece in pieces]
    total = sum(weights)
    return [whole * weight / total if total else whole / len(pieces) for weight in weights]


def _in_parts(layers: Sequence[MeasuredLayer]) -> Iterator[MeasuredLayer]:
    """All layers; those of stage 0, whose backward is one, with the proportion of I and W that others have."""
    inputs: dict[str, float] = defaultdict(float)
    wholes: dict[str, float] = defaultdict(float)
    for layer in layers:
        if layer.stage > 0:
            for kind in (kind_of(layer.name), ""):
                inputs[kind] += layer.times["backward_input"]
                wholes[kind] += layer.times["backward_input"] + layer.times["backward_weight"]
    for layer in layers:
        if layer.stage > 0:
            yield layer
            continue
        kind = kind_of(layer.name)
        kind = kind if wholes.get(kind) else ""
        part = inputs[kind] / wholes[kind] if wholes[kind] else 0.0
        whole = layer.times["backward_weight"]
        parts = {"backward_input": part * whole, "backward_weight": (1 - part) * whole}
        yield MeasuredLayer(layer.name, 0, layer.times | parts, layer.activation)


# --- alike layers ------------------------------------------------------------------------------------------------


def _grouped(layers: Sequence[MeasuredLayer], grouping: Grouping) -> tuple[tuple[MeasuredGroup, ...], list[str]]:
    """The groups, and what is to be said of them."""
    runs: list[list[MeasuredLayer]] = []
    apart = False
    for layer in layers:
        named = bool(runs) and grouping != "each" and kind_of(runs[-1][0].name) == kind_of(layer.name) != layer.name
        if named and (grouping == "names" or _spread([*runs[-1], layer]) <= AGREE):
            runs[-1].append(layer)
        else:
            apart |= named
            runs.append([layer])
    groups = _with_times(runs, layers if grouping == "names" else ())
    notes = []
    for group in groups:
        if len(group.layers) > 1:
            each = [layer.times["forward"] for layer in group.layers]
            low, high, middle = milliseconds({"": [min(each), max(each), group.times["forward"]]})[""]
            times = f"forward {low:f} to {high:f} ms; the median, {middle:f} ms, is written"
            notes.append(f"{group.name!r} stands for {len(each)} layers, {times}")
    if apart:
        apart_from = "neighbours of one name whose forward times differ by more than a quarter are not put together"
        notes.append(f"{apart_from} (--layers names does)")
    return groups, notes


def _spread(layers: Sequence[MeasuredLayer]) -> float:
    """How many times the shortest forward the longest is."""
    each = [layer.times["forward"] for layer in layers]
    return max(each) / min(each) if min(each) else math.inf if max(each) else 1.0


def _with_times(runs: Sequence[Sequence[MeasuredLayer]], everywhere: Sequence[MeasuredLayer] = ()) -> tuple[MeasuredGroup, ...]:
    """Every run of layers as a group with the medians of the run, or of all layers of its name where they are given."""
    kinds = [kind_of(run[0].name) for run in runs]
    groups: list[MeasuredGroup] = []
    for run, kind in zip(runs, kinds, strict=True):
        alike = [layer for layer in everywhere if kind_of(layer.name) == kind != layer.name] or run
        times = {key: _middle(alike, key) for key in run[0].times}
        if len(run) == 1 and not groups and "backward_input" in times:  # the first layer of all: nobody needs its I
            times |= {"backward_input": 0.0, "backward_weight": times["backward_input"] + times["backward_weight"]}
        held = [layer.activation for layer in alike if layer.activation is not None]
        name = _name_of(run, kind if kinds.count(kind) == 1 else "")
        groups.append(MeasuredGroup(name, tuple(run), times, median(held) if held else None))
    return tuple(groups)


def _middle(layers: Sequence[MeasuredLayer], key: str) -> float:
    """The median; of the parts of the backward without stage 0, where they were not measured."""
    measured = [layer for layer in layers if layer.stage > 0] if key in ("backward_input", "backward_weight") else ()
    return median(layer.times[key] for layer in measured or layers)


def _name_of(run: Sequence[MeasuredLayer], kind: str) -> str:
    """``layers`` where no other group has that name, else ``layers.3-7``; a layer alone keeps its name."""
    first, last = run[0].name, run[-1].name
    if first == last:
        return first
    return kind or f"{first}-{re.findall('[0-9]+', last)[-1]}"
