"""How frameworks put sequences into microbatches: their rules, by name (:data:`PACKERS`).

Each is ``(lengths, most, multiple) -> bags``: ``most`` tokens a bag, in a number of bags that is a multiple of ``multiple`` (as
replicas and groups of microbatches need it). Bags are in the order in which the framework runs them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ppopt.sequences.bags import (
    Bags,
    Weight,
    causal_attention,
    check_cap,
    check_lengths,
    first_fit,
    full_attention,
    karmarkar_karp,
    longest_first,
    no_multiple,
    split_to_multiple,
)
from ppopt.sequences.wlb import Waiting, wlb_step


@dataclass(frozen=True)
class Packer:
    """A framework's rule by its name."""

    name: str
    summary: str
    source: str
    pack: Callable[[Sequence[int], int, int], Bags]


def packed(name: str, lengths: Sequence[int], most: int, multiple: int = 1) -> Bags:
    """The bags of one of the :data:`PACKERS`: every sequence in one of them, none empty.

    ``lengths`` in tokens, in the order of arrival; ``most``: tokens a bag.

    Raises:
        ValueError: there is no such rule; or a sequence is longer than the cap, where the rule has no place for it; or the
            number of bags cannot be a multiple.
    """
    if name not in PACKERS:
        raise ValueError(f"expected one of {', '.join(PACKERS)}, got {name!r}")
    return PACKERS[name].pack(lengths, most, multiple)


