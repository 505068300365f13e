"""The bars of a schedule as columns, packed for a page: about three bytes for each bar."""

from __future__ import annotations

import base64
import zlib
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.pipeline import IntArray
from ppopt.schedule import Schedule, durations, halves
from ppopt.timing import Waited

Bytes: TypeAlias = npt.NDArray[np.uint8]

LARGEST = 2**31
"""Times of this many ticks and more are packed as doubles."""


class Columns(NamedTuple):
    """The operations of a schedule, one device after the other, then what each link carries, then what each engine
    copies; in the order in which they run.

    An overlapped pair is two entries with the same times, its forward first.
    """

    rows: list[int]
    """How many entries each device has, then each link, then each engine."""
    start: IntArray
    """In ticks."""
    duration: IntArray
    """In ticks."""
    code: IntArray
    """``(kind * S + stage) * M + microbatch``, as :class:`~ppopt.op.OpIndex` numbers them."""
    waits: Bytes
    """What the operation waited for, as :class:`~ppopt.timing.Wait`."""
    half: Bytes
    """0: a whole operation; 1 and 2: the forward and the backward of a pair."""


def columns_of(schedule: Schedule) -> Columns:
    """The columns of a schedule."""
    waited = Waited(schedule)
    parts: list[tuple[IntArray, IntArray, IntArray, Bytes, Bytes]] = []
    for device, numbers in enumerate(schedule.order.rows):
        first, second = halves(schedule.pipeline.index, numbers)
        code = np.stack([first, second], 1).ravel()
        there = code >= 0
        start, taken = (np.repeat(times[device], 2)[there] for times in (schedule.start, schedule.duration))
        bits = np.repeat(waited.operations[device], 2)[there].astype(np.uint8)
        half = np.stack([second >= 0, 2 * (second >= 0)], 1).astype(np.uint8).ravel()
        parts.append((start, taken, code[there], bits, half[there]))
    for numbers, start, flags in zip(*schedule.transfers, waited.transfers, strict=True):
        taken = durations(schedule.pipeline, numbers)
        parts.append((start, taken, numbers, flags.astype(np.uint8), np.zeros(len(numbers), dtype=np.uint8)))
    engines = schedule.copies.rows and zip(*schedule.copies, strict=True)
    nothing = np.zeros(0, dtype=np.int64)
    for numbers, start in engines or [(nothing, nothing)] * len(schedule.pipeline.engines):
        taken, none = durations(schedule.pipeline, numbers), np.zeros(len(numbers), dtype=np.uint8)
        parts.append((start, taken, numbers, none, none))
    return Columns([len(part[0]) for part in parts], *(np.concatenate(column) for column in zip(*parts, strict=True)))


def packed(columns: Columns) -> tuple[str, bool]:
    """The columns in base64 of zlib, and whether the times in it are doubles.

    One plane after the other: starts (of each row the first, then the differences), durations, codes, each of four bytes (of
    doubles eight), waits and halves of one byte; all little-endian.
    """
    ends = np.cumsum(columns.rows)
    begins = (ends - columns.rows)[np.array(columns.rows) > 0]
    steps = np.diff(columns.start, prepend=0)
    steps[begins] = columns.start[begins]
    large = bool(len(columns.start)) and int((columns.start + columns.duration).max()) >= LARGEST
    times = "<f8" if large else "<i4"
    planes: list[npt.NDArray[Any]] = [
        steps.astype(times),
        columns.duration.astype(times),
        columns.code.astype("<i4"),
        columns.waits,
        columns.half,
    ]
    return base64.b64encode(zlib.compress(b"".join(plane.tobytes() for plane in planes), 9)).decode(), large


def unpacked(text: str, rows: list[int], doubles: bool) -> Columns:
    """What :func:`packed` has packed, as the page reads it."""
    data = zlib.decompress(base64.b64decode(text))
    count, at = sum(rows), 0
    planes = []
    for kind in (*(["<f8"] * 2 if doubles else ["<i4"] * 2), "<i4", "u1", "u1"):
        size = count * np.dtype(kind).itemsize
        planes.append(np.frombuffer(data[at : at + size], dtype=kind))
        at += size
    start = np.zeros(count, dtype=np.int64)
    first = 0
    for length in rows:
        start[first : first + length] = np.cumsum(planes[0][first : first + length].astype(np.int64))
        first += length
    return Columns(rows, start, planes[1].astype(np.int64), planes[2].astype(np.int64), planes[3], planes[4])
