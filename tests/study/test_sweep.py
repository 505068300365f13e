"""Sweeps: what is run, recorded, resumed and shared."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ppopt.cli.sweep import sweep as sweep_command
from ppopt.named import ScheduleWarning, find
from ppopt.pipeline import Pipeline
from ppopt.study.plan import Instance, Study, StudyError, Task, read_study, study_of
from ppopt.study.store import Store
from ppopt.study.sweep import Progress, cores, run_instance, sweep
from ppopt.study.table import rows_of
from tests.support.study import TREE, contents
from tests.support.tiers import thorough


def in_threads(study: Study, path: Path, **options: Any) -> Progress:
    with ThreadPoolExecutor(2) as pool:
        return sweep(study, str(path), executor=pool, slots=2, **options)


def test_rows_are_what_the_library_says(tmp_path: Path) -> None:
    study = study_of(TREE, "s.toml")
    state = in_threads(study, tmp_path / "s.db")
    assert (state.total, state.finished, state.failed, state.run) == (24, 24, 0, 24)
    assert state.rate > 0
    assert state.remaining == 0
    with Store(tmp_path / "s.db") as store:
        results = store.results("small")
    assert [result.position for result in results] == list(range(24))
    for result, instance in zip(results, study.instances, strict=True):
        assert instance.pipeline is not None
        schedule = find(instance.task.schedule or "").schedule(instance.pipeline, instance.task.chunks)
        assert result.status == "done"
        assert result.outcome["makespan"] == schedule.pipeline.time(schedule.makespan)
        assert result.outcome["bubble_ratio"] == schedule.bubble_ratio


def test_a_second_run_has_nothing_to_do(tmp_path: Path) -> None:
    study = study_of(TREE, "s.toml")
    in_threads(study, tmp_path / "s.db")
    before = contents(tmp_path / "s.db")
    assert in_threads(study, tmp_path / "s.db").run == 0
    assert contents(tmp_path / "s.db") == before


def test_studies_share_what_they_have_in_common(tmp_path: Path) -> None:
    in_threads(study_of(TREE, "s.toml"), tmp_path / "s.db")
    larger = {**TREE, "name": "larger", "vary": {"pipeline.devices": [2, 3, 4], "links.latency": [0, 1]}}
    assert in_threads(study_of(larger, "s.toml"), tmp_path / "s.db").run == 12
    with Store(tmp_path / "s.db") as store:
        assert store.studies() == {"larger": (36, 36), "small": (24, 24)}


def test_failures_and_exclusions_are_recorded_and_stop_nothing(tmp_path: Path) -> None:
    tree = {**TREE, "vary": {"pipeline.devices": [2, -1, 16], "memory.limit": [0.5, 100]}, "together": []}
    study = study_of(tree, "s.toml")
    state = in_threads(study, tmp_path / "s.db")
    with Store(tmp_path / "s.db") as store:
        found = {(r.changes["pipeline.devices"], r.changes["memory.limit"], r.task["schedule"]): r for r in store.results()}
    assert state.failed == 6
    assert found[-1, 100, "1f1b"].status == "failed"
    assert "pipeline.devices: expected a whole number >= 1, got -1" in found[-1, 100, "1f1b"].outcome["error"]
    assert found[2, 0.5, "1f1b"].status == "excluded"
    assert "needs at least 1" in found[2, 0.5, "1f1b"].outcome["excluded"]
    assert found[16, 100, "zb-h1"].status == "excluded"
    assert "microbatches" in found[16, 100, "zb-h1"].outcome["excluded"]
    assert found[2, 100, "1f1b"].status == "done"
    assert in_threads(study, tmp_path / "s.db").run == 0
    assert in_threads(study, tmp_path / "s.db", retry=True).run == 6


def test_a_combination_that_is_no_pipeline_is_excluded_and_too_little_memory_is_infeasible(tmp_path: Path) -> None:
    """One chunk on the linear placement; a limit below one activation, which the solver's row calls infeasible."""
    tree = {
        "name": "s",
        "model": {"pipeline": {"devices": 2, "microbatches": 2}},
        "vary": {"pipeline.placement": ["linear", "wave"], "pipeline.chunks": [2], "memory.limit": [0.5, "8GB", 8]},
        "run": {"schedules": ["1f1b"]},
        "solve": {"time_limit": 60},
    }
    state = in_threads(study_of(tree, "s.toml"), tmp_path / "s.db")
    with Store(tmp_path / "s.db") as store:
        found = {(r.changes["pipeline.placement"], r.changes["memory.limit"], r.task.get("schedule")): r for r in store.results()}
    for schedule in ("1f1b", None):
        assert found["linear", 8, schedule].status == "excluded"
        assert "linear placement has one chunk" in found["linear", 8, schedule].outcome["excluded"]
        assert "write 8 (units.memory is a label)" in found["wave", "8GB", schedule].outcome["error"]  # a mistake, as ever
    assert found["wave", 0.5, "1f1b"].status == "excluded"
    assert found["wave", 0.5, None].status == "done"
    assert found["wave", 0.5, None].outcome["reason"] == "infeasible"
    assert "needs at least 1" in found["wave", 0.5, None].outcome["proved_by"]
    assert found["wave", 8, None].outcome["reason"] == "optimal"
    assert state.failed == 2 + 2  # the mistake alone, on both placements


