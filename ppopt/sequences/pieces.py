"""One sequence cut into pieces, which run as microbatches in a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise


def balanced_pieces(length: int, pieces: int, linear: float, quadratic: float, multiple: int = 1) -> list[int]:
    """The lengths of ``pieces`` pieces of a sequence with equal FLOPs (Seq1F1B's balanced cut), first the longest.

    The FLOPs up to token b are ``quadratic * b^2 / 2 + linear * b``. All pieces but the first are rounded down to
    multiples of ``multiple``; the first takes the rest.

    Raises:
        ValueError: there are fewer tokens than pieces, or nothing takes any time.
    """
    if not 1 <= pieces * multiple <= length:
        raise ValueError(f"expected a sequence of at least {pieces * multiple} tokens for {pieces} pieces, got {length}")
    if linear < 0 or quadratic < 0 or not linear + quadratic:
        raise ValueError(f"expected FLOPs per token >= 0, and some > 0, got {linear} and {quadratic}")
    whole = quadratic * length**2 / 2 + linear * length

    def token(share: float) -> float:
        """Up to which token that share of the FLOPs is."""
        goal = whole * share
        if not quadratic:
            return goal / linear
        return (math.sqrt(linear**2 + 2 * quadratic * goal) - linear) / quadratic

    ends = [*(token(k / pieces) for k in range(1, pieces)), float(length)]
    behind = [max(1, int((end - begin) // multiple)) * multiple for begin, end in pairwise(ends)]
    return [length - sum(behind), *behind]


def piece_costs(pieces: Sequence[int], linear: float, quadratic: float) -> list[float]:
    """The FLOPs of each piece of a sequence: it attends to all that is before it (:func:`balanced_pieces`)."""
    ends = [0, *accumulate(pieces)]
    return [quadratic * (b * b - a * a) / 2 + linear * (b - a) for a, b in pairwise(ends)]
