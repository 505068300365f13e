"""Names, placements, parameters, restrictions and comparison of the named schedules."""

import random
import re
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ppopt.checker import violations
from ppopt.constraints import expand
from ppopt.files import read_model
from ppopt.heuristics import order_of
from ppopt.named import NAMED, Definition, Restriction, UnknownSchedule, compare, find, of_order, reading
from ppopt.op import Op
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Order, Schedule

EMULATION_NAMES = {
    "1f1b": "1f1b",
    "zb1p": "zb-h1",
    "interleave": "interleaved-1f1b",
    "1f1b_overlap": "1f1b-overlap",
    "1f1b_interleave_overlap": "interleaved-1f1b-overlap",
    "dualpipe": "dualpipe",
    "dualpipe_v": "dualpipe-v",
}

# --- names -------------------------------------------------------------------------------------------------------


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


# --- placement and parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "chunks", "params", "message"),
    [
        ("1f1b", 2, {}, r"1f1b: chunks must be 1 \(placement linear\), got 2"),
        ("zb-v", 4, {}, r"zb-v: chunks must be 2 \(placement wave\), got 4"),
        ("dualpipe-v", 1, {}, r"dualpipe-v: chunks must be 2"),
        ("bitpipe", 1, {}, r"bitpipe: chunks must be 2 \(placement bidirectional\), got 1"),
        ("hanayo", 3, {}, r"hanayo: chunks must be even \(2 per wave\), got 3"),
        ("hanayo", 2, {"waves": 2}, r"hanayo: waves = 2 means 4 chunks, got chunks = 2"),
        ("interleaved-1f1b", None, {"group": 4}, r"interleaved-1f1b: unknown parameter 'group'; its parameters are group_size"),
        ("gpipe", None, {"group_size": 4}, r"gpipe: unknown parameter 'group_size'; it has no parameters"),
        ("interleaved-1f1b", None, {"group_size": 0}, r"interleaved-1f1b: group_size must be a whole number >= 1, got 0"),
        ("interleaved-1f1b", None, {"group_size": 2.5}, r"group_size must be a whole number >= 1, got 2.5"),
        ("zb-v", None, {"tail": "both"}, r"zb-v: tail must be one of chunk0-first, chunk1-first, got 'both'"),
        ("zb-v", None, {"limit": 8}, r"zb-v: limit needs variant = adapted"),
        ("zb-v", None, {"variant": "adapted", "limit": 3}, r"zb-v: limit must be >= devices \(4\), got 3"),
        ("zb-v", None, {"variant": "adapted", "tail": "chunk1-first"}, r"zb-v: tail is for the pinned order"),
        ("looped-bfs", None, {"rounds": 3}, r"looped-bfs: microbatches must be a multiple of rounds \(3\), got 8"),
        ("looped-bfs", None, {"rounds": 2, "backward_microbatches": "descending"}, r"rounds \(2\) needs .* ascending"),
        ("seq1f1b", None, {"pieces": 3}, r"seq1f1b: microbatches .* must be a multiple of pieces \(3\), got 8"),
        ("hanayo", None, {"variant": "rule"}, r"hanayo: the variant rule needs microbatches = devices \(4\), got 8"),
    ],
)
def test_what_a_definition_does_not_allow(name: str, chunks: int | None, params: dict[str, Any], message: str) -> None:
    with pytest.raises(Restriction, match=message):
        find(name).schedule(Pipeline(4, 8), chunks, **params)


@pytest.mark.parametrize(
    ("name", "devices", "microbatches", "message"),
    [
        ("zb-h1", 4, 3, r"zb-h1: microbatches must be >= devices \(4\), got 3"),
        ("zb-h2", 4, 6, r"zb-h2: microbatches must be >= 2\*devices - 1 \(7\), got 6"),
        ("dualpipe", 3, 12, r"dualpipe: devices must be even, got 3"),
        ("dualpipe", 4, 9, r"dualpipe: microbatches must be even, got 9"),
        ("dualpipe", 8, 12, r"dualpipe: microbatches must be >= 2\*devices \(16\), got 12"),
        ("dualpipe-v", 4, 7, r"dualpipe-v: microbatches must be >= 2\*devices \(8\), got 7"),
        ("chimera", 3, 6, r"chimera: devices must be even, got 3"),
        ("chimera", 4, 6, r"chimera: microbatches must be a multiple of devices \(4\), got 6"),
        ("bitpipe", 4, 6, r"bitpipe: microbatches must be a multiple of devices \(4\), got 6"),
        ("interleaved-zb", 4, 6, r"interleaved-zb: microbatches must be a multiple of devices \(4\), got 6"),
        ("hanayo", 4, 6, r"hanayo: microbatches must be a multiple of devices \(4\), got 6"),
        ("interleaved-1f1b", 8, 19, r"interleaved-1f1b: devices = 8, microbatches = 19, chunks = 2: the order deadlocks: "),
    ],
)
def test_sizes_that_a_definition_does_not_allow(name: str, devices: int, microbatches: int, message: str) -> None:
    with pytest.raises(Restriction, match=message):
        find(name).schedule(Pipeline(devices, microbatches))


