"""Layouts of runtimes as partitions of a model's own layers: the first layer is the embedding, the last the head, layers named
``mtp`` are those of multi-token prediction, every other is a decoder layer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ppopt.layouts import megatron
from ppopt.layouts.layout import EMBEDDING, HEAD, LOOP, NORM, WAVE, Item, Layout, NotExpressible, Refused
from ppopt.layouts.megatron_flags import Megatron
from ppopt.layouts.megatron_text import LETTERS, written
from ppopt.layouts.options import OptionError
from ppopt.pipeline import Layers, Pipeline, PipelineError, routes_of
from ppopt.pipeline.partitions import WORDS, Counts

KEY = "pipeline.partition"
MTP = "mtp"
"""The name of layers of multi-token prediction."""
IN_WORDS = "the first layer is the embedding, the last the head, those named mtp are multi-token prediction"

_TEXT = re.compile(rf"[{LETTERS}|()*0-9,]*[{LETTERS}|][{LETTERS}|()*0-9,]*")
_LAYER = re.compile(r"layers\.(0|[1-9][0-9]{0,8})")
_MODULES = {
    **dict.fromkeys(("tok_embeddings", "embed_tokens", "embedding"), EMBEDDING),
    **dict.fromkeys(("lm_head", "output"), HEAD),
    "norm": NORM,
    "rotary_emb": "",
}
"""What modules are; the last of these is on every stage and no layer."""


class Cut(NamedTuple):
    """A layout as a partition."""

    counts: Counts
    virtual: int
    """Stages of each device."""
    looped: bool
    """Whether its runtime deals stages in a loop only."""


def is_layout(value: object) -> bool:
    """Whether a partition is given as a layout: Megatron's string, or a list with a list of names for each stage."""
    if isinstance(value, str):
        return value not in WORDS and ("|" in value or _TEXT.fullmatch(value) is not None)
    return isinstance(value, list | tuple) and any(isinstance(row, list | tuple) for row in value)


def cut_of(value: Any, layers: Layers, devices: int) -> Cut:
    """The partition that a layout means for these layers.

    Args:
        value: Megatron's layout, as a string or as its list; or TorchTitan's list of module names for each stage.
        layers: All layers of the model.
        devices: To which the stages are dealt, each the same number.

    Raises:
        PipelineError: the runtime does not take it, or it is for other layers.
    """
    if isinstance(value, str):
        return _of_megatron(value, layers, devices)
    for stage, row in enumerate(value):
        if not isinstance(row, list | tuple) or not all(isinstance(name, str) for name in row):
            raise PipelineError(f"{KEY}[{stage}]", f"expected a list of names, as the other stages have, got {row!r}")
    names = {name.strip().lower() for row in value for name in row}
    if names <= megatron.NAMES.keys():
        return _of_megatron(tuple(map(tuple, value)), layers, devices)
    return _of_torchtitan(value, layers, devices)


def letters_of(layers: Layers) -> str:
    """A letter for each layer, as Megatron has them: ``Ett…tmL``.

    Raises:
        PipelineError: there is only one layer.
    """
    if len(layers) < 2:
        raise PipelineError(KEY, f"a layout needs an embedding and a head; the model has {len(layers)} layer")
    between = ("m" if layers.groups[group].name == MTP else "t" for group in layers.group_of[1:-1])
    return f"E{''.join(between)}L"


def _of_megatron(layout: Any, layers: Layers, devices: int) -> Cut:
    letters = letters_of(layers)
    if "t" not in letters:
        raise PipelineError(KEY, f"Megatron's layout needs decoder layers (t) between E and L; the model has none ({IN_WORDS})")
    try:
        given = Megatron(devices, letters.count("t"), letters.count("m"), layout=layout)
        reading = megatron.read(given)
    except (Refused, OptionError) as error:
        raise PipelineError(KEY, f"as Megatron's layout: {error} ({IN_WORDS}; the model has {len(layers)} layers)") from None
    stages = written(layout) if isinstance(layout, str) else megatron.named(layout)
    for letter, name, end in (("E", "embedding", 0), ("L", "head", len(stages) - 1)):
        stage = next(number for number, held in enumerate(stages) if letter in held)
        if stage != end:
            problem = (
                f"expected the {name} ({letter}) on stage {end}, where Megatron builds it; the layout has it on stage {stage}"
            )
            raise PipelineError(KEY, problem)
    if "".join(stages) != letters:
        raise PipelineError(
            KEY, "Megatron has layers of multi-token prediction right before the head; the model has them elsewhere"
        )
    return Cut(tuple(map(len, stages)), reading.layout.virtual, True)


