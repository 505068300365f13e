"""Packers, held against the frameworks' own functions, plain readings of their rules and all other choices."""

import itertools
import random
from collections.abc import Iterator, Sequence

import pytest

from ppopt import sequences
from ppopt.sequences import PACKERS, Bags, packed
from ppopt.sequences.packers import slime_flops, wlb

LENGTHS = [16000, 900, 1200, 400, 8000, 700, 650, 3000, 2500, 300, 5000, 1000]
OVER_THE_CAP = {"verl", "slime-flops"}
"""The cap of these gives the number of bags alone."""
LONGER = {"slime", "slime-flops"}
"""These take a sequence that is longer than the cap."""
NO_MULTIPLES = {"bridge-offline", "automodel-neat"}


def cases(count: int) -> Iterator[tuple[list[int], int, int]]:
    """Lengths that often are equal, a cap that all of them keep, a multiple."""
    for seed in range(count):
        rng = random.Random(seed)
        lengths = [rng.choice([rng.randint(1, 9), rng.randint(1, 60), 7, 13]) for _ in range(rng.randint(1, 14))]
        yield lengths, rng.randint(max(lengths), 2 * max(lengths)), rng.choice([1, 1, 2, 3])


def tokens(bags: Bags, lengths: Sequence[int]) -> list[int]:
    return [sum(bag) for bag in sequences.lengths_of(bags, lengths)]


def test_verl_gives_what_its_own_function_gives() -> None:
    """Computed by rearrange_micro_batches of verl-project/verl b178a3cd."""
    bags = packed("verl", LENGTHS, 16000, 5)
    assert bags == [[1, 2, 6, 8], [10], [0], [4], [3, 5, 7, 9, 11]]
    weights = [sum(map(sequences.full_attention, bag)) / 1e6 for bag in sequences.lengths_of(bags, LENGTHS)]
    assert [round(weight, 1) for weight in weights] == [137.9, 147.9, 649.2, 260.6, 143.5]


def test_slime_and_automodel_give_what_their_own_functions_give() -> None:
    """Computed by first_fit_pack and expand_bins_by_splitting of THUDM/slime, and by greedy_knapsack of NeMo Automodel."""
    assert packed("slime", LENGTHS, 9000) == [[0], [1, 2, 3, 5, 6, 7, 9, 11], [4], [8, 10]]
    assert packed("slime", LENGTHS, 9000, 8) == [[0], [7], [4], [10], [2, 6, 9], [8], [5, 3], [11, 1]]
    assert packed("automodel-neat", LENGTHS, 16000) == [[0], [4, 10, 7], [8, 2, 11, 1, 5, 6, 3, 9]]


def test_slime_by_flops_is_of_the_heaviest_first_and_splits_by_tokens() -> None:
    """By hand, FLOPs that are linear: {6}{5} differ by 1, {4}{2} by 2, together {5, 4}{6, 2}; 1 goes to the lighter. Both have 9
    then; three sequences come before two. A third bag comes of the last of the fullest."""
    assert slime_flops([6, 5, 4, 2, 1], 9, weight=lambda length: length) == [[0, 3, 4], [1, 2]]
    assert slime_flops([6, 5, 4, 2, 1], 9, 3, weight=lambda length: length) == [[0, 3, 4], [1], [2]]
    assert packed("slime-flops", [9, 9, 9], 8) == [[0], [1], [2]]


def test_megatron_packs_in_the_order_of_arrival() -> None:
    assert packed("megatron-pack", [3, 3, 5, 1, 1, 8], 8) == [[0, 1], [2, 3, 4], [5]]
    assert packed("megatron-pack", [3, 3, 5, 1, 1, 8], 8, 4) == [[0, 1], [2, 3], [5], [4]]


def test_torchtitan_splits_the_row_of_the_largest_sum_of_squares() -> None:
    """By hand: rows {6, 4}, {5, 5}, {3, 3, 3} of at most 10 have 52, 50 and 27; a fourth row is 6 and 4 apart."""
    lengths = [3, 5, 6, 3, 5, 4, 3]
    assert packed("torchtitan-rl", lengths, 10) == [[2, 5], [1, 4], [0, 3, 6]]
    assert packed("torchtitan-rl", lengths, 10, 4) == [[1, 4], [2], [0, 3, 6], [5]]


def test_wlb_fills_the_lightest_then_the_shortest() -> None:
    """By hand. Work that is nearly linear: 6 and 5 are alone, 4 is put to 5, 3 to 6; with a 2 more two microbatches are full. By
    squares 3, 3 and 2 are lighter together than 5, and full; 1 goes to the one with fewer tokens."""
    assert packed("wlb", [6, 5, 4, 3], 10) == [[0, 3], [1, 2]]
    assert packed("wlb", [6, 5, 4, 3, 2], 10) == [[0], [1, 4], [2, 3]]
    assert wlb([5, 3, 3, 2, 1], 8, weight=lambda length: length * length) == [[0, 4], [1, 2, 3]]


