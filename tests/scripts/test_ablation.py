"""The ablation: a search without one step."""

import ablation
import benchmark

from ppopt.clock import Clock
from ppopt.search.incumbent import Incumbent
from ppopt.search.problem import Problem
from ppopt.search.run import Run
from ppopt.search.step import Step
from ppopt.search.steps.state_graph import StateGraph
from tests.support.tiers import thorough


@thorough
def test_a_step_is_left_out() -> None:
    """The search names what it took; without a step it takes the others, and the table compares the two."""
    instance = benchmark.Instance("linear", 1, 4, 48, 0.75, "unit", False, "makespan", 0)
    rows = [ablation.solved(instance, step, 8.0, runs=1, workers=1) for step in (None, StateGraph)]
    assert StateGraph.name in rows[0]["steps"]
    assert StateGraph.name not in rows[1]["steps"]
    assert {"named schedules", "CP-SAT: decisions"} <= set(rows[1]["steps"])
    assert rows[0]["reason"] == "optimal"
    lost = int(rows[1]["reason"] != "optimal")
    line = ablation.table(rows, "a command").splitlines()[-1]
    assert line.startswith(f"| bound: state graph | 1 | {lost} | 0 | +")
    assert StateGraph().applies(Run(Problem(instance.pipeline()), Clock(1), Incumbent(Problem(instance.pipeline())))) is None


def test_every_step_can_be_left_out() -> None:
    names = {step.name for step in ablation.steps()} | set(ablation.NEEDED)

    def below(kind: type[Step]) -> list[type[Step]]:
        return [each for child in kind.__subclasses__() for each in (child, *below(child))]

    taken = {step.name for step in below(Step) if "name" in vars(step) and step.__module__.startswith("ppopt.search.steps")}
    assert names == taken - {"ILP: minimise"}
