"""A study is the product of its lists."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.study.plan import StudyError, read_study, study_of
from tests.support.study import TREE


def test_a_study_is_the_product_of_its_lists() -> None:
    study = study_of(TREE, "s.toml")
    assert len(study.instances) == 2 * 2 * 2 * 3
    first = study.instances[0]
    assert dict(first.changes) == {"pipeline.devices": 2, "links.latency": 0, "costs.forward": 1, "costs.backward_input": 2}
    assert first.pipeline is not None
    assert first.pipeline.microbatches == 6
    assert len({instance.key for instance in study.instances}) == 24


def test_solver_settings_are_varied_too() -> None:
    study = study_of({"vary": {"pipeline.devices": [2]}, "model": {"pipeline": {"microbatches": 2}},
                      "solve": {"objective": ["makespan", "span"], "time_limit": 5, "threads": 1}}, "s.toml")  # fmt: skip
    assert [dict(i.task.settings)["objective"] for i in study.instances] == ["makespan", "span"]
    assert all(dict(i.task.settings)["workers"] == 1 for i in study.instances)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"varied": {}}, "varied: unknown key; expected one of format, name"),
        ({"format": 2}, "format: expected 1"),
        ({"run": {}}, "nothing to run"),
        ({"run": {"schedules": ["1f1c"]}}, r"run.schedules\[0\]: there is no schedule '1f1c'; did you mean 1f1b"),
        ({"run": {"schedules": [{"name": "zb-h1", "chunk": 2}]}}, r"run.schedules\[0\].chunk: unknown key"),
        ({"run": {"schedules": [{"name": "hanayo", "params": {"waves": 0}}]}}, "must be a whole number >= 1, got 0"),
        ({"vary": {"links.latency": []}}, "vary.links.latency: expected a list of values that is not empty"),
        ({"vary": {"costs.forward": [1]}}, "costs.forward is varied twice"),
        ({"together": [{"costs.forward": [1, 2], "links.latency": [1]}]}, r"together\[0\]: expected lists of one length"),
        ({"solve": {"time_limit": 0}}, "solve.time_limit: expected a number of seconds > 0, got 0"),
        ({"solve": {"threads": 0}}, "solve.threads: expected a whole number >= 1, got 0"),
        ({"solve": {"speed": 1}}, "solve.speed: unknown key"),
        ({"solve": {"objective": "time"}}, 'solve.objective: expected "makespan" or "span"'),
        ({"vary": {"links.latency": list(range(1001)), "pipeline.microbatches": list(range(1, 1001))}}, "expected 1 to 1000000"),
    ],
)
def test_a_wrong_study_says_where_and_what(change: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=f"s.toml: .*{message}"):
        study_of({**TREE, **change}, "s.toml")


def test_a_study_file_with_a_base(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("[pipeline]\ndevices = 2\nmicrobatches = 4\n[costs]\nforward = 1.5\n")
    (tmp_path / "study.toml").write_text(
        'base = "base.toml"\n[model]\nmemory.limit = 2.5\n[vary]\npipeline.microbatches = [2, 4]\n[run]\nschedules = "all"\n'
    )
    study = read_study(str(tmp_path / "study.toml"))
    assert study.name == "study"
    pipeline = study.instances[-1].pipeline
    assert pipeline is not None
    assert pipeline == Pipeline(2, 4, costs=Costs(forward=Fraction(3, 2)), memory=Memory(limit=Fraction(5, 2)))
    with pytest.raises(StudyError, match=r"nowhere\.toml"):
        read_study(str(tmp_path / "nowhere.toml"))
