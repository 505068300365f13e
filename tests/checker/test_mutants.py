"""Valid schedules with one mistake put in, each kind of mistake over several pipelines: all are found, by the right rule."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from ppopt.checker import Record, Rule, violations_of
from ppopt.op import Kind, Op, Pair, parse
from ppopt.pipeline import Costs, Links, Memory, Pipeline, PipelineError
from ppopt.schedule import Order
from ppopt.timing import CyclicOrder, time_order
from tests.support import golden
from tests.support.tiers import thorough

Rows = list[list[Record]]

Change = Callable[["Base"], Rows | None]
"""The records with the mistake, or ``None`` where this pipeline has no place for it."""


@dataclass
class Base:
    """A pipeline with a valid schedule of it, whose peaks are the memory limits."""

    pipeline: Pipeline
    rows: Rows

    def copy(self) -> Rows:
        return [list(row) for row in self.rows]

    def order(self) -> list[list[str]]:
        return [[str(record[0]) for record in row] for row in self.rows]

    def retimed(self, order: list[list[str]]) -> Rows | None:
        """Another order with its own times; ``None`` if it gets stuck."""
        try:
            return records(self.pipeline, order)
        except CyclicOrder:
            return None

    def find(self, kind: Kind, least: int = 0) -> tuple[int, int] | None:
        """Device and position of the first unpaired operation of a kind that has a duration, at or after a position."""
        for device, row in enumerate(self.rows):
            for position, (op, start, end) in enumerate(row):
                parsed = parse(str(op))
                if position >= least and isinstance(parsed, Op) and parsed.kind == kind and start != end:
                    return device, position
        return None

    def find_pair(self) -> tuple[int, int] | None:
        return next(
            ((d, i) for d, row in enumerate(self.rows) for i, r in enumerate(row) if isinstance(parse(str(r[0])), Pair)), None
        )

    def finish(self) -> Fraction:
        return max(Fraction(end) for row in self.rows for _, _, end in row)


def records(pipeline: Pipeline, order: list[list[str]]) -> Rows:
    schedule = time_order(pipeline, Order.of(pipeline, order))
    unit = pipeline.ticks.per_unit
    return [
        [(op, Fraction(int(start), unit), Fraction(int(end), unit)) for op, start, end in zip(*row, strict=True)]
        for row in zip(order, schedule.start, schedule.end, strict=True)
    ]


def golden_base(name: str, **parts: Any) -> Base:
    entry = golden.entries()[name]
    pipeline = replace(golden.pipeline_of(entry, entry["timing"]["uneven"]), **parts)
    return within_its_peaks(pipeline, entry["order"])


def within_its_peaks(pipeline: Pipeline, order: list[list[str]]) -> Base:
    schedule = time_order(pipeline, Order.of(pipeline, order))
    peaks = [Fraction(peak, pipeline.amounts.per_unit) for peak in schedule.peak_memory]
    pipeline = replace(pipeline, memory=replace(pipeline.memory, limit=tuple(peaks)))
    return Base(pipeline, records(pipeline, order))


def one_way(devices: int) -> list[list[Fraction]]:
    """A latency that differs between any two devices and between the two directions."""
    return [[Fraction(0) if a == b else Fraction(2 * a + 3 * b + 1, 2) for b in range(devices)] for a in range(devices)]


UNEVEN = Costs(
    per="stage",
    forward=[1, 2, Fraction(5, 2), 3],
    backward_input=[2, 2, 1, Fraction(1, 3)],
    backward_weight=[1, 0.5, 2, 1],
)

STAGE_0_OF_TORCH = Costs(per="stage", forward=1, backward_input=[0, 1, 1, 1], backward_weight=[2, 1, 1, 1])

BASES: dict[str, Callable[[], Base]] = {
    "gpipe": lambda: golden_base("gpipe-d4-m8"),
    "1f1b": lambda: golden_base("1f1b-d4-m8", costs=Costs(forward=0.1, backward=0.2), links=Links(0.1)),
    "zb-h1": lambda: golden_base("zb-h1-d4-m8"),
    "zb-h1-uneven": lambda: golden_base("zb-h1-d4-m8", costs=UNEVEN, links=Links(one_way(4)), memory=Memory(retained=0.4)),
    "zb-h1-zero": lambda: golden_base("zb-h1-d4-m8", costs=STAGE_0_OF_TORCH, links=Links(0.5), memory=Memory(retained=0.25)),
    "interleaved": lambda: golden_base("interleaved-1f1b-d4-m8-v2-n4", links=Links(1)),
    "zb-v": lambda: golden_base("zb-v-d4-m8", memory=Memory(activation=3, retained=1, static=[1, 2, 3, 4])),
    "dualpipe": lambda: golden_base("dualpipe-d4-m8", links=Links(one_way(4)), memory=Memory(static=10)),
    "dualpipe-v": lambda: golden_base("dualpipe-v-d2-m8", links=Links(1)),
    "one-device": lambda: golden_base("gpipe-d1-m3"),
}


@cache
def base(name: str) -> Base:
    return BASES[name]()


@pytest.mark.parametrize("name", BASES)
def test_the_schedules_are_valid(name: str) -> None:
    assert violations_of(base(name).pipeline, base(name).rows, earliest=True) == []


MISTAKES: dict[str, tuple[Change, Rule]] = {}


def mistake(rule: Rule) -> Callable[[Change], Change]:
    def enter(change: Change) -> Change:
        MISTAKES[change.__name__.replace("_", "-")] = change, rule
        return change

    return enter


def dropped(b: Base, *kinds: Kind) -> Rows | None:
    """Without the operations of these kinds of one stage and microbatch."""
    place = b.find(kinds[0])
    if place is None:
        return None
    op = parse(str(b.rows[place[0]][place[1]][0]))
    assert isinstance(op, Op)
    gone = {str(op._replace(kind=kind)) for kind in kinds}
    return [[record for record in row if record[0] not in gone] for row in b.rows]


def changed(b: Base, kind: Kind, change: Callable[[str, Any, Any], Record], least: int = 0) -> Rows | None:
    """With one operation of a kind changed."""
    place = b.find(kind, least)
    if place is None:
        return None
    rows = b.copy()
    op, start, end = rows[place[0]][place[1]]
    rows[place[0]][place[1]] = change(str(op), start, end)
    return rows


def added(b: Base, device: int, op: str, cost: Any) -> Rows:
    """With an operation at the end of a device, when everything has ended."""
    rows = b.copy()
    rows[device].append((op, b.finish() + 100, b.finish() + 100 + cost))
    return rows


@mistake(Rule.MISSING)
def forward_dropped(b: Base) -> Rows | None:
    return dropped(b, Kind.F)


@mistake(Rule.MISSING)
def backward_dropped(b: Base) -> Rows | None:
    return dropped(b, Kind.B)


@mistake(Rule.MISSING)
def w_dropped(b: Base) -> Rows | None:
    return dropped(b, Kind.W)


@mistake(Rule.W_WITHOUT_I)
def i_dropped(b: Base) -> Rows | None:
    return dropped(b, Kind.I)


@mistake(Rule.MISSING)
def i_and_w_dropped(b: Base) -> Rows | None:
    return dropped(b, Kind.I, Kind.W)


@mistake(Rule.MISSING)
def pair_dropped(b: Base) -> Rows | None:
    place = b.find_pair()
    return None if place is None else [[r for i, r in enumerate(row) if (d, i) != place] for d, row in enumerate(b.rows)]


@mistake(Rule.MISSING)
def device_emptied(b: Base) -> Rows | None:
    return [*b.copy()[:-1], []]


@mistake(Rule.MISSING)
def one_microbatch_taken_for_another(b: Base) -> Rows | None:
    return changed(b, Kind.F, lambda op, start, end: (op[:-1] + "1", start, end))


@mistake(Rule.TWICE)
def forward_twice(b: Base) -> Rows | None:
    place = b.find(Kind.F)
    assert place is not None
    op, start, end = b.rows[place[0]][place[1]]
    return added(b, place[0], str(op), Fraction(end) - Fraction(start))


@mistake(Rule.TWICE)
def backward_twice(b: Base) -> Rows | None:
    place = b.find(Kind.B)
    if place is None:
        return None
    op, start, end = b.rows[place[0]][place[1]]
    return added(b, place[0], str(op), Fraction(end) - Fraction(start))


@mistake(Rule.TWICE)
def pair_twice(b: Base) -> Rows | None:
    place = b.find_pair()
    return None if place is None else added(b, place[0], str(b.rows[place[0]][place[1]][0]), 9)


@mistake(Rule.TWICE)
def half_of_a_pair_once_more_alone(b: Base) -> Rows | None:
    place = b.find_pair()
    if place is None:
        return None
    pair = parse(str(b.rows[place[0]][place[1]][0]))
    assert isinstance(pair, Pair)
    return added(b, place[0], str(pair.backward), 6)


@mistake(Rule.DEVICE)
def moved_to_another_device(b: Base) -> Rows | None:
    if b.pipeline.devices == 1:
        return None
    rows = b.copy()
    op, start, end = rows[0].pop()
    later = b.finish() + 100
    rows[1].append((op, later, later + Fraction(end) - Fraction(start)))
    return rows


@mistake(Rule.DEVICE)
def devices_exchanged(b: Base) -> Rows | None:
    return None if b.pipeline.devices == 1 else [b.rows[1], b.rows[0], *b.rows[2:]]


@mistake(Rule.DEVICE)
def a_device_too_many(b: Base) -> Rows | None:
    rows = b.copy()
    return [*rows[:-1], rows[-1][:-1], rows[-1][-1:]]


@mistake(Rule.PAIR)
def pair_of_two_devices(b: Base) -> Rows | None:
    place = b.find_pair()
    if place is None:
        return None
    rows = b.copy()
    _, start, end = rows[place[0]][place[1]]
    elsewhere = next(str(r[0]) for r in rows[place[0] - 1] if isinstance(parse(str(r[0])), Pair))
    forward, backward = parse(str(rows[place[0]][place[1]][0])), parse(elsewhere)
    assert isinstance(forward, Pair)
    assert isinstance(backward, Pair)
    rows[place[0]][place[1]] = str(Pair(forward.forward, backward.backward)), start, end
    return rows


@mistake(Rule.PAIR)
def pair_torn_apart_at_its_start(b: Base) -> Rows | None:
    place = b.find_pair()
    if place is None:
        return None
    rows = b.copy()
    op, start, end = rows[place[0]][place[1]]
    pair = parse(str(op))
    rows[place[0]][place[1] : place[1] + 1] = [(str(half), start, end) for half in pair]
    return rows


@mistake(Rule.DATA)
def pair_whose_forward_ends_early(b: Base) -> Rows | None:
    """Both results exist at the end of a pair only; the next device takes the forward's as if it had run alone."""
    for device, row in enumerate(b.rows):
        for op, start, _ in row:
            pair = parse(str(op))
            if isinstance(pair, Pair):
                user = str(pair.forward._replace(stage=pair.forward.stage + 1))
                rows = b.copy()
                for other, users in enumerate(rows):
                    for i, (used_by, a, z) in enumerate(users):
                        if user in halves(used_by) and other != device:
                            at = Fraction(start) + Fraction(1, 2)
                            users[i] = used_by, at, at + Fraction(z) - Fraction(a)
                            return rows
    return None


