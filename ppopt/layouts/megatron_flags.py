"""Megatron's options for cutting a model, and how it cuts without a layout: equal shares, first and last, accounted E and L.

Source of the rules: megatron/training/arguments.py and megatron/core/transformer/transformer_config.py of NVIDIA/Megatron-LM,
d98e8a64.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ppopt.layouts.layout import Refused
from ppopt.layouts.options import (
    COUNT,
    DEVICES,
    FLAG,
    LAYERS,
    NUMBER,
    SOME_LAYERS,
    TEXT_OR_NAMES,
    Options,
    Rows,
    check_stages,
)


@dataclass(frozen=True)
class Megatron(Options):
    """What cuts a model in Megatron, on its command line and in its configuration.

    Raises:
        OptionError: a value is of the wrong kind.
    """

    RUNTIME: ClassVar[str] = "megatron"
    GIVEN_AS: ClassVar[str] = "layout"

    pp: int = field(metadata=DEVICES)
    """Devices."""
    num_layers: int | None = field(default=None, metadata=LAYERS)
    """Decoder layers; without it, as many as the layout has."""
    mtp: int = field(default=0, metadata=SOME_LAYERS)
    """Layers of multi-token prediction."""
    layout: str | Rows | None = field(default=None, metadata=TEXT_OR_NAMES)
    """The layout string; or, in a configuration, for each stage a list of ``embedding decoder mtp loss``."""
    first: int | None = field(default=None, metadata=NUMBER)
    """Decoder layers of the first device."""
    last: int | None = field(default=None, metadata=NUMBER)
    """Decoder layers of the last device."""
    account_embedding: bool = field(default=False, metadata=FLAG)
    """The embedding counts as a layer."""
    account_loss: bool = field(default=False, metadata=FLAG)
    """The head with the loss counts as a layer."""
    virtual_stages: int | None = field(default=None, metadata=NUMBER)
    """Stages of each device."""
    layers_per_virtual: int | None = field(default=None, metadata=NUMBER)
    """Layers of each stage."""
    no_overlap_p2p: bool = field(default=False, metadata=FLAG)
    """Transfers do not overlap with computation."""
    vpp: int | None = field(default=None, metadata=COUNT)
    """Stages of each device as a configuration declares them."""


def check_exclusive(given: Megatron) -> None:
    """A layout and the two flags for stages per device exclude each other.

    Raises:
        Refused: two of them are given.
    """
    if sum(value is not None for value in (given.layout, given.virtual_stages, given.layers_per_virtual)) > 1:
        raise Refused("of layout, virtual_stages and layers_per_virtual no more than one may be given")


def check_conflicts(given: Megatron) -> None:
    """Ways to cut a model that exclude each other.

    Raises:
        Refused: two of them are given.
    """
    ends = given.first is not None or given.last is not None
    accounted = given.account_embedding or given.account_loss
    if ends and accounted:
        raise Refused("first and last cannot be given together with account_embedding or account_loss")
    if given.layout is not None and (ends or accounted):
        raise Refused("with a layout none of first, last, account_embedding and account_loss may be given")


def check_interleaving(devices: int, virtual: int, no_overlap: bool) -> None:
    """Several stages on a device need several devices.

    Raises:
        Refused: there are too few.
    """
    if virtual > 1 and devices < 2:
        raise Refused(f"{virtual} stages on each device need at least 2 devices, got {devices}")
    if virtual > 1 and no_overlap and devices < 3:
        raise Refused(f"{virtual} stages on each device need at least 3 devices with no_overlap_p2p, got {devices}")


def check_declared(declared: int | None, virtual: int) -> None:
    """A declared number of stages of each device has to be what follows from the rest.

    Raises:
        Refused: it is another one.
    """
    if declared is not None and declared != virtual:
        raise Refused(f"vpp declares {declared} stages on each device, but there are {virtual}")


def counts(given: Megatron, layers: int) -> tuple[int, ...]:
    """The decoder layers of each stage, stage s on device s mod ``pp``, where there is no layout.

    Raises:
        Refused: these options do not cut this many layers.
        OptionError: there are more stages than are supported.
    """
    virtual = _virtual(given, layers)
    check_stages(given.pp * virtual)
    check_interleaving(given.pp, virtual, given.no_overlap_p2p)
    check_conflicts(given)
    if given.first is not None or given.last is not None:
        return uneven(layers, given.pp, given.first, given.last, virtual) * virtual
    share = _share(given, layers)
    if share % virtual:
        raise Refused(f"the {share} layers of a device cannot be dealt equally to its {virtual} stages")
    stages = [share // virtual] * (given.pp * virtual)
    stages[0] -= given.account_embedding
    stages[-1] -= given.account_loss
    return tuple(stages)


def uneven(layers: int, devices: int, first: int | None, last: int | None, virtual: int = 1) -> tuple[int, ...]:
    """The layers of each of the first ``devices`` stages where the first or last device has a number of its own.

    With several chunks every chunk of a device has the same.

    Raises:
        Refused: the rest cannot be dealt equally, or it is not what the rest of the devices can take.
    """
    for name, value in (("first", first), ("last", last)):
        if value is not None and value < 1:
            raise Refused(f"{name} has to be at least 1, got {value}")
        if value is not None and value % virtual:
            raise Refused(f"{name}: {value} layers cannot be dealt equally to the {virtual} stages of the device")
    middle = devices - (first is not None) - (last is not None)
    left = layers - (first or 0) - (last or 0)
    if left < 0:
        raise Refused(f"first and last have more than the {layers} layers that there are")
    if middle > 0 and left % middle:
        raise Refused(f"the {left} layers that first and last leave cannot be dealt equally to {middle} devices")
    share = left // middle if middle > 0 else 0
    if share % virtual:
        raise Refused(f"the {share} layers of a device in the middle cannot be dealt equally to its {virtual} stages")
    found = [share] * devices
    if first is not None:
        found[0] = first
    if last is not None:
        found[-1] = last
    if sum(found) != layers:
        raise Refused(f"the devices have {sum(found)} layers together, the model has {layers}")
    return tuple(count // virtual for count in found)


def _virtual(given: Megatron, layers: int) -> int:
    """Stages of each device."""
    ends = given.first is not None or given.last is not None
    if given.layers_per_virtual is not None:
        if ends:
            raise Refused("first and last cannot be given together with layers_per_virtual, only with virtual_stages")
        if given.layers_per_virtual < 1:
            raise Refused(f"layers_per_virtual has to be at least 1, got {given.layers_per_virtual}")
        share = _share(given, layers)
        if share % given.layers_per_virtual:
            raise Refused(f"the {share} layers of a device cannot be cut into stages of {given.layers_per_virtual}")
        virtual = share // given.layers_per_virtual
    elif given.virtual_stages is not None:
        if given.virtual_stages < 1:
            raise Refused(f"virtual_stages has to be at least 1, got {given.virtual_stages}")
        virtual = given.virtual_stages
    else:
        if not ends:
            _share(given, layers)
        virtual = given.vpp or 1
    check_declared(given.vpp, virtual)
    return virtual


def _share(given: Megatron, layers: int) -> int:
    """Layers of each device where all have the same, with what is counted as a layer."""
    accounted = given.account_embedding + given.account_loss
    if (layers + accounted) % given.pp:
        counted = f"{layers} layers" + (f" and {accounted} that count as one" if accounted else "")
        raise Refused(f"{counted} cannot be dealt equally to {given.pp} devices; first and last are not given")
    return (layers + accounted) // given.pp
