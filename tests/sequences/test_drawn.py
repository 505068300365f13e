"""Lists of lengths: their shapes."""

import pytest

from ppopt import sequences


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
