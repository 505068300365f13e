"""From a schedule to a file that PyTorch runs: what PyTorch can express, and where the transfers go (docs/torch.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from ppopt.constraints import data_of, expand
from ppopt.files.torch_csv import Action, Comm
from ppopt.op import Kind, Op, OpIndex, Pair, Send
from ppopt.pipeline import IntArray, Mix, Pipeline
from ppopt.pipeline.runtimes import NotForTorch, one_route
from ppopt.schedule import Order, Schedule, halves
from ppopt.timing import begun, in_turn, time_order
from ppopt.timing.links import FloatArray


@dataclass(frozen=True)
class Runnable:
    """A schedule as PyTorch will run it, and what was done to it for that."""

    schedule: Schedule
    notes: tuple[str, ...]


def for_torch(schedule: Schedule) -> Runnable:
    """The schedule in a form that PyTorch runs, timed again.

    Microbatches are renumbered where the last stage does not run their forwards in order; those that differ keep what they take
    (:func:`_retold`). ``I`` directly followed by its ``W`` becomes the cheaper ``B`` where nobody upstream waits longer for it.

    Raises:
        NotForTorch: a stage lives on two ranks, a rank has nothing to run, or activations are copied to the host.
    """
    pipeline = one_route(schedule.pipeline)
    if any(map(len, schedule.copies.rows)):
        problem = 'PyTorch\'s schedules have no actions for that; offload.stages = "none" leaves them out'
        raise NotForTorch(f"the schedule copies activations to the host and back: {problem}")
    for rank, row in enumerate(schedule.order.rows):
        if not len(row):
            raise NotForTorch(f"rank {rank} runs nothing; PyTorch needs at least one stage on every rank")
    notes = []
    number = _numbers_on_last_stage(pipeline, schedule.order)
    times = begun(schedule)
    order = schedule.order
    if (number != np.arange(len(number))).any():
        order = _renumbered(order, number)
        times.reshape(-1, len(number))[:, number] = times.reshape(-1, len(number)).copy()
        note = "microbatches were renumbered: PyTorch's last stage must run its forwards in the order 0, 1, 2, …"
        if pipeline.mix.differs:
            pipeline = _retold(pipeline, np.argsort(number).tolist())
            note += f"; feed those of the model in the order {', '.join(map(str, np.argsort(number)))}"
        notes.append(note)
    timed = _timed(pipeline, order, times)
    order, fused = _fused(timed)
    if fused:
        timed = _timed(pipeline, order, begun(timed))
        notes.append(f"{fused} times I directly followed by its W became B, which nobody waits longer for")
    if _input_gradient_of_first_stage(timed):
        notes.append(
            "PyTorch computes nothing in 0I… and the whole backward in 0W…, and the model gives 0I… a cost: "
            "plan with --runtime torch for times that hold"
        )
    return Runnable(timed, tuple(notes))


def _timed(pipeline: Pipeline, order: Order, times: FloatArray) -> Schedule:
    """As early as can be, held links in the order of their ``times`` (by number; a ``B`` has those of its ``I``)."""
    if not pipeline.lines:
        return time_order(pipeline, order)
    slots = pipeline.stages * pipeline.microbatches
    full, input_ = (times[kind * slots : (kind + 1) * slots] for kind in (Kind.B, Kind.I))
    full[:] = np.where(np.isnan(full), input_, full)
    return in_turn(pipeline, order, times)


def _numbers_on_last_stage(pipeline: Pipeline, order: Order) -> IntArray:
    """By microbatch, which one of the last stage's forwards is of it."""
    index, last = pipeline.index, pipeline.stages - 1
    ops = halves(index, order.rows[pipeline.routes[0][last]])[0]
    base = (Kind.F * index.stages + last) * index.microbatches
    forwards = ops[(base <= ops) & (ops < base + index.microbatches)] - base
    number = np.empty(index.microbatches, dtype=np.int64)
    number[forwards] = np.arange(len(forwards))
    return number


