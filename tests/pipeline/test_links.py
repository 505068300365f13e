"""Links of a pipeline."""

import pytest

from ppopt.pipeline import Links, Pipeline, PipelineError


def test_a_pair_of_devices_is_on_one_link() -> None:
    with pytest.raises(PipelineError, match=r"links\.shared\[1\]\[0\].*already"):
        Pipeline(2, 2, links=Links(occupancy=1, shared=[[[0, 1]], [[0, 1], [1, 0]]]))
