"""Partitions: even, balanced, written out."""

from collections import Counter
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from ppopt.files import read_model
from ppopt.pipeline import Layer, Layers, Memory, Pipeline, PipelineError
from ppopt.pipeline.layer_times import work_of_layers
from ppopt.pipeline.layers import kind_of
from ppopt.pipeline.partitions import balanced, check_stages, even, read_partition
from tests.support.layered import MODEL, a_pipeline, cuts, each_layer, stages_of
from tests.support.many import each
from tests.support.places import ROOT


def groups(*counts: int) -> Layers:
    return Layers([Layer("abcdefg"[i], count, forward=1, backward=2) for i, count in enumerate(counts)])


@pytest.mark.parametrize(
    ("counts", "stages", "expected"),
    [
        ((8,), 4, (2, 2, 2, 2)),
        ((10,), 4, (3, 3, 2, 2)),  # the first ones have what is left over
        ((1, 8, 1), 4, (3, 2, 2, 3)),  # embedding to the first stage, head to the last
        ((1, 9, 1), 4, (4, 2, 2, 3)),
        ((2, 3, 8, 1, 1), 2, (9, 6)),
        ((4, 4), 2, (2, 6)),  # of two largest groups, the first
        ((1, 3, 1), 1, (5,)),
    ],
)
def test_even(counts: tuple[int, ...], stages: int, expected: tuple[int, ...]) -> None:
    assert even(groups(*counts), stages) == expected


def test_even_leaves_no_stage_without_a_layer() -> None:
    assert even(groups(1, 2, 1), 3) == (2, 1, 1)  # the last one has a layer that comes after
    with pytest.raises(
        PipelineError, match="\"even\" leaves stage 2 without a layer: 4 stages, and 2 layers 'b' to deal"
    ) as raised:
        even(groups(1, 2, 1), 4)
    assert raised.value.key == "pipeline.partition"


def hybrid(*names: str) -> Layers:
    """A group for each name, one layer each, or as many as ``name*count`` says."""
    pairs = [(name, int(count or 1)) for name, _, count in (text.partition("*") for text in names)]
    return Layers([Layer(name, count, forward=1, backward=2) for name, count in pairs])


@pytest.mark.parametrize(
    ("names", "stages", "expected"),
    [
        # all but embedding and head, whatever the kind
        (("e", "mamba 0", "mlp 1", "mamba 2", "mlp 3", "att 4", "mamba 5", "mlp 6", "mlp 7", "head"), 4, (3, 2, 2, 3)),
        (("embedding", "layers.0", "layers.1", "layers.2", "layers.3", "layers.4", "norm", "head"), 2, (4, 4)),
        # a kind that occurs once is dealt where it is between others, not at the ends
        (("a 0", "b", "a 1", "c 2", "c 3", "a 4"), 3, (2, 2, 2)),
        (("b", "a 0", "a 1", "a 2", "c"), 3, (2, 1, 2)),
        # small groups: the layers are counted, not the groups; their numbers are left out too
        (("embedding", "a 0-1*2", "b 2", "a 3", "b 4-5*2", "head"), 3, (3, 2, 3)),
        # the largest group reaches for all stages: as ever
        (("a 0", "b 1-3*3", "a 4"), 3, (2, 1, 2)),
        # nothing occurs twice: a layer of the largest group for the stages that it reaches
        (("a", "b", "c"), 1, (3,)),
    ],
)
def test_even_of_many_small_groups_deals_whatever_occurs_more_than_once(
    names: tuple[str, ...], stages: int, expected: tuple[int, ...]
) -> None:
    assert even(hybrid(*names), stages) == expected


def test_even_of_a_hybrid_with_too_few_layers_says_what_it_deals() -> None:
    with pytest.raises(PipelineError, match="stage 3 without a layer: 5 stages, and 3 layers 'a 0' to 'a 2' to deal"):
        even(hybrid("e", "a 0", "b 1", "a 2", "h"), 5)
    with pytest.raises(PipelineError, match="stage 1 without a layer: 3 stages, and 1 layers 'a' to deal"):
        even(hybrid("a", "b", "c"), 3)


def test_even_of_a_published_hybrid() -> None:
    """56 layers of three kinds between embedding and head, seven to each of eight devices."""
    layers = read_model(str(ROOT / "models" / "nemotron-nano-9b.toml")).pipeline.layers
    assert layers is not None
    assert even(layers, 8) == (8, 7, 7, 7, 7, 7, 7, 8)
    assert even(layers, 16) == (5, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 4)


def test_names_without_their_numbers() -> None:
    names = ("layers.3", "mamba 6-7", "model.layers.12", "layers.3.mlp", "block_0", "head", "h2")
    assert [kind_of(name) for name in names] == ["layers", "mamba", "model.layers", "layers.mlp", "block", "head", "h"]


def largest_work(pipeline: Pipeline, counts: tuple[int, ...]) -> Fraction:
    """Of the busiest device, for all microbatches."""
    work: list[Fraction] = [
        sum(values, Fraction(0))
        for values in stages_of(work_of_layers(pipeline.layers, pipeline.recompute), counts)  # type: ignore[arg-type]
    ]
    of_device: Counter[int] = Counter()
    for route in pipeline.route_of_microbatch:
        for stage, device in enumerate(pipeline.routes[route]):
            of_device[device] += work[stage]  # type: ignore[assignment]
    return max(map(Fraction, of_device.values()))


