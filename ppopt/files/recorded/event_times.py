"""Event times of Megatron: a file per rank with the begin and the end of every forward and backward, in ms.

They come from a patch of Megatron-LM (``ENABLE_PP_TIMER=1``): flat objects with the keys ``forward-0-start``,
``backward-3-end``, … (microbatch), or ``forward-1-0-start`` where a device has several chunks (chunk, microbatch). Ranks are in
the name of the file; times count from an event right after a barrier of all ranks.
"""

from __future__ import annotations

import os
import re
from typing import Any

from ppopt.files.recorded.record import Clock, ProfileError, Ran, Recorded, as_seconds, count, in_time
from ppopt.op import Kind, Op

FORMAT = "event times"
_NAME = re.compile(r"event_times_PP(\d+)_VPP(\d+)_TPxCPxDP_rank_(\d+)_pp_rank_(\d+)_rank_(\d+)\.json(?:\.gz)?", re.ASCII)
_KEY = re.compile(r"(forward|backward)-(?:(\d+)-)?(\d+)-(start|end)", re.ASCII)
_TOTAL = "total-execution-time"
_KINDS = {"forward": Kind.F, "backward": Kind.B}


def is_event_times(tree: dict[str, Any]) -> bool:
    """Whether this is such a file, maybe a broken one."""
    return any(re.match("(forward|backward)-", key) for key in tree) or _TOTAL in tree


def read_event_times(path: str, tree: dict[str, Any]) -> Recorded:
    """The one step of a rank.

    Raises:
        ProfileError: the name of the file says no rank, or a key is unknown, missing or without a time.
    """
    devices, chunks, replica, device, rank = _ranks(path)
    times: dict[tuple[Kind, int, int], dict[str, float]] = {}
    for key, value in tree.items():
        if key == _TOTAL:
            as_seconds(value, key, 1e-3)
            continue
        match = _KEY.fullmatch(key)
        if match is None or (match[2] is None) != (chunks == 1):
            example = "forward-0-start" if chunks == 1 else f"forward-{chunks - 1}-0-start"
            raise ProfileError(f"{key}: unknown; with VPP{chunks} expected keys such as {example}, and {_TOTAL}")
        if int(match[2] or 0) >= chunks:
            raise ProfileError(f"{key}: expected a chunk below {chunks}, the VPP of the file's name, got {match[2]}")
        of_op = times.setdefault((_KINDS[match[1]], int(match[2] or 0), int(match[3])), {})
        of_op[match[4]] = as_seconds(value, key, 1e-3)
    if not times:
        raise ProfileError(f"forward-{'' if chunks == 1 else '0-'}0-start: missing; no operation was run")
    found = Recorded(path, rank, 1 + max(microbatch for _, _, microbatch in times), {}, format=FORMAT, clock=Clock.BARRIER)
    found.device, found.route, found.replica = device, (*range(devices),) * chunks, replica
    ran = []
    for (kind, chunk, microbatch), of_op in times.items():
        name = "forward" if kind == Kind.F else "backward"
        key = f"{name}-{'' if chunks == 1 else f'{chunk}-'}{microbatch}"
        for side in ("start", "end"):
            if side not in of_op:
                raise ProfileError(f"{key}-{side}: missing; there is {key}-{'end' if side == 'start' else 'start'}")
        if of_op["end"] < of_op["start"]:
            raise ProfileError(f"{key}-end: expected a time from {tree[f'{key}-start']} on, got {tree[f'{key}-end']}")
        ran.append(Ran(Op(chunk * devices + device, kind, microbatch), of_op["start"], of_op["end"]))
    _check_whole(times.keys(), chunks, found.microbatches)
    found.steps = {1: in_time(ran)}
    for each in found.steps[1]:
        count(found, each)
    return found


def _ranks(path: str) -> tuple[int, int, int, int, int]:
    """PP, VPP, the rank within a device, the device, the global rank."""
    match = _NAME.fullmatch(os.path.basename(path))
    if match is None:
        expected = "event_times_PP4_VPP1_TPxCPxDP_rank_0_pp_rank_0_rank_0.json"
        raise ProfileError(f"event times have their ranks in the name of the file; expected one such as {expected}")
    devices, chunks, replica, device, rank = map(int, match.groups())
    if chunks < 1 or device >= devices:
        problem = f"expected a pp_rank below PP{devices}, and VPP1 or more; got {device} and VPP{chunks}"
        raise ProfileError(f"in the name of the file {problem}")
    return devices, chunks, replica, device, rank


def _check_whole(ops: Any, chunks: int, microbatches: int) -> None:
    """Raise where a forward was not recorded; backwards may be missing."""
    for chunk in range(chunks):
        for microbatch in range(microbatches):
            if (Kind.F, chunk, microbatch) not in ops:
                key = f"forward-{'' if chunks == 1 else f'{chunk}-'}{microbatch}-start"
                raise ProfileError(f"{key}: missing; there are {microbatches} microbatches")
