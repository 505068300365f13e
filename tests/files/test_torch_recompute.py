"""What PyTorch runs twice where stages recompute and split their backward."""

from ppopt.files.torch_recompute import twice
from ppopt.named import find
from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.timing import time_order
from tests.support.command import run


def recomputing(stages: tuple[int, ...] = (0, 2), **more: object) -> Pipeline:
    return Pipeline(3, 6, costs=Costs(recompute=1), memory=Memory(recompute_saved=0.5), recompute=stages, **more)  # type: ignore[arg-type]


def test_the_makespan_has_the_forward_again_in_w() -> None:
    schedule = find("zb-h1").schedule(recomputing())
    longer = Pipeline(3, 6, costs=Costs("stage", [1, 1, 1], [2, 1, 2], [1, 1, 2]))  # I has it already; stage 0 has no pass in I
    expected = time_order(longer, schedule.order).makespan
    (said,) = twice(schedule)
    assert said.startswith("stage 2 recomputes with a split backward: ")
    assert f"makespan {expected} or more, planned {schedule.makespan};" in said
    assert expected > schedule.makespan


def test_whole_backwards_and_stage_0_run_nothing_twice() -> None:
    assert twice(find("1f1b").schedule(recomputing())) == ()
    assert twice(find("zb-h1").schedule(recomputing((0,)))) == ()
    assert twice(find("zb-h1").schedule(Pipeline(3, 6))) == ()


def test_export_names_the_stages() -> None:
    words = ("-d", 3, "-m", 6, "--recompute", "1,2", "--set", "costs.recompute=1", "--set", "memory.recompute_saved=0.5")
    order = run("order", "zb-h1", *words, "--json").stdout
    told = run("export", "-", "--to", "torch-csv", stdin=order).stderr.splitlines()
    assert told[0] == "stages that recompute: 1, 2"
    assert any(line.startswith("stages 1, 2 recompute with a split backward") for line in told)
    fused = run("order", "1f1b", *words, "--json").stdout
    told = run("export", "-", "--to", "torch-csv", stdin=fused).stderr.splitlines()
    assert told[0] == "stages that recompute: 1, 2"
    assert not any("split backward" in line for line in told)
