"""How Megatron reads hybrid patterns."""

from typing import Any

import pytest

from ppopt.layouts import OptionError, Refused, read
from tests.support.layouts import lists


def devices(pattern: str, **given: Any) -> list[list[list[int | str]]]:
    return lists(read("megatron-hybrid", {"hybrid_layer_pattern": pattern, **given}).layout)


def test_a_mixture_of_experts_is_no_embedding() -> None:
    assert devices("*E|*E", pp=2) == [[["E", "*0", "E1"]], [["*2", "E3", "L"]]]


def test_bars_deal_in_a_loop() -> None:
    assert devices("*|-||M", pp=2) == [[["E", "*0"], []], [["-1"], ["M2", "L"]]]
    assert devices("||M|-", pp=4) == [[["E"]], [[]], [["M0"]], [["-1", "L"]]]


def test_prediction_has_a_part_for_each_depth() -> None:
    assert devices("M*|M-/*-/*-/*-", pp=2)[1] == [["M2", "-3", "m0", "m1", "m2", "L"]]
    assert devices("M*|M-/", pp=2)[1] == [["M2", "-3", "L"]]
    assert devices("M*|M-//", pp=2)[1] == [["M2", "-3", "L"]]


def test_without_bars_symbols_are_dealt() -> None:
    assert devices("M*-M*-", pp=3) == [[["E", "M0", "*1"]], [["-2", "M3"]], [["*4", "-5", "L"]]]
    assert devices("M*-M*-", pp=2, last=2) == [[["E", "M0", "*1", "-2", "M3"]], [["*4", "-5", "L"]]]
    assert devices("M*", pp=1) == [[["E", "M0", "*1", "L"]]]
    assert read("megatron-hybrid", {"pp": 1, "hybrid_layer_pattern": "M*"}).warnings == ()
    assert "deprecated" in read("megatron-hybrid", {"pp": 2, "hybrid_layer_pattern": "M*"}).warnings[0]


@pytest.mark.parametrize(
    ("pattern", "given", "reason"),
    [
        ("*-t|*-", {}, "the pattern: 't' is no symbol, and nothing can be repeated; symbols are * (attention), "),
        ("*- |*-", {}, "' ' is no symbol"),
        ("(*-)*2|*-", {}, "'(' is no symbol"),
        ("*-2|*-", {}, "'2' is no symbol"),
        ("L*|*", {}, "'L' is no symbol"),
        ("*-|+-", {}, "* and + cannot be in one model"),
        ("*-|D-", {}, "* and D cannot be in one model"),
        ("*-|*-/x", {}, "multi-token prediction: 'x' is no symbol"),
        ("*-|*-/*|-", {}, "multi-token prediction: '|' is no symbol"),
        ("*-|*-/*-/*E", {}, "depth 1 is '*E', not '*-'"),
        ("*-|*-/*-/", {}, "depth 1 is '', not '*-'"),
        ("|", {}, "has no symbol"),
        ("/MM", {}, "has no symbol"),
        ("*|-|*", {}, "3 stages of the pattern cannot be dealt equally to 2 devices"),
        ("*-*|-*-", {"first": 3}, "first and last cannot be given together with bars"),
        ("*-*|-*-", {"vpp": 2}, "vpp declares 2 stages on each device, but there are 1"),
        ("*|-|*|-", {"no_overlap_p2p": True}, "at least 3 devices"),
        ("*|-", {"pp": 1}, "at least 2 devices"),
        ("*-*", {}, "3 symbols of a pattern without bars cannot be dealt equally to 2 devices"),
        ("*-*-", {"vpp": 2}, "several stages on each device need bars"),
        ("*-*-", {"first": 1, "last": 1}, "the devices have 2 layers together, the model has 4"),
        ("*-*-", {"first": 0}, "first has to be at least 1"),
        ("*-|*-", {"num_layers": 2}, "the pattern has 4 symbols, num_layers is 2"),
        ("*-|*-", {"layout": "Et|tL"}, "a pattern replaces layout"),
        ("*-|*-", {"virtual_stages": 1}, "a pattern replaces virtual_stages"),
        ("*-|*-", {"layers_per_virtual": 1}, "a pattern replaces layers_per_virtual"),
        ("*-|*-", {"account_embedding": True}, "a pattern replaces account_embedding"),
        ("*-|*-", {"account_loss": True}, "a pattern replaces account_loss"),
    ],
)
def test_patterns_that_are_refused(pattern: str, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused) as error:
        read("megatron-hybrid", {"pp": 2, "hybrid_layer_pattern": pattern, **given})
    assert reason in str(error.value)


def test_attention_of_other_kinds_may_be_together() -> None:
    assert devices("+-|D-", pp=2) == [[["E", "+0", "-1"]], [["D2", "-3", "L"]]]
    assert devices("*-|*-", pp=2, account_loss=False, num_layers=4)


def test_a_pattern_is_needed() -> None:
    with pytest.raises(OptionError, match="megatron-hybrid: hybrid_layer_pattern: missing"):
        read("megatron-hybrid", {"pp": 2})
    with pytest.raises(OptionError, match="at most 100000 symbols"):
        devices("M" * 100_001, pp=1)