def _of_torchtitan(rows: Sequence[Sequence[str]], layers: Layers, devices: int) -> Cut:
    if "m" in letters_of(layers):
        raise PipelineError(KEY, f"a list of modules has no names for multi-token prediction, which the model has ({IN_WORDS})")
    if len(rows) % devices:
        raise PipelineError(KEY, f"the list has {len(rows)} stages, which cannot be dealt equally to {devices} devices")
    stages = [[_item(name, f"{KEY}[{stage}]") for name in row] for stage, row in enumerate(rows)]
    last = len(stages) - 1
    for item, name, end in ((EMBEDDING, "the embedding", 0), (HEAD, "the head", last), (NORM, "the norm", last)):
        found = [stage for stage, held in enumerate(stages) for each in held if each == item]
        if found != [end] and (found or item != NORM):
            where = f"on stage{'s' * (len(found) > 1)} {', '.join(map(str, found))}" if found else "on no stage"
            raise PipelineError(KEY, f"expected {name} on stage {end}, once; the list has it {where}")
    numbers = [sorted(item for item in held if isinstance(item, int)) for held in stages]
    named = [number for held in numbers for number in held]
    if len(named) != len(layers) - 2:
        problem = f"the list names {len(named)} decoder layers, the model has {len(layers) - 2} ({IN_WORDS})"
        raise PipelineError(KEY, problem)
    wrong = next((k for k, number in enumerate(named) if number != k), None)
    if wrong is not None:
        raise PipelineError(
            KEY, f"expected each layer once and in order; layers.{named[wrong]} is where layers.{wrong} should be"
        )
    counts = [len(held) + (stage == 0) + (stage == last) for stage, held in enumerate(numbers)]
    return Cut(tuple(counts), len(rows) // devices, False)


def _item(name: str, key: str) -> Item:
    """What a module is; those of a model of Hugging Face begin with ``model.``."""
    short = name.removeprefix("model.")
    layer = _LAYER.fullmatch(short)
    if layer:
        return int(layer[1])
    if short not in _MODULES:
        raise PipelineError(key, f"expected tok_embeddings, layers.0 and so on, norm, lm_head; got {name!r}")
    return _MODULES[short]


# --- writing -----------------------------------------------------------------------------------------------------


class Recomputing(NamedTuple):
    """How many decoder layers of each stage recompute, from its first one on: those that do wholly come first."""

    full: tuple[int, ...]
    selective: tuple[int, ...]
    mtp: bool
    """Whether the layers of multi-token prediction recompute wholly."""


def layout_of(pipeline: Pipeline, runtime: str) -> Layout:
    """The layers of a settled pipeline on its devices.

    Raises:
        NotExpressible: it has no layers, or the stages are on the devices neither in a loop nor in a wave.
    """
    layers = pipeline.layers
    if layers is None:
        raise NotExpressible(runtime, "a layout says where layers are, and this model has none ([[layers]])")
    if pipeline.backward_routes or pipeline.memory.weights_on is not None:
        raise NotExpressible(runtime, "a stage runs and keeps its weights on one device there; here that is elsewhere for some")
    placement = next(
        (each for each in (LOOP, WAVE) if pipeline.routes == routes_of(each, pipeline.devices, pipeline.chunks)),
        None,
    )
    if placement is None or pipeline.stages % pipeline.devices:
        named = "routes that are written out" if pipeline.placement == "routes" else f"the placement {pipeline.placement}"
        raise NotExpressible(runtime, f"stages are dealt in a loop (or a V), and this is {named}")
    letters = letters_of(layers)
    numbers = {"t": 0, "m": 0}
    items: list[Item] = []
    for letter in letters:
        items.append(letter if letter in "EL" else numbers[letter] if letter == "t" else f"m{numbers[letter]}")
        if letter in numbers:
            numbers[letter] += 1
    ends = [sum(pipeline.counts[: stage + 1]) for stage in range(pipeline.stages)]
    return Layout.of((items[end - n : end] for end, n in zip(ends, pipeline.counts, strict=True)), pipeline.devices, placement)


def recomputing_of(pipeline: Pipeline, runtime: str) -> Recomputing:
    """Which layers of a settled pipeline recompute, as counts: a level named ``full`` or ``selective``.

    Raises:
        NotExpressible: another level, the embedding or the head recomputes, or it is not the first layers of a stage that do.
    """
    from ppopt.pipeline.cutting import groups_of, levels_of

    layers = pipeline.layers
    assert layers is not None
    letters = letters_of(layers)
    full, selective, mtp = [], [], []
    end = 0
    for stage, (chosen, row) in enumerate(zip(levels_of(pipeline), groups_of(layers, pipeline.counts), strict=True)):
        marks = []  # of the decoder layers, in order
        for group, count in enumerate(row):
            held = letters[end : end + count]
            end += count
            wholly, partly = _counted([(level.name, n) for at, level, n in chosen if at == group], runtime)
            if wholly + partly and set(held) & set("EL"):
                raise NotExpressible(runtime, f"stage {stage}: embedding and head never recompute there, and here one does")
            if set(held) == {"m"}:
                mtp.append((wholly, partly, count))
            else:
                marks += [0] * wholly + [1] * partly + [2] * (held.count("t") - wholly - partly)
        if marks != sorted(marks):
            raise NotExpressible(runtime, f"stage {stage}: the layers that recompute have to be the first of the stage")
        full.append(marks.count(0))
        selective.append(marks.count(1))
    if any(wholly + partly for wholly, partly, _ in mtp) and any(wholly != count for wholly, _, count in mtp):
        raise NotExpressible(runtime, "layers of multi-token prediction recompute wholly, all of them, or not at all")
    return Recomputing(tuple(full), tuple(selective), any(wholly for wholly, _, _ in mtp))


def _counted(chosen: Sequence[tuple[str, int]], runtime: str) -> tuple[int, int]:
    """How many layers recompute wholly, and how many some modules."""
    for name, _ in chosen:
        if name not in ("full", "selective"):
            problem = f"what to recompute is known for levels named full and selective, not for {name!r}"
            raise NotExpressible(runtime, problem)
    found = dict(chosen)
    return found.get("full", 0), found.get("selective", 0)
