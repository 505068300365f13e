"""DistIR's cost models by name: what its simulator gave, to its digits, and what each quirk does."""

from dataclasses import replace
from typing import Any

import pytest

from ppopt.perceptron import COST_MODELS, QUIRKS, Grid, Perceptron, Simulation, cost_model, simulate
from ppopt.transformer import EstimateError
from tests.support.many import each
from tests.support.peers import Entry, entries
from tests.support.tiers import thorough

WORDS = {
    "elementwise ops cost bytes / peak flops": "elementwise-over-flops",
    "Send counts the element size twice": "send-twice",
    "block": "blocking",
    "reduced over the tensor group of each replica": "gradients-in-tensor-group",
}
"""What says in an entry that a quirk of this name is in it."""
SEARCHED = Perceptron(layers=64, width=8192, batch=8192)


def of(*kinds: str) -> list[Entry]:
    return [entry for entry in entries("dist_ir_costs") if entry["kind"] in kinds]


def grid_of(entry: Entry) -> Grid:
    return Grid(*(entry.get(key, 1) for key in ("data_parallel", "tensor_parallel", "devices", "microbatches")))


def simulated(entry: Entry) -> Simulation:
    """With the quirks that the entry names, and no others."""
    model = cost_model(f"dist-ir-{entry['cost_model']}", [name for word, name in WORDS.items() if word in entry.get("quirk", "")])
    sizes = Perceptron(entry["layers"], entry["width"], entry["batch"])
    return simulate(sizes, grid_of(entry), model.at(entry.get("link_gbit_per_second", 200)))


def check(entry: Entry) -> None:
    """Latency, every device's end and work, the share of transfers, operations, and to the byte the peak memory."""
    found = simulated(entry)
    assert found.seconds == pytest.approx(entry["latency_seconds"], rel=1e-6)
    assert found.operations == entry["num_ops"]
    assert found.transfer_share == pytest.approx(entry.get("comm_share", found.transfer_share), rel=1e-6)
    for key, values in (("end_per_device", found.end), ("compute_per_device", found.compute)):
        assert {k: values[int(k) - 1] for k in entry.get(key, {})} == pytest.approx(entry.get(key, {}), rel=1e-6)
    if "peak_memory_bytes" in entry:
        assert max(found.peak_memory) == entry["peak_memory_bytes"]


@pytest.mark.parametrize(("most", "count"), [(600, 9), pytest.param(10**5, 33, marks=thorough)], ids=["small", "all"])
def test_its_simulations_are_repeated(most: int, count: int) -> None:
    figures = [entry for entry in of("one-device-training", "data-tensor-pipeline") if entry["num_ops"] <= most]
    assert len(figures) >= count
    each({f"{e['cost_model']} {grid_of(e)} {e['layers']} layers": e for e in figures}, check)


def test_the_entry_without_a_quirk_needs_none() -> None:
    (entry,) = (entry for entry in of("data-tensor-pipeline") if "quirk" not in entry)
    assert simulated(entry).seconds == pytest.approx(entry["latency_seconds"], rel=1e-6)


def throughput(entry: Entry) -> float:
    return simulate(SEARCHED, grid_of(entry), COST_MODELS["dist-ir-2021-02"].as_published).throughput


@thorough
def test_the_best_of_its_grid_are_the_best_in_the_same_order() -> None:
    best = sorted(of("grid-search"), key=lambda entry: -entry["throughput"])[:3]
    found = [throughput(entry) for entry in best]
    assert found == sorted(found, reverse=True)
    assert found == pytest.approx([entry["throughput"] for entry in best], rel=1e-6)
    assert [(e["data_parallel"], e["tensor_parallel"], e["devices"]) for e in best] == [(4, 4, 1), (2, 8, 1), (16, 1, 1)]


