"""Dumps of Primus (``dump_pp_data: true``): ``pp_rank_0.json``, … and ``config.json``, which says the sizes.

A dump has a key for each iteration (``"1"``, ``"2"``, …) with the lists ``fwd_start``, ``fwd_end``, ``fwd_minibatch`` and
``fwd_chunk``, and the same of ``bwd`` and ``wgrad``, in ms since the rank's own begin. Ranks have no common clock. A ``bwd`` is
the gradient of the input where the same microbatch and chunk have a ``wgrad``, else the whole backward. A forward and a backward
of one and the same interval are an overlapped pair. Under Megatron's own schedules microbatches and chunks are not written
down; they follow from its order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ppopt.files.recorded.record import Clock, ProfileError, Ran, Recorded, as_seconds, count, in_time, whole
from ppopt.named import Restriction, find
from ppopt.op import Kind, Op, Pair
from ppopt.pipeline import Pipeline, PipelineError, routes_of

FORMAT = "Primus dumps"
_NAME = re.compile(r"pp_rank_(\d+)\.json(?:\.gz)?", re.ASCII)
_FAMILIES = ("fwd", "bwd", "wgrad")
_COLUMNS = ("start", "end", "minibatch", "chunk")


@dataclass(frozen=True)
class Sizes:
    """What ``config.json`` says, and what the user says of the run: where its chunks are, and how large groups were."""

    source: str
    devices: int
    chunks: int
    microbatches: int
    placement: str = "loop"
    group_size: int | None = None

    @property
    def route(self) -> tuple[int, ...]:
        """The device of each stage."""
        return routes_of(self.placement if self.chunks > 1 else "linear", self.devices, self.chunks)[0]


class _Interval(NamedTuple):
    minibatch: int
    chunk: int
    begin: float
    end: float


def is_config(tree: Mapping[str, Any]) -> bool:
    """Whether this is the ``config.json`` of a dump."""
    return "pp_size" in tree


def is_primus(tree: Mapping[str, Any]) -> bool:
    """Whether this is a dump, maybe a broken one."""
    return any(isinstance(value, dict) and f"{name}_start" in value for value in tree.values() for name in _FAMILIES)


def sizes_of(source: str, tree: Mapping[str, Any], placement: str, group_size: int | None) -> Sizes:
    """The sizes in a ``config.json``, under either of the names that Primus has for them.

    Raises:
        ProfileError: one is missing, or no whole number.
    """
    names = {
        "chunks": next((name for name in ("vp_size", "vpp_size") if name in tree), "vp_size"),
        "microbatches": next((name for name in ("num_mbs", "micro_batches") if name in tree), "num_mbs"),
    }
    sizes = {size: whole(tree, name, 1) for size, name in names.items()}
    if placement == "wave" and sizes["chunks"] == 1:
        raise ProfileError(f"{names['chunks']}: --placement wave needs several chunks, got 1")
    return Sizes(source, whole(tree, "pp_size", 1), **sizes, placement=placement, group_size=group_size)


def read_primus(path: str, tree: Mapping[str, Any], skip: int, sizes: Sizes | None) -> Recorded:
    """All iterations of a rank.

    Raises:
        ProfileError: the sizes are not known, or a list is missing, too short, or has something else in it.
    """
    match = _NAME.fullmatch(os.path.basename(path))
    if match is None:
        raise ProfileError("a dump of Primus has its rank in the name of the file; expected one such as pp_rank_0.json")
    if sizes is None:
        raise ProfileError("the sizes of the run are in the config.json beside it; give that file, too")
    device = int(match[1])
    if device >= sizes.devices:
        raise ProfileError(f"is of rank {device}, but pp_size is {sizes.devices} in {sizes.source}")
    found = Recorded(path, device, sizes.microbatches, {}, format=FORMAT, clock=Clock.OWN)
    found.device, found.route = device, sizes.route
    for key, iteration in tree.items():
        if not re.fullmatch(r"\d+", key, re.ASCII) or not isinstance(iteration, dict):
            raise ProfileError(f"{key}: expected the number of an iteration, with its lists")
        found.steps[int(key)] = in_time(list(_ran(iteration, key, device, sizes)))
    for number in sorted(found.steps)[skip:]:
        for each in found.steps[number]:
            count(found, each)
    return found


def _ran(iteration: Mapping[str, Any], key: str, device: int, sizes: Sizes) -> list[Ran]:
    """The operations of an iteration."""
    columns = {name: {column: _list(iteration, key, name, column) for column in _COLUMNS} for name in _FAMILIES}
    rows = {name: _intervals(of, f"{key}.{name}", device, sizes) for name, of in columns.items()}
    stages = [stage for stage, home in enumerate(sizes.route) if home == device]
    weights = {(each.minibatch, each.chunk) for each in rows["wgrad"]}
    forwards = {(each.begin, each.end): each for each in rows["fwd"]}

    def op(each: _Interval, kind: Kind) -> Op:
        return Op(stages[each.chunk], kind, each.minibatch)

    ran, paired = [], set()
    for each in rows["bwd"]:
        kind = Kind.I if (each.minibatch, each.chunk) in weights else Kind.B
        forward = forwards.get((each.begin, each.end))
        if forward is not None and kind == Kind.B:
            paired.add(forward)
            ran.append(Ran(Pair(op(forward, Kind.F), op(each, Kind.B)), each.begin, each.end))
        else:
            ran.append(Ran(op(each, kind), each.begin, each.end))
    ran += [Ran(op(each, Kind.F), each.begin, each.end) for each in rows["fwd"] if each not in paired]
    return ran + [Ran(op(each, Kind.W), each.begin, each.end) for each in rows["wgrad"]]


def _list(iteration: Mapping[str, Any], key: str, name: str, column: str) -> list[Any]:
    where = f"{name}_{column}"
    if where not in iteration and (name == "wgrad" or column in ("minibatch", "chunk")):
        return []
    if where not in iteration:
        raise ProfileError(f"{key}.{where}: missing")
    if not isinstance(iteration[where], list):
        raise ProfileError(f"{key}.{where}: expected a list, got {iteration[where]!r}")
    return list(iteration[where])


def _intervals(columns: Mapping[str, Sequence[Any]], where: str, device: int, sizes: Sizes) -> list[_Interval]:
    """The intervals of one kind, each of its microbatch and chunk.

    Raises:
        ProfileError: the lists are not equally long, something in them is not as expected, or something was run twice.
    """
    size = len(columns["start"])
    for column in _COLUMNS[1:]:
        if len(columns[column]) != size and (column == "end" or columns[column]):
            raise ProfileError(f"{where}_{column}: expected {size} entries, as {where}_start has, got {len(columns[column])}")
    named = bool(columns["minibatch"]) or not size
    if named and sizes.chunks > 1 and size and not columns["chunk"]:
        raise ProfileError(f"{where}_chunk: missing; there are {sizes.chunks} chunks")
    order = None if named else _megatron(where, size, device, sizes)
    found: list[_Interval] = []
    for i in range(size):
        begin, end = (as_seconds(columns[side][i], f"{where}_{side}[{i}]", 1e-3) for side in ("start", "end"))
        if end < begin:
            raise ProfileError(f"{where}_end[{i}]: expected a time from {columns['start'][i]} on, got {columns['end'][i]}")
        if order is None:
            minibatch = _below(columns["minibatch"], i, f"{where}_minibatch", sizes.microbatches, "num_mbs")
            chunk = _below(columns["chunk"], i, f"{where}_chunk", sizes.chunks, "vp_size") if columns["chunk"] else 0
        else:
            minibatch, chunk = order[i]
        found.append(_Interval(minibatch, chunk, begin, end))
    seen: set[tuple[int, int]] = set()
    for i, each in enumerate(found):
        if each[:2] in seen:
            raise ProfileError(f"{where}_minibatch[{i}]: microbatch {each.minibatch} of chunk {each.chunk} is there twice")
        seen.add(each[:2])
    return found


def _below(values: Sequence[Any], i: int, where: str, most: int, name: str) -> int:
    value = values[i]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < most:
        raise ProfileError(f"{where}[{i}]: expected a whole number from 0 to {most - 1} ({name} is {most}), got {value!r}")
    return value


def _megatron(where: str, size: int, device: int, sizes: Sizes) -> list[tuple[int, int]]:
    """Microbatch and chunk of the forwards, or backwards, of a device in Megatron's own order.

    Raises:
        ProfileError: there are not as many as that order has, or it does not exist for these sizes.
    """
    if where.endswith("wgrad"):
        raise ProfileError(f"{where}_minibatch: missing; Megatron's own schedules have no wgrad")
    if sizes.placement != "loop":
        problem = f"microbatches are not written down, and Megatron's own order is on a loop, not --placement {sizes.placement}"
        raise ProfileError(f"{where}_minibatch: missing; {problem}")
    expected = sizes.microbatches * sizes.chunks
    if size != expected:
        raise ProfileError(f"{where}_start: expected {expected} entries (num_mbs x vp_size in {sizes.source}), got {size}")
    if sizes.chunks == 1:
        return [(i, 0) for i in range(size)]
    params = {} if sizes.group_size is None else {"group_size": sizes.group_size}
    try:
        pipeline = Pipeline(sizes.devices, sizes.microbatches, "loop", sizes.chunks)
        schedule = find("interleaved-1f1b").schedule(pipeline, **params)
    except (Restriction, PipelineError) as error:
        raise ProfileError(f"{where}_minibatch: missing, and Megatron's interleaved order does not exist here: {error}") from None
    kind = Kind.F if where.endswith("fwd") else Kind.B
    ops = [each for each in schedule.order.ops(device) if isinstance(each, Op) and each.kind == kind]
    return [(each.microbatch, each.stage // sizes.devices) for each in ops]
