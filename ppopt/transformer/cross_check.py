"""The same counts by the library transformers: modules without weights, and PyTorch's counter of FLOPs (extra ``hf``)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ppopt.transformer.checked import EstimateError
from ppopt.transformer.configs import transformer_of
from ppopt.transformer.estimating import estimate
from ppopt.transformer.parameters import counts
from ppopt.transformer.settings import Training

SEQUENCE = 256
"""Tokens of the sequence whose FLOPs are counted."""


@dataclass(frozen=True)
class Count:
    """What was counted: by the library, and here."""

    what: str
    library: int
    here: int


def cross_check(config: Mapping[str, Any], sequence: int = SEQUENCE) -> list[Count]:
    """Parameters, FLOPs of F and of the whole backward of the model of a ``config.json``, counted twice.

    The library's modules have no multi-token prediction, and unfused attention computes all scores. Nothing is allocated: the
    parameters are on the meta device, the counter runs on fake tensors.

    Raises:
        EstimateError: the libraries are not installed, or they cannot make the model.
    """
    try:
        torch: Any = importlib.import_module("torch")
        library: Any = importlib.import_module("transformers")
    except ImportError:
        problem = "the comparison needs the extra hf: pip install 'ppopt-pipeline[hf]'"
        raise EstimateError("", problem) from None
    sizes = replace(transformer_of(config), mtp=0)
    found = estimate(sizes, Training(sequence, attention="unfused"))
    forward = sum(group.count * group.flops.forward for group in found.layers)
    backward = sum(group.count * (group.flops.backward_input + group.flops.backward_weight) for group in found.layers)
    nested = config.get("text_config")
    given = dict(nested if isinstance(nested, Mapping) else config)
    try:
        made = library.AutoConfig.for_model(**given)
        with torch.device("meta"):
            model = library.AutoModelForCausalLM.from_config(made, attn_implementation="eager")
        parameters = sum(parameter.numel() for parameter in model.parameters())
        counted = _flops(torch, library, made, sequence, bool(sizes.experts))
    except (TypeError, ValueError, KeyError, RuntimeError, AttributeError) as error:
        raise EstimateError("", f"transformers {library.__version__} cannot count this model: {error}") from None
    return [
        Count("parameters", parameters, counts(sizes).total),
        Count("FLOPs of F", counted[0], int(forward)),
        Count("FLOPs of the backward", counted[1], int(backward)),
    ]


def _flops(torch: Any, library: Any, config: Any, sequence: int, experts: bool) -> tuple[int, int]:
    """FLOPs of F and of the backward; experts as a batched product, which is the one that the counter sees."""
    fake = importlib.import_module("torch._subclasses.fake_tensor")
    counter = importlib.import_module("torch.utils.flop_counter")
    if experts:
        config._experts_implementation = "batched_mm"
    with fake.FakeTensorMode():
        model = library.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        model.train()
        tokens = torch.zeros((1, sequence), dtype=torch.long)
        with counter.FlopCounterMode(display=False) as forward:
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        with counter.FlopCounterMode(display=False) as backward:
            loss.backward()
    return int(forward.get_total_flops()), int(backward.get_total_flops())
