"""Throughput of pipeline parallelism: samples per second over the devices, and over the microbatches.

A perceptron of 64 layers of width 8192, cut into D stages (DistIR's companion notebook, arXiv 2111.05426): a layer's forward is
one product of matrices on a device of 14 Tflop/s, its backward two, and activations travel as 32-bit numbers over 200 Gbit/s.
On the left a batch of 8192 in 8 microbatches, on the right 16 devices. Throughput does not depend on the batch here: every time
is proportional to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import studies

from ppopt.study.store import Stored

LAYERS, WIDTH, BATCH = 64, 8192, 8192
FLOPS, BANDWIDTH = 14e12, 200e9 / 8
DEVICES = [2, 4, 8, 16, 32, 64]
MICROBATCHES = [2, 4, 8, 16, 32, 64]
SCHEDULES = ["gpipe", "1f1b", "zb-h1"]


def study(devices: Sequence[int] = DEVICES, microbatches: Sequence[int] = MICROBATCHES, middle: int = 16) -> studies.Tree:
    """Schedules over the devices with 8 microbatches, and over the microbatches on ``middle`` devices; in microseconds."""
    rows = []
    for d, m in dict.fromkeys([*((d, 8) for d in devices), *((middle, m) for m in microbatches)]):
        product = round(LAYERS / d * 2 * (BATCH / m) * WIDTH * WIDTH / FLOPS * 1e6, 1)
        costs = {f"costs.{part}": product for part in ("forward", "backward_input", "backward_weight")}
        transfer = round(BATCH / m * WIDTH * 4 / BANDWIDTH * 1e6, 1)
        rows.append({"pipeline.devices": d, "pipeline.microbatches": m, **costs, "links.latency": transfer})
    return {"name": "pipeline_throughput", "together": [studies.together(rows)], "run": {"schedules": SCHEDULES}}


def throughput(result: Stored) -> float:
    """Samples per second."""
    return float(BATCH / (result.outcome["makespan"] / 1e6))


def main(argv: Sequence[str] | None = None) -> None:
    options = studies.arguments(__doc__ or "", argv)
    devices, microbatches, middle = ([2, 4], [4, 8], 4) if options.quick else (DEVICES, MICROBATCHES, 16)
    results = studies.run(study(devices, microbatches, middle), options)
    panels = [
        studies.Panel(
            f"{fixed} {kept}",
            studies.has(f"pipeline.{kept}", fixed),
            lambda result, key=f"pipeline.{varied}": float(result.changes[key]),
            varied,
            throughput,
            "samples per second",
        )
        for kept, fixed, varied in (("microbatches", 8, "devices"), ("devices", middle, "microbatches"))
    ]
    studies.draw(results, panels, "Throughput of pipeline parallelism", options.output / "pipeline_throughput.png")


if __name__ == "__main__":
    main()
