"""The named schedules against what other systems' code gives."""

from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from ppopt.named import Restriction, adapted, find
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Schedule
from tests.support.many import each
from tests.support.peers import COSTS, Entry, entries, of, pipeline_of
from tests.support.tiers import SOME


def figures(schedule: Schedule, entry: Entry) -> dict[str, Any]:
    """Of the schedule, what the entry has figures for; times in its unit."""
    pipeline = schedule.pipeline
    computed = {
        "makespan": pipeline.time(schedule.makespan),
        "device_span": pipeline.time(schedule.device_span),
        "bubble_ratio": schedule.bubble_ratio,
        "span_bubble_ratio": schedule.span_bubble_ratio,
        "summed_span_bubble_ratio": schedule.summed_span_bubble_ratio,
    }
    return {key: value for key, value in computed.items() if key in entry}


def assert_figures(schedule: Schedule, entry: Entry) -> None:
    """All figures of the entry, ratios to the digits given."""
    for key, value in figures(schedule, entry).items():
        assert value == pytest.approx(entry[key], rel=1e-10, abs=2e-9), key
    if "order" in entry:
        assert [" ".join(row) for row in schedule.order.texts()] == entry["order"]


PLACEMENT = {"gpipe": "linear", "1f1b": "linear", "zb-h1": "linear", "interleaved-1f1b": "loop", "hanayo": "wave"}


def crosspipe(entry: Entry) -> Schedule:
    """With every hanayo in groups, which is what CrossPipe builds for M = D too."""
    params = {"variant": "groups"} if entry["schedule"] == "hanayo" else {}
    pipeline = pipeline_of(entry, PLACEMENT[entry["schedule"]])
    return find(entry["schedule"]).schedule(pipeline, entry["chunks"], **params)


@SOME
@pytest.mark.parametrize("name", PLACEMENT)
def test_crosspipe(name: str, every: int) -> None:
    each(list(of("crosspipe", name).items())[::every], lambda entry: assert_figures(crosspipe(entry), entry))


def test_crosspipe_per_device_takes_chunks_times_as_much() -> None:
    """An undivided entry is one whose costs per device are ``chunks`` times those of the schedules with one chunk."""
    small = {key: e for key, e in of("crosspipe").items() if e.get("undivided") and e["study"] == "grid" and e["devices"] <= 8}
    assert len(small) > 20

    def check(entry: Entry) -> None:
        chunks, placement = entry["chunks"], PLACEMENT[entry["schedule"]]
        costs = Costs(**{key: entry[key] * chunks for key in COSTS if entry.get(key) is not None})
        pipeline = Pipeline(entry["devices"], entry["microbatches"], placement, chunks, costs=costs, links=Links(entry["comm"]))
        params = {"variant": "groups"} if entry["schedule"] == "hanayo" else {}
        assert_figures(find(entry["schedule"]).schedule(pipeline, chunks, **params), entry)

    each(small, check)


