"""``import ppopt as pp``: the face of the package, in the user's units."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ppopt as pp
from ppopt.files import json_text, result_dict
from ppopt.search import Result
from tests.support.tiers import thorough

TEN_LINES = """
import ppopt as pp

costs = pp.Costs(forward=18.5, backward_input=18.1, backward_weight=9.3)
memory = pp.Memory(retained=0.366, limit=3)
pipeline = pp.Pipeline(devices=4, microbatches=8, costs=costs, links=pp.Links(latency=0.6), memory=memory)
table = pp.compare(pipeline)
result = pp.solve(pipeline, seconds=60)
print(table, result, sep="\\n")
assert pp.check(result) == []
pp.plot([result, table["v-half"]], "best.svg")
"""


def gpt(**changes: Any) -> pp.Pipeline:
    costs = pp.Costs(forward=18.5, backward_input=18.1, backward_weight=9.3)  # type: ignore[arg-type]
    memory = pp.Memory(retained=0.366, limit=3)  # type: ignore[arg-type]
    return pp.Pipeline(4, 8, costs=costs, links=pp.Links(latency=0.6), memory=memory).changed(**changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def solved() -> Result:
    return pp.solve(gpt(), workers=1)


@thorough
def test_ten_lines_in_an_empty_folder(tmp_path: Path) -> None:
    shown = subprocess.run([sys.executable, "-c", TEN_LINES], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "makespan 531.9: optimal, proved by" in shown
    assert (tmp_path / "best.svg").read_text().startswith("<?xml")


def test_importing_loads_nothing() -> None:
    code = "import sys, ppopt; sys.exit(str([m for m in sys.modules if m.split('.')[0] in heavy or m.startswith('ppopt.')]))"
    heavy = "heavy = {'ortools', 'pulp', 'matplotlib', 'numpy', 'pydantic', 'rich', 'click', 'torch'}; "
    result = subprocess.run([sys.executable, "-c", heavy + code], capture_output=True, text=True, check=False)
    assert result.stderr.strip() == "[]"


def test_everything_on_the_face_is_there() -> None:
    for name in pp.__all__:
        assert getattr(pp, name) is not None
    assert set(pp.__all__) <= set(dir(pp))
    with pytest.raises(AttributeError, match="nothing"):
        _ = pp.nothing  # type: ignore[attr-defined]
    assert pp.named.compare is pp.compare


def test_results_are_in_the_users_units(solved: Result) -> None:
    result = solved
    assert (result.value, result.makespan, result.lower_bound) == (531.9, 531.9, 531.9)
    assert result.ticks == (10, 5319, 5319, 5319, 5319)
    assert result.device_span == 531.9
    assert result.schedule is not None
    assert result.schedule.makespan == 5319
    assert result.peak_memory is not None
    assert max(result.peak_memory) <= 3
    written = json.loads(json_text(result_dict(result)))
    for key in ("value", "lower_bound", "gap"):
        assert written["result"][key] == getattr(result, key)
    for key in ("makespan", "device_span", "bubble_ratio", "span_bubble_ratio", "work", "peak_memory"):
        found = getattr(result, key)
        assert written["metrics"][key] == (list(found) if isinstance(found, tuple) else found)


def test_a_result_prints_as_its_summary(solved: Result) -> None:
    shown = str(solved).splitlines()
    assert shown[0] == "4 devices, 8 microbatches, linear"
    assert shown[1].startswith("makespan 531.9: optimal, proved by ")
    several = str(pp.solve(pp.Pipeline(2, 4, "any", chunks=[2, 4, 8]), workers=1))
    assert len(shown) <= 10
    assert len(several.splitlines()) <= 10
    assert "None of these placements has anything better" in several


def test_what_a_prompt_shows_is_a_line() -> None:
    result = pp.solve(pp.Pipeline(1, list(range(1, 12))), workers=1)
    assert len(str(result).splitlines()) == 10
    assert str(result).endswith("… and 5 more: each is one of result.points")
    assert repr(result).startswith("<Result: 1 device, 11 microbatches, linear; makespan 33: optimal")
    table = pp.compare(pp.Pipeline(4, 6, units=pp.Units(time="ms"), memory=pp.Memory(limit=3)))
    assert repr(table) == f"<Table: {len(table)} rows for 4 devices, 6 microbatches, linear>"
    assert str(table["1f1b"]) == (
        "1f1b on linear: makespan 27 ms, device span 27 ms, bubble ratio 33.3 %, peak memory 4, over the limit"
    )
    assert repr(table["dualpipe"]) == f"<Row: {table['dualpipe'].excluded}>"


def test_a_table_has_rows_by_name() -> None:
    table = pp.compare(pp.Pipeline(4, 8, memory=pp.Memory(limit=4)), chunks=[2, 4])
    assert table["1f1b"].makespan == 33
    assert table["interleaved"] is table["interleaved-1f1b"]
    assert [row.chunks for row in table.rows_of("hanayo")] == [2, 4]
    assert (table["hanayo"].chunks, table["hanayo"].makespan) == (4, 28.25)  # the fastest that fits
    assert table[0].name == "gpipe"
    assert len(list(table)) == len(table)
    with pytest.raises(KeyError, match="did you mean zb-h2 or zb-h1"):
        _ = table["zb-h"]
    excluded = pp.compare(pp.Pipeline(4, 6))["dualpipe"]
    assert (excluded.makespan, excluded.work, excluded.within_memory) == (None, None, None)
    assert excluded.excluded is not None
    lines = str(table).splitlines()
    assert lines[0].split() == ["schedule", "placement", "chunks", "makespan", "device", "span", "bubble", "ratio", "span",
                                "bubble", "ratio", "peak", "memory"]  # fmt: skip
    assert lines[2].split()[0] == "interleaved-zb"


def test_check_and_plot_take_what_there_is(tmp_path: Path) -> None:
    pipeline = pp.Pipeline(2, 4, memory=pp.Memory(limit=2))
    result, table = pp.solve(pipeline, workers=1), pp.compare(pipeline)
    assert pp.check(result) == pp.check(table["1f1b"]) == []
    assert result.schedule is not None
    assert pp.check(result.schedule) == []
    assert {violation.rule for violation in pp.check(table["gpipe"])} == {"memory"}
    assert pp.check(table["gpipe"], pp.Pipeline(2, 4)) == []
    path = str(tmp_path / "best.json")
    pp.save(result, path)
    assert pp.check(path) == []
    pp.plot(result, str(tmp_path / "one.svg"))
    pp.plot([result, table["1f1b"], result.schedule, path], str(tmp_path / "all.svg"), memory=True)
    drawn = (tmp_path / "all.svg").read_text()
    assert all(title in drawn for title in ("optimal", "1f1b", "schedule", "best"))
    with pytest.raises(ValueError, match="there is no schedule to draw"):
        pp.plot(pp.compare(pp.Pipeline(4, 6))["dualpipe"], str(tmp_path / "none.svg"))
    with pytest.raises(ValueError, match="ends in"):
        pp.plot(result, "picture.gif")
