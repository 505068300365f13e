"""Measure, plan, run, compare: does the order in which ppopt ranks schedules hold in PyTorch?

    python scripts/close_the_loop.py [--waiting] [--ranks 4] [--delay 0,5,20] [--folder FOLDER]

A small model, cut in deliberately uneven stages, two per rank, is trained by a process per rank on this machine's CPU: first
two files, one with fused and one with split backwards, to measure the stages; of these a model file is made; then named
schedules and what ``solve`` finds are timed with it, exported, and run in turn. Needs ``torch`` and an idle core per rank; with
``--waiting`` the stages wait instead of computing, as a process does for its accelerator, and a busy machine is enough.

``--delay`` has every message between ranks arrive so many milliseconds late, one delay after the other; the plans know of it. How
well predicted and measured times agree over all of them is printed as a correlation, and drawn. With ``--folder`` the files are
kept, with a picture of a step of every schedule beside its plan.
"""

from __future__ import annotations

import argparse
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import correlation, median
from typing import Any

from run_in_torch import Job, job_of, load, ranks_running

from ppopt.files import model_of_text
from ppopt.files.profile import combine, model_text
from ppopt.files.recorded import read_files
from ppopt.files.torch_csv import lines_of
from ppopt.files.torch_export import actions_of, for_torch, with_comms
from ppopt.named import find
from ppopt.pictures.measured import draw
from ppopt.pipeline import Links, Pipeline
from ppopt.runs import beside, read_run
from ppopt.runs.beside import shares
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


@dataclass(frozen=True)
class Point:
    """A schedule that was run; times in ms."""

    name: str
    delay: float
    predicted: float
    measured: float


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


@dataclass
class Sent:
    """A message on its way; ``wait`` as PyTorch has it."""

    gone: threading.Event = field(default_factory=threading.Event)
    work: Any = None

    def wait(self) -> None:
        """Until it has arrived."""
        self.gone.wait()
        self.work.wait()


class Wire:
    """Sends messages some seconds late, in the order in which they are handed over; nobody waits for that but who receives."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._queue: queue.SimpleQueue[tuple[float, Any, Sent]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def send(self, op: Any) -> Sent:
        """A message, to be sent when its time has come."""
        sent = Sent()
        self._queue.put((time.perf_counter() + self._seconds, op, sent))
        return sent

    def _run(self) -> None:
        while True:
            due, op, sent = self._queue.get()
            time.sleep(max(0.0, due - time.perf_counter()))
            sent.work = op.op(op.tensor, group=op.group, tag=op.tag, group_dst=op.group_peer)
            sent.gone.set()


def delay_messages(seconds: float) -> None:
    """Have PyTorch's pipeline runtime in this process send its messages so many seconds late."""
    import torch.distributed as dist
    import torch.distributed.pipelining.schedules as schedules

    wire, at_once = Wire(seconds), schedules._batch_p2p

    def late(ops: list[Any], desc: str | None = None) -> list[Any]:
        if {op.op for op in ops} == {dist.isend}:
            return [wire.send(op) for op in ops]
        return list(at_once(ops, desc))

    schedules._batch_p2p = late


def train(
    rank: int,
    results: Connection,
    jobs: Sequence[Job],
    make_stage: Callable[[int], Any],
    rounds: int,
    record: str | None,
    delay: float,
) -> None:
    """A rank: run the files in turn, ``rounds`` times, and send the seconds of every step but the first of each."""
    import torch
    import torch.distributed as dist

    if delay:
        delay_messages(delay)
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


def run(
    paths: Sequence[str], make_stage: Callable[[int], Any], rounds: int, record: str | None = None, delay: float = 0.0
) -> list[list[float]]:
    """Seconds of every step of every file: of the rank that takes longest; messages arrive ``delay`` seconds late."""
    jobs = [job_of(path) for path in paths]
    seconds = [[0.0] * rounds for _ in jobs]
    with ranks_running(jobs[0].ranks, train, jobs, make_stage, rounds, record, delay) as pipes:
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
    recorded = read_files([str(path) for path in sorted(folder.glob("timing-*.json"))])
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


def delayed(pipeline: Pipeline, milliseconds: float) -> Pipeline:
    """The pipeline with links that take so much longer."""
    more = Fraction(str(milliseconds))
    latency = pipeline.links.latency
    assert isinstance(latency, tuple)
    table = [[entry + more * (a != b) for b, entry in enumerate(row)] for a, row in enumerate(latency)]
    return pipeline.changed(links=Links(table, pipeline.links.occupancy))


