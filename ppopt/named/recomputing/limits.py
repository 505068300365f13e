"""Which sets of recomputing stages let a pinned order keep the memory limit. Sets are the bits of an integer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ppopt.named.recomputing.stages import bits_of, stages_of
from ppopt.timing.recomputed import Need


class State(NamedTuple):
    """What the settled stages of a device leave to its other stages."""

    fits: bool
    """Whether the device keeps its limit if none of the others recomputes."""
    forced: int
    """Those of the others without which the limit cannot be kept."""
    more: int
    """The least number of the others that have to recompute."""


class Device:
    """A device that exceeds its limit unless some of its stages recompute."""

    def __init__(self, need: Need) -> None:
        self.need = need
        self.mask = bits_of(need.stages)
        self._known: dict[tuple[int, int], State | None] = {}

    def state(self, yes: int, no: int) -> State | None:
        """The state where the stages of ``yes`` recompute and those of ``no`` do not; ``None``: the limit cannot be kept."""
        key = yes & self.mask, no & self.mask
        if key not in self._known:
            self._known[key] = self._state(*key)
        return self._known[key]

    def _state(self, yes: int, no: int) -> State | None:
        stages, missing, saved = self.need
        missing = missing - saved[:, [bool(yes >> stage & 1) for stage in stages]].sum(axis=1)
        others = [stage for stage in stages if not (yes | no) >> stage & 1]
        could = saved[:, [stage in others for stage in stages]]
        spare = could.sum(axis=1) - missing
        if (spare < 0).any():
            return None
        if not (missing > 0).any():
            return State(True, 0, 0)
        forced = (could > spare[:, None]).any(axis=0).tolist()
        most = np.cumsum(-np.sort(-could, axis=1), axis=1)  # what those save that save most
        more = int((most < missing[:, None]).sum(axis=1).max()) + 1
        return State(False, bits_of(stage for stage, needed in zip(others, forced, strict=True) if needed), more)


class Node(NamedTuple):
    """The sets of stages that have all of ``yes`` and none of ``no``."""

    yes: int
    no: int
    added: int
    """The least that recomputing adds to the work in any of them."""
    size: int
    """The least number of stages that recompute in any of them."""
    lacking: int
    """The stages that are not settled, of devices that do not keep their limits yet."""


class Limits:
    """The sets of stages with which an order fits the memory limit."""

    def __init__(self, needs: Sequence[Need], added: Sequence[int]) -> None:
        self.devices = [Device(need) for need in needs]
        self.added = added
        self.every = (1 << len(added)) - 1

    def fits(self, stages: int) -> bool:
        """Whether exactly these recompute within the limit."""
        return all(device.state(stages, self.every & ~stages) is not None for device in self.devices)

    def fewest(self) -> int | None:
        """A set that fits, but not with one stage less; what adds the most work was left out first. ``None``: no set fits."""
        kept = self.every
        if not self.fits(kept):
            return None
        for stage in sorted(stages_of(kept), key=lambda stage: (self.added[stage], stage), reverse=True):
            if self.fits(kept & ~(1 << stage)):
                kept &= ~(1 << stage)
        return kept

    def node(self, yes: int, no: int) -> Node | None:
        """The sets that have all of ``yes`` and none of ``no``, with all that follows; ``None``: none of them fits."""
        while True:
            states = [device.state(yes, no) for device in self.devices]
            forced = 0
            for state in states:
                if state is None:
                    return None
                forced |= state.forced
            if not forced & ~yes:
                break
            yes |= forced
        added, size, lacking, counted = sum(self.added[s] for s in stages_of(yes)), yes.bit_count(), 0, 0
        for device, state in zip(self.devices, states, strict=True):
            if state is not None and not state.fits:
                others = device.mask & ~(yes | no)
                lacking |= others
                if not others & counted:  # stages that two devices share count once
                    counted |= others
                    added += sum(sorted(self.added[s] for s in stages_of(others))[: state.more])
                    size += state.more
        return Node(yes, no, added, size, lacking)
