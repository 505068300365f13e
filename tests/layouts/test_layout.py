"""The type that all runtimes share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppopt.layouts import Layout, NotExpressible, counts_of, filled, layers_in
from tests.support.layouts import layouts


def test_a_loop_deals_stages_in_turn() -> None:
    layout = Layout.of([["E", 0], [1], [2], [3, "L"]], 2)
    assert layout.devices == ((("E", 0), (2,)), ((1,), (3, "L")))
    assert layout.virtual == 2
    assert layout.layers == (1, 1, 1, 1)


def test_a_wave_goes_up_and_down() -> None:
    layout = Layout.of([["E", 0], [1], [2], [3, "L"]], 2, "wave")
    assert layout.devices == ((("E", 0), (3, "L")), ((1,), (2,)))
    four = Layout.of([[s] for s in range(8)], 2, "wave")
    assert four.devices == (((0,), (3,), (4,), (7,)), ((1,), (2,), (5,), (6,)))


def test_one_chunk_is_no_wave() -> None:
    assert Layout.of([["E"], ["L"]], 2, "wave") == Layout.of([["E"], ["L"]], 2)


@given(layouts(), st.sampled_from(["loop", "wave"]))
def test_stages_come_back_in_order(layout: Layout, placement: str) -> None:
    placed = Layout.of(layout.stages, len(layout.devices), placement)
    assert placed.stages == layout.stages


@given(layouts())
def test_counts_say_all(layout: Layout) -> None:
    counts = counts_of(layout, "x")
    assert tuple(filled(counts.layers, counts.mtp)) == layout.stages


@pytest.mark.parametrize(
    ("stages", "devices", "placement", "message"),
    [
        ([["E"], ["L"]], 3, "loop", "2 stages cannot be dealt equally to 3 devices"),
        ([], 2, "loop", "0 stages cannot"),
        ([["E"], ["L"]], 0, "loop", "to 0 devices"),
        ([["E"], [], [], ["L"]], 2, "zigzag", "expected loop or wave, got 'zigzag'"),
        ([[]] * 5000, 5000, "loop", "at most 4096 stages are supported, got 5000"),
    ],
)
def test_layouts_that_cannot_be(stages: list[list[str]], devices: int, placement: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout.of(stages, devices, placement)


def test_devices_have_the_same_number_of_chunks() -> None:
    with pytest.raises(ValueError, match="same number of chunks"):
        Layout(((("E",),), ((0,), ("L",))))


@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        ([[0], ["E", 1, "L"]], "the embedding .E. has to be on the first stage"),
        ([["E", 0, "L"], [1]], "the head .L. on the last"),
        ([["E", 0], [2, "L"]], "2 is out of place"),
        ([["E", 1], [0, "L"]], "1 is out of place"),
        ([["E", 0, "m0"], [1, "L"]], "'m0' is out of place"),
        ([["E", 0], ["vision", 1, "L"]], "'vision' is out of place"),
        ([["E", 0, "N"], [1, "L"]], "the final norm"),
        ([["E", 0], [1, "L", "L"]], "'L'"),
    ],
)
def test_what_numbers_cannot_say(stages: list[list[int | str]], reason: str) -> None:
    with pytest.raises(NotExpressible, match=reason) as error:
        counts_of(Layout.of(stages, 2), "Megatron")
    assert error.value.runtime == "Megatron"
    assert str(error.value).startswith("Megatron: ")


def test_layers_in_a_stage() -> None:
    assert layers_in(["E", 0, 1, "m0", "N", "L"]) == 2
    assert layers_in(["E", "*0", "E1", "-2", "+3", "m0", "L", "vision_encoder"]) == 4
