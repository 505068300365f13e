"""How close estimates come: every published or counted figure of a data file beside what ppopt makes of the sizes.

    python scripts/estimate_errors.py                 # a table by kind: entries, mean and largest error, what is allowed
    python scripts/estimate_errors.py --each          # and every figure
    python scripts/estimate_errors.py other.json      # entries of the same form in another file

The default file is ``tests/data/costs.json``, where every entry has its source.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from ppopt.transformer import (
    GPU,
    Cluster,
    Estimate,
    LayerEstimate,
    Parallel,
    Training,
    Transformer,
    estimate,
    preset,
    transformer_of,
)
from ppopt.transformer.parameters import counts
from ppopt.transformer.times import Seconds

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "costs.json"
CONFIGS = ROOT / "models" / "configs"
Entry: TypeAlias = Mapping[str, Any]
EXACT = 1e-9
"""Relative error of what counts as equal: figures of one formula, added up in another order."""
GIB = 2**30


@dataclass(frozen=True)
class Figure:
    """A published figure and the estimate. ``points``: the error is a difference, not a part of the figure. ``why``: a figure
    that is known to be another one, and why; it is shown and does not count."""

    kind: str
    label: str
    quantity: str
    expected: float
    found: float
    points: bool = False
    why: str = ""

    @property
    def error(self) -> float:
        """In percent of the published figure, or in points."""
        difference = self.found - self.expected
        if self.points:
            return difference
        return 100 * difference / self.expected if self.expected else 0.0 if not difference else float("inf")


@dataclass(frozen=True)
class Allowed:
    """The largest and the mean error that a kind of figures may have, in percent or points."""

    largest: float
    mean: float | None = None


ALLOWED = {
    "gpu": Allowed(EXACT),
    "parameters": Allowed(EXACT),
    "flop-count": Allowed(EXACT),
    "memory": Allowed(EXACT),
    "boundary": Allowed(EXACT),
    "crosspipe-formula": Allowed(EXACT),
    "crosspipe-paper": Allowed(0.2),
    "throughput": Allowed(0.5),
    "utilization": Allowed(1.0),
    "activation-percent": Allowed(0.2),
    "retained": Allowed(0.05),
    "peak-memory": Allowed(10.0),
    "stage-time": Allowed(12.0, 5.0),
    "layer-time": Allowed(10.0),
    "layer-alone": Allowed(15.0, 7.0),
    "step-time": Allowed(10.0, 5.0),
    "weak-scaling": Allowed(12.0, 8.0),
}


# --- sizes of an entry -------------------------------------------------------------------------------------------


def gpt(entry: Entry, **more: Any) -> Transformer:
    """The GPT block of the papers: plain MLP of four times the width."""
    found = {
        "layers": entry["layers"],
        "hidden": entry["hidden"],
        "heads": entry["heads"],
        "vocabulary": entry.get("vocab", 51200),
    }
    biases = dict.fromkeys(("qkv_bias", "output_bias", "ffn_bias", "tied"), True)
    return Transformer(**{**found, "ffn": 4 * entry["hidden"], "gated": False, "norm": "layer", **biases, **more})


def matrices(entry: Entry) -> Transformer:
    """The same with nothing but its matrices, as the formulas of the papers count."""
    return gpt(entry, norm="none", qkv_bias=False, output_bias=False, ffn_bias=False)


def llama(entry: Entry) -> Transformer:
    """A gated block without norms, as CrossPipe's formulas count."""
    sizes = {"hidden": 16384, "intermediate": 53248, "heads": 128, **entry}
    return Transformer(
        layers=sizes["layers"],
        hidden=sizes["hidden"],
        heads=sizes["heads"],
        kv_heads=sizes["kv_heads"],
        ffn=sizes["intermediate"],
        vocabulary=128256,
        norm="none",
    )


def configured(name: str) -> Transformer:
    """The model of that name, from ``models/configs``."""
    return transformer_of(json.loads((CONFIGS / f"{name.lower()}.json").read_text()))


def decoder(found: Estimate) -> LayerEstimate:
    """Its decoder layers."""
    return next(group for group in found.layers if group.kind == "decoder")


def seconds_of(group: LayerEstimate) -> Seconds:
    """Its times."""
    assert group.seconds is not None
    return group.seconds


def work(group: LayerEstimate) -> float:
    """Seconds of F, I and W of one layer."""
    return sum(part.total for part in seconds_of(group).parts)


