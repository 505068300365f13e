"""What modulo scheduling reaches at a thousand microbatches and more, and that its time does not depend on their number.

    python scripts/any_microbatches.py                 # the set at M = 1024: value, bound, idle gap, seconds
    python scripts/any_microbatches.py --scaling       # six instances at M = 256 and M = 4096
    python scripts/any_microbatches.py -d 16 --retained 1 --time-limit 120

Memory is a share of what 1F1B holds: as many microbatches as there are devices. Real costs are those of a GPT of 1.5
billion parameters (units of 0.1 ms per device and microbatch: 185 forward, 181 and 93 backward; 6 per link). The idle gap
is the part of the idle time that may be avoidable: nothing proves the opposite.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from fractions import Fraction

from ppopt.checker import violations
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import Result, solve

REAL = (Costs(forward=185, backward_input=181, backward_weight=93), Links(latency=6))
UNIT = (Costs(), Links())
SHARED = ("named schedules", "list scheduling")
"""Steps whose time is linear in the number of operations, and that are not the search."""


def instance(devices: int, microbatches: int, placement: str, share: Fraction, real: bool, retained: Fraction) -> Pipeline:
    chunks = 1 if placement == "linear" else 2
    costs, links = REAL if real else UNIT
    memory = Memory(activation=1, retained=retained, limit=share * devices)
    return Pipeline(devices, microbatches, placement=placement, chunks=chunks, costs=costs, links=links, memory=memory)


def row(result: Result) -> dict[str, object]:
    pipeline = result.pipeline
    value, bound = result.ticks.value, result.ticks.lower_bound
    if result.schedule is None or value is None:
        return {"value": None, "bound": result.lower_bound, "reason": result.reason}
    assert not violations(pipeline, result.schedule)
    work = int(max(result.schedule.work))
    idle = value - work
    return {
        "value": result.value,
        "bound": result.lower_bound,
        "idle": pipeline.time(idle),
        "proved idle": pipeline.time(max(0, bound - work)),
        "idle gap": round((value - bound) / idle, 4) if idle else 0.0,
        "reason": result.reason,
        "proved by": result.proved_by,
    }


def searched(result: Result) -> float:
    """Seconds of bounds, search and assembly; the step's own questions are parts of it."""
    own = (step for step in result.steps if step.name not in SHARED and not step.name.startswith("modulo scheduling: "))
    return sum(step.seconds for step in own)


def quality(arguments: argparse.Namespace) -> None:
    begun, reached, all_ = time.monotonic(), 0, 0
    for devices in arguments.devices:
        for placement in arguments.placements:
            for share in arguments.limits:
                for real in (False, True):
                    for retained in arguments.retained if real else (Fraction(1),):
                        pipeline = instance(devices, arguments.microbatches, placement, share, real, retained)
                        result = solve(pipeline, seconds=arguments.time_limit, workers=arguments.workers, seed=arguments.seed)
                        found = row(result)
                        all_ += 1
                        reached += found.get("idle gap", 1.0) <= 0.10  # type: ignore[operator]
                        name = {
                            "D": devices,
                            "placement": placement,
                            "limit": float(share),
                            "real": real,
                            "retained": float(retained),
                        }
                        print(json.dumps({**name, **found, "seconds": round(result.seconds, 1)}), flush=True)
    print(
        f"idle gap <= 0.10 in {reached} of {all_}, M = {arguments.microbatches}, {time.monotonic() - begun:.0f} s",
        file=sys.stderr,
    )


SCALING = [
    (4, "linear", Fraction(3, 4), False),
    (4, "wave", Fraction(1, 2), False),
    (4, "loop", Fraction(3, 4), False),
    (8, "linear", Fraction(3, 4), False),
    (8, "wave", Fraction(1, 2), False),
    (8, "loop", Fraction(3, 4), False),
]


def scaling(arguments: argparse.Namespace) -> None:
    for devices, placement, share, real in SCALING:
        seconds = []
        for microbatches in (256, 4096):
            pipeline = instance(devices, microbatches, placement, share, real, Fraction(1))
            result = solve(pipeline, seconds=arguments.time_limit, workers=arguments.workers, seed=arguments.seed)
            seconds.append(searched(result))
            found = row(result)
            name = {"D": devices, "placement": placement, "limit": float(share), "real": real, "M": microbatches}
            print(
                json.dumps({**name, **found, "searched": round(seconds[-1], 2), "seconds": round(result.seconds, 2)}), flush=True
            )
        print(f"{devices} {placement}: {seconds[1] / seconds[0]:.2f} times as long at 4096", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-d", "--devices", type=int, nargs="+", default=[4, 8])
    parser.add_argument("-m", "--microbatches", type=int, default=1024)
    parser.add_argument("--placements", nargs="+", default=["linear", "loop", "wave"])
    parser.add_argument("--limits", type=Fraction, nargs="+", default=[Fraction(1), Fraction(3, 4), Fraction(1, 2)])
    parser.add_argument("--retained", type=Fraction, nargs="+", default=[Fraction(1), Fraction("0.366")], help="with real costs")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scaling", action="store_true")
    arguments = parser.parse_args()
    (scaling if arguments.scaling else quality)(arguments)


if __name__ == "__main__":
    main()
