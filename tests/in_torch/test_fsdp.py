"""Files with communication under FSDP, where UNSHARD and RESHARD do something (stages sharded over one process each)."""

import os
import traceback
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import run_in_torch

from ppopt.files.torch_csv import lines_of
from ppopt.files.torch_export import for_torch, with_comms
from ppopt.named import find
from ppopt.pipeline import Pipeline

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")]


def sharded(rank: int, results: Connection, job: run_in_torch.Job) -> None:
    """A rank: two steps with sharded stages; sends the largest difference of a gradient, or what went wrong."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    loss_fn = torch.nn.functional.mse_loss
    try:
        mesh = init_device_mesh("cpu", (job.ranks, 1), mesh_dim_names=("pipeline", "data"))
        homes = [stage for stage, home in enumerate(job.route) if home == rank]
        modules = {stage: fully_shard(run_in_torch.transformer_block(stage), mesh=mesh["data"]) for stage in homes}
        schedule = run_in_torch.load(job, rank, modules, loss_fn)
        inputs, target = run_in_torch.batch_of(job.microbatches)
        for _ in range(2):  # the second step finds the stages as the first one leaves them
            for module in modules.values():
                module.zero_grad()
            schedule.step(*([inputs] if job.route[0] == rank else []), target=target if job.route[-1] == rank else None)
        whole = [run_in_torch.transformer_block(stage) for stage in range(job.stages)]
        output = inputs
        for module in whole:
            output = module(output)
        loss_fn(output, target).backward()
        differences = [
            float((ours.grad.full_tensor() - theirs.grad).abs().max())
            for stage, module in modules.items()
            for ours, theirs in zip(module.parameters(), whole[stage].parameters(), strict=True)
        ]
        results.send((max(differences), ""))
    except BaseException:
        results.send((0.0, traceback.format_exc()))
        os._exit(1)


def run(path: Path) -> list[tuple[float, str]]:
    job = run_in_torch.job_of(str(path))
    with run_in_torch.ranks_running(job.ranks, sharded, job) as pipes:
        return [pipe.recv() for pipe in pipes]


@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b", "zb-v", "dualpipe-v"])
def test_gradients_under_fsdp_equal_those_of_one_process(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_text("".join(lines_of(with_comms(for_torch(find(name).schedule(Pipeline(2, 4))).schedule))))
    for difference, problem in run(path):
        assert problem == ""
        assert difference <= 1e-10


def test_without_unshard_a_sharded_stage_cannot_compute(tmp_path: Path) -> None:
    rows = with_comms(for_torch(find("1f1b").schedule(Pipeline(2, 4))).schedule)
    path = tmp_path / "file.csv"
    path.write_text("".join(lines_of([a for a in row if "SHARD" not in str(a)] for row in rows)))
    assert any("on sharded stage_idx" in problem for _, problem in run(path))
