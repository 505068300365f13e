"""Layouts written for Megatron: its layout string, or its older flags where they say the same."""

from __future__ import annotations

from collections.abc import Iterator

from ppopt.layouts.layout import LOOP, Counts, Layout, NotExpressible, Refused, counts_of, filled
from ppopt.layouts.megatron import read
from ppopt.layouts.megatron_flags import Megatron
from ppopt.layouts.megatron_text import shortened

RUNTIME = "Megatron"
FLAGS = {
    "pp": "--pipeline-model-parallel-size",
    "num_layers": "--num-layers",
    "mtp": "--mtp-num-layers",
    "layout": "--pipeline-model-parallel-layout",
    "first": "--decoder-first-pipeline-num-layers",
    "last": "--decoder-last-pipeline-num-layers",
    "account_embedding": "--account-for-embedding-in-pipeline-split",
    "account_loss": "--account-for-loss-in-pipeline-split",
    "virtual_stages": "--num-virtual-stages-per-pipeline-rank",
    "layers_per_virtual": "--num-layers-per-virtual-pipeline-stage",
    "no_overlap_p2p": "--no-overlap-p2p-communication",
}
"""Options by their flags on the command line; a configuration has other names, and ``vpp`` besides."""


def layout_text(layout: Layout) -> str:
    """The layout string, short and without commas; Megatron reads it as this very layout.

    Raises:
        NotExpressible: the placement is no loop, or Megatron does not take it.
    """
    return str(_with_text(layout).layout)


def older_flags(layout: Layout) -> Megatron:
    """The options without a layout string: equal shares, accounted E and L, or numbers for the first and last device.

    Raises:
        NotExpressible: none of them cuts like this; :func:`layout_text` may.
    """
    counts = _counts(layout)
    for options in _candidates(layout, counts):
        try:
            if read(options).layout.devices == _plain(layout, counts):
                return options
        except Refused:
            continue
    raise NotExpressible(RUNTIME, f"no flags but a layout cut it into stages of {', '.join(map(str, counts.layers))} layers")


def megatron_options(layout: Layout) -> Megatron:
    """The older flags where they say it, else the layout string.

    Raises:
        NotExpressible: neither does.
    """
    try:
        return older_flags(layout)
    except NotExpressible:
        return _with_text(layout)


def command_line(given: Megatron) -> tuple[str, ...]:
    """The options as they stand on Megatron's command line.

    Raises:
        NotExpressible: the layout is a list or the number of stages declared; only a configuration takes these.
    """
    if given.vpp is not None or isinstance(given.layout, tuple):
        raise NotExpressible(RUNTIME, "a list as layout and vpp are for configurations, not for the command line")
    words: list[str] = []
    for name, flag in FLAGS.items():
        value = getattr(given, name)
        if value is True:
            words.append(flag)
        elif value is not None and value is not False and (name, value) != ("mtp", 0):
            words += [flag, str(value)]
    return tuple(words)


def _with_text(layout: Layout) -> Megatron:
    counts = _counts(layout)
    letters = [
        "E" * (s == 0) + "t" * layers + "m" * mtp + "L" * (s == len(counts.layers) - 1)
        for s, (layers, mtp) in enumerate(zip(counts.layers, counts.mtp, strict=True))
    ]
    given = Megatron(len(layout.devices), sum(counts.layers), sum(counts.mtp), layout=shortened(tuple(letters)))
    try:
        reading = read(given)
    except Refused as error:
        raise NotExpressible(RUNTIME, str(error)) from None
    if reading.layout.devices != _plain(layout, counts):
        raise AssertionError(f"{given.layout} is read as another layout")
    return given


def _counts(layout: Layout) -> Counts:
    if layout.placement != LOOP:
        raise NotExpressible(RUNTIME, f"stages are dealt in a loop only, not as a {layout.placement}")
    counts = counts_of(layout, RUNTIME)
    if not any(counts.layers):
        raise NotExpressible(RUNTIME, "a model without decoder layers")
    return counts


def _plain(layout: Layout, counts: Counts) -> tuple[tuple[tuple[int | str, ...], ...], ...]:
    """The layout as Megatron says it, without ``N``."""
    return Layout.of(filled(counts.layers, counts.mtp), len(layout.devices)).devices


def _candidates(layout: Layout, counts: Counts) -> Iterator[Megatron]:
    """Options that may say it, simple ones first. Numbers for the ends are left out where they leave others without layers."""
    devices = len(layout.devices)
    first, last = (sum(counts.layers[d::devices]) for d in (0, devices - 1))
    virtual = layout.virtual if layout.virtual > 1 else None
    layers, mtp = sum(counts.layers), sum(counts.mtp)
    for embedding, loss in ((False, False), (True, True), (True, False), (False, True)):
        yield Megatron(devices, layers, mtp, account_embedding=embedding, account_loss=loss, virtual_stages=virtual)
    if 0 in counts.layers:
        return
    for at_first, at_last in ((first, None), (None, last), (first, last)):
        yield Megatron(devices, layers, mtp, first=at_first, last=at_last, virtual_stages=virtual)