# --- counts ------------------------------------------------------------------------------------------------------


def of_gpu(entry: Entry) -> Iterator[Figure]:
    """Presets beside the figures that they are from."""
    names = {
        **{"flops": "peak_bf16_flops", "fp8_flops": "peak_fp8_flops", "memory": "memory_GB", "bandwidth": "memory_GB_per_second"},
        **{"intra": "intra_node_GB_per_second_per_direction", "pcie": "pcie_GB_per_second_per_direction"},
        "network": "network_GB_per_second_per_gpu",
    }
    gpu = preset(entry["name"])
    for name, key in names.items():
        yield Figure("gpu", entry["name"], name, entry[key] or 0, getattr(gpu, name) or 0)


def of_parameters(entry: Entry) -> Iterator[Figure]:
    """Counted modules."""
    found, experts = counts(transformer_of(entry["config"])), transformer_of(entry["config"]).experts
    keys = {"total": found.total, "active": found.active, "active_without_input_embedding": found.active - found.embedding}
    for key, value in keys.items():
        if key in entry:
            yield Figure("parameters", entry["model"], key, entry[key], value)
    biased = f"counts {experts} correction biases for each router, which are no parameters but buffers"
    for key, value in (("total_with_router_correction_bias", found.total), ("mtp_unique_parameters", found.prediction)):
        if key in entry:
            yield Figure("parameters", entry["model"], key, entry[key], value, why=biased)


def of_flop_count(entry: Entry) -> Iterator[Figure]:
    """FLOPs that PyTorch counts."""
    name, layers = entry["model"].split(", ")
    sizes = replace(configured(name), layers=int(layers.split()[0]))
    found = estimate(sizes, Training(entry["sequence"], entry["microbatch"], attention="unfused"))
    groups = [group for group in found.layers for _ in range(group.count)]
    decoders = [group.flops for group in groups if group.kind == "decoder"]
    values = {
        "linear": sum(flops.linear for flops in decoders),
        "attention_core_full": sum(flops.core for flops in decoders),
        "head": groups[-1].flops.forward,
        "forward": sum(group.flops.forward for group in groups),
        "backward_input": sum(group.flops.backward_input for group in groups),
        "backward_weight": sum(group.flops.backward_weight for group in groups),
    }
    values["backward"] = values["backward_input"] + values["backward_weight"]
    for key, value in values.items():
        yield Figure("flop-count", entry["model"], key, entry[key], value)


def of_throughput(entry: Entry) -> Iterator[Figure]:
    """Model FLOPs per token, and utilization where that is published."""
    label = " ".join(str(entry[key]) for key in ("system", "model", "machine", "schedule") if key in entry)
    tokens = entry["tokens_per_second_per_gpu"]
    if entry["model"].startswith("Llama-2-7B layer shape"):
        sizes = Transformer(layers=16, hidden=4096, heads=32, ffn=11008, vocabulary=32000)
        published, causal = 1e12 * entry["model_tflops_per_gpu"] / tokens, "full"
    else:
        sizes, published, causal = configured(entry["model"]), entry.get("flops_per_token"), "half"
    if published is not None:
        found = estimate(sizes, Training(entry["sequence"], causal=causal)).flops_per_token
        yield Figure("throughput", label, "FLOPs per token", published, found, why=entry.get("quirk", ""))
    if "mfu_percent" in entry:
        full = estimate(sizes, Training(entry["sequence"], causal="full")).flops_per_token
        yield Figure("utilization", label, "MFU", entry["mfu_percent"], 100 * tokens * full / 989e12, points=True)


# --- memory ------------------------------------------------------------------------------------------------------


def unfused(entry: Entry, **more: Any) -> Training:
    """Unfused attention with its masks."""
    return Training(entry["sequence"], entry["microbatch"], entry.get("global_batch"), attention="unfused", **more)


def parallel(entry: Entry, *, along: bool, **more: Any) -> Parallel:
    """The parallel sizes of an entry; ``along``: with sequence parallelism."""
    sizes = {"tensor": entry["tensor"], "pipeline": entry["pipeline"], "data": entry["data"]}
    return Parallel(**{**sizes, "sequence_parallel": along, **more})


