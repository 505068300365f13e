"""How Megatron reads a hybrid pattern, ``*-*-|*-*E/*-``: a symbol for half a layer, ``|`` between stages, ``/`` before MTP.

Source of the rules: megatron/core/models/hybrid/hybrid_layer_allocation.py of NVIDIA/Megatron-LM, d98e8a64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ppopt.layouts.layout import Item, Layout, Reading, Refused
from ppopt.layouts.megatron_flags import check_declared, check_interleaving, uneven
from ppopt.layouts.options import (
    COUNT,
    DEVICES,
    FLAG,
    LAYERS,
    MAX_LAYERS,
    NUMBER,
    TEXT,
    TEXT_OR_NAMES,
    OptionError,
    Options,
    Rows,
    check_stages,
)

SYMBOLS = {
    "*": "attention",
    "+": "multi-latent attention",
    "D": "sparse attention",
    "-": "MLP",
    "E": "mixture of experts",
    "M": "Mamba",
    "G": "gated delta net",
}
"""Each is a layer of its own, and half of one of a transformer."""
APART = ("+", "D")
"""Symbols that cannot be in one model with plain attention."""
REPLACED = ("layout", "virtual_stages", "layers_per_virtual", "account_embedding", "account_loss")
"""Megatron's other ways to cut a model, which a pattern excludes."""


@dataclass(frozen=True)
class Hybrid(Options):
    """What cuts a hybrid model in Megatron.

    Raises:
        OptionError: a value is of the wrong kind.
    """

    RUNTIME: ClassVar[str] = "megatron-hybrid"
    GIVEN_AS: ClassVar[str] = "hybrid_layer_pattern"

    pp: int = field(metadata=DEVICES)
    """Devices."""
    hybrid_layer_pattern: str = field(metadata=TEXT)
    """The pattern."""
    first: int | None = field(default=None, metadata=NUMBER)
    """Symbols of the first device, where there are no bars."""
    last: int | None = field(default=None, metadata=NUMBER)
    """Symbols of the last device, where there are no bars."""
    num_layers: int | None = field(default=None, metadata=LAYERS)
    """Symbols of the pattern."""
    no_overlap_p2p: bool = field(default=False, metadata=FLAG)
    """Transfers do not overlap with computation."""
    vpp: int | None = field(default=None, metadata=COUNT)
    """Stages of each device as a configuration declares them."""
    layout: str | Rows | None = field(default=None, metadata=TEXT_OR_NAMES)
    """Excluded, as are the next four."""
    virtual_stages: int | None = field(default=None, metadata=NUMBER)
    """Excluded."""
    layers_per_virtual: int | None = field(default=None, metadata=NUMBER)
    """Excluded."""
    account_embedding: bool = field(default=False, metadata=FLAG)
    """Excluded."""
    account_loss: bool = field(default=False, metadata=FLAG)
    """Excluded."""


def read(given: Hybrid) -> Reading:
    """What Megatron builds on each device; a layer is its symbol with its number over the whole pattern.

    Raises:
        Refused: Megatron does not take it.
        OptionError: something is larger than what is supported.
    """
    for name in REPLACED:
        if getattr(given, name) not in (None, False):
            raise Refused(f"a pattern replaces {name}; both cannot be given")
    main, *depths = given.hybrid_layer_pattern.split("/")
    if len(main) > MAX_LAYERS:
        raise OptionError(f"at most {MAX_LAYERS} symbols are supported in a pattern")
    segments = main.split("|")
    symbols = "".join(segments)
    _check_symbols(symbols, "the pattern")
    mtp = _mtp(depths)
    if given.num_layers is not None and given.num_layers != len(symbols):
        raise Refused(f"the pattern has {len(symbols)} symbols, num_layers is {given.num_layers}")
    if not symbols:
        raise Refused("the pattern has no symbol before the first /")
    warnings = []
    if len(segments) > 1:
        lengths = _lengths(segments, given)
    else:
        lengths = _without_bars(len(symbols), given)
        if given.pp > 1:
            warnings.append("a pattern without bars on several devices is deprecated; write | between the stages")
    stages, at = [], 0
    for length in lengths:
        stages.append([f"{symbols[k]}{k}" for k in range(at, at + length)])
        at += length
    held: list[list[Item]] = [list(stage) for stage in stages]
    held[0].insert(0, "E")
    held[-1] += [*(f"m{depth}" for depth in range(mtp)), "L"]
    return Reading(Layout.of(held, given.pp), tuple(warnings))


def _check_symbols(symbols: str, where: str) -> None:
    wrong = next((symbol for symbol in symbols if symbol not in SYMBOLS), None)
    if wrong is not None:
        known = ", ".join(f"{symbol} ({meaning})" for symbol, meaning in SYMBOLS.items())
        raise Refused(f"{where}: {wrong!r} is no symbol, and nothing can be repeated; symbols are {known}")
    apart = [symbol for symbol in APART if symbol in symbols]
    if "*" in symbols and apart:
        raise Refused(f"{where}: * and {apart[0]} cannot be in one model")


def _mtp(depths: Sequence[str]) -> int:
    """How many layers of multi-token prediction there are: one for each part after a slash."""
    if not any(depths):
        return 0
    _check_symbols(depths[0], "multi-token prediction")
    for number, depth in enumerate(depths):
        if depth != depths[0]:
            raise Refused(
                f"all depths of multi-token prediction have to be alike; depth {number} is {depth!r}, not {depths[0]!r}"
            )
    return len(depths)


def _lengths(segments: Sequence[str], given: Hybrid) -> tuple[int, ...]:
    """How many symbols each stage has where bars cut the pattern."""
    if given.first is not None or given.last is not None:
        raise Refused("first and last cannot be given together with bars in the pattern")
    if len(segments) % given.pp:
        raise Refused(f"the {len(segments)} stages of the pattern cannot be dealt equally to {given.pp} devices")
    check_stages(len(segments))
    virtual = len(segments) // given.pp
    check_declared(given.vpp, virtual)
    check_interleaving(given.pp, virtual, given.no_overlap_p2p)
    return tuple(map(len, segments))


def _without_bars(symbols: int, given: Hybrid) -> tuple[int, ...]:
    """How many symbols each device has where nothing cuts the pattern."""
    if given.vpp is not None and given.vpp > 1:
        raise Refused("several stages on each device need bars in the pattern")
    if given.first is not None or given.last is not None:
        return uneven(symbols, given.pp, given.first, given.last)
    if symbols % given.pp:
        raise Refused(f"the {symbols} symbols of a pattern without bars cannot be dealt equally to {given.pp} devices")
    return (symbols // given.pp,) * given.pp
