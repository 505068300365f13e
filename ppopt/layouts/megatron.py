"""How Megatron reads a layout, as a string, as a list or as its older flags."""

from __future__ import annotations

from collections.abc import Sequence

from ppopt.layouts.layout import Layout, Reading, Refused, filled
from ppopt.layouts.megatron_flags import Megatron, check_conflicts, check_declared, check_exclusive, check_interleaving, counts
from ppopt.layouts.megatron_text import glued, written
from ppopt.layouts.options import OptionError, Rows, check_stages

NAMES = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
"""What stages hold in the list form. Letters are no names there."""
NOT_TAKEN = "encoder"
"""A name that Megatron knows and refuses."""


def read(given: Megatron) -> Reading:
    """What Megatron builds on each device.

    The embedding is on the first stage and the head on the last wherever the layout has them; the reading warns of it.

    Raises:
        Refused: Megatron does not take it; the first of its checks that fails.
        OptionError: the number of layers is missing, or something is larger than what is supported.
    """
    check_exclusive(given)
    if given.layout is None:
        if given.num_layers is None:
            raise OptionError("megatron: num_layers: missing; without a layout nothing else says it")
        by_flags = counts(given, given.num_layers)
        at_end = [0] * (len(by_flags) - 1) + [given.mtp]
        return Reading(Layout.of(filled(by_flags, at_end), given.pp))
    if isinstance(given.layout, str):
        stages = written(given.layout)
        virtual = _virtual(stages, given)
        check_conflicts(given)
    else:
        check_conflicts(given)
        stages = named(given.layout)
        virtual = _virtual(stages, given)
    check_declared(given.vpp, virtual)
    _check_contents(stages, given)
    layers, mtp = (tuple(stage.count(letter) for stage in stages) for letter in "tm")
    return Reading(Layout.of(filled(layers, mtp), given.pp), tuple(_warnings(stages, given)))


def _virtual(stages: Sequence[str], given: Megatron) -> int:
    """Stages of each device."""
    if not stages or len(stages) % given.pp:
        raise Refused(f"{len(stages)} stages cannot be dealt equally to {given.pp} devices")
    virtual = len(stages) // given.pp
    check_interleaving(given.pp, virtual, given.no_overlap_p2p)
    return virtual


def named(rows: Rows) -> tuple[str, ...]:
    """The list form as letters; blanks around a name and its case do not matter."""
    check_stages(len(rows))
    stages = []
    for number, row in enumerate(rows):
        names = [name.strip().lower() for name in row]
        for given, name in zip(row, names, strict=True):
            if name == NOT_TAKEN:
                raise Refused(f"stage {number}: {NOT_TAKEN} layers are not taken")
            if name not in NAMES:
                raise Refused(f"stage {number}: {given!r} is no layer; in a list these are {', '.join(NAMES)}")
        stages.append("".join(map(NAMES.__getitem__, names)))
    return tuple(stages)


def _check_contents(stages: Sequence[str], given: Megatron) -> None:
    """The letters as a model, in the order in which Megatron checks them."""
    letters = "".join(stages)
    if not letters.startswith("E"):
        raise Refused(f"the embedding (E) has to come first, got {letters[:1] or 'no layer at all'}")
    if not letters.endswith("L"):
        raise Refused(f"the head with the loss (L) has to come last, got {letters[-1]}")
    for letter in "EL":
        if letters.count(letter) != 1:
            raise Refused(f"{letter} has to be there once, not {letters.count(letter)} times")
    found = letters.count("t")
    if given.num_layers is not None and found != given.num_layers:
        raise Refused(f"decoder layers (t): the layout has {found}, the model {given.num_layers}")
    if letters.count("m") != given.mtp:
        raise Refused(f"layers of multi-token prediction (m): the layout has {letters.count('m')}, the model {given.mtp}")
    if "m" not in letters:
        return
    if "t" in letters[letters.index("m") :]:
        raise Refused("a decoder layer (t) comes after a layer of multi-token prediction (m)")
    holding = [number for number, stage in enumerate(stages) if "m" in stage]
    early = [number for number in holding if number < len(stages) - given.pp]
    if early:
        raise Refused(f"stage {early[0]} has layers of multi-token prediction (m), but is not the last stage of its device")
    if len(holding) > 1:
        raise Refused("the layers of multi-token prediction (m) have to be on one stage, all of them")


def _warnings(stages: Sequence[str], given: Megatron) -> list[str]:
    found = []
    if given.num_layers is None:
        found.append(f"the number of layers is not given; taken are the {''.join(stages).count('t')} of the layout")
    digits = glued(given.layout) if isinstance(given.layout, str) else None
    if digits is not None:
        found.append(f"commas vanish before anything else is read: {digits} is {digits.replace(',', '')}")
    for letter, name, end in (("E", "embedding", 0), ("L", "head", len(stages) - 1)):
        stage = next(number for number, held in enumerate(stages) if letter in held)
        if stage != end:
            found.append(f"the layout has {letter} on stage {stage}, but Megatron builds the {name} on stage {end}")
    apart = next((number for number, held in enumerate(stages) if "m" in held), len(stages) - 1)
    if apart % given.pp != given.pp - 1:
        found.append(
            f"multi-token prediction is on device {apart % given.pp}, not on the last: "
            "Megatron then exchanges tensor shapes before every transfer"
        )
    return found
