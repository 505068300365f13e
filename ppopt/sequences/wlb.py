"""WLB-LLM's packing over several steps: very long documents wait until there is one for each microbatch.

Wang et al. 2025, WLB-LLM: Workload-Balanced 4D Parallelism for Large Language Model Training, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ppopt.sequences.bags import Bags, Weight, check_cap, full_attention, longest_first


@dataclass(frozen=True)
class Waiting:
    """What one step leaves to the next: documents by their place in the list of lengths.

    ``queues``: a queue for each threshold, the oldest document first; none yet before the first step. ``left``: what did not fit.
    """

    queues: tuple[tuple[int, ...], ...] = ()
    left: tuple[int, ...] = ()


def wlb_step(
    lengths: Sequence[int],
    new: Iterable[int],
    waiting: Waiting,
    microbatches: int,
    most: int,
    thresholds: Sequence[int] = (),
    weight: Weight = full_attention,
) -> tuple[Bags, Waiting]:
    """The microbatches of a step, and what waits for the next one.

    ``lengths``: of all documents of all steps, in tokens; ``new``: the places of those that arrive for this step. A document of
    at least the i-th of ``thresholds``, and less than the next, waits in the i-th queue until there are ``microbatches`` in it;
    then as many of the oldest go on. First what was left over is placed, then the rest, the longest first: each in the microbatch
    with the least work where that has at most ``most`` tokens then, else in the one with the fewest tokens, else it is left over.
    Of equal microbatches the first counts. A bag is empty where there are too few documents.

    Raises:
        ValueError: a document is longer than ``most``; ``thresholds`` do not ascend, or are as many as other ``queues``.
    """
    check_cap(lengths, most, microbatches)
    if any(a >= b for a, b in pairwise((0, *thresholds))):
        raise ValueError(f"thresholds: expected ascending numbers of tokens, got {list(thresholds)}")
    queues = [list(queue) for queue in waiting.queues] or [[] for _ in thresholds]
    if len(queues) != len(thresholds):
        raise ValueError(f"thresholds: expected {len(queues)}, one per queue, got {len(thresholds)}")
    fresh: list[int] = []
    for i in new:
        level = sum(lengths[i] >= threshold for threshold in thresholds)
        (queues[level - 1] if level else fresh).append(i)
    for queue in queues:
        if len(queue) >= microbatches:
            fresh += queue[:microbatches]
            del queue[:microbatches]
    bags: Bags = [[] for _ in range(microbatches)]
    work, tokens, left = [0] * microbatches, [0] * microbatches, []
    for i in (*waiting.left, *longest_first(lengths, fresh)):
        lightest, emptiest = (min(range(microbatches), key=of.__getitem__) for of in (work, tokens))
        into = next((b for b in (lightest, emptiest) if tokens[b] + lengths[i] <= most), None)
        if into is None:
            left.append(i)
            continue
        bags[into].append(i)
        work[into] += weight(lengths[i])
        tokens[into] += lengths[i]
    return bags, Waiting(tuple(map(tuple, queues)), tuple(left))
