"""Sweeps over named schedules with and without recompute."""

from fractions import Fraction

from ppopt.study.plan import study_of
from ppopt.study.sweep import run_instance


def test_a_sweep_takes_named_schedules_either_way_and_the_solver_with_the_choice() -> None:
    study = {
        "name": "recompute",
        "model": {
            "pipeline": {"devices": 2, "microbatches": 3, "recompute": "choose"},
            "costs": {"recompute": 1},
            "memory": {"recompute_saved": Fraction(1, 2), "limit": 1},
        },
        "vary": {"pipeline.recompute": ["none", "all", "choose"]},
        "run": {"schedules": ["1f1b"]},
        "solve": {"time_limit": 20},
    }
    outcomes = {}
    for instance in study_of(study, "study").instances:
        assert instance.pipeline is not None
        status, outcome, _ = run_instance(instance.pipeline, instance.task)
        outcomes[instance.changes[0][1], instance.task.schedule] = status, outcome
    assert {status for (_, name), (status, _) in outcomes.items() if name is None} == {"done"}
    assert [outcomes[way, "1f1b"][0] for way in ("none", "all", "choose")] == ["done", "done", "done"]
    values = {way: outcomes[way, None][1]["value"] for way in ("none", "all", "choose")}
    assert values["choose"] <= min(values["none"], values["all"])
    assert outcomes["choose", None][1]["recompute"] in ("none", "all", [0], [1])
    spans = {way: outcomes[way, "1f1b"][1]["makespan"] for way in ("all", "choose") if outcomes[way, "1f1b"][1]["within_memory"]}
    assert spans["choose"] == min(spans.values())
    assert outcomes["choose", "1f1b"][1]["recompute"] != "none"


def test_an_open_cut() -> None:
    groups = [{"name": "embedding", "forward": 1, "backward": 1}, {"name": "decoder", "count": 4, "forward": 2, "backward": 4}]
    study = {
        "model": {
            "pipeline": {"devices": 2, "microbatches": 3},
            "layers": [*groups, {"name": "head", "forward": 4, "backward": 8}],
        },
        "run": {"schedules": ["1f1b"]},
        "solve": {"time_limit": 20},
    }
    named, solved = (run_instance(each.pipeline, each.task) for each in study_of(study, "study").instances)  # type: ignore[arg-type]
    assert (named[0], solved[0]) == ("done", "done")
    assert sum(named[1]["partition"]) == sum(solved[1]["partition"]) == 6
    assert solved[1]["value"] <= named[1]["makespan"]
