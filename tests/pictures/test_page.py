"""The page without a browser: what is packed is what the schedule is, and what is said is true."""

import builtins
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ppopt as pp
from ppopt.files.result import metrics_dict
from ppopt.op import Kind
from ppopt.pictures.page.document import inside, page
from ppopt.pictures.page.facts import facts_of
from ppopt.pictures.page.payload import LARGEST, columns_of, packed, unpacked
from ppopt.pictures.page.table import summary
from ppopt.pictures.shown import Shown, shown
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Pipeline, Units
from ppopt.schedule import Schedule
from ppopt.timing import Waited
from tests.support.browser import need
from tests.support.drawn import named
from tests.support.tiers import thorough

LINKS = Links(1, 2, True, [[[0, 1], [2, 3]], [[1, 0]], [[1, 2], [2, 1]]])
SCHEDULES = {
    "1f1b": named("1f1b", 4, 8),
    "pairs and two routes": named("dualpipe", 4, 8),
    "links": named("zb-h1", 4, 4, links=LINKS),
    "halves of a tick": named("zb-v", 4, 6, costs=Costs(forward=0.5, backward_input=1, backward_weight=0.25)),
    "traffic": named("1f1b", 4, 4, data_parallel=DataParallel(all_gather=2, reduce_scatter=3)),
}


def whole(schedule: Schedule) -> set[tuple[Any, ...]]:
    """Every operation with its row, times and what it waited for; of pairs both halves."""
    waited, found = Waited(schedule), set()
    for device in range(schedule.pipeline.devices):
        rows = (schedule.order.ops(device), schedule.start[device], schedule.end[device], waited.operations[device])
        for op, start, end, bits in zip(*rows, strict=True):
            halves = [(op.forward, 1), (op.backward, 2)] if hasattr(op, "forward") else [(op, 0)]
            found |= {(device, str(part), int(start), int(end), int(bits), half) for part, half in halves}
    op_of = schedule.pipeline.index.op
    for link, (numbers, starts) in enumerate(zip(*schedule.transfers, strict=True)):
        for number, start, bits in zip(numbers.tolist(), starts.tolist(), waited.transfers[link].tolist(), strict=True):
            found.add((schedule.pipeline.devices + link, str(op_of(number)), start, None, bits, 0))
    return found


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_is_packed_is_the_schedule(name: str) -> None:
    schedule = SCHEDULES[name]
    columns = columns_of(schedule)
    text, doubles = packed(columns)
    read = unpacked(text, columns.rows, doubles)
    assert all(np.array_equal(a, b) for a, b in zip(columns[1:], read[1:], strict=True))
    assert not doubles
    row = np.repeat(np.arange(len(read.rows)), read.rows)
    devices, found = schedule.pipeline.devices, set()
    for k in range(len(read.start)):
        text, start = str(schedule.pipeline.index.op(int(read.code[k]))), int(read.start[k])
        end = start + int(read.duration[k]) if row[k] < devices else None
        found.add((int(row[k]), text, start, end, int(read.waits[k]), int(read.half[k])))
    assert found == whole(schedule)
    assert len(found) == len(read.start)


def test_times_that_are_too_large_for_integers_are_doubles() -> None:
    schedule = named("1f1b", 2, 3, costs=Costs(forward=LARGEST, backward_input=1, backward_weight=1))
    columns = columns_of(schedule)
    text, doubles = packed(columns)
    assert doubles
    assert np.array_equal(unpacked(text, columns.rows, doubles).start, columns.start)


