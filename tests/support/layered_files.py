"""Models with layers, small and as large as published recipes, and results on them."""

import json
from typing import Any

from tests.support.command import run

LAYERS = """
[[layers]]
name = "embedding"
forward = 0.5
backward_input = 0
backward_weight = 0.5
[[layers]]
name = "decoder"
count = {decoder}
forward = 1
backward_input = 1
backward_weight = 1
activation = 1
recompute = [{{ name = "selective", time = 0.25, saved = 0.5 }}, {{ name = "full", time = 1, saved = 0.75 }}]
{mtp}[[layers]]
name = "head"
forward = 1.5
backward_input = 1.5
backward_weight = 1.5
"""
MTP = '[[layers]]\nname = "mtp"\ncount = {count}\nforward = 1\nbackward_input = 1\nbackward_weight = 1\n'


def text(decoder: int = 6, devices: int = 2, microbatches: int = 4, mtp: int = 0, **pipeline: Any) -> str:
    """A model file: an embedding, decoder layers, layers of multi-token prediction and a head."""
    keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in pipeline.items())
    head = f"[pipeline]\ndevices = {devices}\nmicrobatches = {microbatches}\n{keys}"
    return head + LAYERS.format(decoder=decoder, mtp=MTP.format(count=mtp) if mtp else "")


def ordered(schedule: str, *words: object, **model: Any) -> str:
    """The JSON of a named schedule's order on such a model."""
    return run("order", schedule, "-", *words, "--json", stdin=text(**model)).stdout
