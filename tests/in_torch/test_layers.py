"""A cut of layers in PyTorch: stages of different numbers of layers train as a single process does."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import run_in_torch

from ppopt.files.model import model_of_text
from ppopt.files.torch_csv import lines_of
from ppopt.files.torch_export import actions_of, for_torch, with_comms
from tests.support.layered_files import text

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")]


def test_uneven_stages_of_a_joint_answer(tmp_path: Path) -> None:
    """Partition and order decided together; each stage has as many blocks as the answer gives it layers."""
    from ppopt.search import solve

    model = model_of_text(text(partition="best", placement="loop", chunks=2), "model")
    result = solve(model, seconds=60, workers=1)
    assert result.schedule is not None
    counts = result.pipeline.counts
    assert len(set(counts)) > 1

    def stage_of(stage: int) -> Any:
        import torch

        first = sum(counts[:stage])
        return torch.nn.Sequential(*map(run_in_torch.transformer_block, range(first, first + counts[stage])))

    schedule = for_torch(result.schedule).schedule
    jobs = []
    for name, rows in (("compute", actions_of(schedule)), ("comms", with_comms(schedule))):
        path = tmp_path / f"{name}.csv"
        path.write_text("".join(lines_of(rows)))
        jobs.append(run_in_torch.job_of(str(path)))
    for outcome in run_in_torch.run_group(jobs, stage_of):
        assert outcome.problem == ""
        assert outcome.agrees
