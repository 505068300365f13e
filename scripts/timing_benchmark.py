"""How long building and timing an order takes, and list scheduling, against a bare Python loop over as many operations.

    python scripts/timing_benchmark.py [--schedule 1f1b] [--quick] [--plain]

Prints CPU time per operation for growing numbers of microbatches: an addition and a maximum per operation in a bare loop,
building the order from the schedule's constraints, timing the order, a list schedule from the rules to its times; and the ratios,
measured in the same run. ``--plain`` keeps the loops uncompiled.
"""

import argparse
import time
from collections.abc import Callable

from ppopt.compiled import using
from ppopt.constraints import rules_of
from ppopt.heuristics import list_schedule, order_of
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


def measure(schedule: str, devices: int, microbatches: int, repeats: int) -> tuple[int, float, float, float, float]:
    """Operations; CPU seconds for as many of the bare loop, of building the order, of timing it and of a list schedule."""
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
        cpu_seconds(lambda: list_schedule(pipeline, rules_of(pipeline)), 2) * operations / (3 * pipeline.stages * microbatches),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedule", default="1f1b")
    parser.add_argument("--devices", type=int, default=32)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--plain", action="store_true", help="no compiled loops")
    arguments = parser.parse_args()
    with using(compiled=not arguments.plain):
        table(arguments)


def table(arguments: argparse.Namespace) -> None:
    measure(arguments.schedule, 2, 4, repeats=1)  # loads the loops
    sizes = (256, 1024) if arguments.quick else (256, 1024, 4096, 15625)
    print(f"{arguments.schedule}, {arguments.devices} devices; CPU us per operation")
    print(f"{'M':>6} {'ops':>8} {'bare loop':>10} {'build':>8} {'time':>8} {'list':>8}", end=" ")
    print(f"{'build/bare':>11} {'time/bare':>10} {'list/bare':>10}")
    for microbatches in sizes:
        operations, bare, build, timing, listed = measure(arguments.schedule, arguments.devices, microbatches, repeats=5)
        per_op = [1e6 * seconds / operations for seconds in (bare, build, timing, listed)]
        columns = f"{per_op[0]:>10.3f} {per_op[1]:>8.3f} {per_op[2]:>8.3f} {per_op[3]:>8.3f}"
        ratios = f"{build / bare:>11.2f} {timing / bare:>10.2f} {listed / bare:>10.2f}"
        print(f"{microbatches:>6} {operations:>8} {columns} {ratios}", flush=True)


if __name__ == "__main__":
    main()
