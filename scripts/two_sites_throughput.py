"""A large model over two sites: throughput and peak memory over the bandwidth between them, at 5 and at 50 ms of latency.

The setting is that of CrossPipe's study of its 405B (arXiv 2507.00217; C-TC/Megatron-LM, branch crossdc,
pp_generator/task_real_model_scaling.ipynb): 128 layers of width 16384 on 2^14 GPUs, tensor 8, pipeline 16, data 128, sequences of
8192 tokens, 32 microbatches of one sequence, two chunks per device where a schedule has chunks; 350 TFLOP/s in every product, 96
GiB, half of the pipeline at each site. All replicas share the line between the sites, so that a transfer is 32 GiB. Gradients are
summed at 200 GiB/s within a site, stage by stage, beside what is still computed.

With --delays a transfer only arrives later, as there; otherwise the line carries one transfer at a time in each direction.
--paper takes the sizes of the paper's section 5.2 instead: Llama 3.1 405B, embedding and head counted as a layer each, data 64,
500 TFLOP/s. The table is in ms and GB (1e9 bytes); the pictures are in GiB and tokens per second and GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import studies

from ppopt.study.store import Stored
from ppopt.transformer import GPU, Cluster, Estimate, Parallel, Training, Transformer, estimate

GIB = 2**30
BANDWIDTHS = [1, 4, 16, 64, 256, 1024, 4096]
"""Between the sites, in GiB/s."""
LATENCIES = [5, 50]
"""Between the sites, in ms."""
CHUNKS = 2
LIMIT = 96
"""GiB of a GPU."""
SCHEDULES = [
    "gpipe",
    "1f1b",
    {"name": "interleaved-1f1b", "chunks": CHUNKS},
    {"name": "hanayo", "chunks": CHUNKS, "params": studies.GROUPS},
    "zb-h1",
    "zb-v",
]


@dataclass(frozen=True)
class Setting:
    """Sizes of a training, and what a GPU reaches, in FLOP/s."""

    layers: int = 128
    kv_heads: int = 16
    data: int = 128
    pipeline: int = 16
    tensor: int = 8
    flops: float = 350e12
    sequence: int = 8192
    hidden: int = 16384
    ffn: int = 53248
    heads: int = 128

    @property
    def microbatches(self) -> int:
        """Two for each stage."""
        return 2 * self.pipeline

    @property
    def gpus(self) -> int:
        """All."""
        return self.tensor * self.pipeline * self.data

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.sequence * self.microbatches * self.data

    def estimated(self) -> Estimate:
        """Blocks alone, FLOPs alone: the formulas of the study, which leave out norms and what tensor parallelism sends."""
        sizes = Transformer(
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads,
            ffn=self.ffn,
            vocabulary=1,
            norm="none",
        )
        gpu = GPU(self.flops, efficiency=1, passes=0, link_efficiency=1, bandwidth=1e6, intra=1e12, network=1e12)
        cut = Parallel(tensor=self.tensor, pipeline=self.pipeline, data=self.data, zero=2)
        return estimate(sizes, Training(self.sequence, mlp="unfused"), cut, Cluster(gpu))

    @property
    def transfer(self) -> float:
        """Bytes of one microbatch of all replicas between two stages."""
        return float(self.estimated().boundary) * self.tensor * self.data


PAPER = Setting(kv_heads=8, data=64, flops=500e12)
QUICK = Setting(layers=16, pipeline=4)


def model(setting: Setting) -> studies.Tree:
    """The pipeline without its links, in ms and GB."""
    found = setting.estimated()
    decoder = next(group for group in found.layers if group.kind == "decoder")
    assert decoder.seconds is not None
    each, names = setting.layers / setting.pipeline, ("forward", "backward_input", "backward_weight")
    costs = {name: round(1000 * each * part.compute, 1) for name, part in zip(names, decoder.seconds.parts, strict=True)}
    kept = sum(float(size) for name, size in decoder.kept.held.items() if name != "log-sum-exp")
    weights = each * decoder.parameters.total
    exchanged = 1000 * 4 * weights * (setting.data - 1) / setting.data / (200 * GIB)
    memory = {
        "activation": round(each * kept / 1e9, 4),
        "retained": round(each * float(decoder.kept.between) / 1e9, 4),
        "static": round(each * float(decoder.state) / 1e9, 4),
        "limit": round(LIMIT * GIB / 1e9, 4),
    }
    half = setting.pipeline // 2
    return {
        "pipeline": {"devices": setting.pipeline, "microbatches": setting.microbatches, "placement": "any"},
        "costs": costs,
        "memory": memory,
        "data_parallel": {"reduce_scatter": round(exchanged, 1), "overlap": True},
        "links": {"sites": [list(range(half)), list(range(half, setting.pipeline))], "intra": {"latency": 0}},
        "units": {"time": "ms", "memory": "GB"},
    }


def between(setting: Setting, bandwidth: float, latency: float, delays: bool) -> dict[str, Any]:
    """The line between the sites."""
    taken = round(1000 * setting.transfer / (bandwidth * GIB), 1)
    if delays:
        return {"latency": latency + taken}
    return {"latency": latency, "occupancy": taken, "shared": True}


def study(setting: Setting, bandwidths: Sequence[float], *, delays: bool = False) -> studies.Tree:
    """Named schedules over the bandwidth between the sites, for each latency."""
    lines = [between(setting, bandwidth, latency, delays) for latency in LATENCIES for bandwidth in bandwidths]
    return {
        "name": "two_sites_throughput",
        "model": model(setting),
        "vary": {"links.inter": lines},
        "run": {"schedules": SCHEDULES},
    }


def panels(setting: Setting, latency: float, bandwidths: Sequence[float], *, delays: bool) -> list[studies.Panel]:
    """Throughput and peak memory over the bandwidth, at one latency."""
    place = {str(between(setting, bandwidth, latency, delays)): bandwidth for bandwidth in bandwidths}

    def x(result: Stored) -> float:
        return place[str(result.changes["links.inter"])]

    def keep(result: Stored) -> bool:
        return str(result.changes["links.inter"]) in place

    def throughput(result: Stored) -> float | None:
        return per_gpu(setting, result.outcome["makespan"])

    def peak(result: Stored) -> float | None:
        return float(max(result.outcome["peak_memory"])) * 1e9 / GIB

    def panel(title: str, y: Callable[[Stored], float | None], ylabel: str, limit: float | None = None) -> studies.Panel:
        return studies.Panel(title, keep, x, "bandwidth between the sites [GiB/s]", y, ylabel, line, limit)

    return [
        panel("throughput", throughput, "tokens per second and GPU"),
        panel("peak memory of a device", peak, "GiB", LIMIT),
    ]


def per_gpu(setting: Setting, makespan: float) -> float:
    """Tokens per second and GPU; ``makespan`` of a step in ms."""
    return setting.tokens / (makespan / 1000) / setting.gpus


BEST = "best found, any placement"


def line(result: Stored) -> str:
    """The series of a result."""
    return studies.label(result) if "schedule" in result.task else BEST


def told(setting: Setting, here: Sequence[Stored]) -> str:
    """Of the results at one point: the best that fit in the memory, and above what nothing is."""
    fits = {line(r): per_gpu(setting, r.outcome["makespan"]) for r in here if r.outcome.get("within_memory", True)}
    best = sorted(fits.items(), key=lambda item: -item[1])[:3]
    most = [per_gpu(setting, r.outcome["lower_bound"]) for r in here if line(r) == BEST]
    bound = f"; nothing above {most[0]:.1f}" if most else ""
    return ", ".join(f"{name} {value:.1f}" for name, value in best) + bound


def main(argv: Sequence[str] | None = None) -> None:
    parser = studies.parser_of(__doc__ or "")
    parser.add_argument("--delays", action="store_true", help="transfers only arrive later, as in CrossPipe's study")
    parser.add_argument("--paper", action="store_true", help="sizes of the paper in place of its repository's")
    options = parser.parse_args(argv)
    setting = QUICK if options.quick else PAPER if options.paper else Setting()
    bandwidths = BANDWIDTHS[::3] if options.quick else BANDWIDTHS
    results = studies.run(study(setting, bandwidths, delays=options.delays), options)
    for latency in LATENCIES:
        drawn = panels(setting, latency, bandwidths, delays=options.delays)
        title = f"{setting.layers} layers on {setting.gpus:,} GPUs at two sites, latency {latency} ms"
        studies.draw(results, drawn, title, options.output / f"two_sites_throughput-{latency}ms.png")
    for latency in LATENCIES:
        for bandwidth in bandwidths:
            changed = between(setting, bandwidth, latency, options.delays)
            here = [r for r in results if r.changes["links.inter"] == changed and r.status == "done"]
            text = f"{latency} ms, {bandwidth} GiB/s, tokens per second and GPU in {LIMIT} GiB"
            print(f"{text}: {told(setting, here)}")


if __name__ == "__main__":
    main()