def test_a_mark_that_cannot_exist_is_left_out_with_a_note(tmp_path: Path) -> None:
    tree = {
        "name": "s",
        "model": {"pipeline": {"devices": 2, "chunks": 2, "schedule": "interleaved-1f1b", "schedule_params": {"group_size": 2}}},
        "vary": {"pipeline.placement": ["loop", "wave"], "pipeline.microbatches": [2, 4]},
        "run": {"schedules": ["zb-v"]},
    }
    with pytest.warns(ScheduleWarning, match="2 of 4 combinations run without the mark .*; the first: .*cannot exist"):
        study = study_of(tree, "s.toml")
    assert in_threads(study, tmp_path / "s.db").failed == 0
    wrong = {**tree, "model": {"pipeline": {"devices": 2, "chunks": 2, "schedule": "1f1c"}}}
    assert all("there is no schedule '1f1c'" in (instance.error or "") for instance in study_of(wrong, "s.toml").instances)


def test_solver_instances(tmp_path: Path) -> None:
    tree = {"name": "s", "model": {"pipeline": {"devices": 2}}, "vary": {"pipeline.microbatches": [2, 4]},
            "run": {"schedules": ["1f1b"]}, "solve": {"time_limit": 20}}  # fmt: skip
    in_threads(study_of(tree, "s.toml"), tmp_path / "s.db")
    with Store(tmp_path / "s.db") as store:
        rows = rows_of(store.results())
    best = {row["pipeline.microbatches"]: row for row in rows if row["schedule"] == "solve"}
    assert {m: (row["reason"], row["value"], row["lower_bound"]) for m, row in best.items()} == {
        2: ("optimal", 7, 7),
        4: ("optimal", 13, 13),
    }


def test_an_error_in_a_worker_is_an_outcome() -> None:
    status, outcome, _ = run_instance(Pipeline(2, 2), Task(settings=(("solver", "none"),)))
    assert status == "failed"
    assert "solver" in outcome["error"]


def test_workers_times_threads_never_exceed_the_cores(tmp_path: Path) -> None:
    study = study_of({**TREE, "solve": {"threads": cores()}}, "s.toml")
    with pytest.raises(StudyError, match=f"2 workers with {cores()} solver threads each need {2 * cores()} cores; there are"):
        sweep(study, str(tmp_path / "s.db"), workers=2)


KILLED = {**TREE, "name": "killed", "vary": {"pipeline.devices": [2, 3], "links.latency": list(range(17))},
          "run": {"schedules": ["1f1b", "zb-h1", "gpipe"]}}  # fmt: skip
"""204 instances."""


def start(tree: dict[str, Any], path: Path, workers: int = 2) -> subprocess.Popen[bytes]:
    file = path.with_suffix(".json")
    file.write_text(json.dumps(tree))
    code = (
        "import json, sys\nfrom ppopt.study.plan import study_of\nfrom ppopt.study.sweep import sweep\n"
        "if __name__ == '__main__':\n"
        "    tree = json.load(open(sys.argv[1]))\n"
        f"    sweep(study_of(tree, 's.toml'), sys.argv[2], workers={min(workers, cores())})\n"
    )
    script = path.with_suffix(".py")
    script.write_text(code)
    return subprocess.Popen([sys.executable, str(script), str(file), str(path)], start_new_session=True)


