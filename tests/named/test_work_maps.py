"""Maps of work and weights: every figure of parallelsim, and what its definitions say at other sizes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppopt.checker import violations
from ppopt.heuristics import by_frontier
from ppopt.named import Restriction, compare, find
from ppopt.named.registry import each as each_definition
from ppopt.named.registry import shows_maps
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Memory, Mix, Pipeline, PipelineError
from ppopt.pipeline.work_map import WorkMap, mapped
from ppopt.schedule import Schedule
from ppopt.search import solve
from ppopt.timing import time_order
from ppopt.timing.weights import device_figures
from tests.support.many import each
from tests.support.peers import entries
from tests.support.tiers import thorough

COSTS = Costs(per="stage", forward=1, backward=2)
NAMES = {
    "data-parallel": "ddp",
    "fully-sharded-data-parallel": "fsdp",
    "looped-pipeline": "looped-pp",
    "fully-sharded-looped-pipeline": "fslpp",
    "cuckoo": "cuckoo",
}
MAPS = [*NAMES.values()]


def label(entry: dict[str, Any]) -> str:
    return f"{entry['schedule']} {entry['devices']} {entry['stages']} {entry['microbatches']} {entry['priority']}"


def map_of(entry: dict[str, Any]) -> WorkMap:
    """The map of an entry, as the functions of the original say it."""
    devices, stages, microbatches = entry["devices"], entry["stages"], entry["microbatches"]
    group, name = entry.get("params", {}).get("group_size", 1), entry["schedule"]

    def turn(x: int, y: int) -> int:
        return (group * y) % devices + x % group

    def device(stage: int, microbatch: int, back: bool) -> int:
        if "data-parallel" in name:
            return microbatch
        if "looped" in name:
            return turn(stage, microbatch)
        if name == "cuckoo" and back and stage < stages // 2 + 2 and microbatch < microbatches // 2 - 2:
            return stages - 1 - stage
        if name == "overflow" and back and stage < 5 and microbatch < entry["params"]["batch_lt"]:
            return stages + stage % entry["params"]["num_overflow_workers"]
        return stage

    def home(stage: int, microbatch: int) -> int:
        if name == "fully-sharded-data-parallel":
            return stage % devices
        return turn(stage, stage) if name.startswith("fully") else device(stage, microbatch, False)

    each_ = range(stages)
    routes, back, kept = (
        tuple(tuple(of(s, m) for s in each_) for m in range(microbatches))
        for of in (lambda s, m: device(s, m, False), lambda s, m: device(s, m, True), home)
    )
    return WorkMap(routes, tuple(range(microbatches)), back, kept)


def placed(entry: dict[str, Any]) -> Pipeline:
    there = map_of(entry)
    memory = Memory(weights_on=there.weights_on)
    return Pipeline(
        entry["devices"],
        entry["microbatches"],
        routes=there.routes,
        route_of_microbatch=there.route_of_microbatch,
        backward_routes=there.backward_routes,
        costs=Costs(per="stage", forward=entry["forward"], backward=entry["backward"]),
        memory=memory,
    )


def reproduced(entry: dict[str, Any]) -> Schedule:
    filling = "oldest-stage" if "stage" in entry["priority"] else "oldest-microbatch"
    pipeline = placed(entry)
    return time_order(pipeline, by_frontier(pipeline, filling))


def same_figures(entry: dict[str, Any]) -> None:
    schedule = reproduced(entry)
    figures = device_figures(schedule)
    if "order" in entry:
        assert [" ".join(row) for row in schedule.order.texts()] == entry["order"]
    if "start" in entry:
        assert [row.tolist() for row in schedule.start] == entry["start"]
    assert schedule.makespan == entry["makespan"]
    assert [each.weight_fetches for each in figures] == entry["weight_transfers"]
    assert [each.stages_stored for each in figures] == entry["stages_stored"]
    # it also counts what the first stage's backward hands on, which goes nowhere, but where one device runs all of a microbatch
    alone = "data-parallel" in entry["schedule"]
    handed_on = [0 if alone else sum(text.startswith("0B") for text in row) for row in schedule.order.texts()]
    assert [f.activations_sent + n for f, n in zip(figures, handed_on, strict=True)] == entry["activation_transfers"]
    peaks = [each.peak_activations for each in figures]
    if "may be too low" in entry.get("quirk", ""):
        assert all(ours >= theirs for ours, theirs in zip(peaks, entry["peak_memory"], strict=True))
    else:
        assert peaks == entry["peak_memory"] == list(schedule.peak_memory)
    assert violations(schedule.pipeline, schedule, earliest=True) == []
    # no more microbatches per time than devices per stage
    rate = entry["microbatches"] * (entry["forward"] + entry["backward"]) / schedule.makespan
    assert rate <= entry["devices"] / entry["stages"]
    if "data-parallel" in entry["schedule"]:
        assert rate == entry["devices"] / entry["stages"]


def test_every_figure_of_parallelsim() -> None:
    each({label(entry): entry for entry in entries("parallelsim") if entry["devices"] < 8}, same_figures)


@thorough
def test_every_large_figure_of_parallelsim() -> None:
    each({label(entry): entry for entry in entries("parallelsim") if entry["devices"] >= 8}, same_figures)


def test_the_definitions_have_these_maps() -> None:
    """On the maps written out nothing is moved; the order and the times are those of the definition."""

    def check(entry: dict[str, Any]) -> None:
        definition, params = find(NAMES[entry["schedule"]]), {}
        if "group_size" in entry.get("params", {}):
            params["group"] = entry["params"]["group_size"]
        pipeline = placed(entry)
        assert definition.place(pipeline, **params) is pipeline
        assert [" ".join(row) for row in definition.order(pipeline, **params).texts()] == entry["order"]

    named = [entry for entry in entries("parallelsim") if entry["schedule"] in NAMES and entry["devices"] < 7]
    each({label(entry) + str(number): entry for number, entry in enumerate(named)}, check)


def named(name: str, devices: int, microbatches: int, **fields: Any) -> Schedule:
    return find(name).schedule(Pipeline(devices, microbatches, **{"costs": COSTS, **fields}))


def test_six_stages() -> None:
    """The six stages of the original's pages."""
    fsdp = named("fsdp", 6, 6)
    assert (fsdp.makespan, max(fsdp.peak_memory)) == (18, 6)
    assert [each.weight_fetches for each in device_figures(fsdp)] == [10] * 6
    assert named("cuckoo", 6, 12).makespan == 59
    looped, sharded = named("looped-pp", 6, 12), named("fslpp", 6, 12)
    assert (looped.makespan, sharded.makespan) == (46, 46)
    assert [each.weight_fetches for each in device_figures(sharded)] == [12] * 6
    assert [each.weight_fetches for each in device_figures(looped)] == [0] * 6


