"""Layouts written for Megatron are read back as they were."""

from typing import Any

import pytest
from hypothesis import given

from ppopt.layouts import (
    Layout,
    Megatron,
    NotExpressible,
    command_line,
    filled,
    layout_text,
    megatron_options,
    older_flags,
    read,
)
from ppopt.layouts.megatron import read as read_megatron
from tests.support.layouts import Case, layouts, lists, of
from tests.support.many import each


@given(layouts())
def test_a_text_is_read_back(layout: Layout) -> None:
    mtp = sum(isinstance(item, str) and item.startswith("m") for stage in layout.stages for item in stage)
    options = {"pp": len(layout.devices), "num_layers": sum(layout.layers), "mtp": mtp, "layout": layout_text(layout)}
    reading = read("megatron", options)
    assert reading.layout == layout
    assert not any("Megatron builds" in warning for warning in reading.warnings)


@given(layouts())
def test_options_are_read_back(layout: Layout) -> None:
    assert read_megatron(megatron_options(layout)).layout == layout


def test_golden_layouts_are_read_back() -> None:
    def check(case: Case) -> None:
        layout = read("megatron", case["input"]).layout
        options = megatron_options(layout)
        assert lists(read_megatron(options).layout) == case["devices"]
        assert len(layout_text(layout)) <= len(str(case["input"].get("layout", "|" * 100)))
        if "layout" not in case["input"]:
            assert options.layout is None

    each(of("megatron", True), check)


def written(counts: list[int], devices: int, mtp: list[int] | None = None) -> Layout:
    return Layout.of(filled(counts, mtp or []), devices)


@pytest.mark.parametrize(
    ("counts", "devices", "expected"),
    [
        ([2, 2, 2, 2], 4, {}),
        ([2, 2, 2, 2], 2, {"virtual_stages": 2}),
        ([1, 2, 2, 1], 4, {"account_embedding": True, "account_loss": True}),
        ([1, 2, 2, 2], 4, {"account_embedding": True}),
        ([2, 2, 2, 1], 2, {"account_loss": True, "virtual_stages": 2}),
        ([0, 1, 1, 0], 2, {"account_embedding": True, "account_loss": True, "virtual_stages": 2}),
        ([5, 2, 2, 2], 4, {"first": 5}),
        ([2, 2, 2, 7], 4, {"last": 7}),
        ([3, 2, 2, 7], 4, {"first": 3, "last": 7}),
        ([4, 9], 2, {"first": 4}),
        ([1, 3, 2, 1, 3, 2], 3, {"first": 2, "last": 4, "virtual_stages": 2}),
        ([5], 1, {}),
    ],
)
def test_older_flags(counts: list[int], devices: int, expected: dict[str, Any]) -> None:
    layout = written(counts, devices)
    options = older_flags(layout)
    assert options == Megatron(devices, sum(counts), **expected)
    assert read_megatron(options).layout == layout


@pytest.mark.parametrize(
    ("counts", "devices"), [([1, 2, 3, 4], 4), ([1, 3, 2, 2], 2), ([2, 1, 2, 2, 2, 2], 2), ([0, 3, 3], 3), ([4, 0, 0, 0], 4)]
)
def test_what_the_older_flags_cannot_say(counts: list[int], devices: int) -> None:
    with pytest.raises(NotExpressible, match="no flags but a layout"):
        older_flags(written(counts, devices))
    assert megatron_options(written(counts, devices)).layout is not None


def test_the_norm_is_not_written() -> None:
    layout = Layout.of([["E", 0], [1, "N", "L"]], 2)
    assert layout_text(layout) == "Et|tL"
    assert older_flags(layout) == Megatron(2, 2)


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (Layout.of(filled([1, 1, 1, 1]), 2, "wave"), "in a loop only, not as a wave"),
        (Layout.of(filled([2, 2]), 1), "need at least 2 devices"),
        (Layout.of([["E", 0, "L"], [1]], 2), "has to be on the first stage"),
        (Layout.of([[], ["E", 0, "L"]], 2), "has to be on the first stage"),
        (Layout.of(filled([1, 1, 1, 1], [0, 1, 0, 0]), 2), "out of place"),
        (Layout.of(filled([1, 1, 0, 0], [0, 1, 0, 0]), 2), "is not the last stage of its device"),
        (Layout.of(filled([1, 1, 0, 0], [0, 0, 1, 1]), 2), "have to be on one stage"),
        (Layout.of(filled([0, 0]), 2), "without decoder layers"),
    ],
)
def test_what_megatron_cannot_say(layout: Layout, reason: str) -> None:
    with pytest.raises(NotExpressible, match=reason):
        layout_text(layout)
    with pytest.raises(NotExpressible):
        megatron_options(layout)


def test_the_command_line() -> None:
    layout = written([3, 2, 2, 2, 2, 1], 2, [0, 0, 0, 0, 0, 1])
    assert command_line(megatron_options(layout)) == (
        *("--pipeline-model-parallel-size", "2", "--num-layers", "12", "--mtp-num-layers", "1"),
        *("--pipeline-model-parallel-layout", "Et*3|(tt|)*4tmL"),
    )
    accounted = Megatron(4, 6, account_embedding=True, account_loss=True, virtual_stages=2, no_overlap_p2p=True)
    assert command_line(accounted) == (
        *("--pipeline-model-parallel-size", "4", "--num-layers", "6"),
        *("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"),
        *("--num-virtual-stages-per-pipeline-rank", "2", "--no-overlap-p2p-communication"),
    )
    for options in (Megatron(2, 2, layout=(("embedding",), ("loss",))), Megatron(2, 2, vpp=1)):
        with pytest.raises(NotExpressible, match="for configurations"):
            command_line(options)
