"""What copying activations to the host buys: the best makespan under limits of memory, with copies and without, with bounds.

    python scripts/offload.py -d 4 -m 8 --limits 1 2 3 --times 1 0.5 --seconds 60 --at 5 15 30

Unit costs: F, I and W take 1 each, a microbatch holds 1 on every device, a copy takes the time given, each way, on an engine of
its own for each direction. Beside it stand the gaps that were left after some seconds, and the named schedule 1f1b with its
copies by sail's rule, with the memory that they need.
"""

from __future__ import annotations

import argparse
import time

import ppopt as pp
from ppopt.named import find
from ppopt.pipeline import Memory, Number, Offload, Pipeline
from ppopt.search import Result
from ppopt.timing import time_order


class Gaps:
    """The gap of a search over time: told of the best value and the bound, whenever one improves."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.told: list[tuple[float, float | None]] = []

    def __call__(self, value: Number | None, bound: Number) -> None:
        """Note the gap."""
        self.told.append((time.monotonic() - self.begun, None if value is None else 1 - float(bound) / float(value)))

    def after(self, seconds: float) -> str:
        """The gap that was left after that many seconds."""
        left = [gap for when, gap in self.told if when <= seconds]
        return "-" if not left or left[-1] is None else f"{100 * left[-1]:.1f} %"


def solved(
    devices: int, microbatches: int, limit: float, offload: Offload | None, seconds: float, workers: int, gaps: Gaps
) -> Result:
    """The answer at a limit of memory."""
    pipeline = Pipeline(devices, microbatches, memory=Memory(limit=limit), offload=offload)
    return pp.solve(pipeline, seconds=seconds, workers=workers, progress=gaps)


def sails(devices: int, microbatches: int, takes: float) -> str:
    """What 1f1b takes and holds with sail's copies."""
    pipeline = Pipeline(devices, microbatches, offload=Offload(time=takes, stages="sail"))
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
    parser.add_argument("--at", type=float, nargs="*", default=[5, 15, 30], help="seconds after which the gap is shown")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    after = " | ".join(f"gap after {seconds:g} s" for seconds in given.at)
    print(f"limit | copy | makespan | bound | gap | | seconds | {after} | 1f1b, sail's copies")
    for limit in given.limits:
        for takes in (None, *given.times):
            offload, gaps = None if takes is None else Offload(time=takes), Gaps()
            result = solved(given.devices, given.microbatches, limit, offload, given.seconds, given.workers, gaps)
            beside = "" if takes is None else sails(given.devices, given.microbatches, takes)
            left = " | ".join(map(gaps.after, given.at))
            print(f"{limit:g} | {'none' if takes is None else f'{takes:g}'} | {row(result)} | {left} | {beside}", flush=True)


if __name__ == "__main__":
    main()