def _retold(pipeline: Pipeline, given: Sequence[int]) -> Pipeline:
    """The pipeline whose k-th microbatch is what ``given[k]`` is now."""
    mix = pipeline.mix

    def turned(rows: Sequence[Any]) -> list[Any]:
        if rows and isinstance(rows[0], tuple):
            return [[row[m] for m in given] for row in rows]
        return [rows[m] for m in given] if rows else []

    changed = Mix(
        microbatch_costs=turned(mix.microbatch_costs),
        microbatch_activations=turned(mix.microbatch_activations),
        lengths=[mix.lengths[m] for m in given] if mix.lengths else [],
        length=mix.length,
        microbatch_order=mix.microbatch_order,
    )
    return pipeline.changed(mix=changed)


def _renumbered(order: Order, number: IntArray) -> Order:
    """The order with other numbers for its microbatches."""
    index = order.index
    slots = index.stages * index.microbatches

    def renumbered(single: IntArray) -> IntArray:
        family, microbatch = np.divmod(single, index.microbatches)
        return family * index.microbatches + number[microbatch]

    rows = []
    for row in order.rows:
        first, second = halves(index, row)
        first, paired = renumbered(first), second >= 0
        both = index.size + first * slots + renumbered(second) - int(Kind.B) * slots
        rows.append(np.where(paired, both, first))
    return Order(index, tuple(rows))


