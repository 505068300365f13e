"""How Megatron reads layouts and its older flags: every check, and which comes first."""

from typing import Any

import pytest

from ppopt.layouts import Megatron, OptionError, Refused, read
from tests.support.layouts import lists


def counts(**given: Any) -> tuple[int, ...]:
    return read("megatron", given).layout.layers


def refused(**given: Any) -> str:
    with pytest.raises(Refused) as error:
        read("megatron", given)
    return str(error.value)


FOUR = {"pp": 2, "num_layers": 4}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"layout": "Ett|ttL", "virtual_stages": 1}, "no more than one may be given"),
        ({"layout": "Ett|ttL", "layers_per_virtual": 2}, "no more than one may be given"),
        ({"virtual_stages": 2, "layers_per_virtual": 1}, "no more than one may be given"),
        ({"layout": "Ett|xtL"}, "stage 1: 'x' is no layer"),
        ({"layout": "Ett|t|tL"}, "3 stages cannot be dealt equally to 2 devices"),
        ({"layout": "Et|t|t|tL", "no_overlap_p2p": True}, "need at least 3 devices with no_overlap_p2p, got 2"),
        ({"layout": "EttttL|", "pp": 1}, "need at least 2 devices, got 1"),
        ({"layout": "Ett|ttL", "last": 2}, "with a layout none of first, last"),
        ({"layout": "Ett|ttL", "account_embedding": True}, "with a layout none of first, last"),
        ({"layout": "Ett|ttL", "vpp": 2}, "vpp declares 2 stages on each device, but there are 1"),
        ({"layout": "|"}, "has to come first, got no layer at all"),
        ({"layout": ""}, "1 stages cannot be dealt"),
        ({"layout": "tEt|ttL"}, "the embedding (E) has to come first, got t"),
        ({"layout": "Ett|ttLt"}, "the head with the loss (L) has to come last, got t"),
        ({"layout": "EtE|tttL"}, "E has to be there once, not 2 times"),
        ({"layout": "Ett|LttL"}, "L has to be there once, not 2 times"),
        ({"layout": "Ett|tttL"}, "decoder layers (t): the layout has 5, the model 4"),
        ({"layout": "Ett|ttmL", "mtp": 2}, "(m): the layout has 1, the model 2"),
        ({"layout": "Ettm|ttL", "mtp": 1}, "a decoder layer (t) comes after"),
        ({"layout": "Ett|ttm|m|L", "mtp": 2}, "stage 1 has layers of multi-token prediction (m), but is not the last stage"),
        ({"layout": "Ettttm|mL", "mtp": 2}, "have to be on one stage"),
    ],
)
def test_checks_of_a_layout(given: dict[str, Any], reason: str) -> None:
    assert reason in refused(**{**FOUR, **given})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"layout": "xtt|t|tL", "virtual_stages": 2}, "no more than one"),
        ({"layout": "xtt|t|tL", "first": 1}, "'x' is no layer"),
        ({"layout": "Ett|t|tL", "first": 1}, "3 stages"),
        ({"layout": "t|t|t|tL", "no_overlap_p2p": True, "first": 1}, "at least 3 devices"),
        ({"layout": "tt|ttL", "first": 1}, "with a layout"),
        ({"layout": "tt|ttL", "vpp": 3}, "vpp declares 3"),
        ({"layout": "tE|tEt"}, "has to come first"),
        ({"layout": "EE|tttt"}, "has to come last"),
        ({"layout": "EEt|tL"}, "E has to be there once"),
        ({"layout": "Ettm|tL"}, "decoder layers (t): the layout has 3"),
        ({"layout": "Ettm|ttL"}, "(m): the layout has 1, the model 0"),
        ({"layout": [["embedding", "x"]], "first": 1}, "with a layout"),
    ],
)
def test_which_check_comes_first(given: dict[str, Any], reason: str) -> None:
    assert reason in refused(**{**FOUR, **given})


def test_the_embedding_and_the_head_are_where_megatron_builds_them() -> None:
    reading = read("megatron", {"pp": 2, "num_layers": 2, "layout": "|Et|tL|"})
    assert lists(reading.layout) == [[["E"], [1]], [[0], ["L"]]]
    assert [warning.split(",")[0] for warning in reading.warnings] == [
        "the layout has E on stage 1",
        "the layout has L on stage 2",
    ]