def compared(pipeline: Pipeline, make_stage: Callable[[int], Any], delay: float, rounds: int, folder: Path) -> list[Point]:
    """All schedules with messages so many milliseconds late: planned, run, and printed."""
    place = folder / f"delay-{delay:g}"
    place.mkdir(exist_ok=True)
    found = entries(delayed(pipeline, delay))
    paths = [str(place / f"{number}.csv") for number in range(len(found))]
    for path, entry in zip(paths, found, strict=True):
        Path(path).write_text("".join(lines_of(with_comms(entry.planned))))
    seconds = run(paths, make_stage, rounds, str(place), delay / 1000)
    print(f"messages {delay:g} ms late; ms, median of {rounds} steps; of one step what operations on its path took longer than")
    print("planned, and what more passed between them")
    print(f"{'schedule':44} {'predicted':>10} {'measured':>10} {'operations':>11} {'between':>8}")
    points = []
    for number, (entry, took) in enumerate(zip(found, seconds, strict=True)):
        pipeline = entry.planned.pipeline
        point = Point(entry.name, delay, float(pipeline.time(entry.planned.makespan)), median(took) * 1000)
        timings = sorted(map(str, place.glob(f"timing-{number}-*.json")))
        step = beside(read_run(timings), entry.planned)
        draw(step.run, step.measured, step, str(place / f"{number}.png"))
        points.append(point)
        longer, between = shares(step.path)
        print(f"{point.name:44} {point.predicted:10.1f} {point.measured:10.1f} {longer:+11.1f} {between:+8.1f}")
    return points


def in_order(points: Sequence[Point]) -> bool:
    """Print how many pairs come in the order of their predictions, and whether all do."""
    pairs = [(a, b) for a in points for b in points if a.delay == b.delay and a.predicted * 1.02 < b.predicted]
    right = sum(a.measured < b.measured for a, b in pairs)
    print(f"{right} of {len(pairs)} pairs whose predictions differ by more than 2% come in the same order")
    return right == len(pairs)


def agreement(points: Sequence[Point]) -> float:
    """The correlation of predicted and measured times."""
    return correlation([point.predicted for point in points], [point.measured for point in points])


def scatter(points: Sequence[Point], path: str) -> None:
    """Measured over predicted times, a colour for each delay; their correlation, over all of them and by delay."""
    from matplotlib.figure import Figure

    from ppopt.pictures.figure import save
    from ppopt.pictures.palette import MARKERS, SERIES

    picture = Figure(figsize=(7, 6), layout="constrained")
    ax = picture.subplots()
    for k, delay in enumerate(sorted({point.delay for point in points})):
        some = [point for point in points if point.delay == delay]
        x, y = [point.predicted for point in some], [point.measured for point in some]
        alone = f", correlation {correlation(x, y):.3f}" if len(set(x)) > 1 and len(set(y)) > 1 else ""
        ax.plot(x, y, MARKERS[k % len(MARKERS)], color=SERIES[k % len(SERIES)], label=f"messages {delay:g} ms late{alone}")
    most = max(max(point.predicted, point.measured) for point in points)
    ax.plot([0, most], [0, most], color="#777777", linewidth=0.8, zorder=0)
    ax.set_xlim(0, 1.05 * most)
    ax.set_ylim(0, 1.05 * most)
    ax.set_xlabel("predicted (ms)")
    ax.set_ylabel("measured (ms)")
    ax.set_title(f"{len(points)} schedules run in PyTorch, correlation {agreement(points):.4f}", size=11)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    save(picture, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", action="store_true", help="stages wait instead of computing")
    parser.add_argument("--ranks", type=int, choices=(2, 4), default=2, help="number of processes (default 2)")
    parser.add_argument("--microbatches", type=int, default=6, help="default 6")
    parser.add_argument("--rounds", type=int, default=11, help="steps per schedule (default 11)")
    parser.add_argument("--delay", default="0", metavar="MS,…", help="messages arrive so much later (default 0)")
    parser.add_argument("--plot", metavar="PICTURE", help="measured over predicted times: png, svg or pdf")
    parser.add_argument("--folder", help="keep the files here")
    arguments = parser.parse_args()
    try:
        delays = [float(text) for text in arguments.delay.split(",")]
    except ValueError:
        parser.error(f"--delay: expected milliseconds with commas between, got {arguments.delay!r}")
    if not all(0 <= delay < 1000 for delay in delays):
        parser.error("--delay: expected milliseconds from 0 to 1000")
    make_stage = waiting if arguments.waiting else computing
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        pipeline = measured(Pipeline(arguments.ranks, arguments.microbatches), make_stage, folder)
        points = [point for delay in delays for point in compared(pipeline, make_stage, delay, arguments.rounds, folder)]
    print(f"correlation of predicted and measured times: {agreement(points):.4f} ({len(points)} points)")
    if arguments.plot:
        scatter(points, arguments.plot)
    return 0 if in_order(points) else 1


if __name__ == "__main__":
    sys.exit(main())
