"""What layers take once per step: all-gather, reduce-scatter and optimizer of a device are those of its layers."""

from fractions import Fraction
from typing import Any

import pytest

import ppopt as pp
from ppopt.files import model_dict, model_of
from ppopt.named import find
from ppopt.pipeline import DataParallel, Layer, Layers, Pipeline, PipelineError
from ppopt.timing import exposed_traffic

GROUPS: list[dict[str, Any]] = [
    {"name": "a", "forward": 1, "backward": 2, "all_gather": 1, "reduce_scatter": 4, "optimizer": Fraction(1, 2)},
    {"name": "b", "count": 3, "forward": 1, "backward": 2, "all_gather": 2, "reduce_scatter": 1, "optimizer": 1},
]


def a_pipeline(**fields: Any) -> Pipeline:
    given: dict[str, Any] = {"devices": 2, "microbatches": 2, "partition": (1, 3), "layers": Layers(GROUPS)} | fields
    return Pipeline(**given)


def test_they_add_up_over_the_layers_of_a_device() -> None:
    pipeline = a_pipeline()
    assert pipeline.costs.optimizer == (Fraction(1, 2), 3)
    assert pipeline.data_parallel == DataParallel((1, 6), (4, 3), per="stage")
    ticks = pipeline.ticks
    assert (ticks.lead[0, 0] / ticks.per_unit).tolist() == [1, 6]
    assert (ticks.tail[0, 0] / ticks.per_unit).tolist() == [4.5, 6]


def test_the_makespan_of_1f1b_by_hand() -> None:
    """Device 1 gathers until 6, then runs 3 + 6 twice and ends at 24, with its scatter and optimizer at 30. Device 0 runs
    its forwards from 1 on and its last B from 24 to 26, and ends at 30.5."""
    schedule = find("1f1b").schedule(a_pipeline())
    assert Fraction(schedule.makespan, schedule.pipeline.ticks.per_unit) == Fraction(61, 2)
    assert not pp.check(schedule)
    alone = find("1f1b").schedule(a_pipeline(layers=Layers(GROUPS).without_step()))
    assert alone.makespan == 21
    # with the optimizers and without traffic they end at 19 + 3 and 21 + 0.5
    assert Fraction(exposed_traffic(schedule), schedule.pipeline.ticks.per_unit) == Fraction(61, 2) - 22


def test_another_cut_and_another_placement_have_them_anew() -> None:
    pipeline = a_pipeline()
    assert pipeline.changed(partition=(3, 1)).costs.optimizer == (Fraction(5, 2), 1)
    loop = pipeline.placed("loop", 2)
    assert loop.data_parallel == DataParallel((1, 2, 2, 2), (4, 1, 1, 1), per="stage")
    assert loop.costs.optimizer == (Fraction(3, 2), 2)
    assert loop.flat().ticks.tail.tolist() == loop.ticks.tail.tolist()


def test_frozen_layers_have_none() -> None:
    frozen = [{**group, "backward_input": 1, "backward_weight": 1, "frozen": i == 0} for i, group in enumerate(GROUPS)]
    pipeline = a_pipeline(layers=Layers(frozen))
    assert pipeline.costs.optimizer == (0, 3)
    assert pipeline.data_parallel == DataParallel((0, 6), (0, 3), per="stage")


def test_a_file_has_them_with_its_layers_alone() -> None:
    tree = model_dict(pp.named.model.Model(a_pipeline(data_parallel=DataParallel(overlap=True))))
    assert tree["layers"][1]["reduce_scatter"] == 1
    assert tree["costs"] == {}
    assert tree["data_parallel"] == {"all_gather": 0, "reduce_scatter": 0, "overlap": True, "per": "device"}
    assert model_of(tree, "tree").pipeline == a_pipeline(data_parallel=DataParallel(overlap=True))
    assert "data_parallel" not in model_dict(pp.named.model.Model(a_pipeline()))


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"costs": pp.Costs(optimizer=1)}, "costs.optimizer"),
        ({"data_parallel": DataParallel(all_gather=1)}, "data_parallel.all_gather"),
        ({"data_parallel": DataParallel(reduce_scatter=(0, 1))}, "data_parallel.reduce_scatter"),
    ],
)
def test_devices_cannot_say_them_too(fields: dict[str, Any], key: str) -> None:
    with pytest.raises(PipelineError, match="follows from the layers") as error:
        a_pipeline(**fields)
    assert error.value.key == key


def test_a_negative_time_is_refused() -> None:
    with pytest.raises(PipelineError, match="optimizer"):
        Layer("a", forward=1, backward=1, optimizer=-1)