def _count(lengths: Sequence[int], most: int, multiple: int) -> int:
    """How many bags the tokens need, as a multiple.

    Raises:
        ValueError: these are more than there are sequences.
    """
    count = -(-sum(lengths) // (most * multiple)) * multiple
    if count > len(lengths):
        raise no_multiple(len(lengths), multiple)
    return count


def _only_multiples(name: str, bags: Bags, multiple: int) -> Bags:
    """The bags of a rule that knows no multiple, where their number is one.

    Raises:
        ValueError: it is none.
    """
    if len(bags) % multiple:
        raise ValueError(f"{name} makes no multiples: expected a multiple of {multiple} bags, got {len(bags)}")
    return bags


def verl(lengths: Sequence[int], most: int, multiple: int = 1) -> Bags:
    """verl's microbatches: as many as the tokens need at ``most`` each, a multiple of ``multiple``, of nearly equal work; in its
    order, small ones at both ends. The cap gives their number alone and is not kept.

    Raises:
        ValueError: a sequence is longer than the cap, or there are fewer sequences than microbatches.
    """
    check_cap(lengths, most, multiple)
    count = _count(lengths, most, multiple)
    weights = [full_attention(length) for length in lengths]
    bags = karmarkar_karp(weights, count)
    down = sorted(range(count), key=lambda b: (sum(weights[i] for i in bags[b]), b), reverse=True)
    return [bags[b] for b in (*down[::2][::-1], *down[1::2])]


def slime(lengths: Sequence[int], most: int, multiple: int = 1) -> Bags:
    """slime's microbatches: first-fit in the order of arrival, a longer sequence alone; then the fullest bag with several is
    split by tokens until their number is a multiple.

    Raises:
        ValueError: there are too few sequences for the multiple.
    """
    check_lengths(lengths, most, multiple)
    bags = first_fit(lengths, most, range(len(lengths)))
    split_to_multiple(bags, multiple, lengths, last=True)
    return bags


def slime_flops(lengths: Sequence[int], most: int, multiple: int = 1, weight: Weight = causal_attention) -> Bags:
    """slime's microbatches with ``balance_by_flops``: as many as the tokens need at ``most`` each, of nearly equal FLOPs, the
    heaviest first; where that is one for each sequence, or more, each alone. Then as :func:`slime`. The cap is not kept.

    ``weight``: the FLOPs of a sequence, which slime takes from the sizes of the model; the factor does not matter.

    Raises:
        ValueError: there are too few sequences for the multiple.
    """
    check_lengths(lengths, most, multiple)
    count = -(-sum(lengths) // most)
    if count >= len(lengths):
        bags = [[i] for i in range(len(lengths))]
    else:
        bags = karmarkar_karp([weight(length) for length in lengths], count)
    split_to_multiple(bags, multiple, lengths, last=True)
    return bags


def megatron_pack(lengths: Sequence[int], most: int, multiple: int = 1) -> Bags:
    """Megatron's ``dp_balanced``: in the order of arrival, a new bag where one would hold more than ``most`` tokens; then the
    last sequence of the latest bag with several gets one of its own, until their number is a multiple.

    Raises:
        ValueError: a sequence is longer than the cap, or there are too few sequences for the multiple.
    """
    check_cap(lengths, most, multiple)
    bags: Bags = []
    held = most + 1
    for i, length in enumerate(lengths):
        if held + length > most:
            bags.append([])
            held = 0
        bags[-1].append(i)
        held += length
    while len(bags) % multiple:
        several = [bag for bag in bags if len(bag) > 1]
        if not several:
            raise no_multiple(len(lengths), multiple)
        bags.append([several[-1].pop()])
    return bags


def bridge_offline(lengths: Sequence[int], most: int, multiple: int = 1) -> Bags:
    """Megatron Bridge's packs: first-fit, the longest first. It makes no multiples, and leaves longer sequences out before.

    Raises:
        ValueError: a sequence is longer than the cap, or the number of bags is no multiple.
    """
    check_cap(lengths, most, multiple)
    return _only_multiples("bridge-offline", first_fit(lengths, most, longest_first(lengths)), multiple)


def automodel_neat(lengths: Sequence[int], most: int, multiple: int = 1) -> Bags:
    """NeMo Automodel's neat packing: the longest first, each into the emptiest bag (of these the first) where it fits there, else
    into a new one. It makes no multiples.

    Raises:
        ValueError: a sequence is longer than the cap, or the number of bags is no multiple.
    """
    check_cap(lengths, most, multiple)
    bags: Bags = []
    held: list[int] = []
    for i in longest_first(lengths):
        into = min(range(len(bags)), key=lambda b: held[b], default=0)
        if not bags or held[into] + lengths[i] > most:
            into = len(bags)
            bags.append([])
            held.append(0)
        bags[into].append(i)
        held[into] += lengths[i]
    return _only_multiples("automodel-neat", bags, multiple)


def torchtitan_rl(lengths: Sequence[int], most: int, multiple: int = 1) -> Bags:
    """The rows of TorchTitan's RL: first-fit, the longest first; the row with the largest sum of squares (of those with several
    sequences) is split by squares until their number is a multiple; then descending by that sum.

    Raises:
        ValueError: a sequence is longer than the cap, or there are too few sequences for the multiple.
    """
    check_cap(lengths, most, multiple)
    bags = first_fit(lengths, most, longest_first(lengths))
    squares = [length * length for length in lengths]
    split_to_multiple(bags, multiple, squares, last=False)
    return sorted(bags, key=lambda bag: -sum(squares[i] for i in bag))


def wlb(lengths: Sequence[int], most: int, multiple: int = 1, weight: Weight = full_attention) -> Bags:
    """One step of WLB-LLM in which no sequence waits: the longest first, each to the microbatch with the least work, or where it
    does not fit there, to the one with the fewest tokens (:func:`~ppopt.sequences.wlb.wlb_step`).

    As many microbatches as the tokens need at ``most`` each, or by ``multiple`` more as long as a sequence would be left over.

    Raises:
        ValueError: a sequence is longer than the cap, or there are too few sequences for the multiple.
    """
    check_cap(lengths, most, multiple)
    for count in range(_count(lengths, most, multiple), len(lengths) + 1, multiple):
        bags, waiting = wlb_step(lengths, range(len(lengths)), Waiting(), count, most, weight=weight)
        if not waiting.left:
            return bags
    raise no_multiple(len(lengths), multiple)


def flexsp(lengths: Sequence[int], most: int, multiple: int = 1) -> Bags:
    """FlexSP's microbatches: the sequences by length, the longest first, cut into runs whose largest number of tokens is least;
    as few runs as hold at most ``most`` each. Of several such cuts the one whose first runs take most. (FlexSP also tries up to
    four more microbatches, each with groups of devices for it.)

    Raises:
        ValueError: a sequence is longer than the cap, or there are too few sequences for the multiple.
    """
    check_cap(lengths, most, multiple)
    order = longest_first(lengths)

    def runs(largest: int, count: int = 0) -> Bags:
        """Runs of at most ``largest`` tokens, each as long as can be while one sequence is left for each of ``count`` runs."""
        found: Bags = []
        held = largest
        for k, i in enumerate(order):
            if held + lengths[i] > largest or len(order) - k <= count - len(found):
                found.append([])
                held = 0
            found[-1].append(i)
            held += lengths[i]
        return found

    count = -(-len(runs(most)) // multiple) * multiple
    if count > len(lengths):
        raise no_multiple(len(lengths), multiple)
    sizes = range(max(lengths), most + 1)
    return runs(sizes[bisect_left(sizes, True, key=lambda largest: len(runs(largest)) <= count)], count)


PACKERS: dict[str, Packer] = {
    packer.name: packer
    for packer in (
        Packer(
            "verl",
            "of nearly equal work (Karmarkar-Karp), small ones at both ends; the cap gives their number alone",
            "verl-project/verl verl/utils/seqlen_balancing.py, rearrange_micro_batches",
            verl,
        ),
        Packer(
            "slime",
            "first-fit in the order of arrival; the fullest is split for a multiple",
            "THUDM/slime slime/utils/dp_schedule.py, first_fit_pack",
            slime,
        ),
        Packer(
            "slime-flops",
            "of nearly equal FLOPs (Karmarkar-Karp); the cap gives their number alone",
            "THUDM/slime pull request 2017, balance_by_flops",
            slime_flops,
        ),
        Packer(
            "megatron-pack",
            "next-fit in the order of arrival; last sequences alone for a multiple",
            "NVIDIA/Megatron-LM megatron/core/datasets/data_schedule.py, DpBalancedScheduler",
            megatron_pack,
        ),
        Packer(
            "bridge-offline",
            "first-fit, the longest first; no multiples",
            "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/data/packing/algorithms.py, first_fit_decreasing",
            bridge_offline,
        ),
        Packer(
            "automodel-neat",
            "the longest first, into the emptiest; no multiples",
            "NVIDIA-NeMo/Automodel nemo_automodel/components/datasets/llm/neat_packing.py, greedy_knapsack",
            automodel_neat,
        ),
        Packer(
            "torchtitan-rl",
            "first-fit, the longest first; the largest sum of squares is split for a multiple; descending by that sum",
            "pytorch/torchtitan pull request 3938",
            torchtitan_rl,
        ),
        Packer(
            "wlb",
            "the longest first, to the least work, else to the fewest tokens",
            "Wang et al. 2025, WLB-LLM, algorithm 1 without its queues",
            wlb,
        ),
        Packer(
            "flexsp",
            "by length, cut into runs of nearly equal tokens",
            "Wang et al. 2025, FlexSP, section 4 (arXiv 2412.01523)",
            flexsp,
        ),
    )
}
"""The rules by name."""
