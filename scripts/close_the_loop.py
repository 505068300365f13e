"""Measure, plan, run, compare: does the order in which ppopt ranks schedules hold in PyTorch?

    python scripts/close_the_loop.py [--waiting] [--ranks 4] [--folder FOLDER]

A small model, cut in deliberately uneven stages, two per rank, is trained by a process per rank on this machine's CPU: first
two files, one with fused and one with split backwards, to measure the stages; of these a model file is made; then named
schedules and what ``solve`` finds are timed with it, exported, and run in turn. Needs ``torch`` and an idle core per rank; with
``--waiting`` the stages wait instead of computing, as a process does for its accelerator, and a busy machine is enough.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

from run_in_torch import Job, job_of, load, ranks_running

from ppopt.files import model_of_text
from ppopt.files.profile import combine, model_text
from ppopt.files.recorded import read_recorded
from ppopt.files.torch_csv import lines_of
from ppopt.files.torch_export import actions_of, for_torch, with_comms
from ppopt.named import find
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.search import solve

BLOCKS = (1, 3, 2, 5, 2, 4, 1, 3)
"""Blocks of each stage."""
WIDTH, ROWS = 256, 96
"""Features, and rows of a microbatch."""
WAIT = {"F": 0.004, "I": 0.004, "W": 0.003}
"""Seconds per block, where stages wait."""
NAMED = ("interleaved-1f1b", "looped-bfs", "interleaved-zb", "hanayo", "zb-v", "v-min")


@dataclass(frozen=True)
class Entry:
    """A schedule to compare; ``planned`` as PyTorch runs it."""

    name: str
    planned: Schedule


# --- the model ---------------------------------------------------------------------------------------------------


def computing(stage: int) -> Any:
    """A stage of feed-forward blocks."""
    import torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 2 * WIDTH)
            self.down = torch.nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.down(torch.tanh(self.up(self.norm(x))))

    torch.manual_seed(stage)
    return torch.nn.Sequential(*(Block() for _ in range(BLOCKS[stage])))


def waiting(stage: int) -> Any:
    """A stage whose forward, input gradient and weight gradient wait; what it computes takes no time."""
    import torch

    class Wait(torch.autograd.Function):
        """The identity; waits in its backward."""

        @staticmethod
        def forward(context: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
            context.seconds = seconds
            return x.clone()

        @staticmethod
        def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
            time.sleep(context.seconds)
            return gradients[0], None

    class Stage(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(WAIT["F"] * BLOCKS[stage])
            weight = Wait.apply(self.weight, WAIT["W"] * BLOCKS[stage])
            return Wait.apply(x, WAIT["I"] * BLOCKS[stage]) * weight

    return Stage()


def train(
    rank: int, results: Connection, jobs: Sequence[Job], make_stage: Callable[[int], Any], rounds: int, record: str | None
) -> None:
    """A rank: run the files in turn, ``rounds`` times, and send the seconds of every step but the first of each."""
    import torch
    import torch.distributed as dist

    inputs, target = (torch.randn(jobs[0].microbatches * ROWS, WIDTH) for _ in range(2))
    schedules = []
    for job in jobs:
        modules = {stage: make_stage(stage) for stage, home in enumerate(job.route) if home == rank}
        schedules.append(load(job, rank, modules, torch.nn.functional.mse_loss))
    timers = []
    if record:
        from ppopt.files.torch_timing import StageTimer

        timers = [StageTimer(schedule) for schedule in schedules]
    for round_ in range(rounds + 1):
        for number, (job, schedule) in enumerate(zip(jobs, schedules, strict=True)):
            for stage in schedule._stages:
                stage.submod.zero_grad()
            dist.barrier()
            began = time.perf_counter()
            first, last = job.route[0] == rank, job.route[-1] == rank
            schedule.step(*([inputs] if first else []), target=target if last else None)
            if round_:
                results.send((number, round_ - 1, time.perf_counter() - began))
    for number, timer in enumerate(timers):
        timer.measure_links()
        timer.save(f"{record}/timing-{number}-{rank}.json")


def run(paths: Sequence[str], make_stage: Callable[[int], Any], rounds: int, record: str | None = None) -> list[list[float]]:
    """Seconds of every step of every file: of the rank that takes longest."""
    jobs = [job_of(path) for path in paths]
    seconds = [[0.0] * rounds for _ in jobs]
    with ranks_running(jobs[0].ranks, train, jobs, make_stage, rounds, record) as pipes:
        for pipe in pipes:
            for _ in range(rounds * len(jobs)):
                number, round_, took = pipe.recv()
                seconds[number][round_] = max(seconds[number][round_], took)
        for pipe in pipes:
            pipe.poll(60)  # it closes once the rank has written its record
    return seconds


# --- the loop ----------------------------------------------------------------------------------------------------


def measured(shape: Pipeline, make_stage: Callable[[int], Any], folder: Path) -> Pipeline:
    """Profile the stages, with fused and with split backwards, and read the model file that comes of it."""
    paths = []
    for name in ("hanayo", "zb-v"):  # the same placement
        path = folder / f"profile-{name}.csv"
        path.write_text("".join(lines_of(actions_of(find(name).schedule(shape)))))
        paths.append(str(path))
    run(paths, make_stage, 6, str(folder))
    recorded = [read_recorded(str(path)) for path in sorted(folder.glob("timing-*.json"))]
    text = model_text(combine(recorded), "uneven stages")
    (folder / "model.toml").write_text(text)
    print(text)
    return model_of_text(text, "model.toml").pipeline


def entries(pipeline: Pipeline) -> list[Entry]:
    """Named schedules on their own placement of the same stages, and the solver's with and without a tight memory limit."""
    found = []
    for name in NAMED:
        definition = find(name)
        placement = definition.place(Pipeline(pipeline.devices, pipeline.microbatches), None).placement
        placed = pipeline.changed(placement=placement, chunks=2)
        found.append(Entry(name, definition.schedule(placed)))
    for words, limit in (("", None), (", one microbatch at a time", one_microbatch(pipeline))):
        limited = pipeline.changed(memory=replace(pipeline.memory, limit=limit))
        result = solve(limited, seconds=10)
        if result.schedule is not None:
            found.append(Entry(f"solve{words} ({result.reason})", result.schedule))
    return [Entry(entry.name, for_torch(entry.planned).schedule) for entry in found]


