"""How far the joint choice of cut, placement, chunks and order is proved, for layers that are as uneven as measured ones.

    python scripts/uneven_layers.py gpt-oss --seeds 3 4 --split
    python scripts/uneven_layers.py kinds --layers 28 --seeds 81 84
    python scripts/uneven_layers.py nemotron --placement loop --chunks 4 -d 8 -m 16
    python scripts/uneven_layers.py deepseek --placement wave --chunks 2 --limited

Shapes of layers, in units of 0.1 ms where they are like measured ones, with 3 % of noise on each time:

* ``gpt-oss``: 24 layers of two kinds; ``deepseek``: a dense one, then 26 alike; ``nemotron``: 56 of three kinds and a heavy head.
  Embedding and head are layers of their own: 26, 29 and 58 in all.
* ``kinds``: random layers of two or three kinds, those of one kind exactly alike, with a heavier head: ``--layers`` in all.

Without ``--placement`` linear, loop and wave with 1, 2 and 4 chunks are open. The gap is over all cuts. ``--limited``: within the
memory that 1F1B takes on the balanced cut.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from random import Random

import ppopt as pp
from ppopt.pipeline import Layer, Layers, Memory, Pipeline

SHAPES = ("gpt-oss", "deepseek", "nemotron", "kinds")
HYBRID = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"
"""The layers of a hybrid model in their order: M state space, - feed forward, * attention."""
FORWARDS = {"M": 7.6, "-": 4.9, "*": 5.6}


def layer(name: str, forward: float, back: float, weight: float, activation: float, split: bool) -> Layer:
    """One layer; ``split``: input and weight gradients are operations of their own."""
    if split:
        return Layer(name, forward=forward, backward_input=back, backward_weight=weight, activation=activation, weights=1)
    return Layer(name, forward=forward, backward=round(back + weight, 1), activation=activation, weights=1)


def like_measured(shape: str, seed: int, split: bool) -> Layers:
    """Layers of about the times of a model that was measured."""
    rng = Random(f"{shape.replace('-', '')}-{seed}")
    rows = list[Layer]()

    def add(name: str, forward: float, back: float, weight: float, activation: float) -> None:
        forward, back, weight = (round(time * rng.gauss(1, 0.03), 1) for time in (forward, back, weight))
        rows.append(layer(name, forward, back, weight, activation, split))

    if shape == "gpt-oss":
        add("embedding", 1.2, 0.1, 1.4, 1)
        for i in range(24):
            forward = 11.3 if i % 2 else 9.1
            add(f"layer{i}", forward, 1.1 * forward, 0.95 * forward, 3)
        add("head", 24, 26, 24, 4)
    elif shape == "deepseek":
        add("embedding", 1.0, 0.1, 1.1, 1)
        add("dense", 9.0, 9.8, 8.5, 3)
        for i in range(26):
            add(f"moe{i}", 14.6, 16.0, 11.2, 4)
        add("head", 18, 19, 18, 4)
    else:
        add("embedding", 1.5, 0.1, 1.8, 1)
        for i, kind in enumerate(HYBRID):
            add(f"layer{i}", FORWARDS[kind], 1.15 * FORWARDS[kind], 0.8 * FORWARDS[kind], 2)
        add("head", 49.6, 52.0, 49.6, 4)
    return Layers(rows)


def of_kinds(number: int, seed: int, split: bool) -> Layers:
    """Random layers of two or three kinds."""
    rng = Random(seed)
    kinds = list[tuple[str, int, int, int, int]]()
    for k in range(rng.choice((2, 3))):
        forward = rng.randint(60, 240)
        back, weight = round(forward * rng.uniform(0.9, 1.2)), round(forward * rng.uniform(0.7, 1.1))
        kinds.append((f"kind{k}", forward, back, weight, rng.randint(2, 6)))
    rows = [layer("embedding", 12, 1, 14, 1, split)]
    for i in range(1, number - 1):
        name, forward, back, weight, activation = rng.choice(kinds)
        rows.append(layer(f"{name}-{i}", forward, back, weight, activation, split))
    head = round(kinds[0][1] * rng.uniform(1.5, 3.0))
    return Layers([*rows, layer("head", head, head, head, 3, split)])


def question(layers: Layers, arguments: argparse.Namespace) -> Pipeline:
    """Which cut is the best, and, where it is open, which placement with how many chunks."""
    devices, microbatches = arguments.devices, arguments.microbatches
    placement = arguments.placement or "any"
    chunks = arguments.chunks if arguments.placement else (1, 2, 4)
    asked = Pipeline(devices, microbatches, placement, chunks, layers=layers, partition="best")
    if not arguments.limited:
        return asked
    balanced = Pipeline(devices, microbatches, "linear", layers=layers, partition="balanced")
    return asked.changed(memory=Memory(limit=max(pp.compare(balanced, only=["1f1b"])["1f1b"].peak_memory or ())))


def row(seed: int, arguments: argparse.Namespace) -> dict[str, object]:
    """What is found and proved in the time."""
    shape = arguments.shape
    layers = (
        of_kinds(arguments.layers, seed, arguments.split) if shape == "kinds" else like_measured(shape, seed, arguments.split)
    )
    result = pp.solve(question(layers, arguments), seconds=arguments.time_limit, workers=arguments.workers)
    best = result.pipeline
    return {
        "shape": shape,
        "seed": seed,
        "layers": len(layers),
        "placement": best.placement,
        "chunks": best.chunks,
        "value": result.value,
        "bound": result.lower_bound,
        "gap in percent": None if result.gap is None else round(100 * float(result.gap), 2),
        "reason": result.reason,
        "seconds": round(result.seconds, 1),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--layers", type=int, default=28, help="of kinds, embedding and head with them")
    parser.add_argument("-d", "--devices", type=int, default=4)
    parser.add_argument("-m", "--microbatches", type=int, default=8)
    parser.add_argument("--placement", choices=["linear", "loop", "wave"])
    parser.add_argument("--chunks", type=int, default=1, help="with a placement")
    parser.add_argument("--split", action="store_true", help="input and weight gradients are operations of their own")
    parser.add_argument("--limited", action="store_true")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args(argv)
    for seed in arguments.seeds:
        print(json.dumps(row(seed, arguments), default=float), flush=True)


if __name__ == "__main__":
    main()
