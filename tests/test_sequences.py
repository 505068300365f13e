"""Sequences of several lengths, held against figures of the frameworks' own functions and against all other choices."""

import itertools

import pytest

from ppopt import sequences

LENGTHS = [16000, 900, 1200, 400, 8000, 700, 650, 3000, 2500, 300, 5000, 1000]


def test_verl_gives_what_its_own_function_gives() -> None:
    """Computed by rearrange_micro_batches of verl-project/verl b178a3cd."""
    bags = sequences.verl(LENGTHS, most=16000, multiple=5)
    assert bags == [[1, 2, 6, 8], [10], [0], [4], [3, 5, 7, 9, 11]]
    weights = [sum(map(sequences.verl_weight, bag)) / 1e6 for bag in sequences.lengths_of(bags, LENGTHS)]
    assert [round(weight, 1) for weight in weights] == [137.9, 147.9, 649.2, 260.6, 143.5]


def test_megatron_packs_in_the_order_of_arrival() -> None:
    assert sequences.megatron_pack([3, 3, 5, 1, 1, 8], 8) == [[0, 1], [2, 3, 4], [5]]
    assert sequences.megatron_pack([3, 3, 5, 1, 1, 8], 8, multiple=4) == [[0, 1], [2, 3], [5], [4]]
    with pytest.raises(ValueError, match="at most 8 tokens, got one of 9"):
        sequences.megatron_pack([9], 8)


def test_dynapipe_cuts_no_worse_than_any_other_cut() -> None:
    times = [5, 4, 4, 2, 1, 1]
    for devices in (1, 2, 4):
        bags = sequences.dynapipe_cut(times, devices)

        def value(runs: list[list[int]], devices: int = devices) -> float:
            each = [max(times[i] for i in run) * len(run) for run in runs]
            return (devices - 1) * max(each) + sum(each)

        cuts = [(0, *some, 6) for n in range(6) for some in itertools.combinations(range(1, 6), n)]
        assert value(bags) == min(value([list(range(a, b)) for a, b in itertools.pairwise(cut)]) for cut in cuts)


def test_pieces_of_equal_flops() -> None:
    """thunlp/Seq1F1B's solver for 24 layers, hidden 4096, ffn 16384, 32 heads of 128, 32000 words."""
    layers, heads, size, hidden, ffn, words = 24, 32, 128, 4096, 16384, 32000
    quadratic = layers * heads * (4 * size + 3)
    linear = layers * (8 * hidden * heads * size + 4 * hidden * ffn) + 4 * hidden * words
    assert sequences.balanced_pieces(16384, 4, linear, quadratic, multiple=2) == [4930, 4238, 3776, 3440]
    costs = sequences.piece_costs([4930, 4238, 3776, 3440], linear, quadratic)
    assert max(costs) / min(costs) < 1.002


def test_generated_lengths_have_their_shapes() -> None:
    wiki = sequences.generated("wiki", 4000, longest=131072)
    assert sum(x < 8192 for x in wiki) / 4000 == pytest.approx(0.964, abs=0.01)
    mock = sorted(sequences.generated("megatron-mock", 4000, longest=8192))
    assert mock[400] == 1024
    assert mock[2000] == pytest.approx(2234, rel=0.08)
    assert sum(x == 16384 for x in sequences.generated("rl-bimodal", 4000)) / 4000 == pytest.approx(0.15, abs=0.02)
    assert sequences.generated("uniform", 9, seed=3) == sequences.generated("uniform", 9, seed=3)
    assert sum(sequences.multipliers(16, 0.4)) == pytest.approx(16, abs=0.02)
    with pytest.raises(ValueError, match="expected one of wiki, "):
        sequences.generated("long", 3)