def descending(lengths: Sequence[int]) -> list[int]:
    return [i for length in sorted(set(lengths), reverse=True) for i, other in enumerate(lengths) if other == length]


def plain_fit(lengths: Sequence[int], most: int, order: Sequence[int], emptiest: bool = False) -> Bags:
    """First-fit, or only into the emptiest bag."""
    bags: Bags = []
    for i in order:
        candidates = sorted(bags, key=lambda bag: sum(lengths[j] for j in bag))[:1] if emptiest else bags
        into = [bag for bag in candidates if sum(lengths[j] for j in bag) + lengths[i] <= most]
        if into:
            into[0].append(i)
        else:
            bags.append([i])
    return bags


def test_packers_that_fit_bag_by_bag_do_what_a_plain_reading_does() -> None:
    for lengths, most, _ in cases(150):
        order = descending(lengths)
        assert packed("slime", lengths, most) == plain_fit(lengths, most, range(len(lengths)))
        assert packed("bridge-offline", lengths, most) == plain_fit(lengths, most, order)
        assert packed("automodel-neat", lengths, most) == plain_fit(lengths, most, order, emptiest=True)
        rows = packed("torchtitan-rl", lengths, most)
        assert sorted(rows) == sorted(plain_fit(lengths, most, order))
        squares = [sum(lengths[i] ** 2 for i in row) for row in rows]
        assert squares == sorted(squares, reverse=True)


def test_flexsp_cuts_as_evenly_as_any_cut_by_length() -> None:
    for lengths, most, multiple in cases(100):
        order = descending(lengths)
        if len(order) > 9:
            continue

        def largest(cut: tuple[int, ...], lengths: list[int] = lengths, order: list[int] = order) -> int:
            return max(sum(lengths[i] for i in order[a:b]) for a, b in itertools.pairwise((0, *cut, len(order))))

        best = {n: min(map(largest, itertools.combinations(range(1, len(order)), n - 1))) for n in range(1, len(order) + 1)}
        fitting = [n for n, value in best.items() if value <= most and n % multiple == 0]
        if not fitting:
            with pytest.raises(ValueError, match="expected sequences for a multiple"):
                packed("flexsp", lengths, most, multiple)
            continue
        bags = packed("flexsp", lengths, most, multiple)
        assert [i for bag in bags for i in bag] == order
        assert (len(bags), max(tokens(bags, lengths))) == (fitting[0], best[fitting[0]])


@pytest.mark.parametrize("name", PACKERS)
def test_every_sequence_is_in_one_bag_and_the_cap_and_the_multiple_are_kept(name: str) -> None:
    made = 0
    for lengths, most, multiple in cases(200):
        fewest = len(packed(name, lengths, most))
        if (fewest % multiple and name in NO_MULTIPLES) or -(-fewest // multiple) * multiple > len(lengths):
            with pytest.raises(ValueError, match=f"multiple of {multiple} bags"):
                packed(name, lengths, most, multiple)
            continue
        bags = packed(name, lengths, most, multiple)
        made += 1
        assert sorted(i for bag in bags for i in bag) == list(range(len(lengths)))
        assert all(bags)
        assert len(bags) % multiple == 0
        assert len(bags) >= -(-sum(lengths) // most)
        if name in OVER_THE_CAP:
            assert multiple > 1 or len(bags) == -(-sum(lengths) // most)
        else:
            assert max(tokens(bags, lengths)) <= most
    assert made > 100


@pytest.mark.parametrize("name", PACKERS)
def test_bad_input_is_refused(name: str) -> None:
    for lengths, most, multiple, what in (
        ([], 8, 1, "at least one sequence"),
        ([3, 0], 8, 1, "at least one token"),
        ([3], 0, 1, "most: expected"),
        ([3], 8, 0, "multiple: expected"),
        ([3, 3], 8, 3, "multiple of 3 bags"),
    ):
        with pytest.raises(ValueError, match=what):
            packed(name, lengths, most, multiple)
    if name in LONGER:
        assert packed(name, [9, 2], 8) == [[0], [1]]
    else:
        with pytest.raises(ValueError, match="at most 8 tokens, got one of 9"):
            packed(name, [9, 2], 8)


def test_an_unknown_packer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected one of verl, slime, .*, got 'best'"):
        packed("best", [1], 1)


def test_imbalance_is_of_the_heaviest_over_the_mean() -> None:
    assert sequences.imbalance([[0], [1, 2]], [4, 1, 1], weight=lambda length: length) == pytest.approx(4 / 3)
    assert sequences.imbalance([[0], [1]], [4, 2]) == pytest.approx(2 * 98320 / (98320 + 49156))
