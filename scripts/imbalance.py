"""Imbalance: the bubble ratio where the first and the last device take longer by a share of everything, M = 2D.

Embedding and head make the ends slower: T_ext / T_F = 0 .. 0.5 on D = 2 .. 32 devices, T_C = 0, 4, 16. Times are not divided
by D here: a forward takes 400.
"""

from __future__ import annotations

from collections.abc import Sequence

import studies

from ppopt.study.store import Stored

SHARES = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]


def study(devices: Sequence[int] = studies.DEVICES, shares: Sequence[float] = SHARES) -> studies.Tree:
    """Six series over the extra time, for each number of devices and latency."""
    rows = []
    for d in devices:
        for share in shares:
            cost = [400 + 400 * share * (device in (0, d - 1)) for device in range(d)]
            costs = {f"costs.{name}": cost for name in ("forward", "backward_input", "backward_weight")}
            rows.append({"pipeline.devices": d, "pipeline.microbatches": 2 * d, **costs})
    return {
        "name": "imbalance",
        "vary": {"links.latency": studies.LATENCIES},
        "together": [studies.together(rows)],
        "run": {"schedules": studies.SIX},
    }


def extra(result: Stored) -> float:
    """T_ext / T_F of an instance."""
    return round(float(result.changes["costs.forward"][0]) / 400 - 1, 6)


def main(argv: Sequence[str] | None = None) -> None:
    options = studies.arguments(__doc__ or "", argv)
    devices, shares = studies.devices_of(options), [0.0, 0.5] if options.quick else SHARES
    results = studies.run(study(devices, shares), options)
    for d in devices:
        panels = studies.by_latency(extra, "T_ext / T_F", studies.has("pipeline.devices", d))
        studies.draw(
            results, panels, f"Slower first and last device, M = 2D, D = {d}", options.output / f"imbalance-{d}-devices.png"
        )


if __name__ == "__main__":
    main()
