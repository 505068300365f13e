"""What is said of where backwards run and weights live, and what is refused."""

from typing import Any

import pytest

from ppopt.files import Model, model_dict, model_of, read_model
from ppopt.files.torch_export import for_torch
from ppopt.named import find
from ppopt.pipeline import Costs, DataParallel, Layer, Layers, Links, Memory, Mix, Offload, Pipeline, PipelineError
from ppopt.pipeline.runtimes import NotForTorch
from ppopt.search import solve
from ppopt.timing import time_order
from tests.support.command import read, refused
from tests.support.places import MODELS

TWO = {"routes": [[0, 1]], "backward_routes": [[1, 0]]}
OTHERS = Memory(weights_on=[[1, 0]])


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"backward_routes": [[1]]}, r"pipeline.backward_routes\[0\]: expected one device per stage \(2\), got 1"),
        ({"backward_routes": [[1, 2]]}, r"pipeline.backward_routes\[0\]\[1\]: expected a device 0..1, got 2"),
        ({"backward_routes": [[1, True]]}, r"pipeline.backward_routes\[0\]\[1\]: expected a device 0..1, got True"),
        ({"backward_routes": [[1, 0], [0, 1]]}, r"pipeline.backward_routes: expected one list per route \(1\), got 2"),
        ({"backward_routes": [1, 0]}, r"pipeline.backward_routes: expected one list of devices per route"),
        ({"memory": Memory(weights_on=[[0]])}, r"memory.weights_on\[0\]: expected one device per stage \(2\), got 1"),
        ({"memory": Memory(weights_on=[[0, -1]])}, r"memory.weights_on\[0\]\[1\]: expected a device 0..1, got -1"),
        ({"memory": Memory(weights_on=3)}, r"memory.weights_on: expected one list of devices per route"),  # type: ignore[arg-type]
        ({"memory": Memory(weights=[1, 2, 3])}, r"memory.weights: expected one number or a list of 2 \(one per stage\)"),
        ({"links": Links(weights=[[0]])}, r"links.weights: expected one number or 2 rows"),
        ({"links": Links(weights=[[1, 0], [0, 0]])}, r"links.weights\[0\]\[0\]: a device has no link to itself"),
        ({**TWO, "links": Links(occupancy=1)}, r"links.occupancy: activations that are sent to another device's backward"),
        ({**TWO, "data_parallel": DataParallel(1)}, r"data_parallel.all_gather: what a device exchanges"),
        ({**TWO, "runtime": "torch"}, r"pipeline.backward_routes: PyTorch runs a stage's backward where its forward was"),
        ({**TWO, "costs": Costs(overlap=1), "links": Links(weights=1)}, r"costs.overlap: .* weights that are fetched"),
        ({**TWO, "recompute": "choose", "costs": Costs(recompute=1)}, r"backward_routes: .* pipeline.recompute is left open"),
        (
            {**TWO, "data_parallel": DataParallel(per_pass=True)},
            r"data_parallel.per_pass: .*backward_routes; expected false, got true",
        ),
        ({**TWO, "memory": Memory(working=[0, 0.5])}, r"memory.working: .*expected 0 beside .*backward_routes, got \[0, 0.5\]"),
        ({**TWO, "offload": Offload(time=1)}, r"offload: whose engines copy what is not known with .*backward_routes"),
        (
            {**TWO, "mix": Mix([1, 2, 1, 1])},
            r"pipeline.microbatch_costs: .* with pipeline.backward_routes is not known; .* got both",
        ),
        ({**TWO, "mix": Mix(pieces=2)}, r"pipeline.pieces: .* with pipeline.backward_routes is not known"),
        (
            {"memory": OTHERS, "mix": Mix(lengths=[1, 2, 1, 1], length=1)},
            r"pipeline.lengths: .* with memory.weights_on is not known",
        ),
        (
            {"memory": OTHERS, "mix": Mix(microbatch_activations=[1, 2, 1, 1])},
            r"pipeline.microbatch_activations: .* memory.weights_on",
        ),
        ({"memory": OTHERS, "data_parallel": DataParallel(1, per_pass=True)}, r"data_parallel.per_pass: .* memory.weights_on"),
        ({**TWO, "memory": Memory(retained=2, limit=9)}, r"memory.retained: more is retained than held"),
        ({**TWO, "memory": Memory(limit=(0.5, 9))}, r"memory.limit\[0\]: device 0 needs at least 1"),
        ({"placement": "any", "backward_routes": [[1, 0]]}, r"pipeline.backward_routes: belongs to one placement"),
        ({"placement": "any", "memory": Memory(weights_on=[[1, 0]])}, r"memory.weights_on: belongs to one placement"),
        ({"routes": [[0, 0]]}, r"pipeline.routes: device 1 holds no stage of any route"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], problem: str) -> None:
    fields = {"devices": 2, "microbatches": 4, **fields}
    if {"routes", "placement"}.isdisjoint(fields):
        fields["routes"] = [[0, 1]]
    with pytest.raises(PipelineError, match=problem):
        Pipeline(**fields)


