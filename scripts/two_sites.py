"""Two sites: four devices, two here and two there, and a slow line between them.

Total time and bubble ratio over the latency of the line, with M = 8 microbatches and T_F = T_I = T_W = 200; inside a site
transfers take no time.
"""

from __future__ import annotations

from collections.abc import Sequence

import studies

from ppopt.study.store import Stored

ACROSS = [0, 25, 50, 100, 200]


def table(across: float) -> list[list[float]]:
    """Latency from each device to each other."""
    return [[across * ((a < 2) != (b < 2)) for b in range(4)] for a in range(4)]


def study(across: Sequence[float] = ACROSS) -> studies.Tree:
    """Named schedules over the latency between the sites."""
    return {
        "name": "two_sites",
        "model": {
            "pipeline": {"devices": 4, "microbatches": 8},
            "costs": {"forward": 200, "backward_input": 200, "backward_weight": 200},
        },
        "vary": {"links.latency": [table(latency) for latency in across]},
        "run": {"schedules": [*studies.SIX, "zb-v"]},
    }


def latency(result: Stored) -> float:
    """Between the sites."""
    return float(result.changes["links.latency"][0][2])


def main(argv: Sequence[str] | None = None) -> None:
    options = studies.arguments(__doc__ or "", argv)
    results = studies.run(study([0, 100] if options.quick else ACROSS), options)
    panels = [
        studies.Panel(title, lambda result: True, latency, "latency between the sites", y, log=y == "makespan")
        for y, title in (("makespan", "total time"), ("bubble_ratio", "bubble ratio"))
    ]
    studies.draw(results, panels, "Two sites, D = 4, M = 8", options.output / "two_sites.png")


if __name__ == "__main__":
    main()
