"""What solvers may take for granted of the times of devices, where device spans are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class DeviceTimes(NamedTuple):
    """Times that some schedule keeps whose device spans are at most as long as is asked for, if there is one. In ticks, or in
    steps of a grid (:meth:`rounded_down`)."""

    begun: Sequence[int | None] = ()
    """Per device, by when it has started, counted from the first start on any device; ``None`` where that is open. Empty where it
    is open for all."""
    head: Mapping[int, int] = {}
    """By operation, the least time from the first start on its own device to its start; those that are left out: 0."""
    tail: Mapping[int, int] = {}
    """By operation, the least time from its end to the last end on its own device; those that are left out: 0."""

    def rounded_down(self, grid: int) -> DeviceTimes:
        """In steps of ``grid`` ticks. Where all starts of a schedule are rounded down to steps, it keeps these: what is so many
        ticks behind something else is as many whole steps behind that."""
        if grid == 1:
            return self
        begun = [None if time is None else time // grid for time in self.begun]
        head, tail = ({op: time // grid for op, time in of.items()} for of in (self.head, self.tail))
        return DeviceTimes(begun, head, tail)


NOTHING_KNOWN = DeviceTimes()
