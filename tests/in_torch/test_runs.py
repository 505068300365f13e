"""Real training steps through PyTorch's own loader and runtime: loss and every gradient equal a single process's.

All files for a number of ranks run one after the other in one group of processes, so that each costs milliseconds.
"""

import random
from collections.abc import Callable
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path

import pytest
import run_in_torch

from ppopt.files.torch_csv import CsvError, lines_of, read_csv, rows_of_text
from ppopt.files.torch_export import NotForTorch, actions_of, for_torch, with_comms
from ppopt.named import NAMED, Restriction
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.pipeline.runtimes import as_torch_runs
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order
from tests.support.shown import SHOWN
from tests.support.torch_files import BROKEN, random_rows

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")]

TOLERANCE = 1e-10
UNEVEN = {
    "split": Costs(forward=3, backward_input=4, backward_weight=2),
    "fused": Costs(forward=3, backward=Fraction(13, 2)),
}
TWO_COPIES = {"chimera", "bitpipe", "dualpipe"}
"""Named schedules with two copies of the weights, which PyTorch cannot place."""
ONE_COPY = [name for name in SHOWN if name not in TWO_COPIES]


# --- what is run -------------------------------------------------------------------------------------------------


def named(name: str, ranks: int, microbatches: int) -> Schedule:
    pipeline = Pipeline(ranks, microbatches, costs=UNEVEN["split"], links=Links(Fraction(1, 2)))
    return NAMED[name].schedule(pipeline)


def solved(placement: str, mode: str, ranks: int) -> Schedule:
    """A solver's own schedule, under a memory limit below that of the named schedules."""
    from ppopt.search import solve

    chunks = 1 if placement == "linear" else 2
    microbatches = 4
    limit = {"linear": 2, "loop": Fraction(5, 2), "wave": Fraction(3, 2)}[placement]
    pipeline = Pipeline(
        ranks, microbatches, placement, chunks, costs=UNEVEN[mode], links=Links(Fraction(1, 2)), memory=Memory(limit=limit)
    )
    result = solve(as_torch_runs(pipeline), seconds=8, workers=1, deterministic=True)
    assert result.schedule is not None
    return result.schedule


def on_route(route: tuple[int, ...], seed: int) -> Schedule:
    """A random order on any placement, backwards fused or split as it comes."""
    pipeline = Pipeline(max(route) + 1, 4, routes=(route,))
    return time_order(pipeline, Order.of(pipeline, random_rows(pipeline, random.Random(seed))))


ROUTES = {2: [(0, 0, 1, 1), (1, 0), (0, 1, 0), (0, 0, 1, 0, 1)], 4: [(2, 0, 1, 1, 3, 2, 0), (0, 1, 1, 1, 2, 3), (3, 2, 1, 0)]}
CASES: dict[str, tuple[int, Callable[[], Schedule]]] = {}
for ranks in (2, 4):
    for name in ONE_COPY:
        for microbatches in (ranks, 2 * ranks):
            CASES[f"{name}-{ranks}-{microbatches}"] = (ranks, lambda n=name, d=ranks, m=microbatches: named(n, d, m))
    for placement in ("linear", "loop", "wave"):
        for mode in UNEVEN:
            CASES[f"solved-{placement}-{mode}-{ranks}"] = (ranks, lambda p=placement, c=mode, d=ranks: solved(p, c, d))
    for route in ROUTES[ranks]:
        for seed in range(3):
            CASES[f"route-{'.'.join(map(str, route))}-{seed}"] = (ranks, lambda r=route, s=seed: on_route(r, s))
