"""The study scripts: what they plot is, point for point, what CrossPipe's code gives; each runs with --quick."""

import importlib
import json
import math
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ppopt.named import NAMED
from ppopt.study.plan import read_study, study_of
from ppopt.study.sweep import run_instance
from tests.support.places import DATA, SCRIPTS
from tests.support.tiers import thorough

FIGURES = DATA / "crosspipe.json"

STUDIES = [
    "weak_scaling",
    "strong_scaling",
    "recompute",
    "microbatches",
    "chunks",
    "backward_split",
    "latency",
    "imbalance",
    "two_sites",
    "pipeline_throughput",
]

FIELD = STUDIES[:-1]
"""Those that repeat CrossPipe's figures."""


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


def rounded(value: Any) -> Any:
    """A number, or a tuple where a list's numbers differ, with four digits after the point."""
    if isinstance(value, list | tuple):
        numbers = tuple(rounded(item) for item in value)
        return numbers[0] if len(set(numbers)) == 1 else numbers
    return round(float(value), 4)


def added(a: Any, b: Any) -> Any:
    length = max(len(x) if isinstance(x, tuple) else 1 for x in (a, b))
    a, b = (x if isinstance(x, tuple) else (x,) * length for x in (a, b))
    return rounded([x + y for x, y in zip(a, b, strict=True)])


def reference() -> dict[Any, dict[str, Any]]:
    """The figures by schedule, sizes and costs per device."""
    found = {}
    for entry in json.loads(FIGURES.read_text()):
        if entry.get("undivided") or "makespan" not in entry or entry["schedule"] not in NAMED:
            continue
        chunks = entry["chunks"]

        def whole(key: str, entry: dict[str, Any] = entry, chunks: int = chunks) -> Any:
            value = entry[key]
            return rounded([item * chunks for item in value] if isinstance(value, list) else value * chunks)

        split = "backward_input" in entry
        backward = added(whole("backward_input"), whole("backward_weight")) if split else whole("backward")
        sizes = entry["schedule"], chunks, entry["devices"], entry["microbatches"]
        found[(*sizes, whole("forward"), backward, whole("backward_input") if split else None, str(entry["comm"]))] = entry
    return found


@pytest.mark.parametrize(
    ("most", "weak_scaling", "imbalance", "all_"),
    [pytest.param(64, 22, 94, 450, marks=thorough), pytest.param(math.inf, 58, 140, 1001, marks=pytest.mark.slow)],
)
def test_every_figure_is_a_point_of_a_study_and_equal_to_it(most: float, weak_scaling: int, imbalance: int, all_: int) -> None:
    """Of those with at most so many microbatches on all devices together; so many points at least of two studies and of all."""
    figures = {key: figure for key, figure in reference().items() if key[2] * key[3] <= most}
    met: Counter[str] = Counter()
    missing = set(figures)
    for name in FIELD:
        for instance in study_of(script(name).study(), name).instances:
            task, pipeline = instance.task, instance.pipeline
            assert pipeline is not None
            costs = pipeline.costs
            forward, first, weight = map(rounded, (costs.forward, costs.backward_input, costs.backward_weight))
            sizes = task.schedule, task.chunks or 1, pipeline.devices, pipeline.microbatches
            split = first if task.schedule == "zb-h1" else None
            key = (*sizes, forward, added(first, weight), split, str(dict(instance.changes)["links.latency"]))
            if key in figures:
                status, outcome, _ = run_instance(instance.pipeline, task)
                assert status == "done"
                assert outcome["makespan"] == pytest.approx(figures[key]["makespan"], rel=1e-6), key
                assert outcome["bubble_ratio"] == pytest.approx(figures[key]["bubble_ratio"], abs=1e-8), key
                met[name] += 1
                missing.discard(key)
    assert set(met) == set(FIELD)
    assert met["weak_scaling"] >= weak_scaling
    assert met["imbalance"] >= imbalance
    assert sum(met.values()) >= all_
    # what is left: their ZB-H1 puts the slower ends' extra time into the input gradient alone
    assert {(figures[key]["schedule"], figures[key]["study"]) for key in missing} == {("zb-h1", "first and last stage slower")}