@mistake(Rule.DURATION)
def pair_as_short_as_its_forward(b: Base) -> Rows | None:
    place = b.find_pair()
    if place is None:
        return None
    rows = b.copy()
    op, start, _ = rows[place[0]][place[1]]
    rows[place[0]][place[1]] = op, start, Fraction(start) + 3
    return rows


@mistake(Rule.UNKNOWN)
def stage_too_high(b: Base) -> Rows | None:
    return changed(b, Kind.F, lambda op, start, end: (f"{b.pipeline.stages}F0", start, end))


@mistake(Rule.UNKNOWN)
def microbatch_too_high(b: Base) -> Rows | None:
    return changed(b, Kind.F, lambda op, start, end: (f"0F{b.pipeline.microbatches}", start, end))


@mistake(Rule.UNKNOWN)
def lower_case(b: Base) -> Rows | None:
    return changed(b, Kind.F, lambda op, start, end: (op.lower(), start, end))


@mistake(Rule.UNKNOWN)
def nothing_where_an_operation_was(b: Base) -> Rows | None:
    return changed(b, Kind.F, lambda op, start, end: ("", start, end))


@mistake(Rule.UNKNOWN)
def transfer_among_the_operations(b: Base) -> Rows | None:
    return changed(b, Kind.F, lambda op, start, end: ("0SEND_F0", start, end))