def test_crosspipe_where_it_gives_up() -> None:
    """Its interleaved refuses M = D beyond two devices; the order exists, and its forms do not hold (all is warm-up)."""
    assert len(of("crosspipe", fails=True)) == 22

    def check(entry: Entry) -> None:
        schedule = crosspipe(entry)
        work = max(schedule.work)
        ideal = work + (entry["devices"] - 1) * (work // (entry["chunks"] * entry["microbatches"]))
        if entry.get("comm", 0) == 0:
            assert schedule.makespan == ideal

    each(of("crosspipe", fails=True), check)


EMULATED = (
    *("1f1b", "interleaved-1f1b", "zb-h1 (called zb1p)", "dualpipe", "dualpipe-v"),
    *("1f1b-overlap", "interleaved-1f1b-overlap"),
)

OUTSIDE = {("dualpipe", 2, 2)}
"""Its DualPipe takes M >= 2D - 2; the schedule's definition needs M >= 2D."""


def emulated(entry: Entry) -> Schedule:
    name = entry["schedule"].split()[0]
    params = {"group_size": entry["microbatch_group"]} if "microbatch_group" in entry else {}
    return find(name).schedule(pipeline_of(entry, entry["placement"]), entry["chunks"], **params)


def outside(entry: Entry) -> bool:
    return (entry["schedule"], entry["devices"], entry["microbatches"]) in OUTSIDE


@pytest.mark.parametrize("name", EMULATED)
def test_emulation(name: str) -> None:
    def check(entry: Entry) -> None:
        schedule = emulated(entry)
        plain = {key: value for key, value in entry.items() if key not in ("bubble_ratio", "overhead", "work")}
        if "makespan_plain" in entry:  # a quirk of the original; this is its value without
            plain["makespan"] = entry["makespan_plain"]
            plain.pop("device_span", None)
        assert_figures(schedule, plain)
        assert [schedule.pipeline.time(work) for work in schedule.work] == pytest.approx(entry["work"])

    each({key: e for key, e in of("pp_emulation", name).items() if not outside(e)}, check)


def test_no_schedule_of_a_peer_is_left_out() -> None:
    for name, schedules in (("crosspipe", PLACEMENT), ("pp_emulation", EMULATED), ("torch_schedules", TORCH)):
        assert {entry["schedule"] for entry in entries(name)} == set(schedules)
    measured = {entry["schedule"] for entry in of("zero_bubble").values() if entry["kind"] == "measured"}
    assert measured == {*BY_HAND, "zb-heuristic", "zb-v", "v-half", "v-min"}


def test_emulation_where_it_gives_up() -> None:
    """DualPipe with too few microbatches and small groups are refused by the name of the restriction; the rest is answered."""
    answered = {key: entry for key, entry in of("pp_emulation").items() if outside(entry)}
    each(answered | of("pp_emulation", fails=True), refused_or_answered)


def refused_or_answered(entry: Entry) -> None:
    if entry["schedule"].startswith("dualpipe"):
        with pytest.raises(Restriction, match=r"microbatches must be >= 2\*devices"):
            emulated(entry)
    elif entry.get("microbatch_group", entry["devices"]) < entry["devices"] - 1:
        with pytest.raises(Restriction, match="deadlocks"):
            emulated(entry)
    else:
        schedule = emulated(entry)
        assert schedule.makespan == max(schedule.work) + (entry["devices"] - 1) * (entry["forward"] + entry["backward"])


TORCH: dict[str, tuple[str, dict[str, Any]]] = {
    "GPipe": ("gpipe", {}),
    "1F1B": ("1f1b", {}),
    "LoopedBFS": ("looped-bfs", {"backward_microbatches": "descending"}),
    "Interleaved1F1B": ("interleaved-1f1b", {}),
    "InterleavedZeroBubble": ("interleaved-zb", {}),
    "ZBVZeroBubble": ("zb-v", {"tail": "chunk1-first"}),
    "DualPipeV": ("dualpipe-v", {}),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch(name: str) -> None:
    each(of("torch_schedules", name), as_in_torch)


def as_in_torch(entry: Entry) -> None:
    name, params = TORCH[entry["schedule"]]
    if name == "interleaved-1f1b":
        rounds = max(1, entry["microbatches"] // entry["devices"])
        params = {"group_size": entry["microbatches"] // rounds}
    placement = "loop" if entry["placement"] == "linear" and name not in ("gpipe", "1f1b") else entry["placement"]
    schedule = find(name).schedule(pipeline_of(entry, placement), entry["chunks"], **params)
    assert (schedule.makespan, schedule.device_span) == (entry["makespan"], entry["device_span"])
    assert list(schedule.peak_memory) == entry["peak_memory"]


def test_dist_ir() -> None:
    def check(entry: Entry) -> None:
        schedule = find("pipedream").schedule(Pipeline(entry["devices"], entry["microbatches"]))
        assert schedule.order.texts() == [[op for op in row.split() if op != "."] for row in entry["order"]]

    each({f"m{entry['microbatches']}": entry for entry in entries("dist_ir")}, check)


def alternating_in_unit_steps(devices: int, microbatches: int) -> list[list[str]]:
    """DistIR's rule, step by step: after a forward prefer a backward, else a forward; lowest microbatch; what a step makes
    ready is visible in the next."""
    done = {"F": [[] for _ in range(devices)], "B": [[] for _ in range(devices)]}
    rows: list[list[str]] = [[] for _ in range(devices)]
    while any(len(done["B"][d]) < microbatches for d in range(devices)):
        step = []
        for d in range(devices):
            source = {"F": range(microbatches) if d == 0 else done["F"][d - 1]}
            source["B"] = done["F"][d] if d == devices - 1 else done["B"][d + 1]
            kinds = "BF" if rows[d] and "F" in rows[d][-1] else "FB"
            ready = [(kind, len(done[kind][d])) for kind in kinds if len(done[kind][d]) < len(source[kind])]
            step += [(d, *ready[0])] if ready else []
        for d, kind, microbatch in step:
            rows[d].append(f"{d}{kind}{microbatch}")
            done[kind][d].append(microbatch)
    return rows


def test_pipedream_is_the_rule_in_unit_steps() -> None:
    def check(size: tuple[int, int]) -> None:
        assert find("pipedream").schedule(Pipeline(*size)).order.texts() == alternating_in_unit_steps(*size)

    each({str(size): size for size in product(range(1, 6), (1, 2, 3, 5, 8, 11))}, check)


BY_HAND = ("gpipe", "1f1b", "zb-h1", "zb-h2")
"""The zero-bubble authors' orders without a scheduler."""


def pinned(entry: Entry) -> Schedule:
    return find(entry["schedule"]).schedule(pipeline_of(entry, "linear"))


@pytest.mark.parametrize("name", BY_HAND)
def test_zero_bubble_hand_orders(name: str) -> None:
    def check(entry: Entry) -> None:
        try:
            schedule = pinned(entry)
        except Restriction:  # the authors' order exists for fewer microbatches too
            assert entry["microbatches"] < {"zb-h1": 1, "zb-h2": 2}[entry["schedule"]] * entry["devices"]
            return
        assert schedule.pipeline.time(schedule.makespan) == entry["makespan"]
        assert schedule.pipeline.time(schedule.device_span) == entry["device_span"]
        for share, peaks in entry["peak_memory"].items():
            pipeline = schedule.pipeline.changed(memory=Memory(retained=float(share.split()[1])))
            held = find(entry["schedule"]).schedule(pipeline).peak_memory
            assert [pipeline.amount(peak) for peak in held] == pytest.approx(peaks, rel=2e-3)

    each(of("zero_bubble", name), check)


@SOME
def test_the_automatic_scheduler_equals_the_authors(every: int) -> None:
    """They count what is given back after I; the share retained is the last one that the entry has peaks for."""
    assert len(of("zero_bubble", "zb-heuristic")) == 96

    def check(entry: Entry) -> None:
        retained = [float(name.split()[1]) for name in entry["peak_memory"]][-1]
        pipeline = pipeline_of(entry, "linear", memory=Memory(retained=retained))
        limit = entry["memory_limit"] or 10 * entry["microbatches"]
        schedule = find("zb-1p").schedule(pipeline, limit=int(limit))
        assert pipeline.time(schedule.device_span) == entry["device_span"]
        assert pipeline.amount(max(schedule.peak_memory)) <= limit

    each(list(of("zero_bubble", "zb-heuristic").items())[::every], check)


@SOME
def test_the_adapted_v_is_never_worse_than_the_authors(every: int) -> None:
    assert len(of("zero_bubble", "zb-v")) >= 48

    def check(entry: Entry) -> None:
        pipeline = pipeline_of(entry, "wave", memory=Memory(Fraction(1, 2), Fraction(1, 4)))
        limit = entry["memory_limit"] or 10 * entry["microbatches"]
        schedule = find("zb-v").schedule(pipeline, variant="adapted", limit=int(limit))
        assert pipeline.time(schedule.device_span) <= entry["device_span"]
        assert pipeline.amount(max(schedule.peak_memory)) <= limit

    each(list(of("zero_bubble", "zb-v").items())[::every], check)


@SOME
def test_heuristics_at_other_limits_fit_what_the_authors_need(every: int) -> None:
    """Within exactly the memory of the authors' schedule some limit gives one that is no worse."""
    small = {key: e for key, e in of("zero_bubble", "zb-v").items() if e["devices"] == 4 and e["memory_limit"]}
    assert len(small) >= 8

    def check(entry: Entry) -> None:
        name, peaks = list(entry["peak_memory"].items())[-1]
        memory = Memory(Fraction(1, 2), Fraction(name.split()[1]) / 2, [round(peak + 5e-4, 3) for peak in peaks])
        pipeline = pipeline_of(entry, "wave", memory=memory)
        fitting = [schedule.device_span for _, schedule in adapted(pipeline) if schedule.within_memory]
        assert pipeline.time(min(fitting)) <= entry["device_span"]

    each(list(small.items())[::every], check)


@SOME
@pytest.mark.parametrize("name", ["v-half", "v-min"])
def test_v_half_and_v_min_beside_the_authors(name: str, every: int) -> None:
    """Never worse at unit costs; at others two heuristics for equal costs differ by a few percent."""
    each(list(of("zero_bubble", name).items())[::every], about_as_the_authors)


def about_as_the_authors(entry: Entry) -> None:
    pipeline = pipeline_of(entry, "wave", memory=Memory(Fraction(1, 2)))
    schedule = find(entry["schedule"]).schedule(pipeline)
    allowed = 1.0 if entry["costs"] == "unit" else 1.03
    assert pipeline.time(schedule.makespan) <= entry["makespan"] * allowed
    assert pipeline.amount(max(schedule.peak_memory)) <= max(entry["peak_memory"]["retained 1"])


def test_adapted_schedules_come_to_an_end_where_operations_take_no_time():
    """The last device waits for nobody here, and has begun no more than the first when there is nothing left to begin."""
    costs = Costs(forward=[4, 0], backward_input=[4, 2], backward_weight=0)
    pipeline = Pipeline(2, 3, placement="wave", chunks=2, costs=costs, memory=Memory(limit=1))
    assert [name for name, _ in adapted(pipeline)]