def of_memory(entry: Entry) -> Iterator[Figure]:
    """State and activations of the first stage, by the paper's formulas: matrices alone."""
    selective = entry["recompute"] != "none"
    found = decoder(estimate(matrices(entry), unfused(entry), parallel(entry, along=selective)))
    devices, chunks, layers = entry["pipeline"], entry["chunks"], entry["layers"]
    held = layers * (1 + (devices - 1) / (devices * chunks)) if chunks > 1 else layers
    kept = found.kept.selective if selective else found.kept.none
    label = f"{entry['model']} {entry['recompute']}"
    yield Figure("memory", label, "activation", entry["activation_GiB"], held * kept / GIB)
    yield Figure("memory", label, "state", entry["state_GiB"], layers / devices * found.state / GIB)


def of_activation_percent(entry: Entry) -> Iterator[Figure]:
    """What is kept with each way to recompute, of what is kept with none."""

    def kept(along: bool, level: str) -> float:
        size: float = getattr(decoder(estimate(matrices(entry), unfused(entry), parallel(entry, along=along))).kept, level)
        return size

    for name, percent in entry["percent"].items():
        level = "selective" if "selective" in name else "full" if name == "full" else "none"
        found = 100 * kept("sequence" in name, level) / kept(False, "none")
        yield Figure("activation-percent", entry["model"], name, percent, found, points=True)


def peak(entry: Entry) -> float:
    """GiB of the fullest device with 1F1B: device i holds min(M, D - i) microbatches; the first and the last have a layer
    less."""
    devices = entry["devices"]
    found = estimate(gpt(entry), unfused(entry), Parallel(pipeline=devices))
    first, layer, last = found.layers
    each = (entry["layers"] + 2) // devices
    peaks = []
    for device in range(devices):
        held = [layer] * (each - (device in (0, devices - 1))) + [first] * (device == 0) + [last] * (device == devices - 1)
        flight = min(entry["microbatches"], devices - device)
        peaks.append(sum(flight * group.kept.none + group.state for group in held))
    return max(peaks) / GIB


# --- times -------------------------------------------------------------------------------------------------------


def of_stage_time(entry: Entry) -> Iterator[Figure]:
    """F, I and W of a stage; what goes to the next one; what W needs; the whole memory of the run."""
    found = estimate(gpt(entry), unfused(entry), Parallel(pipeline=entry["devices"]), Cluster(preset(entry["gpu"])))
    layer, label = decoder(found), f"{entry['model']} chunks {entry['chunks']} M {entry['microbatches']}"
    keys = ("forward_ms", "backward_input_ms", "backward_weight_ms")
    for key, part in zip(keys, seconds_of(layer).parts, strict=True):
        yield Figure("stage-time", label, key[:-3], entry[key], 1000 * entry["layers_per_stage"] * part.total)
    yield Figure("boundary", label, "bytes", entry["boundary_bytes"], float(found.boundary))
    yield Figure("retained", label, "of activation", entry["retained_over_activation"], layer.kept.between / layer.kept.none)
    yield Figure("peak-memory", label, "1F1B", entry["peak_memory_GiB_1f1b"], peak(entry))


def of_layer_time(entry: Entry) -> Iterator[Figure]:
    """Forward and backward of a layer."""
    along = entry["sequence_parallel"]
    tensor = Parallel(tensor=entry["tensor"], sequence_parallel=along)
    seconds = seconds_of(decoder(estimate(gpt(entry), unfused(entry), tensor, Cluster(preset(entry["gpu"])))))
    more = {"none": 0.0, "selective": seconds.selective, "full": seconds.full}[entry["recompute"]]
    label = f"{entry['model']} recompute {entry['recompute']}{', sequence parallel' if along else ''}"
    backward = seconds.backward_input + seconds.backward_weight + more
    yield Figure("layer-time", label, "forward", entry["forward_ms"], 1000 * seconds.forward)
    yield Figure("layer-time", label, "backward", entry["backward_ms"], 1000 * backward)


def of_layer_alone(entry: Entry, kind: str = "decoder", why: str = "") -> Iterator[Figure]:
    """F, I and W of a layer of a model in ``models/configs``."""
    found = estimate(
        configured(entry["model"]), Training(entry["sequence"], entry["microbatch"]), cluster=Cluster(preset(entry["gpu"]))
    )
    layer = next(group for group in found.layers if group.kind == kind)
    label = f"{entry['model']} {entry['gpu']} {entry['microbatch']} x {entry['sequence']}"
    keys = ("forward_ms", "backward_input_ms", "backward_weight_ms")
    for key, part in zip(keys, seconds_of(layer).parts, strict=True):
        yield Figure(entry["kind"], label, key[:-3], entry[key], 1000 * part.total, why=why)


