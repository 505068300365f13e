"""What each of several microbatches that differ takes beside one of the costs."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from ppopt.pipeline import Pipeline


class Factors(NamedTuple):
    """Of one microbatch on one stage: of a duration without its quadratic part, of that part, and of what is held and sent."""

    time: Fraction
    square: Fraction
    held: Fraction


def factors(pipeline: Pipeline, microbatch: int, stage: int) -> Factors:
    """Read from the lengths, or from the factors, of a pipeline."""
    mix = pipeline.mix
    if mix.lengths:
        mine, one = mix.lengths[microbatch], mix.length
        tokens = Fraction(sum(mine)) / sum(one)
        return Factors(tokens, Fraction(sum(x**2 for x in mine)) / sum(x**2 for x in one), tokens)
    both = []
    for given in (mix.microbatch_costs, mix.microbatch_activations or mix.microbatch_costs):
        row = given[stage] if given and isinstance(given[0], tuple) else given
        both.append(Fraction(1) if not row else row[microbatch])
    return Factors(both[0], both[0], both[1])  # type: ignore[arg-type]