@pytest.mark.parametrize("name", [d.name for d in NAMED.values() if d.split])
def test_a_split_schedule_needs_split_costs(name: str) -> None:
    with pytest.raises(Restriction, match=f"{name}: needs backward_input and backward_weight"):
        find(name).schedule(Pipeline(4, 8, costs=Costs(backward=2)))


def test_two_routes_need_half_of_the_microbatches_each() -> None:
    uneven = Pipeline(4, 8, placement="bidirectional", route_of_microbatch=(0, 0, 0, 1, 1, 1, 1, 1))
    for name in ("chimera", "dualpipe"):
        with pytest.raises(Restriction, match=f"{name}: each route needs half of the microbatches, got 3 and 5"):
            find(name).schedule(uneven)


def test_words_need_the_placement() -> None:
    with pytest.raises(Restriction, match="zb-v: the placement must be wave, got loop"):
        find("zb-v").words(Pipeline(4, 8, placement="loop", chunks=2))


def test_costs_per_device_are_the_same_on_every_placement() -> None:
    pipeline = Pipeline(4, 8, costs=Costs(forward=[1, 2, 3, 4]), memory=Memory(activation=[4, 3, 2, 1]))
    for row in compare(pipeline, (2, 4)):
        if row.schedule is not None and row.name not in ("chimera", "bitpipe", "dualpipe"):
            assert [row.schedule.pipeline.time(work) for work in row.schedule.work] == [8 * (f + 2) for f in (1, 2, 3, 4)]


def test_written_out_routes_of_the_placement_keep_costs_per_stage() -> None:
    costs = Costs(per="stage", forward=[1, 2, 3, 4])
    pipeline = Pipeline(2, 4, routes=[[0, 1, 0, 1]], costs=costs)
    assert find("interleaved-1f1b").place(pipeline) is pipeline
    assert find("interleaved-1f1b").schedule(pipeline) is not None
    assert find("zb-v").schedule(pipeline).work == (4 * (4 + 4), 4 * (6 + 4))  # device totals, spread evenly


# --- every definition --------------------------------------------------------------------------------------------


OPEN: set[tuple[str, str | None]] = {
    ("zb-1p", None),
    ("zb-2p", None),
    ("v-half", None),
    ("v-min", None),
    ("zb-h2", "heuristic"),
    ("zb-v", "adapted"),
    ("chimera", "greedy"),
    ("bitpipe", "greedy"),
}
"""Definitions that leave operations open, all of them or with a choice of a parameter."""


def variants(definition: Definition) -> list[dict[str, Any]]:
    """Without parameters, and with each value of each choice."""
    choices = [{p.name: choice} for p in definition.parameters for choice in p.choices]
    numbers = [{p.name: 4} for p in definition.parameters if not p.choices]
    return [{}, *choices, *numbers]


def schedules(pipeline: Pipeline, definition: Definition) -> list[Schedule]:
    found = []
    for params in variants(definition):
        try:
            found.append(definition.schedule(pipeline, **params))
        except Restriction as restriction:
            assert str(restriction).startswith(f"{definition.name}: ")  # noqa: PT017 - not every size must be refused
    return found


@pytest.mark.parametrize("name", NAMED)
def test_every_order_passes_the_checker(name: str) -> None:
    definition, rng, found = find(name), random.Random(name), 0
    for devices, microbatches in product((1, 2, 3, 4), (1, 2, 4, 6, 8, 9, 10, 12)):
        costs = Costs(
            forward=[rng.randint(0, 4) for _ in range(devices)],
            backward_input=[rng.randint(0, 4) for _ in range(devices)],
            backward_weight=rng.choice([0, 1, Fraction(3, 7)]),
        )
        latency = [[0 if a == b else rng.randint(0, 5) for b in range(devices)] for a in range(devices)]
        pipeline = Pipeline(
            devices, microbatches, costs=costs, links=Links(latency), memory=Memory(retained=rng.choice([None, 0.4]))
        )
        for schedule in schedules(pipeline, definition):
            found += 1
            assert not violations(schedule.pipeline, schedule)
    assert found >= 8