def test_two_waves_and_one_are_series_of_their_own() -> None:
    import studies

    instances = study_of(script("weak_scaling").study(), "s").instances
    assert len({(i.task.schedule, i.task.chunks) for i in instances}) == len(studies.SIX) == 6
    assert {dict(i.changes)["links.latency"] for i in instances} == {0, 4, 16}
    assert {dict(i.changes)["pipeline.devices"] for i in instances} == {2, 4, 8, 16, 32}


TIER = {
    **dict.fromkeys(("recompute", "chunks", "backward_split", "two_sites", "pipeline_throughput"), thorough),
    **dict.fromkeys(("imbalance", "microbatches", "strong_scaling", "weak_scaling"), pytest.mark.slow),
}
"""One study is enough for a quick run; the slow ones are those whose scripts go the same way as those of others."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=TIER.get(name, ())) for name in STUDIES])
def test_quick_study(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script(name).main(["--quick", "--no-charts", "--time-limit", "2", "-o", str(tmp_path)])
    pictures = capsys.readouterr().out.split()
    assert pictures
    assert all(Path(picture).stat().st_size > 10_000 for picture in pictures)
    table = (tmp_path / f"{name}.csv").read_text().splitlines()
    assert len(table) == 1 + len(study_of(quick_tree(name), name).instances)
    assert "failed" not in " ".join(table)


def quick_tree(name: str) -> dict[str, Any]:
    module = script(name)
    sizes: dict[str, tuple[Any, ...]] = {
        "recompute": ([2, 4], [0.0, 1.0]),
        "microbatches": ([2, 4], [1, 2]),
        "chunks": ([2, 4], [2, 4]),
        "backward_split": ([2, 4], [1, 2], [0.2, 0.5]),
        "latency": ([2, 4], [1, 2], [0, 32]),
        "imbalance": ([2, 4], [0.0, 0.5]),
        "two_sites": ([0, 100],),
        "pipeline_throughput": ([2, 4], [4, 8], 4),
    }
    return {**module.study(*sizes.get(name, ([2, 4],))), "solve": {"time_limit": 2.0}}


@thorough
def test_no_series_beats_the_optimum_of_its_placement(tmp_path: Path) -> None:
    import studies

    options = studies.arguments("", ["--quick", "--time-limit", "10", "-o", str(tmp_path)])
    results = studies.run(studies.scaling("scaling", lambda d: 2 * d, [2, 4]), options)
    best = {tuple(r.changes.items()): r.outcome for r in results if "schedule" not in r.task}
    assert len(best) == 6
    for result in results:
        if result.outcome["placement"] == "linear":
            assert best[tuple(result.changes.items())]["lower_bound"] <= result.outcome["makespan"]
            assert best[tuple(result.changes.items())]["value"] <= result.outcome["makespan"]


def test_a_level_without_an_x_goes_through_the_panel() -> None:
    import studies

    from ppopt.study.store import Stored

    def stored(task: dict[str, Any], ratio: float) -> Stored:
        return Stored("", "s", 0, {}, task, {}, "done", {"bubble_ratio": ratio}, 0.0, "")

    results = [stored({"schedule": "hanayo", "chunks": v}, 1 / v) for v in (4, 2)] + [stored({"solve": {}}, 0.1)]
    panel = studies.Panel(
        "", lambda r: True, lambda r: r.task.get("chunks"), "chunks", line=lambda r: r.task.get("schedule", "o")
    )
    assert studies.points(results, panel) == ([2, 4], {"hanayo": [0.5, 0.25], "o": [0.1, 0.1]})


def test_the_schedules_of_a_point_are_those_of_its_results(tmp_path: Path) -> None:
    """Of D = 2, 4 and 16 the middle one of those with at most 8 devices; each chart has the makespan that its curve has."""
    import studies
    import study_charts

    options = studies.arguments("", ["--quick", "--named-only", "-o", str(tmp_path)])
    tree = {**studies.scaling("scaling", lambda d: 2 * d, [2, 4, 16]), "vary": {"links.latency": [4]}}
    here = results = studies.run(tree, options)

    def devices(result: Any) -> float:
        return float(result.changes["pipeline.devices"])

    at, charts = study_charts.charts_of(here, results.instances, devices, studies.label)
    assert at == 4
    drawn = {name: schedule.pipeline.time(schedule.makespan) for name, schedule in charts}
    assert drawn == {studies.label(result): result.outcome["makespan"] for result in here if devices(result) == 4}
    assert len(drawn) == 6
    at, charts = study_charts.charts_of([r for r in here if devices(r) > 8], results.instances, devices, studies.label)
    assert (at, {schedule.pipeline.devices for _, schedule in charts}) == (16, {16})
    assert study_charts.height(charts) > study_charts.height(charts[:2])


@thorough
def test_charts_can_be_left_out_and_the_optimum_is_one(tmp_path: Path) -> None:
    import chunks
    from PIL import Image

    sizes = {}
    for words in (["--devices", "2"], ["--devices", "2", "--no-charts"]):
        chunks.main([*words, "--quick", "--time-limit", "5", "-o", str(tmp_path)])
        with Image.open(tmp_path / "chunks-2-devices.png") as picture:
            sizes[len(words)] = picture.size
    assert sizes[2][1] > 1.5 * sizes[3][1]
    assert not (tmp_path / "chunks-4-devices.png").exists()


def test_schedule_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    module = script("schedule_comparison")
    module.main(["--quick"])
    out = capsys.readouterr().out
    assert "device 3:   .  .  . F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7  .  .  ." in out
    assert "makespan 22, bubble ratio 27.3%, peak memory 4 3 2 1 microbatches" in out
    assert "peak memory 8 8 8 8 microbatches" in out
    assert "from M = 13 microbatches on" in out
    cells = [line.split("│")[1:-1] for line in out.splitlines() if line.startswith("│")]
    eight = next(row for row in cells if row[0].strip() == "8")
    assert [cell.strip() for cell in eight] == ["8", "27.3%", "27.3%", "72.7%", "27.3%", "72.7%", "11.1%", "88.9%"]


@pytest.mark.parametrize("stages", [1, 2, 4, 7])
def test_the_bubble_table_agrees_with_the_closed_form(stages: int) -> None:
    for formula, gpipe, one_f_one_b, zb_h1 in script("schedule_comparison").bubble_rows(stages):
        assert gpipe == pytest.approx(formula)
        assert one_f_one_b == pytest.approx(formula)
        assert zb_h1 is None or zb_h1 <= formula + 1e-12


def test_the_memory_table_counts_bytes() -> None:
    module = script("schedule_comparison")
    assert module.activation_bytes(1, 1, 1024, 5120, 40) == 34 * 1024 * 5120 + 5 * 40 * 1024**2


@thorough
def test_the_memory_budget_ends_in_a_recommendation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script("memory_budget").main(["--quick", "--time-limit", "1", "--points", "4", "-o", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    said = {line.split(":")[0]: line for line in lines if ":" in line}
    assert said["Today"].startswith("Today: 1f1b takes 344.1 ms and needs 17.76 GiB")
    assert "less time" in said["Same memory"]
    assert "proved optimal there" in said["Best buy"] or "from the optimum there" in said["Best buy"]
    assert "ppopt solve models/gpt-14.6b.toml -d 4 -m 8 --placement" in said["To get it"]
    assert (tmp_path / "memory_budget.png").stat().st_size > 10_000


def test_the_gallery_shows_the_known_makespans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = script("gallery")
    module.main(["--quick", "-o", str(tmp_path), "--suffix", "svg"])
    assert len(capsys.readouterr().out.split()) == len(list(tmp_path.glob("gallery-*.svg"))) == 4
    known = {"1f1b": 33, "interleaved": 57, "zb1p": 27, "dualpipe": 66, "dualpipe-v": 66, "1f1b-overlap": 33,
             "interleaved-overlap": 57, "gpipe-6-stages": 51}  # fmt: skip
    assert {name: module.schedule(name).makespan for name in known} == known


def test_the_study_files_of_the_tree_are_studies() -> None:
    paths = sorted((SCRIPTS.parent / "models" / "studies").glob("*.toml"))
    assert paths
    for path in paths:
        assert all(instance.error is None for instance in read_study(str(path)).instances)
