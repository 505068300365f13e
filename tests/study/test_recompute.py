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
    assert [outcomes[way, "1f1b"][0] for way in ("none", "all", "choose")] == ["done", "done", "excluded"]
    values = {way: outcomes[way, None][1]["value"] for way in ("none", "all", "choose")}
    assert values["choose"] <= min(values["none"], values["all"])
    assert outcomes["choose", None][1]["recompute"] in ("none", "all", [0], [1])
