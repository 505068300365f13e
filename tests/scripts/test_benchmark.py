"""The benchmark: the set is stratified and repeatable, a run goes on where it stopped, the summary counts right."""

import json
from collections import Counter
from pathlib import Path

import benchmark
import pytest

from tests.support.places import SCRIPTS
from tests.support.tiers import thorough

RESULTS = sorted((SCRIPTS / "results").glob("proof-*.jsonl"))


def test_the_set_is_stratified_and_repeats() -> None:
    drawn = benchmark.instances(7)
    assert drawn == benchmark.instances(7) != benchmark.instances(8)
    assert len(drawn) == 72
    for each in benchmark.PLACEMENTS:
        assert sum((i.placement, i.chunks) == each for i in drawn) == 18
    for field, values in (("microbatches", benchmark.MICROBATCHES), ("costs", set(benchmark.COSTS)), ("latency", (False, True))):
        counts = Counter(getattr(instance, field) for instance in drawn)
        assert set(counts) == set(values)
        assert max(counts.values()) - min(counts.values()) <= (8 if field == "costs" else 1)  # unit costs come twice
    assert {instance.devices for instance in drawn} <= set(range(2, 17))
    assert {instance.share for instance in drawn} == {1.0, 0.75, 0.5}
    assert Counter(instance.objective for instance in drawn) == {"makespan": 36, "span": 36}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_instance_is_a_pipeline_within_its_memory(seed: int) -> None:
    for instance in benchmark.instances(seed):
        pipeline = instance.pipeline()
        assert (pipeline.devices, pipeline.microbatches) == (instance.devices, instance.microbatches)
        limit = float(pipeline.memory.limit)
        assert limit == max(1, instance.share * min(instance.devices, instance.microbatches))
        activations = pipeline.amounts.activation[0].sum() / pipeline.amounts.per_unit
        assert activations == pytest.approx(instance.devices)  # one per device, whatever the number of chunks
        assert bool(pipeline.ticks.latency.any()) == instance.latency
        assert pipeline.ticks.duration.max() <= 1000
        if instance.costs in ("unit", *benchmark.GPTS):
            assert pipeline.work.min() == pipeline.work.max()


def test_uneven_costs() -> None:
    def of(costs: str) -> list[int]:
        pipeline = benchmark.Instance("wave", 2, 3, 4, 1.0, costs, False, "makespan", seed=5).pipeline()
        return pipeline.ticks.duration[0, 0].tolist()

    assert sorted(of("slow stage")) == [10, 10, 10, 10, 10, 15]
    assert of("heavy ends") == [14, 10, 10, 10, 10, 14]
    assert set(of("random")) <= set(range(8, 13))


def row(**changes: object) -> benchmark.Tree:
    instance = benchmark.asdict(benchmark.instances(1)[0])
    figures = {
        "baseline": 12,
        "value": 10,
        "lower_bound": 10,
        "work": 8,
        "reason": "optimal",
        "proved_by": "work",
        "seconds": 1.0,
    }
    return {"instance": instance, "time_limit": 5, "baseline_name": "1f1b", **figures, **changes}


def test_the_summary() -> None:
    rows = [row(), row(lower_bound=9, reason="feasible", seconds=5.0), row(value=12, lower_bound=12, seconds=3.0)]
    assert [benchmark.gap(each) for each in rows] == [0, 0.1, 0]
    assert [benchmark.idle_gap(each) for each in rows] == [0, 0.5, 0]
    lines = benchmark.summary(rows).splitlines()
    assert lines[1].split() == ["makespan", "2/3", "3.0", "s", "10.00", "%", "50.0", "%", "2"]
    assert benchmark.gap(row(value=None)) == benchmark.idle_gap(row(value=None)) == 1


def test_the_report_says_what_stayed_open() -> None:
    small = {**benchmark.asdict(benchmark.instances(1)[0]), "devices": 4, "microbatches": 8, "objective": "makespan"}
    beyond = {**small, "devices": 16}
    rows = [row(instance=small), row(instance=small, lower_bound=9, reason="feasible"), row(instance=beyond, lower_bound=9.95)]
    text = benchmark.report(rows, "command")
    assert "| makespan, D <= 8, M <= 32: proved | 1/2 |" in text
    assert "| makespan, D > 8: proved or within 1 % | 1/1 |" in text
    assert "Open: 1" in text
    assert "| 12 | 10 | 9 | 10.00 % | 50.0 % | 1.0 |" in text


@thorough
def test_a_killed_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "results.jsonl"
    arguments = ["--quick", "--seed", "4", "--time-limit", "0.2", "--workers", "1", "-o", str(output)]
    benchmark.main(arguments)
    whole = output.read_text()
    shown = capsys.readouterr().out
    lines = whole.splitlines()
    assert len(lines) >= 2
    for tree in map(json.loads, lines):
        assert tree["lower_bound"] <= tree["value"] <= tree["baseline"]
        assert (tree["reason"] == "optimal") == (tree["lower_bound"] == tree["value"])
    output.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:20])  # killed while it wrote the last line
    benchmark.main(arguments)
    again = output.read_text().splitlines()
    assert again[:-1] == lines[:-1]
    assert json.loads(again[-1])["instance"] == json.loads(lines[-1])["instance"]
    capsys.readouterr()
    output.write_text(whole)
    benchmark.main(arguments)  # nothing is solved again
    assert output.read_text() == whole
    assert capsys.readouterr().out == shown
    report = output.with_suffix(".md").read_text()
    assert f"python scripts/benchmark.py {' '.join(arguments)}" in report
    assert shown.split("\n\n")[-1].strip() in report


def test_no_instance_of_that_name(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no instance"):
        benchmark.main(["--match", "nothing"])


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_kept_results_are_of_the_set_as_it_is(path: Path) -> None:
    seed = int(path.stem.removeprefix("proof-"))
    rows = benchmark.read(path)
    assert {benchmark.Instance(**each["instance"]) for each in rows} == set(benchmark.instances(seed))
    assert len(rows) == 72
    for each in rows:
        assert each["work"] <= each["lower_bound"] <= min(each["value"], each["baseline"])
