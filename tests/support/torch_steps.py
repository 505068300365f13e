"""Steps of two ranks in PyTorch, for tests of what is measured there; imported where PyTorch may be missing."""

from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import run_in_torch

from ppopt.files.torch_csv import lines_of
from ppopt.files.torch_export import actions_of
from ppopt.named import find
from ppopt.pipeline import Pipeline


def job_of(name: str, microbatches: int, folder: Path) -> run_in_torch.Job:
    """A named schedule of two ranks, written to ``folder/schedule.csv``."""
    path = folder / "schedule.csv"
    path.write_text("".join(lines_of(actions_of(find(name).schedule(Pipeline(2, microbatches))))))
    return run_in_torch.job_of(str(path))


def loaded(job: run_in_torch.Job, rank: int, stage_of: Callable[[int], Any]) -> Any:
    """PyTorch's runtime with the stages of one rank."""
    import torch

    modules = {stage: stage_of(stage) for stage, home in enumerate(job.route) if home == rank}
    return run_in_torch.load(job, rank, modules, torch.nn.functional.mse_loss)


def run_steps(schedule: Any, rank: int, ranks: tuple[int, int], microbatches: int, steps: int) -> None:
    """Steps of one rank, each begun together; ``ranks`` are those of the first and of the last stage."""
    import torch.distributed as dist

    inputs, target = run_in_torch.batch_of(microbatches)
    first, last = (rank == each for each in ranks)
    for _ in range(steps):
        dist.barrier()
        schedule.step(*([inputs] if first else []), target=target if last else None, losses=[] if last else None)


def traced_steps(schedule: Any, rank: int, job: run_in_torch.Job, steps: int, folder: str) -> None:
    """Steps of one rank under PyTorch's profiler, whose trace goes to ``folder/trace-RANK.json``."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run_steps(schedule, rank, (job.route[0], job.route[-1]), job.microbatches, steps)
    profiler.export_chrome_trace(f"{folder}/trace-{rank}.json")


def run_both(work: Callable[..., None], *arguments: Any) -> None:
    """Run ``work(rank, *arguments)`` on two ranks, to its end on both."""
    with run_in_torch.ranks_running(2, _tell_when_done, work, arguments) as pipes:
        assert [pipe.recv() for pipe in pipes if pipe.poll(run_in_torch.TIMEOUT)] == ["done", "done"]


def _tell_when_done(rank: int, results: Connection, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    work(rank, *arguments)
    results.send("done")
