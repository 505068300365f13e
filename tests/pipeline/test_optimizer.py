"""Which optimizer steps are refused."""

from __future__ import annotations

import pytest

from ppopt.pipeline import Costs, Pipeline, PipelineError


def test_what_is_no_step() -> None:
    with pytest.raises(PipelineError, match=r"costs\.optimizer: expected one number or a list of 2"):
        Pipeline(2, 2, costs=Costs(optimizer=(1, 2, 3)))
    with pytest.raises(PipelineError, match=r"costs\.optimizer"):
        Costs(optimizer=-1)