def of_head_alone(entry: Entry) -> Iterator[Figure]:
    """F, I and W of a head, in plain PyTorch."""
    even = configured(entry["model"]).vocabulary % 8 == 0
    why = "a loss of plain PyTorch in fp32 passes over the logits more often" if even else "a vocabulary that is no multiple of 8"
    yield from of_layer_alone(entry, "head", why)


def step(entry: Entry, found: Estimate, recompute: str) -> float:
    """Seconds of a step: ``(M + (D - 1) / v) L / D`` layers, M heads, the optimizer and the sum of the gradients."""
    devices = entry["pipeline"]
    first, layer, last = found.layers
    seconds = seconds_of(layer)
    each = work(layer) + {"full": seconds.full, "selective": seconds.selective}[recompute]
    layers = entry["layers"] / devices
    assert found.microbatches is not None
    total = (found.microbatches + (devices - 1) / entry["chunks"]) * layers * each + found.microbatches * work(last)
    for count, of in ((layers, seconds), (1, seconds_of(first))):
        total += count * (of.optimizer + of.reduce_scatter)
    return total


def of_step_time(entry: Entry) -> Iterator[Figure]:
    """Steps of Korthikanti's table 5, with MFU and HFU. The paper's formula for what is run with selective recomputing counts
    scores and values twice throughout (s / 3h in place of s / 6h), their backward included; so does the HFU here."""
    along = "sequence" in entry["recompute"]
    recompute = entry["recompute"].partition("+")[0]
    found = estimate(gpt(entry), unfused(entry), parallel(entry, along=along), Cluster(preset(entry["gpu"])))
    label = f"{entry['model']} {entry['recompute']}" + (f" data {entry['data']}" if entry["data"] > 1 else "")
    yield Figure("step-time", label, "seconds", entry["seconds"], step(entry, found, recompute))
    if "mfu_percent" in entry:
        tokens = entry["global_batch"] * entry["sequence"]
        peak_flops = 312e12 * found.parallel.gpus * entry["seconds"]
        again = 3 * decoder(found).flops.core * entry["layers"] * entry["tensor"] / (entry["sequence"] * entry["microbatch"])
        mfu = 100 * tokens * found.flops_per_token / peak_flops
        yield Figure("utilization", label, "MFU", entry["mfu_percent"], mfu, points=True)
        yield Figure("utilization", label, "HFU", entry["hfu_percent"], mfu + 100 * tokens * again / peak_flops, points=True)


def of_weak_scaling(entry: Entry) -> Iterator[Figure]:
    """Megatron-LM's table 1: fp16 gradients, everything recomputed."""
    training, cut = unfused(entry, dtype="fp16"), parallel(entry, along=False)
    found = estimate(gpt(entry), training, cut, Cluster(preset(entry["gpu"])))
    label = f"{entry['parameters_billion']}B on {entry['gpus']} GPUs"
    yield Figure("weak-scaling", label, "seconds", entry["implied_seconds"], step(entry, found, "full"))


def of_crosspipe_formula(entry: Entry) -> Iterator[Figure]:
    """Its formulas: FLOPs alone, nothing for transfers inside a device, no log-sum-exp; data parallelism of all tensor ranks at
    once."""
    gpu = GPU(entry["flops_per_second"], efficiency=1, passes=0, link_efficiency=1, bandwidth=1e6, intra=1e12, network=320)
    training = Training(entry["sequence"], entry["microbatch"], mlp="unfused")
    cut = parallel(entry, along=True, context=entry["context"], zero=2)
    found = decoder(estimate(llama(entry), training, cut))
    layers = entry["layers"] / (entry["pipeline"] * entry["chunks"])
    timed = estimate(llama(entry), replace(training, dtype="fp16"), replace(cut, zero=0), Cluster(gpu))
    seconds, label = seconds_of(decoder(timed)), entry["model"]
    keys = ("forward_seconds", "backward_input_seconds", "backward_weight_seconds")
    for key, part in zip(keys, seconds.parts, strict=True):
        yield Figure("crosspipe-formula", label, key, entry[key], layers * part.compute)
    kept = sum(size for name, size in found.kept.held.items() if name != "log-sum-exp")
    yield Figure("crosspipe-formula", label, "activation", entry["activation_bytes"], layers * kept)
    yield Figure("crosspipe-formula", label, "retained", entry["retained_bytes"], layers * found.kept.between)
    state = entry["chunks"] * layers * found.state
    yield Figure("crosspipe-formula", label, "state", entry["state_bytes"], state)
    data = entry["data_parallel_seconds_per_chunk_at_GB_per_second_320"]
    yield Figure("crosspipe-formula", label, "data parallel", data, layers * entry["tensor"] * seconds.reduce_scatter)
    boundary = timed.boundary * entry["tensor"] * entry["data"]
    yield Figure("crosspipe-formula", label, "boundary", entry["boundary_bytes_all_replicas"], float(boundary))


