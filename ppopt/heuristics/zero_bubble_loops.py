"""The loops of the zero-bubble papers' schedulers; see :mod:`ppopt.compiled`.

Devices run the operations of one route one by one, each as early as they can: :class:`Progress`. Kinds are ``F``, ``I``, ``W``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppopt.compiled import bare, loop

F, I, W = 0, 1, 2  # noqa: E741 - the field's own letters
FREE, HELD, IDLE, FIRST, LAST, RUN, LIMIT, PER_DEVICE = 0, 1, 2, 3, 4, 5, 6, 7
"""Places of the numbers of a device: when it is free; what it holds; how long it has been idle since its first operation; how
many weight gradients it has run, and how many input gradients; how many operations; the most that it may hold."""
DEVICE, ACTIVATION, RETAINED, REBUILT, INWARD, BACK, PER_STAGE = 3, 4, 5, 6, 7, 8, 9
"""Places of the numbers of a stage, behind what F, I and W take: its device; what a microbatch takes of the memory, what its
weight gradient still needs, and what its input gradient takes for that, more than the forward; how long a result travels from the
stage before, and a gradient from the stage behind."""


class Progress(NamedTuple):
    """How far everything has come. Times are in ticks, memory is in integer amounts."""

    stages: int
    devices: int
    microbatches: int
    stage: Any
    """By stage, what does not change."""
    device: Any
    """By device, how far it has come."""
    done: Any
    """By kind and stage, how many operations were run."""
    end: Any
    """By kind (F, I), stage and microbatch, when they ended."""
    pending: Any
    """By device, the stages of its input gradients in their order; as many of the first have run their weight gradients."""
    rows: Any
    """By device, the numbers (:class:`~ppopt.op.OpIndex`) of its operations in their order."""


def arrival(kind: int, stage: int, progress: Any) -> int:
    """The tick at which the input of the stage's next operation of this kind is there; -1: it has not been made."""
    stages = progress.stages
    microbatch = progress.done[kind * stages + stage]
    travels = 0
    if kind == F:
        if stage == 0:
            return 0
        made = stage - 1
        travels = progress.stage[stage * PER_STAGE + INWARD]
    elif stage == stages - 1:
        made = stage
    else:
        made = stages + stage + 1
        travels = progress.stage[stage * PER_STAGE + BACK]
    if microbatch >= progress.done[made]:
        return -1
    there: int = progress.end[made * progress.microbatches + microbatch] + travels
    return there


