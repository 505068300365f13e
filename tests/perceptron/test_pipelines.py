"""Programs of perceptrons: their sizes, their schedules, and the same as a pipeline of this package."""

from fractions import Fraction
from itertools import product

import pytest

from ppopt.named import find
from ppopt.perceptron import COST_MODELS, Grid, Perceptron, grids, pipeline_of, program, simulate
from ppopt.perceptron.program import steps_of
from ppopt.transformer import EstimateError
from tests.support.peers import entries

SIZES = Perceptron(16, 1024, 256)


@pytest.mark.parametrize("schedule", ["pipedream", "1f1b", "gpipe", "zb-h1"])
@pytest.mark.parametrize("model", COST_MODELS)
@pytest.mark.parametrize("grid", [Grid(1, 1, 4, 8), Grid(1, 2, 2, 4), Grid(2, 1, 4, 4)], ids=str)
def test_a_program_takes_as_long_as_its_pipeline(schedule: str, model: str, grid: Grid) -> None:
    """Timed by the package's own timing, but for what the first microbatch does not add to, and for putting results together."""
    cost = COST_MODELS[model]
    found = simulate(SIZES, grid, cost, schedule).seconds
    pipeline = pipeline_of(SIZES, grid, cost)
    timed = pipeline.time(find(schedule).schedule(pipeline).makespan) / 1000
    layers = SIZES.layers // grid.pipeline
    added = layers * cost.elementwise(SIZES.width**2 // grid.tensor, 2) if grid.microbatches > 1 else 0.0
    gathered = 2 * cost.all_gather(4 * 256 * 1024 / 2, 2) if grid.data > 1 and cost.gathers else 0.0
    assert found - gathered - 2 * grid.microbatches * cost.concat() <= timed * (1 + 1e-4)
    assert timed <= (found + grid.pipeline * added) * (1 + 1e-4)


def test_without_microbatches_to_add_both_are_equal() -> None:
    for model in COST_MODELS.values():
        pipeline = pipeline_of(SIZES, Grid(pipeline=4), model)
        timed = pipeline.time(find("1f1b").schedule(pipeline).makespan)
        assert timed == pytest.approx(1000 * simulate(SIZES, Grid(pipeline=4), model, "1f1b").seconds, rel=1e-4)


def test_blocking_links_and_what_a_step_ends_with_are_in_the_pipeline() -> None:
    model = COST_MODELS["dist-ir-2022-01"].as_published
    pipeline = pipeline_of(SIZES, Grid(2, 1, 4, 4), model)
    assert pipeline.links.blocking
    assert float(pipeline.data_parallel.reduce_scatter) == pytest.approx(4000 * model.all_reduce(4 * 1024**2, 2), rel=1e-4)
    assert float(pipeline.costs.optimizer) == pytest.approx(1000 * model.elementwise(1024**2, 2), rel=1e-3)
    assert pipeline.memory.activation == (Fraction(4 * 4 * 32 * 2048, 10**9),) * 4
    assert pipeline.memory.static == Fraction(2 * 4 * 4 * 1024**2, 10**9)
    assert not pipeline_of(SIZES, Grid(2, 1, 4, 4), model.with_quirks()).links.blocking
    older = COST_MODELS["dist-ir-2021-02"]
    sums = [pipeline_of(SIZES, Grid(4, 2, 2, 4), older.with_quirks(*quirks)) for quirks in ((), ("gradients-in-tensor-group",))]
    found = [float(pipeline.data_parallel.reduce_scatter) for pipeline in sums]
    assert found == pytest.approx([8000 * older.all_reduce(2 * 1024**2, ranks) for ranks in (4, 2)], rel=1e-3)


def test_steps_are_those_of_the_original_scheduler() -> None:
    for entry in entries("dist_ir"):
        steps = steps_of(Grid(pipeline=entry["devices"], microbatches=entry["microbatches"]), "pipedream")
        rows: list[list[str]] = [[] for _ in range(entry["devices"])]
        for step in steps:
            running = {op.stage: str(op) for op in step}
            for stage, row in enumerate(rows):
                row.append(running.get(stage, "."))
        assert [" ".join(row) for row in rows] == entry["order"]
        assert len(steps) == entry["unit_timesteps"]


def test_every_value_is_read_where_it_is() -> None:
    """Each device has what it reads: an input, or what an operation before has made there."""
    for schedule, grid in (("pipedream", Grid(2, 2, 2, 4)), ("zb-h1", Grid(1, 2, 4, 4)), ("gpipe", Grid(4, 1, 1, 1))):
        for model in (COST_MODELS["dist-ir-2021-02"].as_published, COST_MODELS["dist-ir-2022-01"]):
            written = program(Perceptron(8, 64, 64), grid, model, schedule)
            there = {(value.name, value.device) for value in written.inputs}
            for operation in written.operations:
                assert set(operation.reads) <= there
                there |= {(value.name, value.device) for value in operation.writes}


def test_grids_are_all_that_divide() -> None:
    found = {(grid.data, grid.tensor, grid.pipeline) for grid in grids(Perceptron(6, 24, 1200), 12)}
    sizes = product((1, 2, 3, 4, 6, 12), repeat=3)
    assert found == {(d, t, p) for d, t, p in sizes if d * t * p == 12 and 6 % p == 0}
    assert len(found) == 15


def test_microbatches_are_powers_of_two_or_those_listed() -> None:
    def listed(samples: int, microbatches: list[int] | None = None) -> list[int]:
        return [g.microbatches for g in grids(Perceptron(4, 8, samples), 4, microbatches) if g.pipeline == 4]

    assert listed(8192) == [2, 4, 8, 16, 32]
    assert listed(1024) == [2, 4, 8, 16]
    assert listed(12, [2, 3, 5]) == [2, 3]


@pytest.mark.parametrize(
    ("sizes", "grid", "message"),
    [
        ((4, 8, 8), {"pipeline": 3}, r"grid.pipeline: 3 does not divide perceptron.layers = 4"),
        ((4, 8, 8), {"tensor": 3}, r"grid.tensor: 3 does not divide perceptron.width = 8"),
        ((3, 8, 8), {"tensor": 2}, r"grid.tensor: matrices are cut in pairs, .*: perceptron.layers has to be even, got 3"),
        ((4, 8, 8), {"data": 3}, r"grid.data: 3 does not divide perceptron.batch = 8"),
        ((4, 8, 8), {"data": 4, "microbatches": 4}, r"grid.microbatches: 4 does not divide the samples of a replica, 2"),
    ],
)
def test_what_does_not_divide_is_refused(sizes: tuple[int, int, int], grid: dict[str, int], message: str) -> None:
    with pytest.raises(EstimateError, match="^" + message):
        simulate(Perceptron(*sizes), Grid(**grid), COST_MODELS["dist-ir-2022-01"])


@pytest.mark.parametrize("schedule", ["zb-v", "none-such"])
def test_only_schedules_of_the_linear_placement_run(schedule: str) -> None:
    with pytest.raises(EstimateError, match=r"schedule: expected a schedule of the linear placement .*1f1b.*, got"):
        steps_of(Grid(pipeline=2, microbatches=2), schedule)


def test_sizes_are_whole_numbers_above_0() -> None:
    with pytest.raises(EstimateError, match=r"perceptron\.layers: expected a whole number from 1 to 10\^12, got 0"):
        Perceptron(0, 1, 1)
    with pytest.raises(EstimateError, match=r"grid\.tensor: expected a whole number"):
        Grid(tensor=0)


def test_the_kind_of_a_grid_says_what_is_parallel() -> None:
    assert [Grid().kind, Grid(2).kind, Grid(2, 1, 4).kind, Grid(2, 2, 2).kind] == [
        *["one device", "data", "data + pipeline", "data + tensor + pipeline"]
    ]