@thorough
def test_the_optimum_of_the_looped_map_is_less() -> None:
    result = solve(find("looped-pp").place(Pipeline(6, 12, costs=COSTS)), seconds=120, workers=1)
    assert (result.makespan, result.reason) == (42, "optimal")


def _or_why_not(name: str, pipeline: Pipeline) -> tuple[Schedule | None, str]:
    try:
        return find(name).schedule(pipeline), ""
    except Restriction as problem:
        return None, str(problem)


@given(st.sampled_from(MAPS), st.integers(2, 6), st.integers(1, 14), st.sampled_from(["device", "stage"]))
@settings(max_examples=15)
def test_any_size_exists_or_is_refused_with_a_reason(name: str, devices: int, microbatches: int, per: Any) -> None:
    pipeline = Pipeline(devices, microbatches, costs=Costs(per=per, forward=1, backward=2), memory=Memory(static=2))
    schedule, problem = _or_why_not(name, pipeline)
    if schedule is None:
        assert name in problem
        assert "got" in problem
        return
    assert violations(schedule.pipeline, schedule, earliest=True) == []
    assert sum(schedule.work) * pipeline.ticks.per_unit == sum(pipeline.work) * schedule.pipeline.ticks.per_unit
    work = schedule.pipeline.ticks.per_unit * 3 * microbatches
    assert schedule.makespan * devices >= work * devices
    figures = device_figures(schedule)
    static = [pipeline.amounts.static.sum() * each.stages_stored / devices for each in figures]
    assert [schedule.pipeline.amount(int(x)) for x in schedule.pipeline.amounts.static] == static
    if name in ("ddp", "fsdp") and microbatches % devices == 0:
        assert schedule.bubble_ratio == 0


