"""``ppopt solve --runtime``: what is refused, what is said, and that the answer goes to the runtime."""

import json
from pathlib import Path

import pytest

from tests.support.command import refused, run
from tests.support.tiers import thorough

MODEL = """
[pipeline]
devices = 2
microbatches = 4
recompute = "choose"
[[layers]]
name = "embedding"
forward = 1
backward_input = 0
backward_weight = 1
activation = 1
weights = 2
[[layers]]
name = "decoder"
count = 6
forward = 3
backward_input = 3
backward_weight = 3
activation = 2
weights = 1
recompute = [{ name = "half", time = 1, saved = 0.5 }, { name = "full", time = 3, saved = 1.5 }]
[[layers]]
name = "head"
forward = 4
backward_input = 4
backward_weight = 4
activation = 1
weights = 2
[memory]
limit = 14
"""


BRIEF = ("--deterministic", "--time-limit", "2")
"""For searches that need not end with a proof; as long on any machine."""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(MODEL)
    return str(path)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["megatron", "--placement", "wave"], "--placement wave: pipeline.placement: --runtime megatron runs linear"),
        (["megatron", "--placement", "loop"], "pipeline.chunks: --runtime megatron runs linear"),
        (["megatron-interleaved"], "small.toml: pipeline.placement: --runtime megatron-interleaved runs loop"),
        (["megatron-interleaved", "--placement", "loop", "-m", "5"], "-m 5: pipeline.microbatches: interleaved 1F1B of Megatron"),
        (["megatron-interleaved", "--placement", "loop", "-m", "5"], "mod N = 0 or >= 2: 3, 5; got N = 2, the number of devices"),
        (["megatron-interleaved", "--placement", "loop", "-m", "1"], "none is possible; got N = 2"),
        (["megatron", "--partition", "4,4", "--best-cut"], "--best-cut: what megatron can run is set against"),
        (["torchtitan", "--placement", "wave", "-v", "4"], "pipeline.chunks: --runtime torchtitan runs linear, loop, or wave"),
        (["torchtitan", "--recompute", "half"], "pipeline.recompute: --runtime torchtitan recomputes nothing, or one way"),
        (["megatron", "--order", "gpipe"], "--runtime megatron has an order of its own, 1f1b"),
        (["torch", "--placement", "bidirectional", "--recompute", "none"], "stage 0 lives on ranks 0 and 1"),
    ],
)
def test_what_a_runtime_cannot_run(model: str, flags: list[str], problem: str) -> None:
    assert problem in refused("solve", model, "--runtime", *flags)


@pytest.mark.parametrize(
    "runtime",
    [pytest.param(name, marks=thorough) for name in ("megatron", "megatron-interleaved", "torchtitan", "torch")],
)
def test_the_answer_goes_to_the_runtime(model: str, runtime: str, tmp_path: Path) -> None:
    best = str(tmp_path / "best.json")
    flags = ["--placement", "any"] if "-" in runtime else []
    shown = run("solve", model, "--runtime", runtime, *flags, "-o", best, *BRIEF).stdout
    assert f"; on {runtime}" in shown.splitlines()[0]
    tree = json.loads(Path(best).read_text())
    assert tree["result"]["runtime"]["name"] == runtime
    assert tree["result"]["scope"]["partition"] == "best"
    assert tree["result"]["placements"][0]["partition"] == tree["result"]["partition"] == tree["model"]["pipeline"]["partition"]
    assert [group["name"] for group in tree["model"]["layers"]] == ["embedding", "decoder", "head"]
    known = tree["result"]["runtime"]["unrestricted"]
    if runtime == "torch":
        assert known is None
    else:
        assert known["lower_bound"] <= known["value"] <= tree["result"]["value"]
        assert "that is known without the restriction" in shown
    assert run("check", best).stdout.endswith("no violation\n")
    to = {"torch": "torch-csv"}.get(runtime, runtime.split("-")[0])
    exported = run("export", best, "--to", to)
    assert "very order" in exported.stderr or not runtime.startswith("megatron")


def test_what_no_schedule_can_meet(model: str) -> None:
    """One microbatch at a time would fit; 1F1B holds two on the first device."""
    tree = json.loads(run("solve", model, "--runtime", "megatron", "--memory-limit", "8.2", *BRIEF, "--json", code=3).stdout)
    assert (tree["result"]["reason"], tree["schedule"]) == ("infeasible", None)
    assert tree["result"]["runtime"]["unrestricted"]["value"] is not None


@thorough
def test_a_frontier_with_an_open_cut(model: str) -> None:
    tree = json.loads(run("frontier", model, "--limits", "8,14,30", *BRIEF, "--json").stdout)
    assert [point["limit"] for point in tree["points"]] == [8, 14, 30]
    for less, more in zip(tree["points"], tree["points"][1:], strict=False):
        assert less["result"]["value"] >= more["result"]["value"]
        assert less["result"]["lower_bound"] >= more["result"]["lower_bound"]
    for point in tree["points"]:
        assert sum(point["partition"]) == 8
        assert point["result"]["scope"]["partition"] == "best"
        assert point["metrics"]["peak_memory"] <= [point["limit"]] * 2
    assert tree["points"][0]["recompute"] != "none"  # one microbatch fits there with recomputing alone
    table = run("frontier", model, "--limits", "30", *BRIEF).stdout
    assert "layers of each stage" in table
    assert "recomputing" in table
