"""Run schedule files in PyTorch on this machine's CPU and compare with training in a single process.

    python scripts/run_in_torch.py FILE.csv…

Every file is checked, loaded by PyTorch's own loader and run for one step in double precision on a small transformer, a process
per rank (gloo). Loss and every gradient must equal those of one process that sees the whole batch. Needs ``torch``.

``--steps N --record FOLDER`` runs more steps and writes the stages' times for ``ppopt profile``.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ppopt.files.inferred import infer_pipeline
from ppopt.files.torch_check import grid, violations
from ppopt.files.torch_csv import CsvError, compute_only, has_comms, read_csv

TIMEOUT = 40.0
"""Seconds that a run may take before it counts as hung."""
TOLERANCE = 1e-10
WIDTH, TOKENS, SAMPLES = 8, 4, 2
"""Features; tokens per sample; samples per microbatch."""


@dataclass(frozen=True)
class Job:
    """A file to run, with the sizes that it fixes."""

    path: str
    ranks: int
    stages: int
    microbatches: int
    comms: bool
    route: tuple[int, ...]


@dataclass
class Outcome:
    """What one run gave: the largest differences from the single process, seconds per step, or what went wrong."""

    loss_error: float = 0.0
    gradient_error: float = 0.0
    seconds: list[float] = field(default_factory=list)
    problem: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the run equals the single process."""
        return not self.problem and self.loss_error <= TOLERANCE and self.gradient_error <= TOLERANCE


def job_of(path: str) -> Job:
    """Read and check a file; raises CsvError with every violation."""
    rows = read_csv(path)
    found = violations(rows)
    if found:
        lines = [str(violation) for violation in found[:10]] + ["…"] * (len(found) > 10)
        raise CsvError(f"{path}: " + "\n".join(lines) + "\n" + grid(rows, found[0]))
    pipeline = infer_pipeline(compute_only(rows))
    return Job(path, pipeline.devices, pipeline.stages, pipeline.microbatches, has_comms(rows), pipeline.routes[0])


# --- the model ---------------------------------------------------------------------------------------------------


def transformer_block(stage: int) -> Any:
    """One stage: attention and a feed-forward net around residuals; its output is no view (PyTorch needs that for ``I``)."""
    import torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
            self.query, self.key, self.value = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))
            self.up, self.down = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(x)
            x = x + torch.softmax(self.query(y) @ self.key(y).transpose(1, 2), dim=-1) @ self.value(y)
            return x + self.down(torch.tanh(self.up(self.norm2(x))))

    torch.manual_seed(stage)
    return Block().double()


def batch_of(microbatches: int) -> tuple[Any, Any]:
    """Input and target of one step."""
    import torch

    generator = torch.Generator().manual_seed(1000)
    size = (microbatches * SAMPLES, TOKENS, WIDTH)
    return tuple(torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(2))  # type: ignore[return-value]


# --- a rank ------------------------------------------------------------------------------------------------------


def load(job: Job, rank: int, modules: dict[int, Any], loss_fn: Callable[..., Any]) -> Any:
    """PyTorch's runtime with the file loaded, for one rank; ``modules`` are its stages."""
    import torch
    import torch.distributed.pipelining.schedules as schedules
    from torch.distributed.pipelining import PipelineStage

    runtime = getattr(schedules, "_PipelineScheduleRuntime", None)
    if runtime is None or not hasattr(runtime, "_load_csv"):
        raise RuntimeError(f"PyTorch {torch.__version__} has no _PipelineScheduleRuntime._load_csv; 2.13 is tested")
    device = torch.device("cpu")
    stages = [PipelineStage(modules[stage], stage, job.stages, device) for stage in sorted(modules)]
    schedule = runtime(stages, job.microbatches, loss_fn=loss_fn, scale_grads=True)
    schedule._load_csv(job.path, format="compute_comms" if job.comms else "compute_only")
    placed = [schedule.stage_index_to_group_rank[stage] for stage in range(job.stages)]
    if placed != list(job.route):
        raise RuntimeError(f"PyTorch places the stages on ranks {placed}, the file says {list(job.route)}")
    return schedule


def run_job(job: Job, rank: int, make_stage: Callable[[int], Any], steps: int, record: str | None) -> Outcome:
    """One rank's part: run the steps, then compare the first one with a single process."""
    import torch
    import torch.distributed as dist

    loss_fn = torch.nn.functional.mse_loss
    modules = {stage: make_stage(stage) for stage, home in enumerate(job.route) if home == rank}
    schedule = load(job, rank, modules, loss_fn)
    timer = None
    if record:
        from ppopt.files.torch_timing import StageTimer

        timer = StageTimer(schedule)
    inputs, target = batch_of(job.microbatches)
    first, last = job.route[0] == rank, job.route[-1] == rank
    outcome = Outcome()
    losses: list[Any] = []
    for step in range(steps):
        dist.barrier()
        began = time.perf_counter()
        losses = []
        schedule.step(*([inputs] if first else []), target=target if last else None, losses=losses if last else None)
        outcome.seconds.append(time.perf_counter() - began)
        if step == 0:
            gradients = {s: [p.grad.clone() for p in module.parameters()] for s, module in modules.items()}
            loss = torch.stack(losses).mean() if last else None
    if timer is not None and record is not None:
        timer.measure_links()
        timer.save(os.path.join(record, f"timing-{rank}.json"))
    whole = [make_stage(stage) for stage in range(job.stages)]
    output = inputs
    for module in whole:
        output = module(output)
    expected = loss_fn(output, target)
    expected.backward()
    if loss is not None:
        outcome.loss_error = float((loss - expected).detach().abs())
    for stage, of_stage in gradients.items():
        for ours, parameter in zip(of_stage, whole[stage].parameters(), strict=True):
            outcome.gradient_error = worse(outcome.gradient_error, float((ours - parameter.grad).abs().max()))
    return outcome