@pytest.mark.parametrize(
    ("name", "sizes", "params", "problem"),
    [
        ("ddp", (4, 3), {}, "ddp: microbatches must be at least 4, got 3"),
        ("fsdp", (4, 3), {}, "fsdp: microbatches must be at least 4, got 3"),
        ("looped-pp", (4, 8), {"group": 3}, "looped-pp: group must divide devices (4), got 3"),
        ("looped-pp", (4, 1), {}, "looped-pp: microbatches must be at least 2, got 1"),
        ("fslpp", (4, 8), {"group": 0}, "fslpp: group must be a whole number >= 1, got 0"),
        ("fslpp", (4, 8), {"filling": "newest"}, "filling must be one of oldest-microbatch, oldest-stage, got 'newest'"),
        (
            "cuckoo",
            (4, 5),
            {},
            "cuckoo: devices must be at least 2 and microbatches at least 6, got devices = 4, microbatches = 5",
        ),
    ],
)
def test_what_is_refused(name: str, sizes: tuple[int, int], params: dict[str, Any], problem: str) -> None:
    with pytest.raises(Restriction) as error:
        find(name).schedule(Pipeline(*sizes), **params)
    assert problem in str(error.value)


def test_cuckoo_takes_one_stage_per_device() -> None:
    with pytest.raises(Restriction, match=r"stages must be devices \(4\), got 8"):
        find("cuckoo").schedule(Pipeline(4, 8, placement="loop"))


def test_stages_keep_their_costs() -> None:
    """Per stage they stay; per device a device keeps its speed and its work."""
    stages = Pipeline(3, 6, costs=Costs(per="stage", forward=(1, 2, 3), backward=(4, 5, 6)))
    assert set(find("ddp").schedule(stages).work) == {2 * 21}
    speeds = Pipeline(3, 6, costs=Costs(forward=(1, 2, 3), backward=(2, 4, 6)))
    assert [int(x) for x in find("ddp").schedule(speeds).pipeline.work] == [18, 36, 54]


def test_both_fillings() -> None:
    """All forwards first, or the oldest microbatch through."""
    pipeline = Pipeline(3, 4, costs=COSTS)
    assert by_frontier(pipeline, "oldest-stage") == find("gpipe").order(pipeline)
    assert by_frontier(pipeline).texts()[2] == ["2F0", "2B0", "2F1", "2B1", "2F2", "2B2", "2F3", "2B3"]
    one, other = (
        find("looped-pp").schedule(Pipeline(4, 8, costs=COSTS), filling=way) for way in ("oldest-stage", "oldest-microbatch")
    )
    assert one.order != other.order
    assert find("looped-pp").read({"group": 2, "filling": "oldest-stage"})


def test_the_greedy_waits_for_links_and_for_what_forwards_leave_behind() -> None:
    pipeline = find("cuckoo").place(Pipeline(4, 6, costs=COSTS, links=Links(latency=3, weights=1)))
    schedule = time_order(pipeline, by_frontier(pipeline))
    assert violations(pipeline, schedule, earliest=True) == []


def test_maps_are_shown_where_the_model_speaks_of_weights() -> None:
    plain = Pipeline(2, 6)
    speaks = plain.changed(memory=Memory(weights=1))
    assert not {definition.name for definition, _ in each_definition((), shows_maps(plain))} & set(MAPS)
    for pipeline, names in ((speaks, ()), (plain, ("gpipe", "fsdp")), (plain.changed(links=Links(weights=0)), ())):
        assert set(MAPS) <= {definition.name for definition, _ in each_definition((), shows_maps(pipeline, names))}
    assert {row.name for row in compare(speaks, only=["gpipe", *MAPS])} == {"gpipe", *MAPS}
    assert "ddp" in {row.name for row in compare(plain, only=["ddp"])}


