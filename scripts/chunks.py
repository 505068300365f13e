"""Chunks: the bubble ratio of interleaved 1F1B and Hanayo with v = 2, 4, 6, 8 chunks per device, M = 2D, T_C = 0, 4, 16.

The optimal schedule has one chunk per device: a level to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence

import studies

from ppopt.study.store import Stored

CHUNKS = [2, 4, 6, 8]


def study(devices: Sequence[int] = studies.DEVICES, chunks: Sequence[int] = CHUNKS) -> studies.Tree:
    """Two series over the chunks, for each number of devices and latency."""
    rows = [{"pipeline.devices": d, "pipeline.microbatches": 2 * d, **studies.times(d)} for d in devices]
    schedules = [{"name": "interleaved-1f1b", "chunks": v} for v in chunks]
    schedules += [{"name": "hanayo", "chunks": v, "params": studies.GROUPS} for v in chunks]
    return {
        "name": "chunks",
        "vary": {"links.latency": studies.LATENCIES},
        "together": [studies.together(rows)],
        "run": {"schedules": schedules},
    }


def line(result: Stored) -> str:
    """The schedule, whatever its chunks."""
    return str(result.task["schedule"]) if "schedule" in result.task else f"{studies.proof(result)} (linear, 1 chunk)"


def main(argv: Sequence[str] | None = None) -> None:
    options = studies.arguments(__doc__ or "", argv)
    devices, chunks = studies.devices_of(options), [2, 4] if options.quick else CHUNKS
    results = studies.run(study(devices, chunks), options)
    for d in devices:
        at = studies.has("pipeline.devices", d)
        panels = studies.by_latency(lambda result: result.task.get("chunks"), "chunks per device", at, line)
        studies.draw(results, panels, f"Chunks, M = 2D, D = {d}", options.output / f"chunks-{d}-devices.png")


if __name__ == "__main__":
    main()