def worse(a: float, b: float) -> float:
    """The larger difference; not a number is worse than any."""
    return a if math.isnan(a) or a > b else b


def run_jobs(
    rank: int, results: Connection, jobs: Sequence[Job], make_stage: Callable[[int], Any], steps: int, record: str | None
) -> None:
    """A rank: run all jobs one after the other and send each outcome."""
    for number, job in enumerate(jobs):
        try:
            outcome = run_job(job, rank, make_stage, steps, record)
        except BaseException as error:
            results.send((number, Outcome(problem=f"rank {rank}: {''.join(traceback.format_exception_only(error))}".strip())))
            os._exit(1)  # the other ranks wait for this one: the group is of no more use
        results.send((number, outcome))


# --- all ranks ---------------------------------------------------------------------------------------------------


def run_group(
    jobs: Sequence[Job], make_stage: Callable[[int], Any] = transformer_block, steps: int = 1, record: str | None = None
) -> list[Outcome]:
    """Run files for the same number of ranks, in one group of processes; after a failure the rest in a new one.

    This process must not have used autograd: its threads do not survive the fork.
    """
    outcomes: list[Outcome] = []
    while len(outcomes) < len(jobs):
        outcomes += _run_until_failure(jobs[len(outcomes) :], make_stage, steps, record)
    return outcomes


def _run_until_failure(jobs: Sequence[Job], make_stage: Callable[[int], Any], steps: int, record: str | None) -> list[Outcome]:
    with ranks_running(jobs[0].ranks, run_jobs, jobs, make_stage, steps, record) as pipes:
        return _collect(len(jobs), pipes)


@contextmanager
def ranks_running(ranks: int, work: Callable[..., None], *arguments: Any) -> Iterator[list[Connection]]:
    """Processes of one gloo group, each running ``work(rank, results, *arguments)``; gives the ends of their pipes."""
    import torch.distributed.pipelining  # noqa: F401 - imported once, before the fork

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
        processes = [
            context.Process(target=_rank, args=(rank, ranks, folder, pipes[rank][1], work, arguments), daemon=True)
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for _, sending in pipes:
            sending.close()
        try:
            yield [receiving for receiving, _ in pipes]
        finally:
            for process in processes:
                process.join(1 if process.is_alive() else None)
                if process.is_alive():
                    process.kill()
                    process.join()


def _rank(rank: int, ranks: int, folder: str, results: Connection, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks, timeout=timedelta(seconds=TIMEOUT))
    work(rank, results, *arguments)
    dist.barrier()
    dist.destroy_process_group()


def _collect(count: int, pipes: list[Connection]) -> list[Outcome]:
    """The outcomes job by job, over all ranks; up to and including the first that went wrong."""
    outcomes = [Outcome() for _ in range(count)]
    finished = [0] * len(pipes)
    deadline = time.monotonic() + 2 * TIMEOUT
    while min(finished) < count:
        waiting: list[Any] = [pipe for pipe, done in zip(pipes, finished, strict=True) if done < count]
        ready = wait(waiting, max(0.0, deadline - time.monotonic()))
        failed = None if ready else f"nothing for {TIMEOUT:.0f} s: finished by rank: {finished}"
        for pipe in ready:
            rank = pipes.index(pipe)  # type: ignore[arg-type]
            try:
                number, outcome = pipe.recv()  # type: ignore[union-attr]
            except EOFError:
                number, outcome = finished[rank], Outcome(problem=f"rank {rank} ended without a result")
            finished[rank] += 1
            deadline = time.monotonic() + TIMEOUT + 5
            whole = outcomes[number]
            whole.loss_error = worse(whole.loss_error, outcome.loss_error)
            whole.gradient_error = worse(whole.gradient_error, outcome.gradient_error)
            whole.seconds = [max(pair) for pair in zip(whole.seconds, outcome.seconds)] or outcome.seconds  # noqa: B905
            whole.problem = whole.problem or outcome.problem
            failed = failed or outcome.problem
        if failed:
            first = min(finished) if min(finished) < count else count - 1
            bad = next((i for i, outcome in enumerate(outcomes) if outcome.problem), first)
            outcomes[bad].problem = outcomes[bad].problem or failed
            return outcomes[: bad + 1]
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE.csv")
    parser.add_argument("--steps", type=int, default=1, help="steps to run; the first one is compared")
    parser.add_argument("--record", metavar="FOLDER", help="write the stages' times for `ppopt profile` (one file only)")
    arguments = parser.parse_args()
    if arguments.steps < 1 or (arguments.record and (len(arguments.files) > 1 or arguments.steps < 2)):
        parser.error("--steps needs a number >= 1; --record one file and at least 2 steps")
    if arguments.record:
        Path(arguments.record).mkdir(parents=True, exist_ok=True)
    try:
        jobs = [job_of(path) for path in arguments.files]
    except CsvError as error:
        print(error, file=sys.stderr)
        return 1
    code = 0
    for ranks in sorted({job.ranks for job in jobs}):
        group = [job for job in jobs if job.ranks == ranks]
        for job, outcome in zip(group, run_group(group, steps=arguments.steps, record=arguments.record), strict=True):
            differences = f"loss differs by {outcome.loss_error:.1e}, gradients by {outcome.gradient_error:.1e}"
            verdict = "ok" if outcome.agrees else "FAILED"
            sizes = f"{job.ranks} ranks, {job.stages} stages, {job.microbatches} microbatches"
            print(f"{job.path}: {verdict}: {outcome.problem or differences} ({sizes}; stages on ranks {list(job.route)})")
            code |= not outcome.agrees
    return code


if __name__ == "__main__":
    sys.exit(main())
