"""A stopwatch for the stages of a PyTorch pipeline; ``ppopt profile`` makes a model file of what it writes.

In the training script, on every rank, once the schedule is built::

    timer = StageTimer(schedule)
    for batch in batches:              # a few steps are enough; the first one is left out later
        schedule.step(...)
    timer.measure_links()              # optional; on all ranks at once
    timer.save(f"timing-{rank}.json")

PyTorch waits for the input of a stage before it calls the stage, so that what is measured here holds no waiting time. The
stages must run as they do in training: under their real checkpointing and parallelism.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

VERSION = 1
"""Of the record's format."""
_METHODS = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk")
_ATTRIBUTES = ("_loss_fn", "_n_microbatches", "step")


class StageTimer:
    """Measures every F, B, I and W of a schedule's stages on this rank, what the stages hold and what they send.

    The schedule is an object of ``torch.distributed.pipelining`` with its stages; it is used as before. With CUDA the time
    is the device's (events on its stream). The loss counts to the last stage's forward.

    Raises:
        TypeError: the schedule or a stage is not as PyTorch 2.13 has it.
    """

    def __init__(self, schedule: Any) -> None:
        stages = getattr(schedule, "_stages", None) or [getattr(schedule, "_stage", None)]  # classes for one stage have one
        missing = [name for name in _ATTRIBUTES if not hasattr(schedule, name)]
        missing += [name for name in _METHODS if not all(hasattr(stage, name) for stage in stages)]
        if missing:
            raise TypeError(f"the schedule has no {missing[0]}; StageTimer is tested with PyTorch 2.13")
        self._schedule, self._stages = schedule, stages
        self._step = -1
        self._zero: tuple[Any, int] | None = None
        self._times: dict[tuple[int, str], list[list[tuple[int, Any, Any]]]] = {}
        self._sizes: dict[int, dict[str, int]] = {stage.stage_index: {} for stage in stages}
        self._links: list[dict[str, Any]] = []
        schedule.step = self._stepping(schedule.step)
        for stage in stages:
            self._wrap(stage)
        if schedule._loss_fn is not None:
            last = max(self._sizes)
            loss = schedule._loss_fn
            schedule._loss_fn = lambda *args, **kwargs: self._timed(last, "loss", -1, loss, *args, **kwargs)

    def _stepping(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **kwargs: Any) -> Any:
            self._step += 1
            if self._zero is None:
                self._zero = self._both_clocks()
            return step(*args, **kwargs)

        return stepping

    def _wrap(self, stage: Any) -> None:
        forward, backward, weight = (getattr(stage, name) for name in _METHODS)
        index = stage.stage_index

        def forward_one_chunk(chunk: int, *args: Any, **kwargs: Any) -> Any:
            if not self._sizes[index]:
                return self._sized(stage, forward, chunk, *args, **kwargs)
            return self._timed(index, "F", chunk, forward, chunk, *args, **kwargs)

        def backward_one_chunk(chunk: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False) -> Any:
            kind = "B" if full_backward else "I"
            more = {"loss": loss, "full_backward": full_backward, "last_backward": last_backward}
            return self._timed(index, kind, chunk, backward, chunk, **more)

        def backward_weight_one_chunk(chunk: int, *args: Any, **kwargs: Any) -> Any:
            return self._timed(index, "W", chunk, weight, chunk, *args, **kwargs)

        stage.forward_one_chunk = forward_one_chunk
        stage.backward_one_chunk = backward_one_chunk
        stage.backward_weight_one_chunk = backward_weight_one_chunk

    def _timed(self, stage: int, kind: str, microbatch: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        began = self._now()
        result = function(*args, **kwargs)
        steps = self._times.setdefault((stage, kind), [])
        steps += [[] for _ in range(self._step + 1 - len(steps))]
        steps[self._step].append((microbatch, began, self._now()))
        return result

    def _now(self) -> Any:
        """A time on this rank's device: an event with CUDA, else seconds."""
        import torch

        if self._device().type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _both_clocks(self) -> tuple[Any, int]:
        """One moment by :meth:`_now` and by the host's clock; of several readings the quickest one, where that can be told."""
        import torch

        if self._device().type == "cuda":
            torch.cuda.synchronize()
            return self._now(), time.time_ns()
        readings = [(time.perf_counter(), time.time_ns(), time.perf_counter()) for _ in range(5)]
        before, nanoseconds, after = min(readings, key=lambda reading: reading[2] - reading[0])
        return (before + after) / 2, nanoseconds

    def _device(self) -> Any:
        import torch

        return torch.device(self._stages[0].device)

    def _sized(self, stage: Any, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The stage's first forward: count the bytes of what it keeps for its backward (no time is taken)."""
        kept = Kept(stage.submod)
        with kept.watching():
            output = forward(*args, **kwargs)
        sent = list(_tensors(output))
        for tensor in sent:
            kept.hold(tensor)
        self._sizes[stage.stage_index] = {
            "activation_bytes": kept.bytes,
            "output_bytes": sum(tensor.nbytes for tensor in sent),
        }
        return output

    def measure_links(self, repeats: int = 20, sizes: Sequence[int] | None = None) -> None:
        """Time messages between all pairs of ranks; call it on all ranks.

        It takes one pair after the other: a message there and back, ``repeats`` times; half of that is one way. ``sizes`` are in
        bytes; by default that of the largest stage output, half and a quarter of it, so that what a message takes at any size
        can be told from what each of its bytes takes.
        """
        import torch
        import torch.distributed as dist

        group = self._stages[0].group
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        largest = torch.tensor([max(of.get("output_bytes", 0) for of in self._sizes.values())], device=self._device())
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        most = max(int(largest), 1)
        counts = sorted({max(int(count), 1) for count in (sizes if sizes is not None else (most // 4, most // 2, most))})
        messages = [torch.zeros(count, dtype=torch.uint8, device=self._device()) for count in counts]
        for a in range(ranks):
            for b in range(a + 1, ranks):
                dist.barrier(group=group)
                for message in messages if rank in (a, b) else ():
                    first, peer = rank == a, b if rank == a else a
                    seconds = [_there_and_back(message, first, peer, group) / 2 for _ in range(repeats + 1)][1:]
                    if first:
                        self._links.append({"from": a, "to": b, "bytes": len(message), "seconds": seconds})

    def record(self) -> dict[str, Any]:
        """What was measured: seconds, step by step, for every stage and kind; bytes; links."""
        import torch
        import torch.distributed as dist

        if self._device().type == "cuda":
            torch.cuda.synchronize()
        group = self._stages[0].group
        stages = []
        for stage in sorted(self._sizes):
            kinds = {kind: self._seconds(stage, kind) for kind in "FBIW" if (stage, kind) in self._times}
            loss = self._seconds(stage, "loss") if (stage, "loss") in self._times else []
            kinds["F"] = [
                # of the first forward of all there is a loss, but no time
                [f + more for f, more in zip(of_step, losses[len(losses) - len(of_step) :], strict=True)] if losses else of_step
                for of_step, losses in zip(kinds.get("F", []), loss or [[]] * len(kinds.get("F", [])), strict=True)
            ]
            columns = {name: {kind: self._column(stage, kind, name) for kind in kinds} for name in ("microbatch", "began")}
            stages.append({"stage": stage, **self._sizes[stage], "seconds": kinds, **columns})
        return {
            "ppopt_timing": VERSION,
            "rank": dist.get_rank(group),
            "ranks": dist.get_world_size(group),
            "microbatches": self._schedule._n_microbatches,
            "device": str(self._device()),
            "clock_ns": self._zero[1] if self._zero is not None else 0,
            "stages": stages,
            "links": self._links,
        }

    def _seconds(self, stage: int, kind: str) -> list[list[float]]:
        return [[_between(began, ended) for _, began, ended in of_step] for of_step in self._times[stage, kind]]

    def _column(self, stage: int, kind: str, column: str) -> list[list[Any]]:
        """The microbatches, or the seconds from the begin of the first step to theirs, step by step."""
        assert self._zero is not None
        zero = self._zero[0]
        steps = self._times.get((stage, kind), [])
        if column == "microbatch":
            return [[microbatch for microbatch, _, _ in of_step] for of_step in steps]
        return [[_between(zero, began) for _, began, _ in of_step] for of_step in steps]

    def save(self, path: str) -> None:
        """Write the record of this rank."""
        record = json.dumps(self.record())
        with open(path, "w", encoding="utf-8") as file:
            file.write(record + "\n")


class Kept:
    """What the forward of a module keeps for its backward, but for parameters and buffers."""

    def __init__(self, module: Any) -> None:
        self._own = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers())}
        self._held: dict[int, int] = {}

    def watching(self) -> Any:
        """A context in which the forward is to run."""
        import torch

        return torch.autograd.graph.saved_tensors_hooks(self.hold, lambda tensor: tensor)

    def hold(self, tensor: Any) -> Any:
        """One more tensor is kept; views that begin at one place are one piece of memory."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._own:
            held = self._held.get(tensor.data_ptr(), 0)
            self._held[tensor.data_ptr()] = max(held, min(tensor.nbytes, storage.nbytes()))
        return tensor.detach()

    @property
    def bytes(self) -> int:
        """Of all that is kept."""
        return sum(self._held.values())


def _between(began: Any, ended: Any) -> float:
    seconds: float = ended - began if isinstance(began, float) else began.elapsed_time(ended) / 1000
    return seconds


def _there_and_back(message: Any, first: bool, peer: int, group: Any) -> float:
    import torch
    import torch.distributed as dist

    if message.is_cuda:
        torch.cuda.synchronize()
    began = time.perf_counter()
    for sending in (first, not first):
        if sending:
            dist.send(message, group=group, group_dst=peer)
        else:
            dist.recv(message, group=group, group_src=peer)
    if message.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