def children(pid: int) -> list[int]:
    """Processes whose parent this is."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def killed_and_resumed(tmp_path: Path, kills: int, seed: int) -> None:
    in_threads(study_of(KILLED, "s.toml"), tmp_path / "whole.db")
    path = tmp_path / "killed.db"
    moments = random.Random(seed)
    for _ in range(kills):
        process = start(KILLED, path)
        time.sleep(moments.uniform(0.1, 2.0))
        workers = children(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + 20
        while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(Path(f"/proc/{worker}").exists() for worker in workers), "workers outlive a killed sweep"
    assert start(KILLED, path).wait(timeout=120) == 0
    assert contents(path) == contents(tmp_path / "whole.db")


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


@needs_proc
@pytest.mark.parametrize(
    "kills", [pytest.param(1, marks=thorough), pytest.param(2, marks=thorough), pytest.param(20, marks=pytest.mark.slow)]
)
def test_a_killed_sweep_resumes(kills: int, tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, kills, seed=kills)


@needs_proc
@pytest.mark.thorough
def test_two_sweeps_share_a_file(tmp_path: Path) -> None:
    in_threads(study_of(KILLED, "s.toml"), tmp_path / "whole.db")
    path = tmp_path / "shared.db"
    both = [start(KILLED, path, workers=1) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert contents(path) == contents(tmp_path / "whole.db")


class Deadly(Pipeline):
    """A pipeline whose worker dies when it is unpacked there."""

    def __reduce__(self) -> Any:
        return (os._exit, (7,))


def test_an_instance_that_kills_its_worker_is_recorded(tmp_path: Path) -> None:
    study = study_of(KILLED, "s.toml")
    instances = list(study.instances[:12])
    deadly = Instance((("deadly", True),), Task("1f1b"), Deadly(2, 50))
    state = sweep(Study("deadly", (*instances[:6], deadly, *instances[6:])), str(tmp_path / "s.db"), workers=1)
    assert (state.finished, state.failed) == (13, 1)
    with Store(tmp_path / "s.db") as store:
        results = store.results(status=["failed"])
    assert [result.outcome for result in results] == [{"error": "the worker process died (out of memory, or a crash)"}]
    assert [result.changes for result in results] == [{"deadly": True}]


@pytest.fixture
def cluster():  # type: ignore[no-untyped-def]
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None, protocol="tcp"
    ) as running:
        yield running


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_gives_the_same_rows_even_when_a_worker_is_killed(tmp_path: Path, cluster: Any) -> None:
    in_threads(study_of(KILLED, "s.toml"), tmp_path / "whole.db")
    study = tmp_path / "study.toml"
    study.write_text(
        'name = "killed"\nmodel.pipeline.microbatches = 6\n[vary]\n"pipeline.devices" = [2, 3]\n'
        f'"links.latency" = {list(range(17))}\n[[together]]\n"costs.forward" = [1, 2]\n"costs.backward_input" = [2, 1]\n'
        '[run]\nschedules = ["1f1b", "zb-h1", "gpipe"]\n'
    )
    first, second = tmp_path / "dask.db", tmp_path / "dask-killed.db"
    address = cluster.scheduler_address
    run = CliRunner().invoke(sweep_command, [str(study), "-o", str(first), "--dask", address])
    assert run.exit_code == 0, run.output
    assert contents(first) == contents(tmp_path / "whole.db")
    pids = iter([info["pid"] for info in _processes(cluster)])
    killed = False

    def kill_one(state: Progress) -> None:
        nonlocal killed
        if state.run > 20 and not killed:
            killed = True
            os.kill(next(pids), signal.SIGKILL)

    from ppopt.study.cluster import connected

    with connected(address) as (executor, slots):
        sweep(read_study(str(study)), str(second), executor=executor, slots=slots, progress=kill_one)
    assert killed
    assert contents(second) == contents(tmp_path / "whole.db")


def _processes(cluster: Any) -> list[dict[str, int]]:
    from distributed import Client

    with Client(cluster) as client:
        return [{"pid": pid} for pid in client.run(os.getpid).values()]


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[Progress] = []
    in_threads(study_of(TREE, "s.toml"), tmp_path / "s.db", progress=told.append)
    finished = [state.finished for state in told]
    assert finished == sorted(finished)
    assert finished[-1] == 24
    half = Progress(total=20, finished=10, failed=0, run=5, seconds=10.0)
    assert (half.rate, half.remaining) == (0.5, 20.0)
    assert Progress(20, 10, 0, 0, 1.0).remaining is None
