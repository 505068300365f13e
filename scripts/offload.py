"""What copying activations to the host buys: the best makespan under limits of memory, with copies and without, with bounds.

    python scripts/offload.py -d 4 -m 8 --limits 1 2 3 --times 1 0.5 --seconds 60

Unit costs: F, I and W take 1 each, a microbatch holds 1 on every device, a copy takes the time given, each way, on an engine of
its own for each direction. Beside it stand the named schedule 1f1b and its copies by sail's rule, with the memory that they need.
"""

from __future__ import annotations

import argparse

import ppopt as pp
from ppopt.named import find
from ppopt.pipeline import Memory, Offload, Pipeline
from ppopt.search import Result
from ppopt.timing import time_order


def solved(devices: int, microbatches: int, limit: float, offload: Offload | None, seconds: float, workers: int) -> Result:
    """The answer at a limit of memory."""
    pipeline = Pipeline(devices, microbatches, memory=Memory(limit=limit), offload=offload)
    return pp.solve(pipeline, seconds=seconds, workers=workers)


def sails(devices: int, microbatches: int, time: float) -> str:
    """What 1f1b takes and holds with sail's copies."""
    pipeline = Pipeline(devices, microbatches, offload=Offload(time=time, stages="sail"))
    schedule = time_order(pipeline, find("1f1b").order(pipeline))
    return f"{pipeline.time(schedule.makespan)} at {max(map(pipeline.amount, schedule.peak_memory))}"


def row(result: Result) -> str:
    """Value, bound, and how long it took."""
    gap = "-" if result.gap is None else f"{100 * result.gap:.1f} %"
    return f"{result.value} | {result.lower_bound} | {gap} | {result.reason} | {result.seconds:.0f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-d", "--devices", type=int, default=4)
    parser.add_argument("-m", "--microbatches", type=int, default=8)
    parser.add_argument("--limits", type=float, nargs="+", default=[1, 2, 3])
    parser.add_argument("--times", type=float, nargs="+", default=[1, 0.5])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    print("limit | copy | makespan | bound | gap | | seconds | 1f1b, sail's copies")
    for limit in given.limits:
        for time in (None, *given.times):
            offload = None if time is None else Offload(time=time)
            result = solved(given.devices, given.microbatches, limit, offload, given.seconds, given.workers)
            beside = "" if time is None else sails(given.devices, given.microbatches, time)
            print(f"{limit:g} | {'none' if time is None else f'{time:g}'} | {row(result)} | {beside}", flush=True)


if __name__ == "__main__":
    main()
