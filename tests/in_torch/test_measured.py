"""A real step of a run in PyTorch, beside its plan: by timing records and by profiler traces."""

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import run_in_torch

from ppopt.files.exported import schedule_in
from ppopt.files.model import model_of_text
from ppopt.files.profile import combine, model_text
from ppopt.files.recorded import Clock, read_files
from ppopt.named import find
from ppopt.pictures.measured import draw
from ppopt.pipeline import Pipeline
from ppopt.runs import beside, idle_of, read_run
from ppopt.schedule import Schedule
from tests.support.torch_steps import job_of, loaded, run_both, run_steps, traced_steps

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")]
SLEEP = {0: 0.012, 1: 0.03, 2: 0.012, 3: 0.012}
"""Seconds that the forward of each stage sleeps at least: stage 1 is slow."""
LATE = 0.25
"""Seconds more that stage 2's forward of microbatch 1 sleeps in each step but the first."""
STEPS, MICROBATCHES = 3, 4


def sleepy(stage: int) -> Any:
    import torch

    class Sleepy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = run_in_torch.transformer_block(stage)
            self.forwards = -1  # before the first step PyTorch runs one to learn the shapes

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            step, microbatch = divmod(self.forwards, MICROBATCHES)
            self.forwards += 1
            result: torch.Tensor = self.block(x)
            time.sleep(SLEEP[stage] + LATE * (stage == 2 and step > 0 and microbatch == 1))
            return result

    return Sleepy()


def recorded(rank: int, job: run_in_torch.Job, folder: str) -> None:
    """Some steps of one rank under the stopwatch and the profiler."""
    from ppopt.files.torch_timing import StageTimer

    schedule = loaded(job, rank, sleepy)
    timer = StageTimer(schedule)
    traced_steps(schedule, rank, job, STEPS, folder)
    timer.measure_links(5)
    timer.save(f"{folder}/timing-{rank}.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks with two stages each, the order of zb-v."""
    place = tmp_path_factory.mktemp("run")
    run_both(recorded, job_of("zb-v", MICROBATCHES, place), str(place))
    return place


def files(folder: Path, kind: str) -> list[str]:
    return [str(folder / f"{kind}-{rank}.json") for rank in (0, 1)]


@pytest.fixture(scope="module")
def plan(folder: Path) -> Schedule:
    """The order that was run, with the medians that were measured as costs."""
    model = model_of_text(model_text(combine(read_files(files(folder, "timing"))), "sleepy"), "text")
    return schedule_in(str(folder / "schedule.csv"), model)


@pytest.mark.parametrize("kind", ["timing", "trace"])
def test_the_step_runs_the_planned_order_on_one_clock(kind: str, folder: Path, plan: Schedule) -> None:
    run = read_run(files(folder, kind))
    assert (run.clocks.basis, run.clocks.fitted, run.clocks.early) == (Clock.HOST, False, 0)
    assert max(map(abs, run.clocks.offsets)) < 0.02  # one host has one clock
    assert (run.step in (2, 3), run.warnings) == (True, ())
    assert [[str(ran.op) for ran in row] for row in run.rows] == plan.order.texts()
    for row in run.rows:
        for ran in row:
            text = str(ran.op)
            if text[1] == "F":
                assert ran.end - ran.begin >= SLEEP[int(text[0])] + LATE * (text == "2F1") - 1e-3


@pytest.mark.parametrize("kind", ["timing", "trace"])
def test_what_was_held_up_is_found_beside_the_plan(kind: str, folder: Path, plan: Schedule, tmp_path: Path) -> None:
    found = beside(read_run(files(folder, kind)), plan)
    by_op = {late.op: late for late in found.lateness}
    held_up, after = by_op["2F1"], by_op["3F1"]
    assert held_up.took >= 1000 * (SLEEP[2] + LATE) - 1  # ms
    assert held_up.longer > 0.5 * 1000 * LATE  # its stage takes far less in the median
    assert held_up in sorted(found.lateness, key=lambda late: -late.longer)[:4]  # whatever else a busy machine has held up
    assert after.began >= held_up.began + held_up.took  # it needs the result
    assert found.plan.order == found.measured.order
    assert found.notes == ()
    for work, idle in zip(found.measured.work, idle_of(found.measured), strict=True):
        assert work + sum(idle.values()) == found.measured.makespan
    draw(found.run, found.measured, found, str(tmp_path / "step.png"))
    assert (tmp_path / "step.png").stat().st_size > 20_000


def test_records_and_traces_of_the_same_step_agree(folder: Path) -> None:
    """Both clocks are the host's; ranges of a trace begin with the first operation inside and end a little later."""
    ran = [
        {str(each.op): each for row in read_run(files(folder, kind), step=2).rows for each in row} for kind in ("timing", "trace")
    ]
    assert ran[0].keys() == ran[1].keys()
    for op, each in ran[0].items():
        assert ran[1][op].end == pytest.approx(each.end, abs=0.02), op


def test_links_are_measured_with_three_sizes(folder: Path) -> None:
    profile = combine(read_files(files(folder, "timing")))
    assert profile.occupied
    assert len(profile.links[0, 1].sizes) == 3


def with_its_own_class(rank: int, folder: str) -> None:
    """Some steps of PyTorch's own 1F1B, which leaves no ranges in traces."""
    import torch
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    from ppopt.files.torch_timing import StageTimer

    stage = PipelineStage(run_in_torch.transformer_block(rank), rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=torch.nn.functional.mse_loss)
    timer = StageTimer(schedule)
    run_steps(schedule, rank, (0, 1), MICROBATCHES, STEPS)
    timer.save(f"{folder}/timing-{rank}.json")


def test_classes_for_one_stage_are_timed_too(tmp_path: Path) -> None:
    run_both(with_its_own_class, str(tmp_path))
    run = read_run(files(tmp_path, "timing"))
    order = find("1f1b").schedule(Pipeline(2, MICROBATCHES)).order.texts()
    assert [[str(ran.op) for ran in row] for row in run.rows] == order
    assert run.clocks.early == 0
