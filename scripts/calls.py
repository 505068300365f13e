"""The calls between the rooms of the package during one ``solve``: who calls whom, and how often.

    python scripts/calls.py

A room is a folder or a module of ``ppopt``. Rooms are listed from the bottom up, as imports run (``tests/test_rooms.py``). A
call upwards is marked. The only ones are of functions that the upper room has handed down, such as the report of progress.
"""

from __future__ import annotations

import argparse
import functools
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import ppopt
from ppopt import Costs, Links, Memory, Pipeline, solve

PACKAGE = Path(ppopt.__file__).parent
ROOMS = (
    *(
        "op",
        "clock",
        "interrupt",
        "collector",
        "compiled",
        "sequences",
        "pipeline",
        "transformer",
        "text",
        "layouts",
        "constraints",
        "schedule",
        "timing",
        "heuristics",
    ),
    *(
        "checker",
        "named",
        "perceptron",
        "solvers",
        "cpsat",
        "tabu",
        "ilp",
        "bounds",
        "dynamic",
        "periodic",
        "search",
        "files",
        "runs",
    ),
    *("study", "pictures", "live", "cli"),
)


@functools.cache
def room_of(file: str) -> str | None:
    """The room that a file is in; ``None``: another package."""
    path = Path(file)
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py") if path.is_relative_to(PACKAGE) else None


def room(frame: FrameType | None) -> str | None:
    """The room that a frame's code is in."""
    return None if frame is None else room_of(frame.f_code.co_filename)


def calls_of(pipeline: Pipeline, seconds: float) -> Counter[tuple[str, str, str]]:
    """``(caller's room, room, function)`` of a solve, by how often."""
    calls: Counter[tuple[str, str, str]] = Counter()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and (mine := room(frame)) in ROOMS and (other := room(frame.f_back)) in ROOMS and mine != other:
            calls[str(other), str(mine), frame.f_code.co_qualname] += 1

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        solve(pipeline, seconds=seconds, progress=lambda value, bound: None)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="time limit of the solve (20)")
    options = parser.parse_args()
    costs = Costs(per="stage", forward=[10, 9, 12, 8, 11, 10, 9, 12], backward_input=10, backward_weight=[6, 5, 8, 7, 4, 6, 5, 7])
    memory = Memory(activation=1, retained=0.5, limit=7)
    pipeline = Pipeline(4, 14, placement="loop", chunks=2, costs=costs, links=Links(1), memory=memory)
    calls = calls_of(pipeline, options.seconds)
    between: Counter[tuple[str, str]] = Counter()
    for (caller, callee, _), count in calls.items():
        between[caller, callee] += count
    print(f"{'from':12} {'to':12} calls")
    for (caller, callee), count in sorted(between.items(), key=lambda item: (ROOMS.index(item[0][0]), ROOMS.index(item[0][1]))):
        up = ROOMS.index(callee) > ROOMS.index(caller)
        names = sorted({name for a, b, name in calls if (a, b) == (caller, callee)}) if up else []
        print(f"{caller:12} {callee:12} {count:7}{'  upwards: ' + ', '.join(names) if up else ''}")


if __name__ == "__main__":
    main()
