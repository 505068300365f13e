"""Recompute: the bubble ratio where a share r of the forward runs again in the backward, M = 2D, T_C = 0, 4, 16.

The backward of a microbatch then takes (2 + r) forwards; where it is split, the input gradient takes 1 + r.
"""

from __future__ import annotations

from collections.abc import Sequence

import studies

from ppopt.study.store import Stored

RATIOS = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def study(devices: Sequence[int] = studies.DEVICES, ratios: Sequence[float] = RATIOS) -> studies.Tree:
    """Six series over the recompute ratio, for each number of devices and latency."""
    rows = [
        {
            "pipeline.devices": d,
            "pipeline.microbatches": 2 * d,
            **studies.times(d),
            "costs.backward_input": round(400 * (1 + share) / d, 6),
        }
        for d in devices
        for share in ratios
    ]
    return {
        "name": "recompute",
        "vary": {"links.latency": studies.LATENCIES},
        "together": [studies.together(rows)],
        "run": {"schedules": studies.SIX},
    }


def ratio(result: Stored) -> float:
    """r of an instance."""
    return round(result.changes["costs.backward_input"] * result.changes["pipeline.devices"] / 400 - 1, 6)


def main(argv: Sequence[str] | None = None) -> None:
    options = studies.arguments(__doc__ or "", argv)
    devices, ratios = studies.devices_of(options), [0.0, 1.0] if options.quick else RATIOS
    results = studies.run(study(devices, ratios), options)
    for d in devices:
        panels = studies.by_latency(ratio, "recompute ratio", studies.has("pipeline.devices", d))
        studies.draw(results, panels, f"Recompute, M = 2D, D = {d}", options.output / f"recompute-{d}-devices.png")


if __name__ == "__main__":
    main()
