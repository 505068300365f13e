"""Layouts for DeepSpeed, ColossalAI, MindFormers and Galvatron."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppopt.layouts import Layout, NotExpressible, colossalai, deepspeed, filled, galvatron, mindformers
from tests.support.layouts import layouts


def test_deepspeed_has_its_uniform_cut_alone() -> None:
    """Twelve modules on four devices; thirteen: the first has one more."""
    expected = {"num_stages": 4, "partition_method": "uniform"}
    assert deepspeed(Layout.of(filled([2, 3, 3, 2]), 4)) == expected
    assert deepspeed(Layout.of(filled([3, 3, 3, 2]), 4)) == expected
    with_norm = Layout.of([["E", 0, 1], [2, 3, 4], [5, 6, 7], [8, "N", "L"]], 4)
    assert deepspeed(with_norm) == expected
    with pytest.raises(NotExpressible, match="DeepSpeed: it takes no list of stages, and its uniform cut has 4, 4, 3, 3 modules"):
        deepspeed(Layout.of(filled([3, 3, 3, 3]), 4))


def test_colossalai() -> None:
    assert colossalai(Layout.of(filled([3, 4, 4, 2]), 4)) == {
        "pp_size": 4,
        "pp_style": "1f1b",
        "num_model_chunks": 1,
        "num_layers_per_stage": [3, 4, 4, 2],
    }
    loop, wave = (Layout.of(filled([3, 4, 5, 2]), 2, placement) for placement in ("loop", "wave"))
    assert (colossalai(loop)["pp_style"], colossalai(wave)["pp_style"]) == ("interleaved", "zbv")
    assert colossalai(loop)["num_layers_per_stage"] == [3, 4, 5, 2] == colossalai(wave)["num_layers_per_stage"]
    with pytest.raises(NotExpressible, match="zbv has two stages on each device, not 4"):
        colossalai(Layout.of(filled([1] * 8), 2, "wave"))


@given(layouts(mtp=False, least=1), st.data())
def test_colossalai_entries_are_those_of_devices(layout: Layout, data: st.DataObject) -> None:
    """Entry s + c * pp is chunk c of device s; in a V device s has entries s and 2 * pp - 1 - s."""
    devices = len(layout.devices)
    entries = colossalai(layout)["num_layers_per_stage"]
    assert all(
        entries[d + c * devices] == sum(isinstance(item, int) for item in layout.devices[d][c])
        for d in range(devices)
        for c in range(layout.virtual)
    )


def test_mindformers_counts_from_the_share() -> None:
    """96 layers in 32 stages are three each; the published plan has 2 stages with one more and one with two less."""
    counts = [3] * 14 + [4, 4] + [3] * 15 + [1]
    assert mindformers(Layout.of(filled(counts), 16)) == {"offset": [[0] * 14 + [1, 1], [0] * 15 + [-2]]}
    assert mindformers(Layout.of(filled([3, 3, 4]), 3)) == {"offset": [0, 0, 1]}
    assert mindformers(Layout.of(filled([3, 2, 3]), 3)) == {"offset": [1, 0, 1]}


@given(layouts(mtp=False, least=1))
def test_mindformers_layers_come_back(layout: Layout) -> None:
    offset = mindformers(layout)["offset"]
    rows = offset if layout.virtual > 1 else [offset]
    share = sum(layout.layers) // len(layout.stages)
    assert tuple(share + number for row in rows for number in row) == layout.layers


def test_galvatron() -> None:
    assert galvatron(Layout.of(filled([8, 8, 7, 9]), 4)) == {"pp_deg": 4, "pp_division": "8,8,7,9"}


@pytest.mark.parametrize("write", [deepspeed, colossalai, mindformers, galvatron])
@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (Layout.of(filled([1, 1], [0, 1]), 2), "multi-token prediction"),
        (Layout.of([["E", 1], [0, "L"]], 2), "out of place"),
        (Layout.of([["E", 0, "L"], [1]], 2), "has to be on the first stage"),
    ],
)
def test_what_none_of_them_can_say(write: Callable[[Layout], dict[str, Any]], layout: Layout, reason: str) -> None:
    with pytest.raises(NotExpressible, match=reason):
        write(layout)


@pytest.mark.parametrize("write", [colossalai, mindformers, galvatron])
def test_stages_without_layers(write: Callable[[Layout], dict[str, Any]]) -> None:
    with pytest.raises(NotExpressible, match="stage 1 has no decoder layer"):
        write(Layout.of(filled([1, 0, 1]), 3))


def test_placements_that_they_do_not_have() -> None:
    loop, wave = (Layout.of(filled([1, 1, 1, 1]), 2, placement) for placement in ("loop", "wave"))
    for write in (deepspeed, galvatron):
        for layout in (loop, wave):
            with pytest.raises(NotExpressible, match="one stage on each device, not 2"):
                write(layout)
    with pytest.raises(NotExpressible, match="MindFormers: stages are dealt in a loop only, not as a wave"):
        mindformers(wave)
