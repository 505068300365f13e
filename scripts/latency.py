"""Latency: the bubble ratio for T_C = 0 .. 32, on D = 2 .. 32 devices, M / D = 1, 2, 4."""

from __future__ import annotations

from collections.abc import Sequence

import studies

LATENCIES = [0, 2, 4, 8, 16, 32]
MULTIPLES = [1, 2, 4]


def study(
    devices: Sequence[int] = studies.DEVICES, multiples: Sequence[int] = MULTIPLES, latencies: Sequence[float] = LATENCIES
) -> studies.Tree:
    """Six series over the latency, for each number of devices and M / D."""
    rows = [{"pipeline.devices": d, "pipeline.microbatches": k * d, **studies.times(d)} for d in devices for k in multiples]
    return {
        "name": "latency",
        "vary": {"links.latency": list(latencies)},
        "together": [studies.together(rows)],
        "run": {"schedules": studies.SIX},
    }


def main(argv: Sequence[str] | None = None) -> None:
    options = studies.arguments(__doc__ or "", argv)
    devices = studies.devices_of(options)
    multiples, latencies = ([1, 2], [0, 32]) if options.quick else (MULTIPLES, LATENCIES)
    results = studies.run(study(devices, multiples, latencies), options)
    for d in devices:

        def at(k: int, d: int = d) -> studies.Keep:
            return lambda result: result.changes["pipeline.devices"] == d and result.changes["pipeline.microbatches"] == k * d

        panels = [
            studies.Panel(f"M = {k}D", at(k), lambda result: float(result.changes["links.latency"]), "T_C") for k in multiples
        ]
        studies.draw(results, panels, f"Latency, D = {d}", options.output / f"latency-{d}-devices.png")


if __name__ == "__main__":
    main()