def test_without_a_number_of_layers_the_layout_says_it() -> None:
    reading = read("megatron", {"pp": 2, "layout": "Ett|tL"})
    assert reading.layout.layers == (2, 1)
    assert "taken are the 3" in reading.warnings[0]
    with pytest.raises(OptionError, match="num_layers: missing"):
        read("megatron", {"pp": 2})


@pytest.mark.parametrize("row", [["embedding", "decoder"], [" Embedding ", "DECODER"]])
def test_lists_have_names(row: list[str]) -> None:
    given = {"pp": 2, "num_layers": 1, "mtp": 1, "layout": [row, ["mtp", "loss"]]}
    assert lists(read("megatron", given).layout) == [[["E", 0]], [["m0", "L"]]]


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ([["embedding", "t"], ["loss"]], "stage 0: 't' is no layer; in a list these are embedding, decoder, mtp, loss"),
        ([["embedding"], ["Encoder", "loss"]], "stage 1: encoder layers are not taken"),
        ([["embedding", "decoder", "loss"]], "1 stages cannot be dealt"),
        ([], "0 stages cannot be dealt"),
        ([["decoder"], ["embedding", "loss"]], "has to come first, got t"),
    ],
)
def test_lists_that_are_refused(layout: list[list[str]], reason: str) -> None:
    assert reason in refused(pp=2, num_layers=1, layout=layout)


# --- the older flags ---


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"pp": 4, "num_layers": 8}, (2, 2, 2, 2)),
        ({"pp": 1, "num_layers": 5}, (5,)),
        ({"pp": 1, "num_layers": 5, "account_embedding": True, "account_loss": True}, (5,)),
        ({"pp": 2, "num_layers": 8, "virtual_stages": 2}, (2, 2, 2, 2)),
        ({"pp": 2, "num_layers": 8, "virtual_stages": 1}, (4, 4)),
        ({"pp": 2, "num_layers": 8, "layers_per_virtual": 4}, (4, 4)),
        ({"pp": 2, "num_layers": 8, "vpp": 2}, (2, 2, 2, 2)),
        ({"pp": 2, "num_layers": 7, "layers_per_virtual": 2, "account_loss": True}, (2, 2, 2, 1)),
        ({"pp": 2, "num_layers": 7, "account_loss": True}, (4, 3)),
        ({"pp": 2, "num_layers": 7, "account_embedding": True}, (3, 4)),
        ({"pp": 3, "num_layers": 10, "first": 2}, (2, 4, 4)),
        ({"pp": 3, "num_layers": 10, "last": 2}, (4, 4, 2)),
        ({"pp": 2, "num_layers": 10, "first": 2, "last": 8}, (2, 8)),
        ({"pp": 2, "num_layers": 10, "first": 2}, (2, 8)),
        ({"pp": 3, "num_layers": 10, "first": 4, "last": 6}, (4, 0, 6)),
        ({"pp": 3, "num_layers": 12, "first": 2, "last": 4, "virtual_stages": 2}, (1, 3, 2, 1, 3, 2)),
    ],
)
def test_older_flags(given: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert counts(**given) == expected


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"pp": 3}, "10 layers cannot be dealt equally to 3 devices"),
        ({"pp": 5, "account_loss": True}, "10 layers and 1 that count as one cannot"),
        ({"pp": 2, "virtual_stages": 2}, "the 5 layers of a device cannot be dealt equally to its 2 stages"),
        ({"pp": 4, "virtual_stages": 2}, "10 layers cannot be dealt equally to 4 devices"),
        ({"pp": 2, "virtual_stages": 0}, "virtual_stages has to be at least 1, got 0"),
        ({"pp": 2, "layers_per_virtual": 0}, "layers_per_virtual has to be at least 1, got 0"),
        ({"pp": 2, "layers_per_virtual": 2}, "the 5 layers of a device cannot be cut into stages of 2"),
        ({"pp": 4, "layers_per_virtual": 1}, "10 layers cannot be dealt equally to 4 devices"),
        ({"pp": 2, "last": 4, "layers_per_virtual": 1}, "cannot be given together with layers_per_virtual"),
        ({"pp": 1, "virtual_stages": 2}, "need at least 2 devices, got 1"),
        ({"pp": 2, "virtual_stages": 5, "no_overlap_p2p": True}, "need at least 3 devices"),
        ({"pp": 2, "first": 0}, "first has to be at least 1, got 0"),
        ({"pp": 2, "last": -3}, "last has to be at least 1, got -3"),
        ({"pp": 3, "first": 3, "virtual_stages": 2}, "first: 3 layers cannot be dealt equally to the 2 stages"),
        ({"pp": 3, "last": 3, "virtual_stages": 2}, "last: 3 layers cannot be dealt equally to the 2 stages"),
        ({"pp": 3, "first": 4, "last": 4, "virtual_stages": 4}, "the 2 layers of a device in the middle cannot be dealt"),
        ({"pp": 3, "first": 3}, "the 7 layers that first and last leave cannot be dealt equally to 2 devices"),
        ({"pp": 2, "first": 3, "last": 6}, "the devices have 9 layers together, the model has 10"),
        ({"pp": 3, "first": 6, "last": 6}, "more than the 10 layers"),
        ({"pp": 1, "first": 6}, "the devices have 6 layers together"),
        ({"pp": 2, "first": 4, "account_loss": True}, "cannot be given together with account_embedding"),
        ({"pp": 5, "vpp": 2, "virtual_stages": 1}, "vpp declares 2 stages on each device, but there are 1"),
    ],
)
def test_older_flags_that_are_refused(given: dict[str, Any], reason: str) -> None:
    assert reason in refused(**{"num_layers": 10, **given})


