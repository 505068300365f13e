"""Pages, pictures, the glossary, the citation and the README's figures hold together."""

import importlib
import importlib.util
import json
import re
from pathlib import Path

import pytest
from PIL import Image

import ppopt as pp
from ppopt.files import model_of_text, result_dict
from ppopt.text import figure, percent
from tests.docs.pages import FENCE, PAGES, named
from tests.support.browser import need
from tests.support.places import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
PICTURES = sorted((ROOT / "docs" / "pictures").iterdir())
MODULES = sorted((ROOT / "ppopt").rglob("*.py"))


# --- links and pictures ---


def anchors(text: str) -> set[str]:
    """Of the headings, as both GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if target.startswith("http"):
            continue
        path = page.parent / target if target else page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text(encoding="utf-8")), f"{target}#{anchor}"


def test_every_page_is_on_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f": {page.name}\n" in nav


def test_every_room_of_the_python_page_has_its_reference() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    made = (ROOT / "docs" / "building" / "pages.py").read_text(encoding="utf-8")
    table = (ROOT / "docs" / "api.md").read_text(encoding="utf-8").split("\n## Rooms\n")[1]
    rooms = [room for line in table.splitlines() if line.startswith("| `ppopt.") for room in re.findall(r"`ppopt\.(\w+)`", line)]
    assert len(rooms) > 12
    for room in rooms:
        assert f"- ppopt.{room}: reference/{room}.md\n" in nav
        assert f'    "{room}": (' in made


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_pictures_are_small_shown_and_on_white(picture: Path) -> None:
    """So that they can be read on a dark page."""
    assert picture.stat().st_size <= 200_000
    with Image.open(picture) as image:
        assert "transparency" not in image.info
        assert image.width >= 900
        assert image.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)
    shown = [page.name for page in PAGES if f"pictures/{picture.name})" in page.read_text(encoding="utf-8")]
    assert shown


@pytest.mark.slow
def test_one_script_makes_all_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    gallery = importlib.import_module("gallery")
    need(gallery.browser_path() is not None and importlib.util.find_spec("playwright") is not None, "browser")
    monkeypatch.setattr(gallery, "DOCS", tmp_path)
    gallery.main(["--docs"])
    studies = "study-"  # made by the scripts that the page of the studies names
    assert {path.name for path in tmp_path.iterdir()} == {p.name for p in PICTURES if not p.name.startswith(studies)}
    assert all(path.stat().st_size <= 200_000 for path in tmp_path.iterdir())


# --- words ---


def test_terms_of_tables_are_in_the_glossary() -> None:
    headings = {heading.lower() for heading in re.findall(r"^### (.*)$", GLOSSARY, re.MULTILINE)}
    table = str(pp.compare(pp.Pipeline(4, 8, memory=pp.Memory(limit=3))))
    columns = re.split(r" {2,}", next(line for line in table.splitlines() if line.startswith("schedule ")).strip())
    meant = {"schedule": "named schedule", "chunks": "chunk"}
    assert {meant.get(column, column) for column in columns} <= headings
    for term in (
        "efficiency",
        "throughput",
        "idle time",
        "utilisation",
        "memory limit",
        "gap",
        "idle gap",
        "proved by",
        "lower bound",
        "retained",
        "activation",
        "tick",
        "objective",
        "scope",
    ):
        assert term in headings


def test_keys_of_results_are_in_the_glossary() -> None:
    tree = result_dict(pp.solve(pp.Pipeline(2, 3), seconds=5))
    told = {"limit", "seconds", "seed", "versions", "reason"}  # on the page of the result JSON
    for part in ("result", "metrics"):
        for key in tree[part].keys() - told:
            assert f"`{part}.{key}`" in GLOSSARY or key in ("proved_by", "peak_memory"), f"{part}.{key}"
    json.dumps(tree)


WITH_TABLES = ["README", "command-line", "result-json", "studies", "api", "schedules", "model-file", "gallery"]


@pytest.mark.parametrize("page", WITH_TABLES)
def test_pages_with_tables_lead_to_the_glossary(page: str) -> None:
    path = next(each for each in PAGES if each.stem == page)
    assert "glossary.md)" in path.read_text(encoding="utf-8")


# --- docstrings ---


def field_or_attribute(of: object, name: str) -> object:
    """A dataclass has no attribute for a field without a default."""
    fields = getattr(of, "__dataclass_fields__", {})
    return fields[name] if name in fields else getattr(of, name)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_refer_to_what_there_is(module: Path) -> None:
    """A reference with a full name; links of the site come from these."""
    for name in re.findall(r":(?:class|func|meth|attr|mod|data|exc):`~?(ppopt\.[\w.]+)`", module.read_text(encoding="utf-8")):
        assert named(name, field_or_attribute) is not None, name


# --- the first page ---


def printed() -> str:
    """The output of the main command, as the README shows it."""
    return next(text for language, text in FENCE.findall(README) if not language and "makespan" in text)


def test_the_headline_is_the_printed_output_and_nothing_in_the_table_beats_it() -> None:
    output = printed()
    first = re.search(r"makespan ([\d.]+) ms; lower bound ([\d.]+) ms by .*, gap ([\d.]+ %)", output)
    assert first is not None
    value, bound = float(first[1]), float(first[2])
    assert f"**{first[1]} ms**" in README
    assert f"no schedule is below {first[2]} ms on any of three placements: the *gap* is {first[3]}" in " ".join(README.split())
    assert percent((value - bound) / value) == first[3]
    table = pp.compare(pp.read_model(str(ROOT / "models" / "gpt-1.5b.toml")))
    for row in table:
        cells = [row.label, row.placement, str(row.chunks), figure(row.makespan), figure(row.device_span)]
        marked = rf"{re.escape(cells[0])}(?: [*‡])?"
        line = re.search(rf"^{marked} +{' +'.join(map(re.escape, cells[1:]))} .*$", output, re.MULTILINE)
        assert line is not None, row.label
        assert line[0].endswith("!") != row.within_memory
        assert row.makespan > value >= bound
    more = percent(table["1f1b"].makespan / value - 1)
    assert f"1F1B takes {more} more" in README
    assert f"1f1b takes {more} more than the best found" in output


@pytest.mark.slow
def test_the_headline_is_no_better_than_what_can_be_proved() -> None:
    model = pp.read_model(str(ROOT / "models" / "gpt-1.5b.toml"))
    pipeline = model.pipeline.placed("any", 2)
    result = pp.solve(pipeline, seconds=60)
    value, bound = (float(x) for x in re.search(r"makespan ([\d.]+) ms; lower bound ([\d.]+) ms", printed()).groups())  # type: ignore[union-attr]
    assert result.lower_bound <= value
    assert bound <= result.value


def test_the_picture_is_of_the_example() -> None:
    """It keeps the model file that it was made from, and the makespans; those of named schedules are computed again here."""
    example = next(text for language, text in FENCE.findall(README) if language == "toml")
    with Image.open(ROOT / "docs" / "pictures" / "optimum.png") as image:
        kept = dict(image.info)
    assert kept["Source"] == example
    table = pp.compare(model_of_text(example, "README.md").pipeline)
    first, second, best = map(float, kept["Title"].split(", "))
    assert (first, second) == (table["1f1b"].makespan, table["zb-h1"].makespan)
    assert min(row.makespan for row in table if row.within_memory) > best
    assert f"makespan {best:g}: optimal, proved by" in README
    assert README.index("pictures/optimum.png") < README.index("\n## ")


def test_a_fact_has_one_figure() -> None:
    """The seconds of a proof stand in the table of times alone."""
    before = README.split("## Time to proof")[0]
    assert re.findall(r"\(([\d.]+) s[;)]", before) == re.findall(r"\(([\d.]+) s[;)]", printed())
    assert "proved" not in "".join(re.findall(r"^makespan .* s\)$", printed(), re.MULTILINE))


# --- the citation ---


def test_the_citation_is_of_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^([a-z-]+): (.*)$", citation, re.MULTILINE))
    assert fields["version"] == pp.__version__
    assert fields["license"] == "MIT"
    assert {"cff-version", "message", "title", "authors"} <= set(re.findall(r"^([a-z-]+):", citation, re.MULTILINE))
    assert f"## {pp.__version__} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_what_is_packed_is_there() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for name in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]:
        assert (ROOT / name).exists(), name