@mistake(Rule.UNKNOWN)
def pair_of_two_forwards(b: Base) -> Rows | None:
    return changed(b, Kind.F, lambda op, start, end: (f"({op};{op})OVERLAP_F_B", start, end))


@mistake(Rule.UNKNOWN)
def split_backward_that_the_costs_do_not_have(b: Base) -> Rows | None:
    if b.pipeline.costs.split:
        return None
    return changed(b, Kind.B, lambda op, start, end: (op.replace("B", "I"), start, end))


@mistake(Rule.BOTH_BACKWARDS)
def full_backward_besides_the_split_one(b: Base) -> Rows | None:
    place = b.find(Kind.I)
    return None if place is None else added(b, place[0], str(b.rows[place[0]][place[1]][0]).replace("I", "B"), 6)


@mistake(Rule.BOTH_BACKWARDS)
def w_besides_the_full_backward(b: Base) -> Rows | None:
    place = b.find(Kind.B)
    if place is None or not b.pipeline.costs.split:
        return None
    return added(b, place[0], str(b.rows[place[0]][place[1]][0]).replace("B", "W"), 2)


@mistake(Rule.W_WITHOUT_I)
def w_in_place_of_the_full_backward(b: Base) -> Rows | None:
    if not b.pipeline.costs.split:
        return None
    return changed(b, Kind.B, lambda op, start, end: (op.replace("B", "W"), start, end))


