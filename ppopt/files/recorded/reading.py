"""Files of a real run, whatever their format."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from typing import Any

from ppopt.files.blocks import BLOCK
from ppopt.files.recorded.event_times import is_event_times, read_event_times
from ppopt.files.recorded.primus import Sizes, is_config, is_primus, read_primus, sizes_of
from ppopt.files.recorded.record import ProfileError, Recorded
from ppopt.files.recorded.timing import read_timing
from ppopt.files.recorded.traces import read_trace
from ppopt.files.text import MAX_BYTES


def read_files(
    paths: Sequence[str], skip: int = 1, blocks: str = BLOCK, *, placement: str | None = None, group_size: int | None = None
) -> list[Recorded]:
    """The files of a run, one per rank: profiler traces and timing records (also gzipped), event times, dumps of Primus.

    The first ``skip`` steps of files that have several are no samples. ``blocks`` says which ranges of a trace are layers (a
    regular expression for the whole name). ``placement``: where the chunks of a Primus dump are, ``loop`` (default) or ``wave``;
    ``group_size``: of Megatron's interleaved order (by default the number of devices), where such a dump names no operations.

    Raises:
        ProfileError: a file cannot be read, is none of these, or holds no step beyond those.
    """
    trees = [(path, _tree(path)) for path in paths]
    configs = [(path, tree) for path, tree in trees if is_config(tree)]
    if len(configs) > 1:
        raise ProfileError(f"{configs[1][0]}: {configs[0][0]} is a config.json, too; give the files of one run")
    sizes = None
    if not any(is_primus(tree) for _, tree in trees):
        if configs and len(configs) < len(trees):
            raise ProfileError(f"{configs[0][0]}: is of dumps of Primus, and there are none among the files")
        for option, given in (("--placement", placement), ("--group-size", group_size)):
            if given is not None and not configs:
                raise ProfileError(f"{option} {given} is about dumps of Primus, and there are none among the files")
    if configs:
        path, tree = configs[0]
        try:
            sizes = sizes_of(path, tree, placement or "loop", group_size)
        except ValueError as error:
            raise ProfileError(f"{path}: {error}") from None
    found = [_recorded(path, tree, skip, blocks, sizes) for path, tree in trees if not is_config(tree)]
    if not found:
        raise ProfileError(f"{configs[0][0]}: gives the sizes of a run alone; give its pp_rank_0.json, …, too")
    return found


def read_recorded(path: str, skip: int = 1, blocks: str = BLOCK) -> Recorded:
    """One rank's file by itself (:func:`read_files`).

    Raises:
        ProfileError: as :func:`read_files`.
    """
    return read_files([path], skip, blocks)[0]


def _tree(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if data[:2] == b"\x1f\x8b":
            with gzip.open(path) as unpacked:
                data = unpacked.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ProfileError(f"{path}: is larger than {MAX_BYTES} bytes, the most that is read")
        tree = json.loads(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ProfileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ProfileError(f"{path}: not a JSON file: {error}") from None
    if not isinstance(tree, dict):
        raise ProfileError(f"{path}: {_UNKNOWN}")
    return tree


_UNKNOWN = (
    "neither a timing record (ppopt_timing), a profiler trace (traceEvents), event times (forward-0-start), "
    "nor a dump of Primus (fwd_start)"
)


def _recorded(path: str, tree: dict[str, Any], skip: int, blocks: str, sizes: Sizes | None) -> Recorded:
    try:
        if "ppopt_timing" in tree:
            recorded = read_timing(path, tree, skip)
        elif "traceEvents" in tree:
            recorded = read_trace(path, tree, skip, blocks)
        elif is_event_times(tree):
            recorded = read_event_times(path, tree)
        elif is_primus(tree):
            recorded = read_primus(path, tree, skip, sizes)
        else:
            raise ProfileError(_UNKNOWN)
    except ProfileError as error:
        error.args = (f"{path}: {error}",)
        raise
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise ProfileError(f"{path}: not as expected: {type(error).__name__}: {error}") from None
    if not recorded.times and not recorded.pairs:
        raise ProfileError(f"{path}: no stage ran after the first {skip} step{'s' * (skip != 1)}, which are left out")
    return recorded