def one_microbatch(pipeline: Pipeline) -> tuple[Fraction, ...]:
    """Per device, what one microbatch holds on all its stages."""
    held = pipeline.memory.activation
    assert isinstance(held, tuple)
    return tuple(
        sum((amount for amount, home in zip(held, pipeline.routes[0], strict=True) if home == device), Fraction(0))
        for device in range(pipeline.devices)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", action="store_true", help="stages wait instead of computing")
    parser.add_argument("--ranks", type=int, choices=(2, 4), default=2, help="number of processes (default 2)")
    parser.add_argument("--microbatches", type=int, default=6, help="default 6")
    parser.add_argument("--rounds", type=int, default=11, help="steps per schedule (default 11)")
    parser.add_argument("--folder", help="keep the files here")
    arguments = parser.parse_args()
    make_stage = waiting if arguments.waiting else computing
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        pipeline = measured(Pipeline(arguments.ranks, arguments.microbatches), make_stage, folder)
        compared = entries(pipeline)
        paths = []
        for number, entry in enumerate(compared):
            path = folder / f"{number}.csv"
            path.write_text("".join(lines_of(with_comms(entry.planned))))
            paths.append(str(path))
        seconds = run(paths, make_stage, arguments.rounds)
    predicted = [entry.planned.pipeline.time(entry.planned.makespan) for entry in compared]
    took = [median(of_entry) * 1000 for of_entry in seconds]
    print(f"{'schedule':44} {'predicted':>10} {'measured':>10}   (ms; median of {arguments.rounds} steps)")
    for i in sorted(range(len(compared)), key=predicted.__getitem__):
        print(f"{compared[i].name:44} {predicted[i]:10.1f} {took[i]:10.1f}")
    pairs = [(i, j) for i in range(len(compared)) for j in range(len(compared)) if predicted[i] * 1.02 < predicted[j]]
    right = sum(took[i] < took[j] for i, j in pairs)
    print(f"{right} of {len(pairs)} pairs whose predictions differ by more than 2% come in the same order")
    return 0 if right == len(pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