def test_prediction_without_a_layout_is_on_the_last_stage() -> None:
    layout = read("megatron", {"pp": 2, "num_layers": 4, "mtp": 2, "virtual_stages": 2}).layout
    assert layout.stages[-1] == (3, "m0", "m1", "L")


def test_too_many_stages() -> None:
    with pytest.raises(OptionError, match="at most 4096 stages are supported, got 4100"):
        read("megatron", {"pp": 2, "num_layers": 4100, "virtual_stages": 2050})


# --- options ---


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_layers": 4}, "megatron: pp: missing"),
        ({"pp": 2, "num_layer": 4}, "megatron: num_layer: unknown option; did you mean num_layers?"),
        ({"pp": 2, "zzz": 4}, "megatron: zzz: unknown option; its options are pp, num_layers, mtp"),
        ({"pp": True, "num_layers": 4}, "pp: expected a whole number from 1 to 1024, got True"),
        ({"pp": 0, "num_layers": 4}, "pp: expected a whole number from 1 to 1024, got 0"),
        ({"pp": 2000, "num_layers": 4}, "pp: expected a whole number from 1 to 1024, got 2000"),
        ({"pp": 2, "num_layers": 4.0}, "num_layers: expected a whole number from 1 to 100000, got 4.0"),
        ({"pp": 2, "num_layers": 10**9}, "num_layers: expected a whole number from 1 to 100000"),
        ({"pp": 2, "layout": 7}, "layout: expected a string, or a list with a list of names for each stage, got 7"),
        ({"pp": 2, "layout": ["embedding"]}, "layout: expected a string, or a list"),
        ({"pp": 2, "layout": [["embedding", 3]]}, "layout: expected a string, or a list"),
        ({"pp": 2, "num_layers": 4, "account_loss": 1}, "account_loss: expected true or false, got 1"),
        ({"pp": 2, "num_layers": 4, "first": "2"}, "first: expected a whole number, got '2'"),
        ({"pp": 2, "num_layers": 4, "mtp": -1}, "mtp: expected a whole number from 0"),
    ],
)
def test_options_that_are_wrong(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as error:
        read("megatron", given)
    assert message in str(error.value)


def test_none_is_not_given() -> None:
    assert counts(pp=2, num_layers=4, mtp=None, layout=None, account_loss=None, first=None) == (2, 2)


def test_options_are_frozen_and_hashable() -> None:
    given = Megatron(2, layout=[["embedding"], ["loss"]])  # type: ignore[arg-type]
    assert given.layout == (("embedding",), ("loss",))
    assert hash(given)


def test_there_are_three_runtimes() -> None:
    with pytest.raises(
        OptionError, match="there is no runtime 'megatrom'; expected one of megatron, megatron-hybrid, torchtitan"
    ):
        read("megatrom", {})
