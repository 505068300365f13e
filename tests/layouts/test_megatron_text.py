"""Megatron's layout string: two passes of repetition, and short texts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppopt.layouts import OptionError, Refused, read, written
from ppopt.layouts.megatron_text import glued, shortened


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("", [""]),
        ("EtL", ["EtL"]),
        ("E||t|L", ["E", "", "t", "L"]),
        ("|E|", ["", "E", ""]),
        ("Et|*3L", ["Et", "", "", "L"]),
        ("E(ttt)*2|L", ["Etttttt", "L"]),
        ("E(t*2|)*3t*8L", ["Ett", "tt", "tt", "ttttttttL"]),
        ("(E|)*0tL", ["tL"]),
        ("Et*007L", ["EtttttttL"]),
        ("E,t,*,2,L", ["EttL"]),
        ("t**0E", ["tE"]),
        ("E(t|(t|)*2L", None),
        ("E(t|))*2L", None),
        ("E()*2L", None),
        ("E)*0tL", ["EtL"]),
        ("*3E", None),
        ("E\n*0tL", None),
        ("Et2L", None),
        ("Et*-2L", None),
        ("Et*2.5L", None),
        ("E t", None),
    ],
)
def test_expansion(text: str, stages: list[str] | None) -> None:
    if stages is not None:
        assert list(written(text)) == stages
        return
    with pytest.raises(Refused, match="stage "):
        written(text)


PIECES = st.sampled_from(["E", "t", "m", "L", "|", "(", ")", ")*2", ")*3", "*2", "*0", "*", ",", "3", "(t|)*2", "x"])


@given(st.lists(PIECES, max_size=14).map("".join))
def test_expansion_is_that_of_two_substitutions(text: str) -> None:
    """Said once more, as replacements of patterns."""
    rest = text.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*([0-9]+)", r"(.)\*([0-9]+)"):
        rest = re.sub(pattern, lambda found: found[1] * int(found[2]), rest)
    if set(rest) <= set("EtmL|"):
        assert list(written(text)) == rest.split("|")
    else:
        with pytest.raises(Refused):
            written(text)


@pytest.mark.parametrize("text", ["t*99999999999", "(t*1000)*1000", "t*" + "9" * 5000, "(" + "t*99999|" * 9 + ")*9"])
def test_what_is_too_large_is_refused_before_it_is_built(text: str) -> None:
    with pytest.raises(OptionError, match="at most 200000 characters"):
        written(text)


def test_too_many_stages_are_refused() -> None:
    with pytest.raises(OptionError, match="at most 4096 stages are supported, got 5001"):
        written("|*5000")


def test_commas_between_digits() -> None:
    assert glued("Et*2,3|L") == "2,3"
    assert glued("Et*2|,t*3,L") is None


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        (["Et", "t", "t", "tL"], "E(t|)*3tL"),
        (["E", "t"], "E|t"),
        (["Ett", *["tt"] * 34, "ttt", "tt", "tt", "tt", "tL"], "E(tt|)*35t*3|(tt|)*3tL"),
        (["Ettt", *["tt"] * 29, "m", "L"], "Et*3|(tt|)*29m|L"),
        (["E", "", "", "", "L"], "E|*4L"),
        (["E" + "t" * 11, "t" * 11, "t" * 11, "t" * 10 + "mL"], "E(t*11|)*3t*10mL"),
        (["E", *["ttt", ""] * 4, "L"], "E|(t*3||)*4L"),
    ],
)
def test_short_texts(stages: list[str], text: str) -> None:
    assert shortened(tuple(stages)) == text
    assert list(written(text)) == stages


@given(st.lists(st.sampled_from(["", "t", "tt", "ttt", "tttt", "m", "E", "L"]), min_size=1, max_size=40))
def test_short_texts_are_read_back(stages: list[str]) -> None:
    text = shortened(tuple(stages))
    assert list(written(text)) == stages
    assert len(text) <= len("|".join(stages))
    assert "," not in text


def test_published_texts_are_not_longer_than_they_were() -> None:
    text = "Et*2|(t*2|)*34,t*3|(t*2|)*3,tL"
    assert len(shortened(written(text))) <= len(text)


def test_a_large_layout_is_written_too() -> None:
    stages = ("Et", *["t", "tt", "", "ttt"] * 1000, "tL")
    assert written(shortened(stages)) == stages
    assert len(shortened(stages)) < 40


def test_letters_keep_their_meaning() -> None:
    """No blanks, no other case."""
    for text in ("ett|ttL", "ETT|TTL", "Ett | ttL", "Ett|ttl"):
        with pytest.raises(Refused):
            read("megatron", {"pp": 2, "num_layers": 4, "layout": text})