def test_amounts_of_memory_add_up_to_the_peak() -> None:
    """As the page adds them up, entry by entry."""
    for schedule in (
        named("zb-h1", 4, 8, memory=Memory(activation=2, retained=0.5, static=1, limit=20)),
        named("zb-h1", 4, 8, memory=Memory(activation=1, retained=3)),
        named("dualpipe", 4, 8, memory=Memory(static=2)),
    ):
        columns = columns_of(schedule)
        (each,) = shown(schedule)
        facts = facts_of(each, columns, False)
        memory, first = facts["memory"], 0
        for device in range(4):
            held = most = memory["static"][device]
            for k in range(first, first + columns.rows[device]):
                family, microbatch = divmod(int(columns.code[k]), facts["microbatches"])
                kind, stage = Kind(family // facts["stages"]).name, family % facts["stages"]
                route = facts["route_of"][microbatch] if facts["route_of"] else 0
                held += memory["claims"][kind][route][stage] if kind in memory["claims"] else 0
                most = max(most, held)
                held -= memory["releases"][kind][route][stage] if kind in memory["releases"] else 0
            assert most == memory["peak"][device] == schedule.peak_memory[device]
            assert held == memory["static"][device]
            first += columns.rows[device]


def test_facts_are_json_and_have_a_bound_only_where_one_is_known() -> None:
    result = pp.solve(Pipeline(2, 4, costs=Costs(forward=0.5, backward_input=1, backward_weight=1)), seconds=60)
    answer, schedule = shown([result, named("1f1b", 2, 4)])
    proved, plain = (facts_of(each, columns_of(each.schedule), False) for each in (answer, schedule))
    json.dumps([proved, plain], allow_nan=False)
    assert proved["bound"] == result.ticks.lower_bound
    assert plain["bound"] is None
    span = shown(pp.solve(Pipeline(2, 4), objective="span", seconds=60))[0]
    assert facts_of(span, columns_of(span.schedule), False)["bound"] is None
    traffic = shown(SCHEDULES["traffic"])[0]
    assert len(facts_of(traffic, columns_of(traffic.schedule), False)["margins"]) == 8


# --- the table ---


def rows_of(several: list[Shown]) -> list[list[str]]:
    body = summary(several).split("<tbody>")[1].split("</tbody>")[0]
    return [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in body.splitlines() if row]


def test_the_table_has_the_figures_of_the_json() -> None:
    pipeline = Pipeline(4, 8, memory=Memory(limit=4))
    result = pp.solve(pipeline, seconds=60)
    several = shown([result, *(result.named[name] for name in ("1f1b", "zb-h2"))])
    rows = rows_of(several)
    for each, row in zip(several, rows, strict=True):
        metrics = metrics_dict(each.schedule)
        assert row[3:5] == [str(metrics["makespan"]), str(metrics["device_span"])]
        assert row[5] == f"{100 * metrics['bubble_ratio']:.1f} %"
        assert row[6] == f"{100 * 27 / metrics['makespan']:.1f} %"
        assert row[9] == str(max(metrics["peak_memory"]))
    assert [row[7:9] for row in rows] == [["27", "0.0 %"], ["–", "–"], ["–", "–"]]
    assert [row[10] for row in rows] == ["kept", "kept", "exceeded"]
    assert [row[0].endswith("best") for row in rows] == [True, False, False]


def test_what_cannot_be_compared_is_said() -> None:
    several = [named("1f1b", 4, 8), named("1f1b", 4, 9), named("1f1b", 4, 8, costs=Costs(forward=2)), named("zb-v", 4, 8)]
    several.append(named("1f1b", 4, 8, units=Units(time="ms")))
    text = summary(shown(several))
    assert "it has 9 microbatches, the first schedule 8; not compared" in text
    assert "its work is 128, that of the first schedule 96; not compared" in text
    assert "its times are in ms, those of the first schedule in no unit; not compared" in text
    rows = rows_of(shown(several))
    assert [row[6] == "–" for row in rows] == [False, True, True, False, True]
    again = named("1f1b", 4, 8, costs=Costs(recompute=1), memory=Memory(recompute_saved=0.5), recompute="all")
    assert [row[6] == "–" for row in rows_of(shown([named("1f1b", 4, 8), again]))] == [False, False]


# --- the whole page, which needs Bokeh ---


@pytest.fixture(scope="module")
def bokeh() -> None:
    try:
        import bokeh  # noqa: F401
    except ImportError:
        need(False, "bokeh")


OWN = re.compile(r"\b(?:https?:)?//[\w.-]+\.\w+", re.ASCII)


@pytest.mark.usefixtures("bokeh")
def test_a_page_is_whole_small_and_asks_for_nothing() -> None:
    several = shown([named("zb-h1", 8, 40, name="</script><b>&"), named("dualpipe", 4, 8)])
    text = page(several, memory=True)
    assert len(text.encode()) <= 1_400_000 + 20_000
    assert "default-src 'none'" in text
    bokeh = re.search(r"<script>\n(?!\(\(\) => \{\n\"use strict\")(.*?)\n</script>", text, re.DOTALL)
    assert bokeh is not None
    licence = re.search(r"<pre>.*?</pre>", text, re.DOTALL)
    assert licence is not None
    assert "BSD" in licence[0] or "Redistribution" in licence[0]
    own = text.replace(bokeh[1], "").replace(licence[0], "")
    assert not OWN.findall(own)
    assert not re.search(r"<(?:link|img|iframe|script)[^>]* (?:src|href)=\"(?!data:)", own)
    assert "</script><b>" not in own
    assert "&lt;/script&gt;&lt;b&gt;&amp;" in own
    assert text.count("</script>") == own.count("</script>") == 4 + 2
    assert not re.search(r"@\w+@", own)
    facts = json.loads(own.split('id="facts" type="application/json">')[1].split("</script>")[0])
    assert facts["charts"][0]["title"] == "</script><b>&"


@pytest.mark.usefixtures("bokeh")
def test_json_stands_safely_in_a_script() -> None:
    tree = {"</script>": ["<!--", "&amp;", "\u2028"]}
    text = inside(tree)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == tree


@thorough
@pytest.mark.usefixtures("bokeh")
def test_two_hundred_thousand_bars_fit_into_two_megabytes() -> None:
    schedule = named("zb-v", 8, 4167)
    assert sum(map(len, schedule.order.rows)) > 200_000
    assert len(page(shown(schedule)).encode()) <= 2_000_000


def test_without_bokeh_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.command import refused

    imported = builtins.__import__

    def missing(name: str, *args: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "bokeh":
            raise ImportError(name)
        return imported(name, *args, **more)

    (tmp_path / "a.csv").write_text("0F0,0B0\n")
    monkeypatch.setattr(builtins, "__import__", missing)
    for words in (("plot", str(tmp_path / "a.csv"), "-o", str(tmp_path / "a.html")), ("serve",)):
        said = refused(*words)
        assert "needs Bokeh: pip install 'ppopt-pipeline[page]'" in said
        assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "a.html").exists()