def test_bad_words_are_refused() -> None:
    with pytest.raises(PipelineError, match=r'memory.weights_kept: expected "operation" or "step", got \'day\''):
        Memory(weights_kept="day")
    with pytest.raises(PipelineError, match=r"links.weights: expected a number >= 0, got 'x'"):
        Links(weights="x")  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match=r"memory.weights: expected a number >= 0, got -1"):
        Memory(weights=-1)


def test_the_command_names_file_and_key() -> None:
    message = refused("compare", MODELS / "cuckoo.toml", "--set", "pipeline.backward_routes=[[0]]")
    assert "pipeline.backward_routes" in message
    assert "got 1" in message
    assert "memory.weights_kept" in refused("compare", "-d", 2, "-m", 4, "--set", "memory.weights_kept=ever")
    assert "did you mean memory.weights_on" in refused("compare", "-d", 2, "-m", 4, "--set", "memory.weight_on=[[0,1]]")


def test_what_says_nothing_new_is_nothing() -> None:
    plain = Pipeline(2, 4)
    same = Pipeline(2, 4, backward_routes=[[0, 1]], memory=Memory(weights_on=[[0, 1]]))
    assert same == plain
    assert same.placement == "linear"
    assert "backward_routes" not in model_dict(Model(plain))["pipeline"]
    assert {"weights", "weights_on", "weights_kept"}.isdisjoint(model_dict(Model(plain))["memory"])


def test_a_device_may_run_backwards_alone() -> None:
    pipeline = Pipeline(2, 3, routes=[[0, 0]], backward_routes=[[1, 1]], costs=Costs(per="stage", forward=2, backward=2))
    result = solve(pipeline, seconds=60, workers=1)
    assert (result.makespan, result.reason) == (16, "optimal")  # two forwards, then six backwards; or six and two
    assert pipeline.amounts.static.tolist() == [0, 0]


def test_a_backward_takes_as_long_as_on_its_device() -> None:
    """A stage is the part of its forward's device."""
    costs = Costs(forward=(2, 4), backward=(6, 10))
    pipeline = Pipeline(2, 2, routes=[[0, 1, 0]], backward_routes=[[1, 1, 0]], costs=costs)
    assert pipeline.ticks.duration[0, 0].tolist() == [1, 4, 1]
    assert pipeline.ticks.duration[0, 1].tolist() == [5, 10, 3]


def test_weights_of_layers_live_where_they_are_said_to() -> None:
    layers = Layers([{"name": "decoder", "count": 4, "forward": 1, "backward": 2, "weights": 3}])
    there = {"routes": [[0, 1]], "partition": [3, 1], "layers": layers}
    plain = Pipeline(2, 4, **there)
    moved = Pipeline(2, 4, memory=Memory(weights_on=[[1, 1]]), **there)
    assert plain.amounts.static.tolist() == [9, 3]
    assert moved.amounts.static.tolist() == [9, 12]  # room for what it fetches; what it keeps
    flat = moved.flat()
    assert flat.memory.weights == (9, 3)
    assert flat.amounts.static.tolist() == [9, 12]
    assert isinstance(layers.groups[0], Layer)
    again = model_of(model_dict(Model(moved)), "again").pipeline
    assert again == moved


def test_results_have_the_map() -> None:
    for name in ("cuckoo", "fslpp"):
        model = read_model(str(MODELS / f"{name}.toml"))
        assert model_of(model_dict(model), name) == model
        tree = read("order", name, MODELS / f"{name}.toml")
        devices = tree["metrics"]["devices"]
        fetches = {"cuckoo": [0, 4, 4, 4, 4, 4], "fslpp": [12] * 6}[name]
        assert [each["weight_fetches"] for each in devices] == fetches
        assert {"stages_stored", "weights_stored", "activations_sent", "peak_activations", "utilisation"} <= devices[0].keys()
    assert "weight_fetches" not in read("order", "1f1b", "-d", 2, "-m", 4)["metrics"]["devices"][0]


@pytest.mark.parametrize(
    ("name", "problem"), [("cuckoo", "backward on rank"), ("fsdp", "its weights live on rank"), ("ddp", "lives on ranks")]
)
def test_pytorch_has_none_of_it(name: str, problem: str) -> None:
    schedule = find(name).schedule(Pipeline(4, 8))
    with pytest.raises(NotForTorch, match=problem):
        for_torch(schedule)


def test_other_costs_keep_the_map() -> None:
    pipeline = find("cuckoo").place(Pipeline(4, 8, memory=Memory(weights=1)))
    longer = pipeline.changed(links=Links(latency=2))
    assert (longer.places, longer.placement) == (pipeline.places, "routes")
    assert (
        time_order(longer, find("cuckoo").order(pipeline)).makespan
        > time_order(pipeline, find("cuckoo").order(pipeline)).makespan
    )
    kept = find("fsdp").place(Pipeline(4, 8)).changed(costs=Costs(forward=3))
    assert kept.memory.weights_on is not None


def test_several_numbers_of_microbatches_have_one_map() -> None:
    several = Pipeline(2, [2, 4], **TWO)
    assert several.backward_routes == ((1, 0),)
    assert hash(several)
    assert several.changed(microbatches=4) == Pipeline(2, 4, **TWO)