def one_tick_earlier(b: Base, binding: str) -> Rows | None:
    """An operation that cannot start any earlier, for the reason named, starts one tick earlier."""
    tick = Fraction(1, b.pipeline.ticks.per_unit)
    ends = {half: end for row in b.rows for op, _, end in row for half in halves(op)}
    for device, row in enumerate(b.rows):
        for position in range(1, len(row)):
            op, start, end = row[position]
            before = Fraction(row[position - 1][2])
            parsed = parse(str(op))
            if not isinstance(parsed, Op) or start == end or start == 0:
                continue
            gradient = [parsed._replace(stage=parsed.stage + 1, kind=kind) for kind in (Kind.B, Kind.I)]
            needs = {
                Kind.F: [parsed._replace(stage=parsed.stage - 1)],
                Kind.W: [parsed._replace(kind=Kind.I)],
            }.get(parsed.kind, [parsed._replace(kind=Kind.F), *gradient])
            data = max([Fraction(ends[str(need)]) for need in needs if str(need) in ends], default=Fraction(0))
            reason = "device" if before == start > data else "data" if data == start > before else "link"
            if reason == "link" and not (before < start and data < start):
                continue
            if reason == binding:
                rows = b.copy()
                rows[device][position] = op, Fraction(start) - tick, Fraction(end) - tick
                return rows
    return None


def halves(op: object) -> list[str]:
    parsed = parse(str(op))
    return [str(half) for half in parsed] if isinstance(parsed, Pair) else [str(parsed)]


@mistake(Rule.DATA)
def one_tick_before_its_data(b: Base) -> Rows | None:
    return one_tick_earlier(b, "data")


@mistake(Rule.LATENCY)
def one_tick_before_its_data_arrives(b: Base) -> Rows | None:
    return one_tick_earlier(b, "link")


@mistake(Rule.OVERLAP)
def one_tick_before_the_device_is_free(b: Base) -> Rows | None:
    return one_tick_earlier(b, "device")


@mistake(Rule.LATENCY)
def timed_without_latency(b: Base) -> Rows | None:
    return None if b.pipeline.links == Links() else records(replace(b.pipeline, links=Links()), b.order())


@mistake(Rule.LATENCY)
def timed_with_the_latencies_of_the_other_direction(b: Base) -> Rows | None:
    table = b.pipeline.links.latency
    if not isinstance(table, tuple):
        return None
    return records(replace(b.pipeline, links=Links(tuple(zip(*table, strict=True)))), b.order())


@mistake(Rule.DURATION)
def timed_with_the_costs_of_the_reversed_stages(b: Base) -> Rows | None:
    costs = b.pipeline.costs
    if not isinstance(costs.forward, tuple):
        return None
    return records(replace(b.pipeline, costs=replace(costs, forward=costs.forward[::-1])), b.order())


@mistake(Rule.DURATION)
def timed_with_undivided_costs(b: Base) -> Rows | None:
    costs = b.pipeline.costs
    if b.pipeline.chunks == 1 or isinstance(costs.forward, tuple):
        return None
    return records(replace(b.pipeline, costs=replace(costs, forward=costs.forward * b.pipeline.chunks)), b.order())


@mistake(Rule.DURATION)
def start_earlier_end_kept(b: Base) -> Rows | None:
    return changed(b, Kind.F, lambda op, start, end: (op, Fraction(start) - 1, end), least=2)


