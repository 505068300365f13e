"""Microbatches: the bubble ratio for M / D = 1, 2, 4, 8 on D = 2 .. 16 devices, T_C = 0, 4, 16."""

from __future__ import annotations

from collections.abc import Sequence

import studies

from ppopt.study.store import Stored

DEVICES = [2, 4, 8, 16]
MULTIPLES = [1, 2, 4, 8]


def study(devices: Sequence[int] = DEVICES, multiples: Sequence[int] = MULTIPLES) -> studies.Tree:
    """Six series over M / D, for each number of devices and latency."""
    rows = [{"pipeline.devices": d, "pipeline.microbatches": k * d, **studies.times(d)} for d in devices for k in multiples]
    return {
        "name": "microbatches",
        "vary": {"links.latency": studies.LATENCIES},
        "together": [studies.together(rows)],
        "run": {"schedules": studies.SIX},
    }


def multiple(result: Stored) -> float:
    """M / D of an instance."""
    return float(result.changes["pipeline.microbatches"]) / result.changes["pipeline.devices"]


def main(argv: Sequence[str] | None = None) -> None:
    options = studies.arguments(__doc__ or "", argv)
    devices, multiples = studies.devices_of(options, DEVICES), [1, 2] if options.quick else MULTIPLES
    results = studies.run(study(devices, multiples), options)
    for d in devices:
        panels = studies.by_latency(multiple, "microbatches / devices", studies.has("pipeline.devices", d))
        studies.draw(results, panels, f"Microbatches, D = {d}", options.output / f"microbatches-{d}-devices.png")


if __name__ == "__main__":
    main()
