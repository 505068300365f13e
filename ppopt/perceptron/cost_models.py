"""DistIR's two cost models by name: what an operation of a perceptron takes, and what of that is a peculiarity (quirk).

Source: microsoft/dist-ir, ``dist_ir/executor/cost_model.py`` of February 2021 (cec2907) and of January 2022 (7cfa1b0); the paper
is arXiv 2111.05426. The constants are theirs. A quirk is counted only where it is switched on by its name; without quirks an
operation takes what its FLOPs and bytes say, and transfers run beside computation.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ppopt.transformer.checked import EstimateError, number

QUIRKS = {
    "elementwise-over-flops": "an elementwise operation takes its bytes over the peak FLOP/s, and nothing else",
    "send-twice": "a send counts the size of a number twice",
    "blocking": "a send stops both devices, in the order of the program",
    "gradients-in-tensor-group": "weight gradients are summed over the tensor group of each replica, not over the replicas",
    "inputs-in-step": "a step begins with sending its inputs: from a host, where there are no replicas, and from the first stage",
}
"""Peculiarities of the originals by name, and what each does."""


@dataclass(frozen=True)
class CostModel:
    """What operations take, in seconds: a launch, FLOPs over ``flops``, bytes over ``bandwidth``, added up.

    ``flops`` in FLOP/s, ``bandwidth`` of the memory in bytes/s, ``launch`` in seconds. A transfer takes its bytes over ``link``
    times the speed of the links, which is ``gbit`` (Gbit/s) unless said otherwise: ``link`` are the bytes/s of 1 Gbit/s as the
    original reckons them. Numbers of activations, weights and gradients have ``number_bytes``; a product of matrices reads its
    two operands, in ``product_bytes`` a number. ``all_operands``: an elementwise operation with two operands reads both, not only
    one. ``optimizer``: a step ends with the optimizer, which takes what one weight matrix does. ``gathers``: replicas gather the
    loss and the gradient of the input. ``split`` are the seconds of cutting samples, or labels, into microbatches, which count
    with ``inputs-in-step``.

    ``known`` are the quirks that the original has, ``quirks`` those that are counted.
    """

    name: str
    flops: float
    bandwidth: float
    link: float
    gbit: float
    launch: float = 0.0
    number_bytes: int = 4
    product_bytes: int = 4
    all_operands: bool = True
    optimizer: bool = True
    gathers: bool = True
    split: float = 0.0
    known: tuple[str, ...] = ()
    quirks: frozenset[str] = frozenset()
    source: str = ""

    def with_quirks(self, *names: str) -> CostModel:
        """The same with these quirks, and no others.

        Raises:
            EstimateError: the original has no such quirk.
        """
        for name in names:
            if name not in self.known:
                near = difflib.get_close_matches(name, self.known, 1)
                hint = f"did you mean {near[0]}? " if near else ""
                raise EstimateError("quirks", f"{self.name} has no {name!r}; {hint}it has {', '.join(self.known)}")
        return replace(self, quirks=frozenset(names))

    @property
    def as_published(self) -> CostModel:
        """The same with all quirks of the original."""
        return self.with_quirks(*self.known)

    def at(self, gbit: float) -> CostModel:
        """The same with links of ``gbit`` Gbit/s.

        Raises:
            EstimateError: that is no number above 0.
        """
        return replace(self, gbit=number("gbit", gbit))

    def product(self, rows: int, inner: int, columns: int) -> float:
        """``rows x inner`` times ``inner x columns``."""
        size = self.product_bytes * (rows * inner + inner * columns)
        return self.launch + size / self.bandwidth + 2 * rows * inner * columns / self.flops

    def elementwise(self, numbers: int, operands: int = 1) -> float:
        """An operation on each of so many numbers, with one or two operands."""
        size = self.number_bytes * numbers * (operands if self.all_operands else 1)
        if "elementwise-over-flops" in self.quirks:
            return self.launch + size / self.flops
        return self.launch + size / self.bandwidth + numbers / self.flops

    def concat(self) -> float:
        """Parts of a batch put together: a launch."""
        return self.launch

    def send(self, size: float) -> float:
        """So many bytes from one device to another."""
        twice = self.number_bytes if "send-twice" in self.quirks else 1
        return twice * size / (self.link * self.gbit)

    def all_reduce(self, size: float, ranks: int) -> float:
        """So many bytes, summed up over ``ranks`` devices: ``2 (p - 1) / p`` of them over the link."""
        return 2 * size * (ranks - 1) / ranks / (self.link * self.gbit)

    def all_gather(self, size: float, ranks: int) -> float:
        """So many bytes of each of ``ranks`` devices, which all get: ``2 (p - 1) / p`` of them over the link, as the original
        reckons (a ring takes ``p - 1`` of them)."""
        return 2 * size * (ranks - 1) / ranks / (self.link * self.gbit)


COST_MODELS = {
    model.name: model
    for model in (
        CostModel(
            name="dist-ir-2021-02",
            flops=1e14,
            bandwidth=1.2e12,
            link=8e9,
            gbit=200,
            product_bytes=2,
            all_operands=False,
            optimizer=False,
            gathers=False,
            split=1e-6,
            known=tuple(QUIRKS),
            source="microsoft/dist-ir cec2907 (February 2021), dist_ir/executor/cost_model.py",
        ),
        CostModel(
            name="dist-ir-2022-01",
            flops=1.4e13,
            bandwidth=9e11,
            link=1.25e8,
            gbit=25,
            launch=1e-5,
            known=("blocking",),
            source="microsoft/dist-ir 7cfa1b0 (January 2022), dist_ir/executor/cost_model.py",
        ),
    )
}
"""The cost models by name."""


def cost_model(name: str, quirks: Sequence[str] = ()) -> CostModel:
    """The cost model of that name, with these quirks switched on.

    Raises:
        EstimateError: there is no such model, or it has no such quirk; the message lists what there is.
    """
    if name not in COST_MODELS:
        near = difflib.get_close_matches(str(name), COST_MODELS, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise EstimateError("cost_model", f"there is no {name!r}; {hint}there are {', '.join(COST_MODELS)}")
    return COST_MODELS[name].with_quirks(*quirks)
