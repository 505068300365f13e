"""Lists of lengths of sequences, drawn at random."""

from __future__ import annotations

import math
import random
from collections.abc import Callable


def generated(name: str, count: int, seed: int = 0, longest: int = 16384) -> list[int]:
    """``count`` lengths in tokens, at most ``longest``, of one of the :data:`GENERATORS`.

    Raises:
        ValueError: there is no such generator, or no length is possible.
    """
    if name not in GENERATORS:
        raise ValueError(f"expected one of {', '.join(GENERATORS)}, got {name!r}")
    if count < 1 or longest < 1:
        raise ValueError(f"expected at least one sequence of at least one token, got {count} of at most {longest}")
    rng = random.Random(seed)
    return [max(1, min(longest, round(GENERATORS[name](rng, longest)))) for _ in range(count)]


def _lognormal(median: float, sigma: float, least: int = 1) -> Callable[[random.Random, int], float]:
    return lambda rng, longest: max(least, rng.lognormvariate(math.log(median), sigma))


def _bimodal(rng: random.Random, longest: int) -> float:
    return longest if rng.random() < 0.15 else rng.lognormvariate(math.log(1500), 0.6)


GENERATORS: dict[str, Callable[[random.Random, int], float]] = {
    "wiki": _lognormal(600, 1.45, 16),
    "pretrain-128k": _lognormal(1000, 2.0),
    "megatron-mock": _lognormal(4096 * math.exp(-(1.1**2) / 2), 1.1, 1024),
    "rl-bimodal": _bimodal,
    "uniform": lambda rng, longest: rng.randint(1, longest),
}
"""Long tails (``wiki``, ``pretrain-128k``), Megatron's mock data, answers of which 15 % are cut off, and uniform ones."""


def multipliers(count: int, deviation: float, seed: int = 0) -> list[float]:
    """DynaPipe's factors of microbatches: normal around 1, within 0.1 and 10, scaled to a mean of 1 (and to three digits)."""
    rng = random.Random(seed)
    drawn = [min(10.0, max(0.1, rng.gauss(1, deviation))) for _ in range(count)]
    mean = sum(drawn) / count
    return [max(0.001, round(x / mean, 3)) for x in drawn]
