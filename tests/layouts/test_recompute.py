"""Recomputing layers, written for runtimes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppopt.layouts import (
    Layout,
    NotExpressible,
    colossalai_recompute,
    filled,
    galvatron_recompute,
    layers_in,
    megatron_recompute,
    mindformers_recompute,
)
from tests.support.layouts import layouts

FOUR = Layout.of(filled([3, 4, 4, 2]), 4)
LOOP = Layout.of(filled([3, 4, 4, 2]), 2)
EMPTY = Layout.of(filled([3, 0, 4, 2]), 4)
PREDICTING = Layout.of(filled([3, 4, 4, 2], [0, 0, 0, 1]), 4)


def full(method: str, number: int) -> tuple[str, ...]:
    words = ("--recompute-granularity", "full", "--recompute-method", method)
    return (*words, "--recompute-num-layers", str(number))


@pytest.mark.parametrize(
    ("layout", "counts", "flags"),
    [
        (FOUR, [0, 0, 0, 0], ()),
        (FOUR, [], ()),
        (FOUR, [3, 4, 4, 2], full("uniform", 1)),
        (PREDICTING, [3, 4, 4, 2], full("block", 4)),
        (FOUR, [1, 1, 1, 1], full("block", 1)),
        (FOUR, [2, 2, 2, 2], full("block", 2)),
        (FOUR, [3, 3, 3, 2], full("block", 3)),
        (LOOP, [3, 3, 3, 2], full("block", 3)),
        (EMPTY, [1, 0, 1, 1], full("block", 1)),
        (EMPTY, [0, 0, 0, 0], ()),
    ],
)
def test_megatron_has_one_number_for_all_stages(layout: Layout, counts: list[int], flags: tuple[str, ...]) -> None:
    """Stages of no more layers than that recompute all of them."""
    assert megatron_recompute(layout, counts) == flags


@pytest.mark.parametrize("counts", [[1, 0, 0, 0], [3, 1, 1, 1], [2, 2, 2, 1], [3, 4, 4, 1], [0, 4, 4, 2], [3, 3, 4, 2]])
def test_megatron_cannot_tell_stages_apart(counts: list[int]) -> None:
    with pytest.raises(NotExpressible, match="one number n holds for all stages"):
        megatron_recompute(FOUR, counts)


@given(layouts(mtp=False), st.integers(0, 7))
def test_any_block_is_written(layout: Layout, number: int) -> None:
    """The flags give these counts again."""
    counts = tuple(min(number, layers) for layers in layout.layers)
    flags = dict(zip(*[iter(megatron_recompute(layout, counts))] * 2, strict=True))
    found = int(flags.get("--recompute-num-layers", 0))
    everything = flags.get("--recompute-method") == "uniform"
    assert tuple(layers if everything else min(found, layers) for layers in layout.layers) == counts


def test_megatron_selects_modules_for_all_layers() -> None:
    assert megatron_recompute(FOUR, [], [3, 4, 4, 2]) == (
        "--recompute-granularity",
        "selective",
        "--recompute-modules",
        "core_attn",
    )
    assert megatron_recompute(FOUR, [], [3, 4, 4, 2], ["mlp", "layernorm"])[-2:] == ("mlp", "layernorm")
    with pytest.raises(NotExpressible, match="holds for all layers of all stages"):
        megatron_recompute(FOUR, [], [3, 4, 4, 1])
    with pytest.raises(NotExpressible, match="cannot be mixed"):
        megatron_recompute(FOUR, [1, 0, 0, 0], [2, 4, 4, 2])


def test_colossalai_takes_counts() -> None:
    assert colossalai_recompute(LOOP, [3, 0, 1, 2]) == {"num_ckpt_layers_per_stage": [3, 0, 1, 2]}


def test_mindformers_counts_include_each_other() -> None:
    """Selective counts include the layers that recompute wholly."""
    assert mindformers_recompute(LOOP, [3, 0, 1, 2]) == {"recompute": [[3, 0], [1, 2]]}
    assert mindformers_recompute(LOOP, [3, 0, 1, 0], [0, 2, 3, 0]) == {
        "recompute": [[3, 0], [1, 0]],
        "select_recompute": [[3, 2], [4, 0]],
    }
    assert mindformers_recompute(FOUR, [1, 1, 0, 0]) == {"recompute": [1, 1, 0, 0]}
    with pytest.raises(ValueError, match="stage 0: expected a count from 0 to 3, the layers that it has, got 4"):
        mindformers_recompute(LOOP, [3, 0, 1, 0], [1, 2, 3, 0])


def test_galvatron_marks_layers() -> None:
    assert galvatron_recompute(FOUR, [2, 0, 4, 1]) == {"checkpoint": "1,1,0,0,0,0,0,1,1,1,1,1,0"}


@given(layouts(mtp=False, virtual=1, least=1), st.data())
def test_galvatron_marks_all_layers(layout: Layout, data: st.DataObject) -> None:
    counts = [data.draw(st.integers(0, layers)) for layers in layout.layers]
    marks = galvatron_recompute(layout, counts)["checkpoint"].split(",")
    assert len(marks) == sum(map(layers_in, layout.stages))
    assert marks.count("1") == sum(counts)


def test_counts_have_to_fit() -> None:
    with pytest.raises(ValueError, match="a count for each of 4 stages, got 1"):
        megatron_recompute(FOUR, [1])
    with pytest.raises(ValueError, match="stage 3: expected a count from 0 to 2"):
        colossalai_recompute(FOUR, [0, 0, 0, 3])
    with pytest.raises(ValueError, match="stage 0: expected a count from 0 to 3, the layers that it has, got -1"):
        galvatron_recompute(FOUR, [-1, 0, 0, 0])
    with pytest.raises(NotExpressible, match="one stage on each device"):
        galvatron_recompute(LOOP, [0, 0, 0, 0])
