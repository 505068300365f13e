"""Titles, labels, proofs, schedules beside others, and the part of the time that is shown."""

import itertools
from pathlib import Path

import pytest

import ppopt as pp
from ppopt.files import FileError, Model, document, json_text
from ppopt.named import Restriction
from ppopt.op import Kind
from ppopt.pictures.plot import part_of
from ppopt.pictures.shown import Undrawable, shown
from ppopt.pictures.timeaxis import time_axes
from ppopt.pipeline import Costs, Memory, Pipeline
from tests.support.drawn import named
from tests.support.tiers import thorough


def file_of(folder: Path, name: str, file: str, /, **fields: object) -> str:
    schedule = named(name, 4, 8, **fields)
    path = folder / file
    path.write_text(json_text(document(Model(schedule.pipeline, name), schedule=schedule)))
    return str(path)


def test_titles_are_the_name_and_the_result(tmp_path: Path) -> None:
    result = pp.solve(Pipeline(2, 4, name="small"), seconds=60)
    pp.save(result, str(tmp_path / "best.json"))
    paths = [file_of(tmp_path, "1f1b", "a.json", name="mine"), file_of(tmp_path, "zb-h1", "b.json")]
    (tmp_path / "c.csv").write_text("0F0,0B0\n")
    found = shown([str(tmp_path / "best.json"), result, *paths, str(tmp_path / "c.csv"), named("gpipe", 2, 2)])
    titles = [each.title for each in found]
    assert titles == ["small: optimal (best.json)", "small: optimal", "mine: 1f1b", "zb-h1", "c", "schedule"]
    assert [None if each.proof is None else each.proof.lower_bound for each in found] == [13, 13, None, None, None, None]
    assert found[0].gap == 0
    assert found[2].gap is None


def test_what_is_not_proved_says_its_gap(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    pp.save(pp.solve(Pipeline(2, 4), seconds=60), str(path))
    text = (
        path.read_text().replace('"reason": "optimal"', '"reason": "feasible"').replace('"lower_bound": 13', '"lower_bound": 6.5')
    )
    path.write_text(text)
    assert shown(str(path))[0].title == "some: best found, gap 50.0 %"
    path.write_text(text.replace('"lower_bound": 6.5', '"lower_bound": 14'))
    with pytest.raises(FileError, match=r"result\.lower_bound: 14 is more than the makespan of the schedule, 13"):
        shown(str(path))


def test_a_proof_says_what_it_is_under(tmp_path: Path) -> None:
    """The order that bound, what was free of it, and the runtime; of a result as of its file."""
    pipeline = Pipeline(2, 4, costs=Costs(forward=1, backward_input=1, backward_weight=1))
    bound = pp.Binding("zb-h1", free=(Kind.W,))
    results = [
        pp.solve(pipeline, seconds=60, order="1f1b"),
        pp.solve(pipeline, seconds=60, order=bound),
        pp.solve(pipeline, seconds=60, runtime="megatron"),
        pp.solve(pipeline, seconds=60),
    ]
    scopes = [
        "on linear under 1f1b",
        "on linear under zb-h1, its W free",
        "on linear under 1f1b, of what megatron runs",
        "on linear",
    ]
    for number, (result, scope) in enumerate(zip(results, scopes, strict=True)):
        path = str(tmp_path / f"{number}.json")
        pp.save(result, path)
        assert [each.proof and each.proof.scope for each in shown([result, path])] == [scope, scope]


@thorough
def test_another_model_has_no_proof(tmp_path: Path) -> None:
    path = str(tmp_path / "best.json")
    pp.save(pp.solve(Pipeline(2, 4), seconds=60), path)
    (other,) = shown(path, change=lambda model: Model(model.pipeline.changed(costs=Costs(forward=2))))
    assert other.proof is None
    assert other.value > 13


@thorough
def test_device_spans_are_those_of_the_file(tmp_path: Path) -> None:
    """An operation may wait, so that its device starts late."""
    result = pp.solve(Pipeline(4, 4, costs=Costs(forward=(1, 3, 1, 1))), objective="span", seconds=60)
    path = str(tmp_path / "span.json")
    pp.save(result, path)
    (found,) = shown(path)
    assert found.value == result.value
    assert found.schedule.device_span == result.ticks.device_span


def test_labels_and_schedules_beside(tmp_path: Path) -> None:
    path = file_of(tmp_path, "1f1b", "a.json", memory=Memory(limit=6))
    titles = [each.title for each in shown(path, labels=["mine"], beside=["zb-v", "hanayo"])]
    assert titles == ["mine", "zb-v", "hanayo"]
    beside = shown(path, beside=["zb-v"])[1].schedule.pipeline
    assert (beside.placement, beside.memory.limit) == ("wave", 6)
    with pytest.raises(Undrawable, match=r"there are 2 labels for 1 schedule$"):
        shown(path, labels=["a", "b"])
    with pytest.raises(Restriction, match="dualpipe"):
        shown(named("1f1b", 3, 4), beside=["dualpipe"])
    with pytest.raises(Undrawable, match="no schedule to draw"):
        shown(pp.compare(Pipeline(3, 4))["dualpipe"])


def test_each_chart_is_cut_by_itself_and_shows_its_end() -> None:
    several = [named("1f1b", 4, 1024), named("zb-h1", 4, 700), named("gpipe", 4, 8)]
    axes = time_axes(several)
    for schedule, axis in zip(several, axes, strict=True):
        assert axis.parts[-1][1] == schedule.makespan
        assert axis.parts[0][0] == 0
        assert all(a[1] < b[0] for a, b in itertools.pairwise(axis.parts))
    assert [len(axis.parts) for axis in axes] == [3, 3, 1]
    assert len({axis.length for axis in axes}) == 1
    assert len({b - a for axis in axes[:2] for a, b in axis.parts}) == 1
    assert [axis.parts for axis in time_axes(several, full=True)] == [((0, several[0].makespan),)] * 3
    assert [axis.parts for axis in time_axes(several, part=(5, 9))] == [((5, 9),)] * 3


def test_the_part_that_is_shown() -> None:
    several = shown(named("1f1b", 4, 8))
    assert part_of(several, None, None) is None
    assert part_of(several, 5, None) == (5, 33)
    assert part_of(several, None, 7) == (0, 7)
    with pytest.raises(Undrawable, match="begin: expected a time before the end of the schedules, 33, got 40"):
        part_of(several, 40, None)
    with pytest.raises(Undrawable, match="end: expected a time after 9, got 9"):
        part_of(several, 9, 9)