def of_crosspipe_paper(entry: Entry) -> Iterator[Figure]:
    """The printed example of the formula; a measured stage of a run, which takes longer than layers alone."""
    cut = Parallel(tensor=entry["tensor"], pipeline=entry["pipeline"])
    training = Training(entry["sequence"], entry["microbatch"])
    each = entry["layers_per_stage"]
    if not entry.get("measured"):
        flops = decoder(estimate(llama(entry), training, cut)).flops.forward
        found = 1000 * each * flops / entry["flops_per_second"]
        yield Figure("crosspipe-paper", entry["model"], "forward", entry["forward_stage_ms"], found)
        return
    gpu = replace(
        preset("h100-sxm"), bandwidth=4000, memory=96, intra=3 * entry["intra_node_GB_per_second_per_direction_per_pair"]
    )
    seconds = seconds_of(decoder(estimate(llama({"layers": 80, **entry}), training, cut, Cluster(gpu, gpus_per_node=4))))
    why = "a stage of a run with tensor parallelism; the preset is fitted to layers measured alone"
    yield Figure("crosspipe-paper", entry["model"], "forward", entry["forward_stage_ms"], 1000 * each * seconds.forward, why=why)


CHECKS: dict[str, Callable[[Entry], Iterator[Figure]]] = {
    "gpu": of_gpu,
    "parameters": of_parameters,
    "flop-count": of_flop_count,
    "throughput": of_throughput,
    "memory": of_memory,
    "activation-percent": of_activation_percent,
    "stage-time": of_stage_time,
    "layer-time": of_layer_time,
    "layer-alone": of_layer_alone,
    "head-alone": of_head_alone,
    "step-time": of_step_time,
    "weak-scaling": of_weak_scaling,
    "crosspipe-formula": of_crosspipe_formula,
    "crosspipe-paper": of_crosspipe_paper,
}


def figures(path: Path = DATA) -> list[Figure]:
    """All figures of a file beside their estimates; kinds that are not known are left out."""
    entries = json.loads(path.read_text())["entries"]
    return [figure for entry in entries if entry["kind"] in CHECKS for figure in CHECKS[entry["kind"]](entry)]


def table(found: list[Figure]) -> str:
    """A line for each kind: how many figures, mean and largest error, what is allowed."""
    lines = [f"{'kind':20} {'figures':>7} {'mean':>10} {'largest':>10} {'allowed':>16}"]
    for kind, allowed in ALLOWED.items():
        errors = [abs(figure.error) for figure in found if figure.kind == kind and not figure.why]
        if not errors:
            continue
        unit = "points" if any(figure.points for figure in found if figure.kind == kind) else "%"
        mean, largest = sum(errors) / len(errors), max(errors)
        fits = largest <= allowed.largest and (allowed.mean is None or mean <= allowed.mean)
        limit = "exact" if allowed.largest == EXACT else f"{allowed.largest:g} {unit}"
        limit += "" if allowed.mean is None else f", mean {allowed.mean:g}"
        shown = [f"{value:.2g} {unit}" if value > EXACT else "0" for value in (mean, largest)]
        lines.append(f"{kind:20} {len(errors):7} {shown[0]:>10} {shown[1]:>10} {limit:>16}{'' if fits else '  MISSED'}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=DATA)
    parser.add_argument("--each", action="store_true", help="every figure")
    options = parser.parse_args()
    found = figures(options.file)
    if options.each:
        for figure in found:
            sign = "points" if figure.points else "%"
            numbers = f"{figure.expected:16.6g} {figure.found:16.6g} {figure.error:+9.3g} {sign}"
            print(f"{figure.kind:18} {figure.label[:44]:44} {figure.quantity[:24]:24} {numbers}")
        print()
    print(table(found))
    for figure in found:
        if figure.why:
            print(f"not counted: {figure.label}, {figure.quantity}: {figure.error:+.3g} %: {figure.why}")


if __name__ == "__main__":
    main()
