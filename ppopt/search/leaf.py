"""A cut of the layers that is solved as any pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ppopt.pipeline import Pipeline
from ppopt.search.choices import Branch


@dataclass
class Leaf:
    """The search on a cut, what is known of it, and how long it is looked at next."""

    pipeline: Pipeline
    search: Branch
    bound: Fraction
    seconds: float
    settled: bool = False
