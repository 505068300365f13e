"""Every definition is explained, on the page of schedules too, and has a model file."""

import re

import pytest

from ppopt.files import read_model
from ppopt.named import NAMED, Definition, find
from tests.support.places import MODELS, ROOT


def test_every_definition_says_what_it_is() -> None:
    for definition in NAMED.values():
        assert definition.summary
        assert definition.source
        assert definition.peak
        assert definition.needs


PAGE = (ROOT / "docs" / "schedules.md").read_text()


@pytest.mark.parametrize("definition", [pytest.param(d, id=d.name) for d in NAMED.values()])
def test_the_page_of_schedules_says_what_the_definitions_say(definition: Definition) -> None:
    d = definition
    aliases = ", ".join(f"`{alias}`" for alias in d.aliases) or "-"
    cells = [f"`{d.name}`", aliases, d.placement, "I, W" if d.split else "B", d.needs, d.peak, d.idle or "-"]
    assert f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n" in PAGE
    assert f"- `{d.name}`: {d.summary}. {d.source}\n" in PAGE
    for p in d.parameters:
        choices = f" ({', '.join(p.choices)})" if p.choices else ""
        assert f"- `{d.name}` `{p.name}`{choices}: {p.meaning}; default: {p.default}\n" in PAGE
    if d.open_rule:
        assert f"- `{d.name}`: {d.open_rule}\n" in PAGE


def test_the_example_of_an_order_prints_its_makespan(capsys: pytest.CaptureFixture[str]) -> None:
    example = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[-1]
    exec(compile(example, "schedules.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mine 9"
    assert "1f1b 9" in lines


@pytest.mark.parametrize("name", NAMED)
def test_there_is_a_model_file_for_every_schedule(name: str) -> None:
    model = read_model(str(MODELS / f"{name}.toml"))
    assert model.schedule == name
    assert find(name).schedule(model.pipeline, **model.params).within_memory