def put(kind: int, stage: int, progress: Any) -> None:
    """The stage's device runs its next operation of this kind, when it is free."""
    stages, microbatches = progress.stages, progress.microbatches
    d = progress.stage[stage * PER_STAGE + DEVICE]
    at = d * PER_DEVICE
    microbatch = progress.done[kind * stages + stage]
    number = ((kind + 1 if kind > 0 else 0) * stages + stage) * microbatches + microbatch
    progress.rows[3 * d * (stages // progress.devices) * microbatches + progress.device[at + RUN]] = number
    progress.device[at + RUN] += 1
    progress.device[at + FREE] += progress.stage[stage * PER_STAGE + kind]
    if kind != W:
        progress.end[(kind * stages + stage) * microbatches + microbatch] = progress.device[at + FREE]
    progress.done[kind * stages + stage] += 1


def run(kind: int, stage: int, progress: Any) -> None:
    """Run the stage's next forward or input gradient, whose input has been made."""
    d = progress.stage[stage * PER_STAGE + DEVICE]
    at = d * PER_DEVICE
    there = arrival(kind, stage, progress)
    assert there >= 0
    if there > progress.device[at + FREE]:
        if progress.device[at + RUN] > 0:
            progress.device[at + IDLE] += there - progress.device[at + FREE]
        progress.device[at + FREE] = there
    put(kind, stage, progress)
    if kind == F:
        progress.device[at + HELD] += progress.stage[stage * PER_STAGE + ACTIVATION]
    else:
        progress.device[at + HELD] += (
            progress.stage[stage * PER_STAGE + RETAINED] - progress.stage[stage * PER_STAGE + ACTIVATION]
        )
        progress.pending[d * (progress.stages // progress.devices) * progress.microbatches + progress.device[at + LAST]] = stage
        progress.device[at + LAST] += 1


def waiting(d: int, progress: Any) -> int:
    """How many weight gradients a device could run."""
    count: int = progress.device[d * PER_DEVICE + LAST] - progress.device[d * PER_DEVICE + FIRST]
    return count


def oldest(d: int, progress: Any) -> int:
    """The stage of the weight gradient that comes first of those that a device could run."""
    first = progress.device[d * PER_DEVICE + FIRST]
    stage: int = progress.pending[d * (progress.stages // progress.devices) * progress.microbatches + first]
    return stage


def run_weight(d: int, progress: Any) -> None:
    """Run the device's oldest pending weight gradient."""
    stage = oldest(d, progress)
    put(W, stage, progress)
    progress.device[d * PER_DEVICE + FIRST] += 1
    progress.device[d * PER_DEVICE + HELD] -= progress.stage[stage * PER_STAGE + RETAINED]


def make_room(d: int, amount: int, progress: Any) -> bool:
    """Run weight gradients until the device can hold this much more; whether it can."""
    at = d * PER_DEVICE
    while progress.device[at + HELD] + amount > progress.device[at + LIMIT] and waiting(d, progress) > 0:
        run_weight(d, progress)
    fits: bool = progress.device[at + HELD] + amount <= progress.device[at + LIMIT]
    return fits


def fill(kind: int, stage: int, slack: int, progress: Any) -> None:
    """Run weight gradients while the device waits for the input of the stage's next operation of this kind.

    As many as fit, and one more where what is left of the gap is longer than ``slack`` ticks (-1: no further one).
    """
    d = progress.stage[stage * PER_STAGE + DEVICE]
    at = d * PER_DEVICE
    there = arrival(kind, stage, progress)
    assert there >= 0
    while waiting(d, progress) > 0 and progress.device[at + FREE] < there:
        if progress.device[at + FREE] + progress.stage[oldest(d, progress) * PER_STAGE + W] > there:
            break
        run_weight(d, progress)
    if waiting(d, progress) > 0 and slack >= 0 and there - progress.device[at + FREE] > slack:
        run_weight(d, progress)


def slack_of(d: int, progress: Any) -> int:
    """How much longer than a device another one has been idle."""
    most = 0
    for other in range(progress.devices):
        most = max(most, progress.device[other * PER_DEVICE + IDLE])
    left: int = most - progress.device[d * PER_DEVICE + IDLE]
    return left


def finish(progress: Any) -> None:
    """Run the remaining weight gradients."""
    for d in range(progress.devices):
        while waiting(d, progress) > 0:
            run_weight(d, progress)


PARTS = (arrival, put, run, waiting, oldest, run_weight, make_room, fill, slack_of, finish)


# --- one stage per device ---


def first_forwards(delay_first: bool, progress: Any) -> None:
    """Forwards up to the first input gradient, and that."""
    devices, microbatches = progress.devices, progress.microbatches
    for d in range(devices):
        run(F, d, progress)
    more = [0] * devices
    handed = progress.device[(devices - 1) * PER_DEVICE + FREE] + progress.stage[(devices - 1) * PER_STAGE + I]
    for d in range(devices - 2, -1, -1):  # handed: when the first gradient leaves the device after d
        at, own = d * PER_DEVICE, d * PER_STAGE
        time, there = progress.device[at + FREE], handed + progress.stage[own + BACK]
        cost, activation = progress.stage[own], progress.stage[own + ACTIVATION]
        while 1 + more[d] < microbatches and (time < there if delay_first else time + cost <= there):
            if (2 + more[d]) * activation + progress.stage[own + REBUILT] > progress.device[at + LIMIT]:
                break
            time += cost
            more[d] += 1
        handed = max(time, there) + progress.stage[own + I]
    for d in range(1, devices):  # a device keeps behind the one before it
        behind = more[d - 1] - 1 if 1 + more[d] < microbatches else more[d - 1]
        more[d] = max(0, min(more[d], behind))
    for d in range(devices):
        for _ in range(more[d]):
            run(F, d, progress)
    for d in range(devices - 1, -1, -1):
        run(I, d, progress)


def wants_forward(d: int, microbatch: int, prefer_input: bool, progress: Any) -> bool:
    """Whether device d runs a forward before its input gradient of this microbatch."""
    at, own = d * PER_DEVICE, d * PER_STAGE
    forwards = progress.done[d]
    if forwards >= progress.microbatches:
        return False
    if forwards <= microbatch:  # its own input gradient needs it
        return True
    retained = progress.stage[own + RETAINED]
    excess = progress.device[at + HELD] + progress.stage[own + ACTIVATION] - progress.device[at + LIMIT]
    if excess + progress.stage[own + REBUILT] > waiting(d, progress) * retained:  # the next input gradient needs room too
        return False
    if not prefer_input or d + 1 == progress.devices or forwards < progress.done[d + 1] + 2:
        return True
    following = own + PER_STAGE
    due = progress.device[at + PER_DEVICE + FREE] + progress.stage[following] + progress.stage[following + I]
    due += progress.stage[own + BACK]
    now = progress.device[at + FREE]
    if now >= due:
        return False
    first = max(0, -(-excess // retained)) if retained > 0 else 0  # weight gradients that make room
    if now + progress.stage[own] + first * progress.stage[own + W] <= due:
        return True
    return bool(due - now > slack_of(d, progress))


@loop(8e-6, ("progress.rows",), (*PARTS, first_forwards, wants_forward))
def linear(delay_first: bool, prefer_input: bool, fill_all: bool, progress: Any) -> None:
    """The automatic scheduler of the zero-bubble papers."""
    progress = bare(progress)
    devices, microbatches = progress.devices, progress.microbatches
    first_forwards(delay_first, progress)
    wanted = [False] * devices
    for microbatch in range(1, microbatches):
        for d in range(devices):
            wanted[d] = wants_forward(d, microbatch, prefer_input, progress)
        for d in range(devices - 2, -1, -1):
            wanted[d] = wanted[d] and wanted[d + 1]
        for d in range(devices):
            if wanted[d]:
                make_room(d, progress.stage[d * PER_STAGE + ACTIVATION], progress)
                fill(F, d, 0 if fill_all else slack_of(d, progress), progress)
                run(F, d, progress)
        for d in range(devices - 1, -1, -1):
            if d == 0 and progress.done[0] == microbatches:
                while waiting(0, progress) > 0:  # nobody waits for the gradients of the first device
                    run_weight(0, progress)
            if progress.stage[d * PER_STAGE + REBUILT] > 0:
                make_room(d, progress.stage[d * PER_STAGE + REBUILT], progress)
            fill(I, d, 0 if fill_all else slack_of(d, progress), progress)
            run(I, d, progress)
    finish(progress)


# --- a V ---


def leg(kind: int, d: int, back: bool, devices: int) -> int:
    """The device's stage of a leg."""
    return d if back == (kind == I) else 2 * devices - 1 - d


def has_input(kind: int, d: int, back: bool, progress: Any) -> bool:
    """Whether the next operation of the leg could run."""
    stage = leg(kind, d, back, progress.devices)
    there = progress.done[kind * progress.stages + stage] < progress.microbatches and arrival(kind, stage, progress) >= 0
    return bool(there)


def count(kind: int, d: int, back: bool, progress: Any) -> int:
    """How many operations of a leg were run."""
    found: int = progress.done[kind * progress.stages + leg(kind, d, back, progress.devices)]
    return found


def behind(d: int, progress: Any) -> bool:
    """Whether a device has begun less than the one before it."""
    out, back = count(F, d, False, progress), count(F, d, True, progress)
    out_before, back_before = count(F, d - 1, False, progress), count(F, d - 1, True, progress)
    return out + back < out_before + back_before or back <= back_before < progress.microbatches


def warm_up(progress: Any) -> bool:
    """The forwards before the first backward; whether it does not get stuck."""
    devices, microbatches = progress.devices, progress.microbatches
    for stage in range(devices + 1):
        run(F, stage, progress)
    for d in range(devices - 2, -1, -1):  # more forwards go out until the first comes back
        at, own = d * PER_DEVICE, d * PER_STAGE
        there = arrival(F, 2 * devices - 1 - d, progress)
        rebuilt = max(progress.stage[own + REBUILT], progress.stage[(2 * devices - 1 - d) * PER_STAGE + REBUILT])
        further = (2 + 2 * d) * progress.stage[own + ACTIVATION] + rebuilt
        while progress.device[at + HELD] + further <= progress.device[at + LIMIT] and progress.done[d] < microbatches:
            if progress.device[at + FREE] + progress.stage[own] > there:
                break
            for before in range(d + 1):
                run(F, before, progress)
        run(F, 2 * devices - 1 - d, progress)
    back = False
    for d in range(1, devices):  # no device has begun less than the one before it
        idle_legs = 0
        while behind(d, progress):
            idle_legs += 1
            for other in range(devices - 1, d - 1, -1):
                if has_input(F, other, back, progress):
                    run(F, leg(F, other, back, devices), progress)
                    idle_legs = 0
            if idle_legs == 2:  # neither leg has anything to run
                return False
            back = not back
    return True


def comes_back(d: int, progress: Any) -> bool:
    """Whether the device's next input gradient is of the leg back."""
    out = count(I, d, False, progress)
    if count(I, d, True, progress) >= out:
        return False
    return out == progress.microbatches or d == progress.devices - 1 or has_input(I, d, True, progress)


def fit(kind: int, d: int, back: bool, filled: bool, allowance: Any, progress: Any) -> bool:
    """Run the next operation of a leg, with weight gradients before it; whether that can be."""
    if not has_input(kind, d, back, progress):
        return False
    stage = leg(kind, d, back, progress.devices)
    claimed = progress.stage[stage * PER_STAGE + (ACTIVATION if kind == F else REBUILT)]
    if claimed > 0 and not make_room(d, claimed, progress):
        return False
    slack = max(slack_of(d, progress), allowance[d] - progress.device[d * PER_DEVICE + IDLE])
    fill(kind, stage, slack if filled else -1, progress)
    run(kind, stage, progress)
    return True


@loop(1e-5, ("progress.rows", "progress.device"), (*PARTS, leg, has_input, count, behind, warm_up, comes_back, fit))
def on_v(fill_forward: bool, fill_out: bool, allowance: Any, progress: Any) -> bool:
    """The heuristic on a V; whether it did not get stuck. ``allowance``: by device, how much longer than others it may idle."""
    progress, allowance = bare(progress), bare(allowance)
    devices, microbatches = progress.devices, progress.microbatches
    if not warm_up(progress):
        return False
    back = [False] * devices
    for _ in range(2 * microbatches):
        for d in range(devices):
            back[d] = comes_back(d, progress)
        for turn in range(2 * devices):  # those that come back, from the last device on; then those that go out
            d = devices - 1 - turn if turn < devices else turn - devices
            if back[d] == (turn < devices) and not fit(I, d, back[d], back[d] or fill_out, allowance, progress):
                return False
        for d in range(devices):
            if count(F, d, True, progress) == microbatches:
                continue
            coming = has_input(F, d, True, progress)
            if (coming or has_input(F, d, False, progress)) and not fit(F, d, coming, fill_forward, allowance, progress):
                return False
    finish(progress)
    return True
