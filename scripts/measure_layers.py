"""Measure the layers of a transformer on the GPU of this machine: a table for ``ppopt estimate --calibrate``.

    python scripts/measure_layers.py models/configs/llama-3-8b.json --set transformer.sequence=8192 -o times.csv
    python scripts/measure_layers.py models/configs/llama-3-8b.json --vary transformer.sequence=2048,8192 --layers embedding head
    ppopt estimate models/configs/llama-3-8b.json --set cluster.gpu=h100-sxm --calibrate times.csv

Embedding, one decoder layer and the head, plain PyTorch modules of the sizes in a ``config.json`` or a TOML file of
``ppopt estimate``, one GPU (``parallel`` is of no account). F is the forward, B the whole backward, I the backward of the layer's
input alone, W what B takes longer than I. Each is the median of several runs, by events of the GPU, without the addition to
``.grad``. ``--compile`` measures F and B after ``torch.compile``, whose backward is always the whole one. Needs ``torch``; with
``--device cpu`` it measures the processor.

What it prints beside the times: the bytes that a layer keeps for its backward, and those that the estimate counts.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from ppopt.files import ModelError, setting
from ppopt.files.estimates import read_source
from ppopt.files.torch_timing import Kept
from ppopt.transformer import Asked, EstimateError, Transformer
from ppopt.transformer.estimating import DECODER, EMBEDDING, HEAD, LayerEstimate
from ppopt.transformer.tables import needed_training

KINDS = (EMBEDDING, DECODER, HEAD)
COLUMNS = ("forward", "backward_input", "backward_weight", "backward")
UNKNOWN = ("experts", "kv_latent", "window", "qk_norm", "sinks")
"""Sizes of layers that are not built here."""


@dataclass(frozen=True)
class Measured:
    """Milliseconds of F, I, W and B of one layer, and the bytes that it keeps; ``None``: it has none, or only B."""

    forward: float
    backward_input: float | None
    backward_weight: float | None
    backward: float
    kept: int


def check(asked: Asked) -> None:
    """Raise where the layers are others than those that are built here.

    Raises:
        EstimateError: they are.
    """
    sizes = asked.transformer
    for name in UNKNOWN:
        if getattr(sizes, name):
            raise EstimateError(f"transformer.{name}", "layers with that are not built here")
    if sizes.norms != 2 or sizes.norm == "none":
        raise EstimateError("transformer.norms", "layers with two norms with parameters are built here")
    training = needed_training(asked.training)
    if training.attention != "flash" or training.dropout:
        raise EstimateError("training.attention", "layers with flash attention and without dropout are built here")


# --- layers ------------------------------------------------------------------------------------------------------


def norm_of(sizes: Transformer) -> Any:
    import torch

    return (torch.nn.RMSNorm if sizes.norm == "rms" else torch.nn.LayerNorm)(sizes.hidden)


def decoder_of(sizes: Transformer, sequence: int) -> Any:
    """Norm, attention with rotary positions unless positions are learned, norm, MLP; residuals around both."""
    import torch

    h, size, ffn = sizes.hidden, sizes.head_size or 0, sizes.ffn or 0
    heads, kv_heads = sizes.heads, sizes.kv_heads or sizes.heads

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.norm2 = norm_of(sizes), norm_of(sizes)
            self.query = torch.nn.Linear(h, heads * size, bias=sizes.qkv_bias)
            self.key, self.value = (torch.nn.Linear(h, kv_heads * size, bias=sizes.qkv_bias) for _ in range(2))
            self.out = torch.nn.Linear(heads * size, h, bias=sizes.output_bias)
            self.gate = torch.nn.Linear(h, ffn, bias=sizes.ffn_bias) if sizes.gated else None
            self.up, self.down = torch.nn.Linear(h, ffn, bias=sizes.ffn_bias), torch.nn.Linear(ffn, h, bias=sizes.ffn_bias)
            angles = torch.outer(torch.arange(sequence), 1e4 ** (-torch.arange(0, size, 2) / size))
            self.register_buffer("cosines", torch.cat([angles.cos()] * 2, dim=-1), persistent=False)
            self.register_buffer("sines", torch.cat([angles.sin()] * 2, dim=-1), persistent=False)

        def turned(self, x: torch.Tensor) -> torch.Tensor:
            if sizes.positions:
                return x
            first, second = x.chunk(2, dim=-1)
            return x * self.cosines + torch.cat((-second, first), dim=-1) * self.sines

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(x)
            split = (linear(y).unflatten(-1, (-1, size)).transpose(1, 2) for linear in (self.query, self.key, self.value))
            q, k, v = split
            attended = torch.nn.functional.scaled_dot_product_attention(
                self.turned(q), self.turned(k), v, is_causal=True, enable_gqa=kv_heads != heads
            )
            x = x + self.out(attended.transpose(1, 2).flatten(2))
            y = self.norm2(x)
            if self.gate is not None:
                return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))
            return x + self.down(torch.nn.functional.gelu(self.up(y), approximate="tanh"))

    return Decoder()


def embedding_of(sizes: Transformer, sequence: int) -> Any:
    import torch

    class Embedding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = torch.nn.Embedding(sizes.vocabulary, sizes.hidden)
            self.positions = torch.nn.Embedding(sizes.positions, sizes.hidden) if sizes.positions else None

        def forward(self, numbers: torch.Tensor) -> torch.Tensor:
            found = self.tokens(numbers)
            return found if self.positions is None else found + self.positions.weight[:sequence]

    return Embedding()


def head_of(sizes: Transformer) -> Any:
    """The last norm, the logits, and the loss."""
    import torch

    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = norm_of(sizes)
            self.logits = torch.nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)

        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            logits = self.logits(self.norm(x)).flatten(0, 1).float()
            return torch.nn.functional.cross_entropy(logits, target.flatten())

    return Head()


def built(asked: Asked, kind: str, device: str) -> tuple[Any, list[Any]]:
    """The layer, and its inputs; the first of them has a gradient where that is of use."""
    import torch

    sizes, training = asked.transformer, needed_training(asked.training)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[training.dtype]
    shape = (training.microbatch, training.sequence)
    numbers = torch.randint(sizes.vocabulary, shape, device=device)
    with torch.device(device):
        if kind == EMBEDDING:
            return embedding_of(sizes, training.sequence).to(dtype), [numbers]
        state = torch.randn(*shape, sizes.hidden, dtype=dtype).requires_grad_()
        if kind == HEAD:
            return head_of(sizes).to(dtype), [state, numbers]
        return decoder_of(sizes, training.sequence).to(dtype), [state]


# --- measuring ---------------------------------------------------------------------------------------------------


def stopwatch(device: str) -> Callable[[Callable[[], Any]], tuple[Any, Callable[[], float]]]:
    """Calls a function: what it returns, and the milliseconds that it took, once all has ended."""
    import torch

    def on_gpu(function: Callable[[], Any]) -> tuple[Any, Callable[[], float]]:
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        result = function()
        ended.record()
        return result, lambda: float(began.elapsed_time(ended))

    def on_processor(function: Callable[[], Any]) -> tuple[Any, Callable[[], float]]:
        began = time.perf_counter()
        result = function()
        milliseconds = 1e3 * (time.perf_counter() - began)
        return result, lambda: milliseconds

    return on_gpu if device.startswith("cuda") else on_processor


def kept_bytes(layer: Any, inputs: Sequence[Any]) -> int:
    """What the forward keeps for the backward, but for parameters and buffers."""
    kept = Kept(layer)
    with kept.watching():
        layer(*inputs)
    return kept.bytes


def measured(layer: Any, inputs: Sequence[Any], device: str, repeats: int, warm: int, compiled: bool) -> Measured:
    """Medians of ``repeats`` runs after ``warm`` ones."""
    import torch

    kept = kept_bytes(layer, inputs)
    watch, parameters = stopwatch(device), list(layer.parameters())
    run = torch.compile(layer) if compiled else layer
    state = [inputs[0]] if inputs[0].requires_grad else []
    times: dict[str, list[Callable[[], float]]] = {"F": [], "B": [], "I": []}
    for repeat in range(warm + repeats):
        for name, of in (("B", [*state, *parameters]), ("I", state)):
            if not of or (name == "I" and compiled):
                continue
            output, forward = watch(partial(run, *inputs))
            _, backward = watch(partial(torch.autograd.grad, output, of, torch.ones_like(output)))
            if repeat >= warm:
                times["F"].append(forward)
                times[name].append(backward)
            del output
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    f, b, i = (statistics.median(each() for each in times[name]) if times[name] else None for name in "FBI")
    assert f is not None
    assert b is not None
    return Measured(f, i, None if state and i is None else b - (i or 0.0), b, kept)


def rows(source: str, changes: Sequence[str], varied: Sequence[str]) -> Iterator[tuple[dict[str, str], Asked]]:
    """What is measured: the varied keys, and all that is asked."""
    keys = [text.partition("=")[0] for text in varied]
    values = [text.partition("=")[2].split(",") for text in varied]
    for chosen in product(*values):
        mine = dict(zip(keys, chosen, strict=True))
        settings = [*changes, *(f"{key}={value}" for key, value in mine.items())]
        asked = read_source(source, [setting(text) for text in settings]).asked()
        check(asked)
        yield mine, asked


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="FILE", help="config.json, or TOML file of ppopt estimate")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--vary", action="append", default=[], metavar="KEY=VALUE,…", help="a row for each value")
    parser.add_argument("--layers", nargs="+", choices=KINDS, default=[DECODER])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true", help="after torch.compile")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--warm", type=int, default=5, help="runs before these")
    parser.add_argument("-o", "--output", type=Path, help="the table; appended to where it is there already")
    arguments = parser.parse_args()
    try:
        asked = list(rows(arguments.source, arguments.changes, arguments.vary))
    except (ModelError, EstimateError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    keys = [text.partition("=")[0] for text in arguments.vary]
    table = []
    print(f"{'layer':12}{'':24}" + "".join(f"{name + ' [ms]':>11}" for name in "FIWB") + "   kept [MB], estimated")
    for mine, one in asked:
        groups: dict[str, LayerEstimate] = {group.kind: group for group in one.estimate().layers}
        for kind in arguments.layers:
            layer, inputs = built(one, kind, arguments.device)
            found = measured(layer, inputs, arguments.device, arguments.repeats, arguments.warm, arguments.compile)
            del layer, inputs
            times = [getattr(found, name) for name in COLUMNS]
            shown = "".join(f"{'' if value is None else f'{value:.3f}':>11}" for value in times)
            label = " ".join(mine.values())
            print(f"{kind:12}{label:24}{shown}   {found.kept / 1e6:.1f}, {float(groups[kind].kept.none) / 1e6:.1f}", flush=True)
            cells = [f"{value:.4f}" if value is not None and value > 0 else "" for value in times]  # a W within the noise is none
            table.append([f"{one.transformer.hidden} {kind} {label}".strip(), groups[kind].name, *cells, *mine.values()])
    if arguments.output is not None:
        new = not arguments.output.exists()
        with arguments.output.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([["label", "layer", *COLUMNS, *keys]] * new + table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