def test_moving_away_leaves_the_map_behind() -> None:
    pipeline = find("cuckoo").place(Pipeline(4, 6, costs=COSTS, memory=Memory(weights=(1, 2, 3, 4))))
    back = pipeline.placed("linear")
    assert back.backward_routes == ()
    assert back.placement == "linear"
    loop = find("fsdp").place(Pipeline(4, 8, memory=Memory(weights=(1, 2, 3, 4)))).placed("loop", 2)
    assert loop.memory.weights_on is None
    assert loop.memory.weights * loop.stages == 10


def test_a_map_is_the_same_however_its_routes_are_numbered() -> None:
    one = WorkMap(((0, 1), (1, 0)), (0, 1, 0))
    other = Pipeline(2, 3, routes=[[1, 0], [0, 1]], route_of_microbatch=[1, 0, 1])
    assert one.of(other)
    assert mapped(other, one) is other
    assert not one._replace(backward_routes=((1, 1), (1, 0))).of(other)
    with pytest.raises(PipelineError):
        mapped(Pipeline(2, 3), WorkMap(((0, 0),), (0, 0, 0)))


def test_kinds_need_weights_but_for_the_weight_gradient() -> None:
    pipeline = find("fsdp").place(Pipeline(2, 2, links=Links(weights=5)))
    before = Pipeline(2, 2).rerouted(pipeline.routes, pipeline.route_of_microbatch)
    longer = pipeline.ticks.duration - before.ticks.duration
    assert longer[:, Kind.W].max() == 0
    for kind in (Kind.F, Kind.B, Kind.I):
        assert longer[:, kind].tolist() == [[0, 5], [5, 0]]


def test_microbatches_that_differ_have_maps_of_routes_alone() -> None:
    """Of data parallelism each device runs its own microbatches one by one, however long they are."""
    pipeline = Pipeline(2, 4, costs=COSTS, mix=Mix([1, 2, 3, 4]))
    schedule = find("ddp").schedule(pipeline)
    assert violations(schedule.pipeline, schedule) == []
    works = sorted(6 * sum(pipeline.mix.microbatch_costs[m] for m in own) for own in ((0, 2), (1, 3)))
    assert (sorted(schedule.work), schedule.makespan) == (works, works[-1])
    assert solve(schedule.pipeline, seconds=10, workers=1).ticks.value == works[-1]
    for name, key in (("fsdp", "memory.weights_on"), ("cuckoo", "pipeline.backward_routes")):
        with pytest.raises(
            Restriction, match=f"{name}: pipeline.microbatch_costs: what microbatches that differ take with {key}"
        ):
            find(name).place(Pipeline(2, 8, costs=COSTS, mix=Mix([1, 2] * 4)))


@pytest.mark.parametrize("kept", ["operation", "step"])
def test_weights_elsewhere_and_a_working_set(kept: str) -> None:
    """As everywhere, what a backward takes while it runs is as good as a lower limit."""

    def of(**memory: Any) -> Pipeline:
        given = Memory(weights=1, weights_on=[[1, 0]], weights_kept=kept, **memory)  # type: ignore[arg-type]
        return Pipeline(2, 4, routes=[[0, 1]], costs=COSTS, links=Links(weights=0.5), memory=given)

    lower, beside = of(limit=3), of(limit=4, working=1)
    answers = [solve(pipeline, seconds=20, workers=1) for pipeline in (lower, beside)]
    assert answers[0].value == answers[1].value
    assert answers[0].value > solve(of(limit=4), seconds=20, workers=1).value
    schedule = answers[1].schedule
    assert schedule is not None
    assert violations(beside, schedule) == []
    assert max(schedule.peak_memory) == beside.amounts.per_unit * 4
