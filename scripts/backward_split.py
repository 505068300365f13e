"""How the backward splits: the bubble ratio of ZB-H1 where the input gradient takes a share of the backward.

T_I / (T_I + T_W) = 0.2 .. 0.8 for D = 2 .. 32, M / D = 1, 2, 4, 8, T_C = 0, 4, 16.
"""

from __future__ import annotations

from collections.abc import Sequence

import studies

from ppopt.study.store import Stored

SHARES = [0.2, 0.4, 0.5, 0.6, 0.8]
MULTIPLES = [1, 2, 4, 8]


def study(
    devices: Sequence[int] = studies.DEVICES, multiples: Sequence[int] = MULTIPLES, shares: Sequence[float] = SHARES
) -> studies.Tree:
    """ZB-H1 over the input gradient's share, for each number of devices, M / D and latency."""
    rows = [
        {
            "pipeline.devices": d,
            "pipeline.microbatches": k * d,
            "costs.forward": 400 / d,
            "costs.backward_input": round(800 * share / d, 6),
            "costs.backward_weight": round(800 * (1 - share) / d, 6),
        }
        for d in devices
        for k in multiples
        for share in shares
    ]
    return {
        "name": "backward_split",
        "vary": {"links.latency": studies.LATENCIES},
        "together": [studies.together(rows)],
        "run": {"schedules": ["zb-h1"]},
    }


def share(result: Stored) -> float:
    """T_I / (T_I + T_W) of an instance."""
    first, second = (float(result.changes[f"costs.backward_{part}"]) for part in ("input", "weight"))
    return round(first / (first + second), 6)


def line(result: Stored) -> str:
    """A series for each number of devices."""
    kind = "zb-h1" if "schedule" in result.task else "optimal"
    return f"{kind}, D = {result.changes['pipeline.devices']}"


def main(argv: Sequence[str] | None = None) -> None:
    options = studies.arguments(__doc__ or "", argv)
    devices = studies.devices_of(options)
    multiples, shares = ([1, 2], [0.2, 0.5]) if options.quick else (MULTIPLES, SHARES)
    results = studies.run(study(devices, multiples, shares), options)
    for k in multiples:

        def at(result: Stored, k: int = k) -> bool:
            return bool(result.changes["pipeline.microbatches"] == k * result.changes["pipeline.devices"])

        panels = studies.by_latency(share, "T_I / (T_I + T_W)", at, line)
        studies.draw(results, panels, f"Split of the backward, M = {k}D", options.output / f"backward_split-{k}.png")


if __name__ == "__main__":
    main()