@mistake(Rule.DURATION)
def end_earlier_by_a_tick(b: Base) -> Rows | None:
    tick = Fraction(1, b.pipeline.ticks.per_unit)
    return changed(b, Kind.F, lambda op, start, end: (op, start, Fraction(end) - tick))


@mistake(Rule.DURATION)
def last_end_later_by_a_tick(b: Base) -> Rows | None:
    rows = b.copy()
    op, start, end = rows[0][-1]
    rows[0][-1] = op, start, Fraction(end) + Fraction(1, b.pipeline.ticks.per_unit)
    return rows


@mistake(Rule.DURATION)
def no_duration(b: Base) -> Rows | None:
    return changed(b, Kind.F, lambda op, start, end: (op, start, start))


@mistake(Rule.DURATION)
def end_before_start(b: Base) -> Rows | None:
    return changed(b, Kind.F, lambda op, start, end: (op, end, start))


@mistake(Rule.ORDER)
def neighbours_of_the_list_exchanged(b: Base) -> Rows | None:
    rows = b.copy()
    rows[0][:2] = rows[0][1::-1]
    return rows


@mistake(Rule.ORDER)
def list_reversed(b: Base) -> Rows | None:
    return [row[::-1] for row in b.rows]


@mistake(Rule.ORDER)
def last_of_the_list_first(b: Base) -> Rows | None:
    return [[row[-1], *row[:-1]] for row in b.rows]


@mistake(Rule.DATA)
def times_of_a_forward_and_its_backward_exchanged(b: Base) -> Rows | None:
    rows = b.copy()
    for row in rows:
        place = {str(op): i for i, (op, _, _) in enumerate(row)}
        for op in list(place):
            backward = next((place[k] for k in (op.replace("F", "B"), op.replace("F", "I")) if "F" in op and k in place), None)
            if "OVERLAP" not in op and backward is not None:
                i = place[op]
                row[i], row[backward] = (row[backward][0], *row[i][1:]), (row[i][0], *row[backward][1:])
                return rows
    return None


@mistake(Rule.DATA)
def w_at_the_time_of_its_i(b: Base) -> Rows | None:
    rows = b.copy()
    for row in rows:
        place = {str(op): i for i, (op, _, _) in enumerate(row)}
        for op, i in place.items():
            w = place.get(op.replace("I", "W")) if "I" in op else None
            if w is not None and row[i][1] != row[i][2]:
                row[w] = row[w][0], *row[i][1:]
                return rows
    return None


@mistake(Rule.DATA)
def backward_without_waiting_for_the_next_stage(b: Base) -> Rows | None:
    """The backward of stage 0 right after its forward."""
    rows = b.copy()
    if b.pipeline.devices == 1:
        return None
    for i, (op, start, end) in enumerate(rows[0]):
        if op in ("0B0", "0I0"):
            begin = next(Fraction(z) for o, _, z in rows[0] if o == "0F0")
            rows[0][i] = op, begin, begin + Fraction(end) - Fraction(start)
            return rows
    return None


@mistake(Rule.OVERLAP)
def everything_at_once(b: Base) -> Rows | None:
    return [[(op, 0, Fraction(end) - Fraction(start)) for op, start, end in row] for row in b.rows]


@mistake(Rule.OVERLAP)
def two_at_the_same_time(b: Base) -> Rows | None:
    rows = b.copy()
    (_, start, end), (second, _, _) = rows[-1][:2]
    rows[-1][1] = second, start, end
    return rows if {Kind.F, Kind.B} != {parse(str(r[0]))[1] for r in rows[-1][:2]} else None


@mistake(Rule.NEGATIVE)
def everything_a_tick_earlier(b: Base) -> Rows | None:
    tick = Fraction(1, b.pipeline.ticks.per_unit)
    return [[(op, Fraction(start) - tick, Fraction(end) - tick) for op, start, end in row] for row in b.rows]


@mistake(Rule.TIME)
def start_that_is_no_number(b: Base) -> Rows | None:
    return changed(b, Kind.F, lambda op, start, end: (op, math.nan, end))


@mistake(Rule.TIME)
def end_that_is_infinite(b: Base) -> Rows | None:
    return changed(b, Kind.F, lambda op, start, end: (op, start, math.inf), least=1)


@mistake(Rule.MEMORY)
def all_forwards_first(b: Base) -> Rows | None:
    """GPipe's order where there is no memory for it."""
    order = [sorted(row, key=lambda op: "F" not in op) for row in b.order()]
    return b.retimed(order) if not b.find_pair() and order != b.order() else None