CASES["one-rank"] = (1, lambda: on_route((0, 0, 0), 1))


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Every case, without and with communication, run once: the outcome, or why there is no such schedule."""
    folder = tmp_path_factory.mktemp("schedules")
    found: dict[str, object] = {}
    jobs: dict[int, list[tuple[str, object]]] = {}
    for case, (ranks, build) in CASES.items():
        try:
            schedule = for_torch(build()).schedule
        except Restriction as error:
            found[case] = error
            continue
        for format_, rows in (("compute", actions_of(schedule)), ("comms", with_comms(schedule))):
            path = folder / f"{case}.{format_}.csv"
            path.write_text("".join(lines_of(rows)))
            jobs.setdefault(ranks, []).append((f"{case}.{format_}", run_in_torch.job_of(str(path))))
    for of_ranks in jobs.values():
        done = run_in_torch.run_group([job for _, job in of_ranks])
        found.update(zip((name for name, _ in of_ranks), done, strict=True))
    return found


@pytest.mark.parametrize("format_", ["compute", "comms"])
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_equal_those_of_one_process(case: str, format_: str, outcomes: dict[str, object]) -> None:
    if isinstance(outcomes.get(case), Restriction):
        pytest.skip(str(outcomes[case]))
    outcome = outcomes[f"{case}.{format_}"]
    assert isinstance(outcome, run_in_torch.Outcome)
    assert outcome.problem == ""
    assert outcome.loss_error <= TOLERANCE
    assert outcome.gradient_error <= TOLERANCE


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", ONE_COPY)
def test_every_named_schedule_with_one_copy_was_run(name: str, ranks: int, outcomes: dict[str, object]) -> None:
    sizes = [f"{name}-{ranks}-{microbatches}.comms" for microbatches in (ranks, 2 * ranks)]
    assert any(size in outcomes for size in sizes)


@pytest.mark.parametrize("name", sorted(TWO_COPIES))
def test_two_copies_are_refused(name: str) -> None:
    with pytest.raises(NotForTorch, match="PyTorch can express one rank per stage only"):
        for_torch(named(name, 4, 8))


# --- what must not reach PyTorch ---------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [lines for lines, _ in BROKEN.values()], ids=BROKEN.keys())
def test_corrupted_files_are_caught_before_pytorch_sees_them(lines: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "broken.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(CsvError):
        run_in_torch.job_of(str(path))


def test_a_missing_reduce_grad_trains_on_wrong_gradients(tmp_path: Path) -> None:
    """Why the checker is there: PyTorch loads and runs the file."""
    rows = with_comms(for_torch(named("1f1b", 2, 4)).schedule)
    path = tmp_path / "file.csv"
    path.write_text("".join(lines_of(rows)))
    job = run_in_torch.job_of(str(path))
    path.write_text("".join(lines_of([a for a in row if "REDUCE" not in str(a)] for row in rows)))
    (outcome,) = run_in_torch.run_group([job])
    assert outcome.problem == ""
    assert outcome.gradient_error > 1e-3


def test_what_goes_wrong_in_a_rank_is_reported_and_the_rest_still_runs(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    rows = actions_of(for_torch(named("1f1b", 2, 2)).schedule)
    for path in (good, bad):
        path.write_text("".join(lines_of(rows)))
    jobs = [run_in_torch.job_of(str(path)) for path in (good, bad, good)]
    bad.write_text("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n")
    first, second, third = run_in_torch.run_group(jobs)
    assert first.agrees
    assert third.agrees
    assert "microbatch 1 is not available" in second.problem or "rank 1" in second.problem


def test_a_run_that_hangs_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = with_comms(for_torch(named("1f1b", 2, 4)).schedule)
    path = tmp_path / "file.csv"
    path.write_text("".join(lines_of(rows)))
    job = run_in_torch.job_of(str(path))
    path.write_text("".join(lines_of([a for a in row if str(a) != "0SEND_F3"] for row in rows)))
    monkeypatch.setattr(run_in_torch, "TIMEOUT", 3.0)
    (outcome,) = run_in_torch.run_group([job])
    assert not outcome.agrees
    assert "rank" in outcome.problem


def test_not_a_number_agrees_with_nothing() -> None:
    nothing = float("nan")
    assert not run_in_torch.Outcome(gradient_error=nothing).agrees
    for a, b in ((nothing, 1.0), (1.0, nothing)):
        assert run_in_torch.worse(a, b) != run_in_torch.worse(a, b)


# --- PyTorch's own side ------------------------------------------------------------------------------------------


def test_pytorch_reads_our_files_as_we_do_and_its_own_lowering_passes_our_checker(outcomes: dict[str, object]) -> None:
    import torch.distributed.pipelining.schedules as schedules

    from ppopt.files.torch_check import violations

    for name in ONE_COPY:
        try:
            schedule = for_torch(named(name, 4, 8)).schedule
        except Restriction:
            continue
        route, size = schedule.pipeline.routes[0], (4, schedule.pipeline.stages, 8)
        theirs = {
            rank: [schedules._Action.from_str(str(action)) for action in row] for rank, row in enumerate(actions_of(schedule))
        }
        assert list(map(str, theirs[0])) == list(map(str, schedule.order.ops(0)))
        mapping = schedules._validate_schedule(theirs, *size)
        assert [mapping[stage] for stage in range(size[1])] == list(route)
        whole = {rank: schedules._add_reduce_grad(schedules._add_unshard_reshard(row), 8) for rank, row in theirs.items()}
        lowered = schedules._add_send_recv(whole, lambda stage, to=mapping: to[stage], size[1])
        text = "\n".join(",".join(map(str, lowered[rank])) for rank in sorted(lowered)) + "\n"
        assert violations(rows_of_text(text, name), 8) == []


@pytest.mark.parametrize("name", ["interleaved_zb", "interleaved_zb_comms", "dualpipev", "dualpipev_comms"])
def test_files_written_by_pytorch_are_read_checked_and_run(name: str, tmp_path: Path) -> None:
    """tests/data/torch_*.csv were dumped by PyTorch's own classes (idle marks and all)."""
    path = Path(__file__).parents[1] / "data" / f"torch_{name}.csv"
    rows = read_csv(str(path))
    cells = [[cell for cell in line.split(",") if cell] for line in path.read_text().splitlines()]
    assert [[str(action) for action in row] for row in rows] == cells
    (outcome,) = run_in_torch.run_group([run_in_torch.job_of(str(path))])
    assert outcome.agrees
