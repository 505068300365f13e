"""How many states of a state graph are found in a second of CPU.

    python scripts/state_graphs.py [--most 4000000] [--runs 3]

Prints, for pipelines with large state graphs, the states, the edges between them, the least CPU seconds of several runs, and the
states and edges found in one of these. Where many devices choose at once a state has many edges.
"""

from __future__ import annotations

import argparse
import time

from ppopt.bounds.state_graph import state_graph_of
from ppopt.clock import Clock
from ppopt.constraints import relaxed_graph
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search.tuning import BOUNDS

MEASURED = Costs(forward=185, backward_input=181, backward_weight=93)
PIPELINES = {
    "4 devices, measured costs": Pipeline(4, 64, costs=MEASURED, links=Links(latency=6), memory=Memory(limit=3)),
    "8 devices, unit costs": Pipeline(8, 64, memory=Memory(limit=5)),
    "6 devices, loop of 2 chunks": Pipeline(6, 64, placement="loop", chunks=2, memory=Memory(limit=3)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=4_000_000, help="larger graphs are given up (4000000)")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    print(f"{'pipeline':<28} {'states':>9} {'edges':>9} {'seconds':>8} {'states/s':>10} {'edges/s':>10}")
    for name, pipeline in PIPELINES.items():
        graph = relaxed_graph(pipeline)
        best, states = float("inf"), None
        for _ in range(given.runs):
            begin = time.process_time()
            states = state_graph_of(graph, most=given.most, clock=Clock(600), tuning=BOUNDS)
            best = min(best, time.process_time() - begin)
        if states is None:
            print(f"{name:<28} more than {given.most} states: given up after {best:.2f} s")
        else:
            edges = len(states.source)
            print(f"{name:<28} {states.states:>9} {edges:>9} {best:>8.3f} {states.states / best:>10.0f} {edges / best:>10.0f}")


if __name__ == "__main__":
    main()