def _fused(schedule: Schedule) -> tuple[Order, int]:
    """The order with ``B`` for adjacent ``I`` and ``W`` where no operation starts later for it, and how many there are.

    Upstream gets its gradient at the end of the ``B`` instead of the ``I``. Where what needs it starts no earlier than that in
    the plan, and ``B`` takes no longer than ``I`` + ``W``, all start times of the plan stay possible; so none gets later. Where
    the gradient's transfer holds a link, what needs it is the transfer; and no transfer may have come between ``I`` and ``W``.
    """
    pipeline = schedule.pipeline
    index, ticks = pipeline.index, pipeline.ticks
    slots = index.stages * index.microbatches
    if not pipeline.costs.split:
        return schedule.order, 0
    start = np.nan_to_num(begun(schedule), nan=-1).astype(np.int64)
    device = pipeline.device_of[0]
    rows, count = [], 0
    for row in schedule.order.rows:
        place = np.flatnonzero((row[:-1] // slots == Kind.I) & (row[1:] - row[:-1] == slots))
        input_ = row[place]
        stage = (input_ - int(Kind.I) * slots) // index.microbatches
        duration = ticks.duration[pipeline.route_by_microbatch[input_ % index.microbatches], :, stage].T
        cheap = duration[Kind.B] <= duration[Kind.I] + duration[Kind.W]
        upstream = np.maximum(start[input_ - index.microbatches], start[input_ - index.microbatches - slots])
        handed_over = start[input_] + duration[Kind.B] + ticks.lag[device[stage], device[stage - 1]]
        needed, ready = upstream, handed_over
        if pipeline.lines:
            sent = start[input_ + (Send.SEND_B - Kind.I) * slots]
            held = ticks.sending[0, 1, stage] > 0
            needed, ready = np.where(held, sent, upstream), np.where(held, start[input_] + duration[Kind.B], handed_over)
            cheap &= start[input_ + slots] == start[input_] + duration[Kind.I]
        place = place[cheap & ((stage == 0) | (needed >= ready))]
        fused = row.copy()
        fused[place] -= slots
        rows.append(np.delete(fused, place + 1))
        count += len(place)
    return (Order(index, tuple(rows)), count) if count else (schedule.order, 0)


def _input_gradient_of_first_stage(schedule: Schedule) -> bool:
    """Whether stage 0 runs an ``I`` that the model gives a cost."""
    pipeline = schedule.pipeline
    if pipeline.ticks.duration[0, Kind.I, 0] <= 0:
        return False
    first = int(Kind.I) * pipeline.stages * pipeline.microbatches
    row = schedule.order.rows[pipeline.routes[0][0]]
    return bool(((first <= row) & (row < first + pipeline.microbatches)).any())


# --- communication -----------------------------------------------------------------------------------------------


def with_comms(schedule: Schedule) -> list[list[Action]]:
    """The rows with every communication; ``schedule`` is one that :func:`for_torch` gave.

    All operations are taken in the order of their ends in the plan. What an operation hands to another rank is sent right after
    it (over a link that is held: before whatever ends after the transfer starts in the plan, so that transfers keep their
    order), and received before the first operation of the other rank that ends later: at its planned time every SEND finds its
    RECV posted, no RECV is posted earlier than that takes, both ranks of a pair list their transfers in one order, and since
    each row is a part of one common sequence, even transfers that block both sides cannot deadlock.

    ``UNSHARD`` comes one operation before a stage's first use, so that gathering the weights overlaps with computation;
    ``REDUCE_GRAD`` and ``RESHARD`` after its last.
    """
    pipeline = schedule.pipeline
    route, index = pipeline.routes[0], pipeline.index
    rows: list[list[Action]] = [[] for _ in range(pipeline.devices)]
    left = [pipeline.microbatches] * pipeline.stages
    times = begun(schedule)
    end = dict(zip(np.concatenate(schedule.order.rows).tolist(), np.concatenate(schedule.end).tolist(), strict=True))
    waiting: list[tuple[float, int]] = []  # transfers that hold a link, by their starts

    def send(number: int) -> None:
        stage, kind, microbatch, _ = _single(index, number)
        to, letter = (stage + 1, "F") if kind == Send.SEND_F else (stage - 1, "B")
        rows[route[stage]].append(Comm(stage, f"SEND_{letter}", microbatch))
        rows[route[to]].append(Comm(to, f"RECV_{letter}", microbatch))

    for number in by_end(schedule):
        while waiting and waiting[0][0] < end[number]:
            send(heappop(waiting)[1])
        action = index.op(number)
        parts = (action.forward, action.backward) if isinstance(action, Pair) else (action,)
        rank = route[parts[0].stage]
        rows[rank].append(action)
        for stage, kind, microbatch, _ in parts:
            to = stage + (1 if kind == Kind.F else -1)
            if kind != Kind.W and 0 <= to < pipeline.stages and route[to] != rank:
                carrier = index.number(Op(stage, Send.SEND_F if kind == Kind.F else Send.SEND_B, microbatch))
                if np.isnan(times[carrier]):
                    send(carrier)
                else:
                    heappush(waiting, (times[carrier], carrier))
        for stage, kind, *_ in parts:
            if kind in (Kind.B, Kind.W):
                left[stage] -= 1
                if not left[stage]:
                    rows[rank] += [Comm(stage, "REDUCE_GRAD"), Comm(stage, "RESHARD")]
    assert not waiting, "what a transfer carries is needed by something that ends later"
    return [_unsharded(row) for row in rows]


def _single(index: OpIndex, number: int) -> Op:
    action = index.op(number)
    assert isinstance(action, Op)
    return action


def _unsharded(row: Sequence[Action]) -> list[Action]:
    computing = [place for place, action in enumerate(row) if not isinstance(action, Comm)]
    seen: set[int] = set()
    before: dict[int, list[Action]] = {}
    for k, place in enumerate(computing):
        action = row[place]
        for part in (action.forward, action.backward) if isinstance(action, Pair) else (action,):
            if part.stage not in seen:
                seen.add(part.stage)
                before.setdefault(computing[max(k - 1, 0)], []).append(Comm(part.stage, "UNSHARD"))
    return [item for place, action in enumerate(row) for item in (*before.get(place, ()), action)]


def by_end(schedule: Schedule) -> Iterator[int]:
    """The numbers of all operations in the order of their ends; where ends tie, each after what it waits for."""
    pipeline = schedule.pipeline
    numbers, end, start = (np.concatenate(rows) for rows in (schedule.order.rows, schedule.end, schedule.start))
    position = np.full(pipeline.index.computations, -1, dtype=np.int64)
    for half in halves(pipeline.index, numbers):
        position[half[half >= 0]] = np.flatnonzero(half >= 0)
    before, after, _ = expand(pipeline, data_of(pipeline, links=False))
    before, after = position[before], position[after]
    run = (before >= 0) & (after >= 0)
    before, after = before[run], after[run]
    next_on_device = np.arange(1, len(numbers) + 1)
    next_on_device[np.cumsum([len(row) for row in schedule.order.rows]) - 1] = -1
    by_source = np.argsort(before, kind="stable")
    followers, first = after[by_source].tolist(), np.searchsorted(before[by_source], np.arange(len(numbers) + 1)).tolist()
    waits = np.bincount(after, minlength=len(numbers))
    waits[next_on_device[next_on_device >= 0]] += 1
    key = list(zip(end.tolist(), start.tolist(), range(len(numbers)), strict=True))
    ready = [key[place] for place in np.flatnonzero(waits == 0).tolist()]
    heapify(ready)
    left, following = waits.tolist(), next_on_device.tolist()
    while ready:
        place = heappop(ready)[2]
        yield int(numbers[place])
        for follower in (*followers[first[place] : first[place + 1]], following[place]):
            if follower >= 0:
                left[follower] -= 1
                if not left[follower]:
                    heappush(ready, key[follower])


# --- what a user needs to know -----------------------------------------------------------------------------------


def settings(pipeline: Pipeline, comms: bool) -> tuple[str, ...]:
    """Where the stages go, and how PyTorch, TorchTitan and NeMo are told to use the file; a line each."""
    route, ranks, microbatches = pipeline.routes[0], pipeline.devices, pipeline.microbatches
    stages = [" ".join(str(s) for s, d in enumerate(route) if d == rank) for rank in range(ranks)]
    lines = [
        "stages on ranks: " + "; ".join(f"rank {rank}: {held}" for rank, held in enumerate(stages)),
        f"PyTorch 2.13: _PipelineScheduleRuntime(stages, n_microbatches={microbatches}, loss_fn=…), then "
        f'_load_csv(FILE, format="{"compute_comms" if comms else "compute_only"}"); stages ascending, as placed above',
    ]
    if comms:
        return (*lines, "TorchTitan, NeMo Automodel: both read compute-only files; export with --to torch-csv")
    name = _torch_name(pipeline)
    if name is None:
        return (
            *lines,
            "TorchTitan, NeMo Automodel: neither can place stages this way (they take the placement from a schedule's name)",
        )
    return (
        *lines,
        f"TorchTitan: --parallelism.pipeline_parallel_degree {ranks} --parallelism.pipeline_parallel_schedule {name} "
        f"--parallelism.pipeline_parallel_schedule_csv FILE, {pipeline.stages} stages in all "
        f"(pipeline_parallel_layers_per_stage), local batch = {microbatches} x pipeline_parallel_microbatch_size",
        f"NeMo Automodel: pp_schedule {name}, pp_schedule_csv FILE, pp_batch_size = {microbatches} x pp_microbatch_size",
    )


def _torch_name(pipeline: Pipeline) -> str | None:
    """The built-in schedule whose name makes TorchTitan place the stages like this."""
    ranks, chunks, route = pipeline.devices, pipeline.chunks, pipeline.routes[0]
    up = tuple(range(ranks))
    if route == up:
        return "1F1B"
    if route == up * chunks:
        return "Interleaved1F1B"
    return "ZBVZeroBubble" if route == up + up[::-1] else None


def actions_of(schedule: Schedule) -> list[list[Op | Pair]]:
    """The rows of a compute-only file; ``schedule`` is one that :func:`for_torch` gave."""
    return [schedule.order.ops(rank) for rank in range(schedule.pipeline.devices)]
