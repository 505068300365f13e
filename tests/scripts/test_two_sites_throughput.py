"""A large model over two sites: its costs are the formulas that the study states, and its series."""

import csv
import json
from pathlib import Path

import pytest
import two_sites_throughput as script

from ppopt.study.plan import study_of
from ppopt.study.sweep import run_instance
from tests.support.places import DATA
from tests.support.tiers import thorough

GIB = 2**30


def test_its_costs_are_those_of_the_formulas() -> None:
    """Of the repository's 405B (128 layers, 16 key-value heads), a chunk of two; and of the paper's printed example."""
    entries = json.loads((DATA / "costs.json").read_text())["entries"]
    (entry,) = (e for e in entries if e["kind"] == "crosspipe-formula" and e["layers"] == 128)
    setting, chunks = script.Setting(), entry["chunks"]
    model = script.model(setting)
    assert (setting.tensor, setting.pipeline, setting.data) == (entry["tensor"], entry["pipeline"], entry["data"])
    for name in ("forward", "backward_input", "backward_weight"):
        assert model["costs"][name] == pytest.approx(1000 * chunks * entry[f"{name}_seconds"], abs=0.051)
    memory = model["memory"]
    assert memory["activation"] == pytest.approx(chunks * entry["activation_bytes"] / 1e9, abs=1e-4)
    assert memory["retained"] == pytest.approx(chunks * entry["retained_bytes"] / 1e9, abs=1e-4)
    assert memory["static"] == pytest.approx(entry["state_bytes"] / 1e9, abs=1e-4)
    assert setting.transfer == entry["boundary_bytes_all_replicas"] == 32 * GIB
    exchanged = chunks * entry["data_parallel_seconds_per_chunk_at_GB_per_second_320"] * 320e9 / (200 * GIB)
    assert model["data_parallel"]["reduce_scatter"] == pytest.approx(1000 * exchanged, abs=0.051)
    assert script.model(script.PAPER)["costs"]["forward"] == pytest.approx(109, abs=0.2)


def test_a_transfer_holds_the_line_or_only_arrives_later() -> None:
    setting = script.Setting()
    assert script.between(setting, 64, 5, delays=False) == {"latency": 5, "occupancy": 500.0, "shared": True}
    assert script.between(setting, 64, 5, delays=True) == {"latency": 505.0}


def outcomes(*, delays: bool) -> dict[tuple[str, float, float], float]:
    """Tokens per second and GPU of named schedules, by schedule, latency and bandwidth."""
    setting, found = script.QUICK, {}
    tree = {**script.study(setting, [4, 4096], delays=delays), "run": {"schedules": ["1f1b", "zb-v"]}}
    for instance in study_of(tree, "s").instances:
        status, outcome, _ = run_instance(instance.pipeline, instance.task)
        assert status == "done"
        inter = dict(instance.changes)["links.inter"]
        latency = next(ms for ms in script.LATENCIES for b in (4, 4096) if script.between(setting, b, ms, delays) == inter)
        bandwidth = next(b for b in (4, 4096) if script.between(setting, b, latency, delays) == inter)
        found[instance.task.schedule or "", latency, bandwidth] = script.per_gpu(setting, outcome["makespan"])
    return found


def test_more_bandwidth_and_less_latency_are_never_slower() -> None:
    line, delays = outcomes(delays=False), outcomes(delays=True)
    assert len(line) == 8
    for (schedule, latency, bandwidth), value in line.items():
        assert value <= delays[schedule, latency, bandwidth] * (1 + 1e-9)
        assert value <= line[schedule, latency, 4096] * (1 + 1e-9)
        assert line[schedule, 50, bandwidth] <= line[schedule, 5, bandwidth] * (1 + 1e-9)
    # over a line of 8 s for a transfer each way every microbatch goes once, and twice where there are two chunks
    most = script.QUICK.tokens / (8.0 * script.QUICK.microbatches) / script.QUICK.gpus
    assert most / 2 < line["1f1b", 5, 4] <= most
    assert most / 4 < line["zb-v", 5, 4] <= most / 2


@thorough
def test_the_whole_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.main(["--quick", "--time-limit", "1", "-o", str(tmp_path)])
    out = capsys.readouterr().out
    assert all(10_000 < path.stat().st_size < 1_000_000 for path in tmp_path.glob("*.png"))
    assert len(list(tmp_path.glob("*.png"))) == 2
    with (tmp_path / "two_sites_throughput.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * (len(script.SCHEDULES) + 1)
    assert out.count("tokens per second and GPU in 96 GiB: ") == 6
    for place in {row["links.inter"] for row in rows}:
        here = {row["schedule"]: float(row["makespan"]) for row in rows if row["links.inter"] == place}
        assert min(here.values()) == here["solve"]