@pytest.mark.parametrize("name", NAMED)
def test_an_order_keeps_the_words_that_it_comes_from(name: str) -> None:
    definition = find(name)
    for params in variants(definition):
        pipeline = definition.place(Pipeline(4, 8, costs=Costs(forward=2, backward_input=3, backward_weight=1)), **params)
        try:
            words = definition.words(pipeline, **params)
        except Restriction:
            continue
        schedule = definition.schedule(pipeline, **params)
        position = {}
        for device, row in enumerate(schedule.order.rows):
            for place, number in enumerate(row.tolist()):
                op = schedule.order.index.op(number)
                for half in (op,) if isinstance(op, Op) else op:
                    position[schedule.order.index.number(half)] = (device, place)
        before, after, _ = expand(pipeline, words)
        pairs = 0
        for a, b in zip(before.tolist(), after.tolist(), strict=True):
            if a != b and position[a] != position[b]:
                pairs += 1
                assert position[a] < position[b]
        assert pairs > 20
        assert (order_of(pipeline, words) is None) == any((name, choice) in OPEN for choice in (None, *params.values()))


def test_what_is_left_open_is_filled_by_a_rule_that_is_said() -> None:
    for definition in NAMED.values():
        assert bool(definition.open_rule) == (definition.fill is not None) == (definition.name in {name for name, _ in OPEN})


def test_every_definition_says_what_it_is() -> None:
    for definition in NAMED.values():
        assert definition.summary
        assert definition.source
        assert definition.peak
        assert definition.needs


# --- comparison --------------------------------------------------------------------------------------------------


def test_compare_on_four_devices() -> None:
    rows = {(row.name, row.chunks): row for row in compare(Pipeline(4, 8))}
    expected = {
        ("gpipe", 1): (33, 8),
        ("1f1b", 1): (33, 4),
        ("interleaved-1f1b", 2): (28.5, 5.5),
        ("hanayo", 2): (32.5, 4),
        ("zb-h1", 1): (27, 4),
    }
    for key, (makespan, peak) in expected.items():
        schedule = rows[key].schedule
        assert schedule is not None
        assert schedule.pipeline.time(schedule.makespan) == makespan
        assert schedule.pipeline.amount(max(schedule.peak_memory)) == peak
    assert {name for name, _ in rows} == set(NAMED)


def test_compare_shows_each_number_of_chunks_and_excludes_with_the_reason() -> None:
    rows = compare(Pipeline(3, 7), (2, 3))
    assert [row.chunks for row in rows if row.name == "looped-bfs"] == [2, 3]
    assert [row.chunks for row in rows if row.name == "zb-v"] == [2]
    excluded = {(row.name, row.chunks): row.excluded for row in rows if row.schedule is None}
    assert excluded["dualpipe", 1] == "dualpipe: devices must be even, got 3"
    assert excluded["hanayo", 2] == "hanayo: microbatches must be a multiple of devices (3), got 7"
    assert excluded["hanayo", 3] == "hanayo: chunks must be even (2 per wave), got 3"
    assert all(row.excluded is None for row in rows if row.schedule is not None)


def test_compare_with_a_fused_backward_excludes_split_schedules() -> None:
    for row in compare(Pipeline(4, 8, costs=Costs(backward=2))):
        assert (row.excluded is not None) == find(row.name).split


def test_the_automatic_scheduler_keeps_the_limit_of_the_pipeline() -> None:
    pipeline = Pipeline(4, 8, costs=Costs(forward=185, backward_input=181, backward_weight=93), links=Links(6))
    tight = find("zb-1p").schedule(pipeline.changed(memory=Memory(limit=3, retained=0.366)))
    assert tight.within_memory
    assert max(tight.peak_memory) > 2 * tight.pipeline.amounts.per_unit
    assert find("zb-1p").schedule(pipeline).makespan < tight.makespan


def test_a_users_order_is_a_row_as_any_other() -> None:
    pipeline = Pipeline(2, 2, costs=Costs(backward=2))
    order = Order.of(pipeline, [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]])
    row = of_order(pipeline, order, "mine")
    one = find("1f1b").schedule(pipeline)
    assert row.schedule is not None
    assert (row.name, row.placement, row.chunks, row.excluded) == ("mine", "linear", 1, None)
    assert (row.schedule.makespan, row.schedule.peak_memory) == (one.makespan, one.peak_memory)


def test_a_users_order_that_deadlocks_is_excluded_with_the_reason() -> None:
    pipeline = Pipeline(2, 2, costs=Costs(backward=2))
    order = Order.of(pipeline, [["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]])
    row = of_order(pipeline, order, "mine")
    assert row.schedule is None
    assert row.excluded is not None
    assert row.excluded.startswith("mine: the order deadlocks: ")


def test_a_users_order_that_lacks_an_operation_is_excluded_with_the_reason() -> None:
    pipeline = Pipeline(1, 2, costs=Costs(backward=2))
    assert of_order(pipeline, Order.of(pipeline, [["0F0", "0B0", "0F1"]]), "mine").excluded == "mine: 0B1 is missing"


# --- documentation -----------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[1] / "docs" / "schedules.md").read_text()


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
    model = read_model(str(Path(__file__).parents[1] / "models" / f"{name}.toml"))
    assert model.schedule == name
    assert find(name).schedule(model.pipeline, **model.params).within_memory
