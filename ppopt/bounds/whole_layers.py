"""Layers are whole: some device has more of them than its share, so that it takes longer than all would on average.

The work of a device is no less than that of as few layers as it may have, those that take least. How many it may have within a
makespan follows from certificates (:mod:`ppopt.bounds.certificates`), ``makespan >= head + work + tail``, where the work counts
each layer of the device alike, and head and tail are no less than with the least layer in each stage. If the devices together
may have fewer layers than there are, no cut has that makespan.

A device has a layer for each of its stages at least. The first and the last layer are where the first and the last stage are, and
nowhere else: an embedding that takes nearly nothing is no help to the other devices. Measured: 40 nearly equal layers with a head
of twice their time, in a loop of 4 chunks on 4 devices: 2.8 % more than the share; 80 equal layers, an embedding and a head of
1.06 times a layer on 8 devices: 8.6 % more, which the model of all cuts does not show in a minute with 32 stages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from ppopt.bounds.certificates import Certificate
from ppopt.bounds.ways import Once, Part, Way
from ppopt.op import Kind


class _Load(NamedTuple):
    """What a device takes: ``around`` and, with ``n`` layers, ``work[n - least]`` at least."""

    device: int
    around: int
    work: list[int]


def whole_layers(
    certificates: Iterable[Certificate],
    times: Mapping[Kind | Once, Sequence[int]],
    device_of: Sequence[int],
    first: Mapping[Kind | Once, Sequence[int]] | None = None,
) -> int:
    """Ticks that every cut of the layers takes at least.

    ``certificates``: of a pipeline of one route whose microbatches are alike, in the ticks of ``times``: those of each layer per
    kind, and of what it takes once per step; ``first``: those in the first stage, if they are others; ``device_of``: that of each
    stage.
    """
    each = {kind: list(map(min, of, (first or times)[kind])) for kind, of in times.items()}
    layers = len(times[Kind.F])
    least = {device: device_of.count(device) for device in device_of}
    loads = [load for one in certificates if (load := _load(one, each, device_of, least)) is not None]
    if not loads:
        return 0

    def room(makespan: int) -> int:
        """How many layers the devices may have together; 0: one of them has too few for its stages."""
        most = dict.fromkeys(least, layers)
        for load in loads:
            fit = bisect_right(load.work, makespan - load.around)
            most[load.device] = min(most[load.device], least[load.device] - 1 + fit)
        return sum(most.values()) if all(most[device] >= least[device] for device in least) else 0

    longest = max(load.around + load.work[-1] for load in loads)
    return bisect_left(range(longest + 1), layers, key=room)


def _load(
    certificate: Certificate, each: Mapping[Kind | Once, Sequence[int]], device_of: Sequence[int], least: Mapping[int, int]
) -> _Load | None:
    """What a certificate says of a device; ``None``: it is not about all stages of one, each as often."""
    counts = {(part.kind, part.stage): n for part, n in certificate.work.times}
    kinds = {kind: n for (kind, _), n in counts.items()}
    devices = {device_of[stage] for _, stage in counts}
    if certificate.spans != 1 or len(devices) != 1:
        return None
    (device,) = devices
    own = [stage for stage, on in enumerate(device_of) if on == device]
    if counts != {(kind, stage): n for kind, n in kinds.items() for stage in own}:
        return None
    work = [sum(n * each[kind][layer] for kind, n in kinds.items()) for layer in range(len(each[Kind.F]))]
    final = len(device_of) - 1
    ends = [0] * (0 in own) + [len(work) - 1] * (final in own) if final else []
    others = sorted(work[1:-1] if final else work)
    sums = list(accumulate(others, initial=sum(work[layer] for layer in ends)))
    head, tail = (min(_value(way, each, final) for way in ways) for ways in (certificate.heads, certificate.tails))
    return _Load(device, head + int(certificate.work.constant) + tail, sums[least[device] - len(ends) :])


def _value(way: Way, each: Mapping[Kind | Once, Sequence[int]], final: int) -> int:
    """Ticks of a way where the first stage has the first layer, the ``final`` one the last layer, and every other one the layer
    that takes least of those between."""

    def least(part: Part) -> int:
        of = each[part.kind]
        return of[0] if part.stage == 0 else of[-1] if part.stage == final else min(of[1:-1])

    return int(way.constant) + sum(n * least(part) for part, n in way.times)