def test_balanced_has_the_least_largest_work_of_all_cuts() -> None:
    rng, seen = Random(1), Counter[str]()
    for _ in range(120):
        pipeline = a_pipeline(rng, partition="balanced")
        least = min(largest_work(pipeline, cut) for cut in cuts(len(pipeline.layers or ()), pipeline.stages))
        assert largest_work(pipeline, pipeline.counts) == least
        assert min(pipeline.counts) > 0
        assert sum(pipeline.counts) == len(pipeline.layers or ())
        seen[pipeline.placement] += 1
    assert min(seen[placement] for placement in ("linear", "loop", "wave", "bidirectional")) > 10


def test_balanced_on_other_routes() -> None:
    """Three chunks; routes that are written out; and two routes that unequally many microbatches take."""
    rng = Random(2)
    for fields in (
        {"placement": "loop", "chunks": 3},
        {"placement": "wave", "chunks": 3},
        {"routes": [[0, 1, 1, 0, 0]]},
        {"routes": [[0, 1, 0], [1, 0, 1]], "route_of_microbatch": [0, 0, 0, 1]},
    ):
        for _ in range(10):
            layers = Layers([Layer(str(i), forward=rng.randint(1, 9), backward=rng.randint(1, 9)) for i in range(8)])
            given: dict[str, Any] = {**fields, "layers": layers}
            pipeline = Pipeline(2, 4, partition="balanced", **given)
            least = min(largest_work(pipeline, cut) for cut in cuts(8, pipeline.stages))
            assert largest_work(pipeline, pipeline.counts) == least


def test_balanced_where_layers_cost_fractions_or_nothing() -> None:
    routes = ((0, 1),)
    assert balanced((Fraction(1, 3), Fraction(1, 6), Fraction(1, 2)), routes, (0,)) == (2, 1)
    assert sum(balanced((Fraction(0),) * 5, routes, (0,))) == 5


def test_balanced_counts_what_recomputing_takes() -> None:
    layers = Layers(
        [
            Layer("a", 4, forward=1, backward=1, activation=1, recompute=[{"name": "full", "time": 10, "saved": 1}]),
            Layer("b", 4, forward=1, backward=1),
        ]
    )
    pipeline = Pipeline(2, 2, layers=layers, partition="balanced")
    assert pipeline.counts == (4, 4)
    assert pipeline.changed(recompute="full").counts == (2, 6)


def test_written_out() -> None:
    pipeline = Pipeline(2, 4, layers=MODEL, partition=[3, 4])
    assert pipeline.counts == pipeline.partition == (3, 4)
    assert pipeline.costs.forward == (7, 11)


def test_a_stage_without_layers() -> None:
    """It takes no time and holds nothing."""
    pipeline = Pipeline(3, 4, layers=MODEL, partition=[3, 0, 4])
    assert pipeline.costs.forward == (7, 0, 11)
    assert pipeline.memory.activation == (7, 0, 10)
    assert pipeline.amounts.static.tolist() == [9, 0, 11]


def test_best_is_the_default_and_open() -> None:
    pipeline = Pipeline(2, 4, layers=MODEL)
    assert (pipeline.partition, pipeline.open) == ("best", ("pipeline.partition",))
    with pytest.raises(PipelineError, match='"best" is left open, which only solve settles') as raised:
        _ = pipeline.counts
    assert raised.value.key == "pipeline.partition"
    assert pipeline.cut().partition == "balanced"


def test_errors_name_the_key() -> None:
    cases: dict[str, tuple[str, str, Any, Any]] = {
        "no layers": ("pipeline.partition", "it needs [[layers]]", None, [1, 1]),
        "a word": ("pipeline.partition", "expected one of even, balanced, best", MODEL, "evne"),
        "a number": ("pipeline.partition", "the number of layers of each stage", MODEL, 3),
        "negative": ("pipeline.partition[1]", "expected a whole number >= 0", MODEL, [8, -1]),
        "a fraction": ("pipeline.partition[0]", "expected a whole number >= 0", MODEL, [3.5, 3.5]),
        "true": ("pipeline.partition[0]", "expected a whole number >= 0", MODEL, [True, 6]),
        "sum": ("pipeline.partition", "expected the numbers to add up to 7 layers, got 6", MODEL, [3, 3]),
        "length": ("pipeline.partition", "expected one number per stage (2), got 3", MODEL, [3, 3, 1]),
    }

    def check(case: tuple[str, str, Any, Any]) -> None:
        key, text, layers, partition = case
        with pytest.raises(PipelineError) as raised:
            Pipeline(2, 4, layers=layers, partition=partition)
        assert raised.value.key == key
        assert text in str(raised.value)

    each(cases, check)


def test_words_need_a_layer_for_each_stage() -> None:
    for partition in ("even", "balanced", "best"):
        with pytest.raises(PipelineError, match="8 stages need a layer each, and there are only 7 layers"):
            Pipeline(8, 8, layers=MODEL, partition=partition)
    check_stages(MODEL, 7)


def test_where_there_are_no_layers_there_is_no_partition() -> None:
    assert read_partition("", None) == read_partition(None, None) == ""
    assert read_partition(None, MODEL) == "best"


def test_a_limit_that_no_balanced_cut_meets() -> None:
    with pytest.raises(PipelineError, match=r"memory\.limit"):
        Pipeline(2, 4, layers=MODEL, partition="balanced", memory=Memory(limit=3))


def test_all_layers_are_somewhere() -> None:
    rng = Random(4)
    for _ in range(50):
        pipeline = a_pipeline(rng)
        assert sum(pipeline.counts) == len(each_layer(pipeline.layers))  # type: ignore[arg-type]
