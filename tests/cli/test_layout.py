"""``ppopt layout``: how runtimes read layouts, on the command line."""

import json
from typing import Any

import pytest

from tests.support.command import read, refused, run
from tests.support.layouts import Case, cases
from tests.support.many import each


def arguments(case: Case) -> list[str]:
    """All of a case as ``--option``."""
    options = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in case["input"].items()]
    return ["layout", "--runtime", case["runtime"], *(word for text in options for word in ("--option", text))]


def test_golden_cases_on_the_command_line() -> None:
    def check(case: Case) -> None:
        found = read(*arguments(case), code=0 if case["valid"] else 1)
        assert set(found) == {"valid", "virtual", "devices", "reason"}
        assert [found[key] for key in ("valid", "virtual", "devices")] == [
            case["valid"],
            case.get("virtual"),
            case.get("devices"),
        ]
        assert (found["reason"] is None) == case["valid"]
        assert run(*arguments(case), code=0 if case["valid"] else 1).stdout

    each(cases(), check)


def test_a_text_with_flags() -> None:
    shown = run("layout", "Et*2|(t*2|)*2,tL", "--runtime", "megatron", "-d", 2, "--layers", 7)
    assert shown.stdout.splitlines() == [
        "megatron: 7 layers, 2 devices, 2 chunks on each, loop",
        "device   chunk 0   chunk 1   layers",
        "─" * 35,
        "0        E 0-1     4-5            4",
        "1        2-3       6 L            3",
    ]
    assert shown.stderr == ""


def test_one_chunk() -> None:
    shown = run("layout", "Et|||tmL", "--runtime", "megatron", "-d", 4, "--option", "mtp=1").stdout
    assert shown.splitlines()[0] == "megatron: 2 layers, 4 devices, linear"
    assert [line.split() for line in shown.splitlines()[3:]] == [
        ["0", "E", "0", "1"],
        ["1", "empty", "0"],
        ["2", "empty", "0"],
        ["3", "1", "m0", "L", "1"],
    ]


def test_many_chunks_are_rows() -> None:
    shown = run("layout", "--runtime", "megatron", "-d", 2, "--layers", 20, "--option", "virtual_stages=10").stdout
    lines = [line.split() for line in shown.splitlines()]
    assert lines[1] == ["device", "chunk", "holds", "layers"]
    assert lines[3] == ["0", "0", "E", "0", "1"]
    assert lines[-1] == ["1", "9", "19", "L", "1"]


def test_patterns_show_symbols_and_numbers() -> None:
    shown = run("layout", "--runtime", "megatron-hybrid", "-d", 2, "--", "-*|E/*-").stdout
    assert shown.splitlines()[0] == "megatron-hybrid: 3 layers, 2 devices, linear"
    assert "E -* 0-1 " in shown
    assert "E 2 m0 L " in shown


def test_lists() -> None:
    rows = [["tok_embeddings", "layers.0"], ["layers.1", "[x]", "norm", "lm_head"]]
    shown = run("layout", json.dumps(rows), "--runtime", "torchtitan", "-d", 2, "--layers", 2)
    assert "[x] 1 N L" in shown.stdout
    assert shown.stderr == "Warning: stage 1 names '[x]': kept if the model has it, else nobody says anything.\n"
    names = [["embedding", "decoder"], ["decoder", "loss"]]
    assert read("layout", json.dumps(names), "--runtime", "megatron", "-d", 2, "--layers", 2) == {
        "valid": True,
        "virtual": 1,
        "devices": [[["E", 0]], [[1, "L"]]],
        "reason": None,
    }


def test_a_wave() -> None:
    shown = run("layout", "--runtime", "torchtitan", "-d", 2, "--layers", 6, "--option", "schedule=ZBVZeroBubble").stdout
    assert shown.splitlines()[0].endswith("2 chunks on each, wave")
    assert shown.splitlines()[3].split() == ["0", "E", "0", "5", "N", "L", "2"]


def test_warnings_are_on_standard_error() -> None:
    result = run("layout", "|Et|t|L", "--runtime", "megatron", "-d", 2, "--json")
    assert json.loads(result.stdout)["valid"]
    assert result.stderr == (
        "Warning: the number of layers is not given; taken are the 2 of the layout.\n"
        "Warning: the layout has E on stage 1, but Megatron builds the embedding on stage 0.\n"
    )


@pytest.mark.parametrize("as_json", [False, True])
def test_a_refusal_is_the_result(as_json: bool) -> None:
    result = run("layout", "Et|t|tL", "--runtime", "megatron", "-d", 2, *["--json"] * as_json, code=1)
    reason = "3 stages cannot be dealt equally to 2 devices"
    assert result.stderr == ""
    if as_json:
        assert json.loads(result.stdout) == {"valid": False, "virtual": None, "devices": None, "reason": reason}
    else:
        assert result.stdout == f"megatron refuses it: {reason}\n"


ASKED = ["layout", "Et|tL", "--runtime", "megatron"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["layout", "Et|tL"], "Missing option '--runtime'"),
        (["layout", "Et|tL", "--runtime", "megatorn"], "'megatorn' is not one of 'megatron'"),
        (ASKED, "megatron: pp: missing"),
        ([*ASKED, "-d", "0"], "pp: expected a whole number from 1 to 1024, got 0"),
        ([*ASKED, "-d", "two"], "'two' is not a valid integer"),
        ([*ASKED, "-d", "2", "--option", "numlayers=2"], "megatron: numlayers: unknown option; did you mean num_layers?"),
        ([*ASKED, "-d", "2", "--option", "mtp"], "--option mtp: expected NAME=VALUE"),
        ([*ASKED, "-d", "2", "--option", "=2"], "--option =2: expected NAME=VALUE"),
        ([*ASKED, "-d", "2", "--option", "first=two"], "first: expected a whole number, got 'two'"),
        ([*ASKED, "-d", "2", "--option", "first=NaN"], "first: expected a whole number, got nan"),
        ([*ASKED, "-d", "2", "--option", "mtp=0", "--option", "mtp=1"], "an option is given twice"),
        ([*ASKED, "-d", "2", "--option", "layout=E"], "TEXT and --option layout say different things"),
        ([*ASKED, "-d", "2", "--option", "pp=4"], "-d/--devices and --option pp say different things"),
        ([*ASKED, "-d", "2", "--layers", "3", "--option", "num_layers=2"], "--layers and --option num_layers say different"),
        (["layout", "[[", "--runtime", "torchtitan", "-d", "2", "--layers", "2"], "a list of names for each stage, got '[['"),
        (["layout", "[" * 100_000, "--runtime", "torchtitan", "-d", "2", "--layers", "2"], "a list of names for each stage"),
        (["layout", "t*99999999", "--runtime", "megatron", "-d", "2"], "at most 200000 characters"),
    ],
    ids=range(17),
)
def test_usage(words: list[str], message: str) -> None:
    assert message in refused(*words)


@pytest.mark.parametrize(
    "same", [["--option", "pp=2"], ["--option", "layout=Et|tL"], ["--option", "num_layers=2", "--layers", "2"]]
)
def test_what_is_said_twice_alike_is_said_once(same: list[Any]) -> None:
    assert read(*ASKED, "-d", 2, *same)["valid"]