@pytest.mark.parametrize(
    ("most", "count"), [pytest.param(4, 17, marks=thorough), pytest.param(16, 74, marks=pytest.mark.slow)], ids=["small", "all"]
)
def test_its_grid_is_repeated(most: int, count: int) -> None:
    searched = [entry for entry in of("grid-search") if grid_of(entry).devices <= most]
    found = [throughput(entry) for entry in searched]
    assert len(found) == count
    assert found == pytest.approx([entry["throughput"] for entry in searched], rel=1e-6)


def seconds(model: Any, grid: Grid) -> float:
    return simulate(Perceptron(8, 512, 64), grid, model).seconds


@pytest.mark.parametrize("name", QUIRKS)
def test_each_quirk_changes_the_time_of_a_step(name: str) -> None:
    model, grid = COST_MODELS["dist-ir-2021-02"], Grid(4, 2, 2, 2)
    assert seconds(model.with_quirks(name), grid) != seconds(model, grid)


def test_a_step_that_sends_its_inputs_waits_for_them() -> None:
    model, sizes = COST_MODELS["dist-ir-2021-02"].with_quirks("inputs-in-step"), Perceptron(8, 512, 64)
    sent = 2 * model.send(4 * 64 * 512) + 8 * model.send(4 * 512 * 512)
    assert sent < seconds(model, Grid()) <= sent + seconds(model.with_quirks(), Grid())
    blocked = seconds(model.with_quirks("inputs-in-step", "blocking"), Grid())
    assert blocked == pytest.approx(sent + seconds(model.with_quirks(), Grid()))
    assert sum(simulate(sizes, Grid(2), model).compute) == sum(simulate(sizes, Grid(2), model.with_quirks()).compute)


def test_blocking_is_never_faster() -> None:
    for model in COST_MODELS.values():
        for grid in (Grid(pipeline=4, microbatches=4), Grid(1, 2, 2, 2)):
            assert seconds(model.with_quirks("blocking"), grid) >= seconds(model, grid)


def test_times_are_those_of_flops_and_bytes_without_quirks() -> None:
    """One layer on one device: a product, its ReLU, two operations of the loss, the gradient of the ReLU, two products."""
    model = replace(COST_MODELS["dist-ir-2021-02"], flops=1.0, bandwidth=1.0, product_bytes=4, all_operands=True)
    found = simulate(Perceptron(1, 3, 5), Grid(), model)
    products = 3 * 2 * 5 * 3 * 3 + 4 * (2 * (5 * 3 + 3 * 3) + (3 * 5 + 5 * 3))
    elementwise = 4 * 15 + 4 * 15 * 4 + 4 * 15  # FLOPs; bytes of ReLU and loss, one operand each; the second of the gradient
    assert found.seconds == products + elementwise
    assert found.throughput == 5 / found.seconds


def test_a_collective_takes_its_part_of_the_bytes_over_the_link() -> None:
    model = COST_MODELS["dist-ir-2022-01"].at(8)
    assert model.send(1e9) == 1.0
    assert model.all_reduce(1e9, 4) == model.all_gather(1e9, 4) == 1.5


@pytest.mark.parametrize(
    ("name", "quirks", "message"),
    [
        ("dist-ir-2021-2", (), "cost_model: there is no 'dist-ir-2021-2'; did you mean dist-ir-2021-02? there are dist-ir-20"),
        ("dist-ir-2022-01", ("send-twice",), "quirks: dist-ir-2022-01 has no 'send-twice'; it has blocking"),
        ("dist-ir-2021-02", ("block",), "quirks: dist-ir-2021-02 has no 'block'; did you mean blocking? it has element"),
    ],
)
def test_unknown_names_are_refused(name: str, quirks: tuple[str, ...], message: str) -> None:
    with pytest.raises(EstimateError, match="^" + message.replace("?", r"\?")):
        cost_model(name, quirks)


def test_links_have_a_speed() -> None:
    with pytest.raises(EstimateError, match="gbit: expected a number > 0, got 0"):
        COST_MODELS["dist-ir-2022-01"].at(0)
