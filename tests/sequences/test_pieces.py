"""Pieces of one sequence, held against the framework's own."""

from ppopt import sequences


def test_pieces_of_equal_flops() -> None:
    """thunlp/Seq1F1B's solver for 24 layers, hidden 4096, ffn 16384, 32 heads of 128, 32000 words."""
    layers, heads, size, hidden, ffn, words = 24, 32, 128, 4096, 16384, 32000
    quadratic = layers * heads * (4 * size + 3)
    linear = layers * (8 * hidden * heads * size + 4 * hidden * ffn) + 4 * hidden * words
    assert sequences.balanced_pieces(16384, 4, linear, quadratic, multiple=2) == [4930, 4238, 3776, 3440]
    costs = sequences.piece_costs([4930, 4238, 3776, 3440], linear, quadratic)
    assert max(costs) / min(costs) < 1.002
