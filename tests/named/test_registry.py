"""Names, aliases, and what a name is read as."""

import pytest

from ppopt.named import NAMED, UnknownSchedule, find, reading

EMULATION_NAMES = {
    "1f1b": "1f1b",
    "zb1p": "zb-h1",
    "interleave": "interleaved-1f1b",
    "1f1b_overlap": "1f1b-overlap",
    "1f1b_interleave_overlap": "interleaved-1f1b-overlap",
    "dualpipe": "dualpipe",
    "dualpipe_v": "dualpipe-v",
}


@pytest.mark.parametrize(("name", "means"), EMULATION_NAMES.items())
def test_names_of_pp_emulation(name: str, means: str) -> None:
    assert find(name).name == means


def test_no_name_means_two_schedules() -> None:
    names = [name.lower().replace("_", "-") for d in NAMED.values() for name in {d.name, *d.aliases}]
    owners = {name: find(name).name for name in names}
    for definition in NAMED.values():
        for name in (definition.name, *definition.aliases):
            assert owners[name.lower().replace("_", "-")] == definition.name
    assert all(name == definition.name for name, definition in NAMED.items())


def test_case_and_underscores_do_not_matter() -> None:
    assert find("DualPipe_V") is find("dualpipe-v")
    assert find("ZB_H1") is find("zb-h1")


@pytest.mark.parametrize(
    ("name", "near"),
    [("1f2b", "1f1b"), ("zb-h3", "zb-h"), ("dualpip", "dualpipe"), ("hanayoo", "hanayo"), ("chimaera", "chimera")],
)
def test_an_unknown_name_gets_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UnknownSchedule, match=rf"there is no schedule '{name}'; did you mean .*{near}"):
        find(name)


def test_a_name_like_no_other() -> None:
    with pytest.raises(UnknownSchedule, match="lists them"):
        find("xyzzy")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("zb1p", ["zb1p is read as zb-h1", "zb-1p"]),
        ("zb2p", ["zb2p is read as zb-h2", "zb-2p"]),
        ("zb-1p", ["zb-1p is the automatic scheduler", "zb1p is zb-h1"]),
        ("zb-2p", ["zb-2p is the automatic scheduler", "zb2p is zb-h2"]),
        ("interleave", ["interleave is read as interleaved-1f1b"]),
    ],
)
def test_what_a_name_is_read_as(name: str, parts: list[str]) -> None:
    text = reading(name)
    assert text is not None
    assert all(part in text for part in parts)


def test_a_plain_name_needs_no_reading() -> None:
    assert reading("1f1b") is None
    assert reading("zb-h1") is None
