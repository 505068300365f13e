"""GPUs: how fast they compute, read memory and send; presets in ``gpus.toml``."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from ppopt.transformer.checked import EstimateError, number

GUESS = {"efficiency": 0.5, "passes": 3.55, "link_efficiency": 0.7}
"""What is taken of a GPU of which nothing but its peaks is known; the message says that it is a guess."""


@dataclass(frozen=True)
class GPU:
    """One GPU, in the units of ``[cluster]``: ``flops`` in FLOP/s, ``memory`` in GB (1e9 bytes), the rest in GB/s a direction.

    ``bandwidth`` is that of its memory, ``intra`` that to a GPU of the same node, ``network`` its share of the network.
    ``latency`` is added to each message, ``launch`` to each F, I and W of a layer; both in seconds.

    ``efficiency`` is the part of ``flops`` that matrix products reach, ``link_efficiency`` that of a link. ``passes`` says how
    often the activations of a layer cross the memory in F, ``passes_backward`` in I (default ``passes``). ``basis`` says where
    these are from.

    Raises:
        EstimateError: a number is out of range.
    """

    flops: float
    memory: float | None = None
    bandwidth: float | None = None
    intra: float | None = None
    network: float | None = None
    pcie: float | None = None
    fp8_flops: float | None = None
    efficiency: float = GUESS["efficiency"]
    passes: float = GUESS["passes"]
    passes_backward: float | None = None
    link_efficiency: float = GUESS["link_efficiency"]
    latency: float = 0.0
    launch: float = 0.0
    name: str = ""
    basis: str = "guess"
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("flops", "memory", "bandwidth", "intra", "network", "pcie", "fp8_flops"):
            value = getattr(self, name)
            if value is not None:
                least = 1e9 if name.endswith("flops") else 0
                object.__setattr__(self, name, number(f"cluster.{name}", value, least))
        for name, most in (("efficiency", 1), ("link_efficiency", 1)):
            object.__setattr__(self, name, number(f"cluster.{name}", getattr(self, name), 0, most))
        for name in ("passes", "passes_backward", "latency", "launch"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, number(f"cluster.{name}", getattr(self, name), positive=False))
        for name in ("name", "basis", "source"):
            if not isinstance(getattr(self, name), str):
                raise EstimateError(f"cluster.{name}", f"expected a text, got {getattr(self, name)!r}")

    def needed(self, name: str, why: str) -> float:
        """A number of this GPU without which no time can be given.

        Raises:
            EstimateError: it is not known; ``why`` says what it is needed for.
        """
        value: float | None = getattr(self, name)
        if value is None:
            raise EstimateError(f"cluster.{name}", f"missing; {why} needs it")
        return value


FIELDS = tuple(field.name for field in fields(GPU) if field.name != "name")


@cache
def presets() -> dict[str, GPU]:
    """The GPUs of ``gpus.toml`` by name."""
    import tomllib

    tables = tomllib.loads(Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8"))
    return {name: GPU(name=name, **table) for name, table in tables.items()}


def preset(name: Any) -> GPU:
    """The GPU of that name; case does not matter.

    Raises:
        EstimateError: there is none; the message lists them.
    """
    known = presets()
    if isinstance(name, str) and name.lower() in known:
        return known[name.lower()]
    given = str(name).lower()
    near = [one for one in known if given and one.startswith(given)] or difflib.get_close_matches(given, known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    listed = f"the presets are {', '.join(known)}; any other is given by its fields, such as cluster.flops"
    raise EstimateError("cluster.gpu", f"there is no preset {name!r}; {hint}{listed}")