@mistake(Rule.MEMORY)
def one_forward_a_place_too_early(b: Base) -> Rows | None:
    """Exchanged with the operation that gives back what it claims, on a device that is full."""
    for device, row in enumerate(b.order()):
        held = 0
        for i, op in enumerate(row[:-1]):
            held += op.count("F") - ("OVERLAP" in op) - (op.count("B") - ("OVERLAP" in op)) - op.count("W")
            if op[1:2] in "BW" and row[i + 1][1] == "F" and "OVERLAP" not in row[i + 1]:
                order = b.order()
                order[device][i], order[device][i + 1] = row[i + 1], row[i]
                rows = b.retimed(order)
                if rows is not None and held + 2 > b.pipeline.memory.limit[device]:  # type: ignore[index]
                    return rows
    return None


@mistake(Rule.MEMORY)
def all_w_at_the_end(b: Base) -> Rows | None:
    if b.find(Kind.W) is None or b.find_pair():
        return None
    return b.retimed([sorted(row, key=lambda op: "W" in op) for row in b.order()])


NAMES = list(MISTAKES)


@pytest.mark.parametrize("name", NAMES)
def test_a_mistake_is_found(name: str) -> None:
    change, rule = MISTAKES[name]
    tried = 0
    for of in BASES:
        rows = change(base(of))
        if rows is None:
            continue
        tried += 1
        found = violations_of(base(of).pipeline, rows)
        assert rule in {violation.rule for violation in found}, (of, found[:3])
        for violation in found:
            assert violation.message
            assert violation.device is not None
            assert violation.time is not None or violation.rule in (Rule.MISSING, Rule.TIME)
    assert tried


@pytest.mark.parametrize("of", BASES)
@pytest.mark.parametrize("by", [Fraction(1), Fraction(1, 10**6)])
def test_a_limit_below_the_peak_is_found(of: str, by: Fraction) -> None:
    b = base(of)
    peaks = b.pipeline.memory.limit
    assert isinstance(peaks, tuple)
    tried = 0
    for device in range(b.pipeline.devices):
        less = tuple(peak - by * (d == device) for d, peak in enumerate(peaks))
        try:
            limited = replace(b.pipeline, memory=replace(b.pipeline.memory, limit=less))
        except PipelineError:  # not even one activation
            continue
        tried += 1
        assert {(v.rule, v.device) for v in violations_of(limited, b.rows)} == {(Rule.MEMORY, device)}
    assert tried


MOST = pytest.mark.parametrize(
    "of", [pytest.param(name, marks=thorough if name in ("zb-v", "dualpipe", "interleaved") else ()) for name in BASES]
)
"""The schedules with the most operations are changed at each of them in thorough runs."""


@MOST
def test_each_operation_a_tick_earlier_breaks_a_rule(of: str) -> None:
    """Times are as early as can be, so none can be earlier."""
    b = base(of)
    tick = Fraction(1, b.pipeline.ticks.per_unit)
    for device, row in enumerate(b.rows):
        for position, (op, start, end) in enumerate(row):
            rows = b.copy()
            rows[device][position] = op, Fraction(start) - tick, Fraction(end) - tick
            assert violations_of(b.pipeline, rows), f"{op} a tick earlier"


@MOST
def test_each_operation_once_less_or_once_more_breaks_a_rule(of: str) -> None:
    b = base(of)
    for device, row in enumerate(b.rows):
        for position, (op, start, end) in enumerate(row):
            without = [*b.rows[:device], [*row[:position], *row[position + 1 :]], *b.rows[device + 1 :]]
            assert {v.rule for v in violations_of(b.pipeline, without)} & {Rule.MISSING, Rule.W_WITHOUT_I}
            again = added(b, device, str(op), Fraction(end) - Fraction(start))
            assert {v.rule for v in violations_of(b.pipeline, again)} & {Rule.TWICE}


def test_there_are_many_kinds_of_mistakes() -> None:
    assert len(MISTAKES) >= 50
    mistaken = {rule for _, rule in MISTAKES.values()}
    elsewhere = {Rule.TRANSFER, Rule.LINK, Rule.BLOCKING, Rule.PASS, Rule.TURN, Rule.COPY, Rule.ENGINE}
    assert mistaken == set(Rule) - {Rule.LATE, Rule.METRIC, Rule.BOUND, Rule.COMMUNICATION} - elsewhere
