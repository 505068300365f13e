"""How long building and timing an order takes, against a bare Python loop over as many operations.

    python scripts/timing_benchmark.py [--schedule 1f1b] [--quick]

Prints CPU time per operation for growing numbers of microbatches: an addition and a maximum per operation in a bare
loop, building the order from the schedule's constraints, timing the order; and the ratios, measured in the same run.
"""

import argparse
import time
from collections.abc import Callable

from ppopt.heuristics import order_of
from ppopt.named import find
from ppopt.pipeline import Pipeline
from ppopt.timing import time_order


def cpu_seconds(action: Callable[[], object], repeats: int) -> float:
    """The least of several runs."""
    best = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        action()
        best = min(best, time.process_time() - begin)
    return best


def bare_loop(durations: list[int]) -> int:
    """One addition and one maximum per operation."""
    end = 0
    for duration in durations:
        end = max(end, duration) + duration
    return end


def measure(schedule: str, devices: int, microbatches: int, repeats: int) -> tuple[int, float, float, float]:
    """Operations, and CPU seconds of the bare loop, of building the order and of timing it."""
    definition = find(schedule)
    pipeline = definition.place(Pipeline(devices, microbatches))
    words = definition.words(pipeline)
    order = order_of(pipeline, words)
    if order is None:
        raise SystemExit(f"{schedule} leaves its order open; choose one that pins it")
    operations = sum(map(len, order.rows))
    return (
        operations,
        cpu_seconds(lambda: bare_loop([1] * operations), repeats),
        cpu_seconds(lambda: order_of(pipeline, definition.words(pipeline)), repeats),
        cpu_seconds(lambda: time_order(pipeline, order), repeats),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedule", default="1f1b")
    parser.add_argument("--devices", type=int, default=32)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    arguments = parser.parse_args()
    sizes = (256, 1024) if arguments.quick else (256, 1024, 4096, 15625)
    print(f"{arguments.schedule}, {arguments.devices} devices; CPU us per operation")
    print(f"{'M':>6} {'ops':>8} {'bare loop':>10} {'build':>8} {'time':>8} {'build/bare':>11} {'time/bare':>10}")
    for microbatches in sizes:
        operations, bare, build, timing = measure(arguments.schedule, arguments.devices, microbatches, repeats=5)
        per_op = [1e6 * seconds / operations for seconds in (bare, build, timing)]
        columns = f"{per_op[0]:>10.3f} {per_op[1]:>8.3f} {per_op[2]:>8.3f} {build / bare:>11.2f} {timing / bare:>10.2f}"
        print(f"{microbatches:>6} {operations:>8} {columns}")


if __name__ == "__main__":
    main()
