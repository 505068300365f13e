"""The layers of a profile: the ranges that the forwards of a trace name, or stages divided evenly."""

import json
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from ppopt.files.model import ModelError, model_of_text, setting
from ppopt.files.profile import Profile, combine, durations, model_text
from ppopt.files.profiled_layers import Grouping, ProfiledLayers, dealt_layers, named_layers
from ppopt.files.recorded import ProfileError, read_recorded
from ppopt.op import Kind
from ppopt.pipeline import Layer, Pipeline
from tests.support.places import DATA

Event = dict[str, Any]
Run = Callable[..., Profile]
TRACES = [DATA / f"torch_layers_trace_{rank}.json" for rank in (0, 1)]


def event(name: str, begin: float, duration: float, category: str = "user_annotation", thread: int = 1) -> Event:
    return {"ph": "X", "name": name, "cat": category, "ts": begin, "dur": duration, "tid": thread}


def operation(name: str, begin: float, duration: float, blocks: Mapping[str, tuple[float, float]] | None = None) -> list[Event]:
    """A range of PyTorch's runtime that computes from its beginning on; ``blocks``: when each begins in it, how long it lasts."""
    inner = [event(block, begin + at, length) for block, (at, length) in (blocks or {}).items()]
    return [event(f"PP:{name}", begin, duration), event("aten::add", begin, 1, "cpu_op"), *inner]


def in_a_row(**lengths: float) -> dict[str, tuple[float, float]]:
    """Blocks one right after the other; ``_`` for a dot in their names."""
    begins = accumulate(lengths.values(), initial=0.0)
    return {name.replace("_", "."): (begin, length) for begin, (name, length) in zip(begins, lengths.items(), strict=False)}


def one_stage(
    stage: int, blocks: Mapping[str, tuple[float, float]], kinds: Mapping[str, float], shown: Mapping[str, Any] | None = None
) -> list[Event]:
    """One forward as long as its blocks, and backwards; ``shown``: by kind the blocks that these show."""
    length = max((begin + of for begin, of in blocks.values()), default=50.0)
    events = operation(f"{stage}F0", 10_000 * stage, length, blocks)
    for i, (kind, of) in enumerate(kinds.items()):
        events += operation(f"{stage}{kind}0", 10_000 * stage + 2000 * (i + 1), of, (shown or {}).get(kind))
    return events


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The profile of traces, one per rank, none of their steps left out."""

    def profiled(*ranks: Sequence[Event], blocks: str | None = None) -> Profile:
        files = []
        for rank, events in enumerate(ranks):
            path = tmp_path / f"{rank}.json"
            path.write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events}))
            files.append(read_recorded(str(path), 0, *([blocks] if blocks else [])))
        return combine(files)

    return profiled


def pipeline_of(profile: Profile, layers: ProfiledLayers | None) -> Pipeline:
    return model_of_text(model_text(profile, "", (), layers), "text").pipeline


def groups_of(profile: Profile, layers: ProfiledLayers) -> dict[str, Layer]:
    found = pipeline_of(profile, layers).layers
    assert found is not None
    return {group.name: group for group in found.groups}


FIRST = one_stage(0, in_a_row(embed=100, layers_0=400, layers_1=420), {"I": 1, "W": 1840})
SECOND = one_stage(1, in_a_row(layers_2=410, layers_3=390, head=800), {"I": 1600, "W": 800})


def test_one_group_of_each_name_with_medians_and_the_cut_of_the_run(run: Run) -> None:
    """By hand, in ms: layers.2 and layers.3 have I : W = 2 : 1, so those of stage 0 too; the embedding has no I."""
    profile = run(FIRST, SECOND)
    layers = named_layers(profile)
    assert layers.partition == (3, 3)
    groups = groups_of(profile, layers)
    assert {name: group.count for name, group in groups.items()} == {"embed": 1, "layers": 4, "head": 1}
    assert groups["embed"].forward == Fraction("0.1")
    assert groups["layers"].forward == Fraction("0.405")  # of 0.4, 0.42, 0.41, 0.39
    assert groups["head"].forward == Fraction("0.8")
    whole = Fraction(1841, 9200)  # backward of stage 0 for its forward: 1.841 of 0.92
    assert (groups["embed"].backward_input, groups["embed"].backward_weight) == (0, Fraction("0.2001"))
    assert float(groups["embed"].backward_weight) == pytest.approx(float(whole), rel=1e-3)
    assert (groups["layers"].backward_input, groups["layers"].backward_weight) == (Fraction("0.4"), Fraction("0.2"))  # measured
    assert (groups["head"].backward_input, groups["head"].backward_weight) == (Fraction("0.8"), Fraction("0.4"))
    assert "'layers' stands for 4 layers, forward 0.39 to 0.42 ms; the median, 0.405 ms, is written" in layers.notes


@pytest.mark.parametrize("grouping", ["alike", "names", "each"])
def test_the_file_is_a_model_of_the_run_and_its_cut_may_be_left_open(run: Run, grouping: Grouping) -> None:
    profile = run(FIRST, SECOND)
    text = model_text(profile, "", (), named_layers(profile, grouping))
    assert model_of_text(text, "text").pipeline.counts == (3, 3)
    assert model_of_text(text, "text", [setting("pipeline.partition=best")]).pipeline.partition == "best"
    notes = [line for line in text.splitlines() if line.startswith("# ")]
    assert any("in proportion to the times in the forward" in line for line in notes)


def test_layers_on_their_own_add_up_to_their_stages(run: Run) -> None:
    profile = run(FIRST, SECOND)
    layers = named_layers(profile, "each")
    assert [group.name for group in layers.groups] == ["embed", "layers.0", "layers.1", "layers.2", "layers.3", "head"]
    costs, _ = durations(profile)
    assert [float(time) for time in pipeline_of(profile, layers).costs.forward] == pytest.approx(  # type: ignore[union-attr]
        [1000 * seconds for seconds in costs["forward"]], rel=1e-3
    )


def test_neighbours_whose_times_differ_are_apart(run: Run) -> None:
    """Three dense layers and two that take three times as long; put together where that is asked for."""
    profile = run(one_stage(0, in_a_row(layers_0=100, layers_1=110, layers_2=105, layers_3=320, layers_4=310), {"B": 1890}))
    counts = [(group.name, len(group.layers)) for group in named_layers(profile).groups]
    assert counts == [("layers.0-2", 3), ("layers.3-4", 2)]
    assert named_layers(profile).notes[-1].endswith("are not put together (--layers names does)")
    together = groups_of(profile, named_layers(profile, "names"))
    assert (together["layers"].count, together["layers"].forward) == (5, Fraction("0.11"))


def test_kinds_in_turn_are_groups_each_with_its_own_times(run: Run) -> None:
    blocks = in_a_row(mamba_0=100, mlp_1=40, mamba_2=104, mamba_3=100, mlp_4=40)
    profile = run(one_stage(0, blocks, {"B": 768}))
    names = [(group.name, group.times["forward"]) for group in named_layers(profile, "names").groups]
    assert [name for name, _ in names] == ["mamba.0", "mlp.1", "mamba.2-3", "mlp.4"]
    assert [round(1e6 * time) for _, time in names] == [100, 40, 100, 40]


def test_what_no_range_covers_belongs_to_the_block_before_it(run: Run) -> None:
    """Gaps of 10 us after each block; 5 before the first one of stage 1; the loss after the head."""
    first = operation("0F0", 0, 330, {"embed": (0, 100), "layers.0": (110, 100), "layers.1": (220, 100)})
    second = operation("1F0", 5000, 405, {"layers.2": (5, 100), "layers.3": (115, 100), "head": (225, 100)})
    profile = run([*first, *operation("0B0", 1000, 660)], [*second, *operation("1B0", 6000, 810)])
    forward = [round(1e6 * group.times["forward"]) for group in named_layers(profile, "each").groups]
    assert forward == [110, 110, 110, 115, 110, 180]


def test_an_embedding_and_a_head_without_names_are_layers_of_their_own(run: Run) -> None:
    """Only the numbered blocks have names, as where a loop over them is all that was marked."""
    first = operation("0F0", 0, 260, {"layers.0": (60, 100), "layers.1": (160, 100)})
    second = operation("1F0", 5000, 501, {"layers.2": (1, 100), "layers.3": (101, 100)})
    profile = run([*first, *operation("0B0", 1000, 520)], [*second, *operation("1B0", 6000, 1002)])
    layers = named_layers(profile)
    assert [(group.name, round(1e6 * group.times["forward"])) for group in layers.groups] == [
        ("before layers.0", 60),
        ("layers", 100),
        ("after layers.3", 300),
    ]
    assert layers.partition == (3, 3)


def test_a_backward_that_shows_all_blocks_is_divided_by_them(run: Run) -> None:
    """Its I in the opposite order of the forward, each block lasting until the next one begins; W shows none."""
    shown = {"I": {"head": (100, 300), "layers.3": (450, 100), "layers.2": (600, 50)}}
    second = one_stage(1, in_a_row(layers_2=400, layers_3=400, head=800), {"I": 700, "W": 1600}, shown)
    layers = named_layers(run(FIRST, second), "each")
    assert [round(1e6 * group.times["backward_input"]) for group in layers.groups[3:]] == [100, 150, 450]
    assert [round(1e6 * group.times["backward_weight"]) for group in layers.groups[3:]] == [400, 400, 800]
    assert any("; I by its own ranges" in note for note in layers.notes)
    del shown["I"]["layers.2"]  # no longer all of them
    layers = named_layers(
        run(FIRST, one_stage(1, in_a_row(layers_2=400, layers_3=400, head=800), {"I": 700, "W": 1600}, shown)), "each"
    )
    assert [round(1e6 * group.times["backward_input"]) for group in layers.groups[3:]] == [175, 175, 350]


def test_one_stage_alone_is_fused(run: Run) -> None:
    profile = run(one_stage(0, in_a_row(a=100, b=300), {"I": 0, "W": 800}))
    groups = groups_of(profile, named_layers(profile))
    assert [(group.backward_input, group.backward) for group in groups.values()] == [
        (None, Fraction("0.2")),
        (None, Fraction("0.6")),
    ]


def test_only_the_outermost_ranges_count_and_those_of_libraries_do_not(run: Run) -> None:
    inner = {
        "FSDP::pre_forward": (0, 5),
        "layers.0": (5, 95),
        "attention": (10, 40),
        "layers.1": (100, 100),
        "ProfilerStep#3": (101, 9),
    }
    events = [
        *operation("0F0", 0, 200, inner),
        *operation("0B0", 1000, 400),
        event("layers.9", 500, 20),
        event("layers.1", 20, 9, thread=2),
    ]
    profile = run(events)
    assert profile.blocks == {0: ("layers.0", "layers.1")}
    assert run(events, blocks="attention|layers.1").blocks == {0: ("attention", "layers.1")}


def test_a_block_that_computes_before_the_first_operation_is_not_waiting(run: Run) -> None:
    events = [
        event("PP:0F0", 0, 100),
        event("layers.0", 40, 60),
        event("aten::add", 70, 5, "cpu_op"),
        *operation("0B0", 1000, 50),
    ]
    assert run(events).times[0, Kind.F] == pytest.approx([6e-5])


def test_a_layer_takes_what_it_launched_takes_on_the_gpu(run: Run) -> None:
    """In the forward, and in a backward that shows it in the thread that launches there."""
    launches = [
        *((number, 10 + 20 * number, 900 + 50 * number, 1) for number in range(4)),  # a has two kernels, b two
        *((4 + number, 1010 + 20 * number, 2000 + 100 * number, 2) for number in range(4)),  # backwards: b three, a one
    ]
    events = [
        *operation("0F0", 0, 100, {"a": (1, 40), "b": (45, 50)}),
        *operation("0B0", 1000, 200),
        event("b", 1005, 50, thread=2),
        event("a", 1065, 50, thread=2),
        *(event("call", at, 1, "cuda_runtime", thread) | {"args": {"correlation": number}} for number, at, _, thread in launches),
        *(event("kernel", begin, 40, "kernel", 7) | {"args": {"correlation": number}} for number, _, begin, _ in launches),
        *(event(name, 0, 1, "gpu_user_annotation", 7) for name in ("PP:0F0", "a")),
    ]
    groups = named_layers(run(events), "each").groups
    assert [round(1e6 * group.times["forward"]) for group in groups] == [100, 90]
    assert [round(1e6 * group.times["backward"]) for group in groups] == [40, 300]


# --- real traces -------------------------------------------------------------------------------------------------


def test_real_traces_with_and_without_the_bytes_and_links_of_a_timing_record(tmp_path: Path) -> None:
    """Expected times are made from the events by hand; amounts and latencies of a record are kept."""
    profile = combine([read_recorded(str(path)) for path in TRACES])
    layers = named_layers(profile, "each")
    assert [group.name for group in layers.groups] == ["tok_embeddings", *(f"layers.{i}" for i in range(5)), "output"]
    events = json.loads(TRACES[1].read_text())["traceEvents"]
    own = [
        median([e["dur"] for e in events if e["name"] == name][4:]) for name in ("layers.3", "layers.4")
    ]  # without the first step
    forward = {group.name: group.times["forward"] for group in layers.groups}
    assert forward["layers.4"] / forward["layers.3"] == pytest.approx(own[1] / own[0], rel=0.05)  # they count what is between two
    sums = [sum(time for name, time in forward.items() if (name in profile.blocks[stage])) for stage in range(2)]
    assert sums == pytest.approx(durations(profile)[0]["forward"])
    for rank, held in enumerate((40, 30)):
        seconds = {kind: [[9.0], [0.1]] for kind in "FIW"}
        stage = {"stage": rank, "activation_bytes": held * 2**20, "output_bytes": 8, "seconds": seconds}
        links = [{"from": 0, "to": 1, "seconds": [0.002]}] if rank == 0 else []
        record = {"ppopt_timing": 1, "rank": rank, "microbatches": 4, "stages": [stage], "links": links}
        (tmp_path / f"{rank}.json").write_text(json.dumps(record))
    both = combine([read_recorded(str(path)) for path in (*TRACES, *sorted(tmp_path.glob("*.json")))])
    pipeline = pipeline_of(both, named_layers(both, "each"))
    assert [float(sum(amounts)) for amounts in (pipeline.memory.activation,)] == pytest.approx([70], abs=0.01)  # type: ignore[arg-type]
    assert pipeline.links.latency == ((0, 2), (2, 0))


# --- stages divided evenly ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counts", "partition"), [((2, 4), (2, 4)), ((3,), (3, 3))])
def test_stages_are_divided_evenly_where_that_is_asked_for(run: Run, counts: tuple[int, ...], partition: tuple[int, ...]) -> None:
    first, second = one_stage(0, {}, {"I": 0, "W": 120}), one_stage(1, {}, {"I": 60, "W": 30})
    profile = run(first, second)
    layers = dealt_layers(profile, counts)
    assert layers.partition == partition
    groups = groups_of(profile, layers)
    assert [group.count for group in groups.values()] == list(partition)
    assert groups["stage 1"].forward * partition[1] == pytest.approx(Fraction("0.05"), rel=1e-3)
    assert groups["stage 0"].backward_input == pytest.approx(2 * groups["stage 0"].backward_weight, rel=1e-3)  # as in stage 1
    assert "divided evenly" in layers.notes[0]


def test_a_stage_of_one_layer_that_is_the_first_has_no_input_gradient(run: Run) -> None:
    profile = run(one_stage(0, {}, {"I": 0, "W": 120}), one_stage(1, {}, {"I": 60, "W": 30}))
    first = groups_of(profile, dealt_layers(profile, (1, 2)))["stage 0"]
    assert (first.backward_input, first.backward_weight) == (0, Fraction("0.12"))


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (
            [FIRST, one_stage(1, {}, {"I": 1, "W": 1})],
            "the forward of stage 1 names no layers; put torch.profiler.record_function",
        ),
        ([FIRST, one_stage(1, in_a_row(layers_1=9, head=9), {"I": 1, "W": 1})], "the layer 'layers.1' is in stages 0 and 1"),
        ([FIRST, one_stage(1, in_a_row(layers_2=9), {"W": 1})], "stage 1 never ran I"),
    ],
)
def test_layers_that_are_missing_or_double_are_said(run: Run, ranks: list[list[Event]], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        named_layers(run(*ranks))


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (
            operation("0F0", 0, 90, {"a": (0, 40)}) + operation("0F1", 100, 90, {"b": (0, 40)}),
            "PP:0F1 runs the blocks 'b'; another .* 'a'",
        ),
        (operation("0F0", 0, 90, {"a": (0, 40)}) + operation("0F1", 100, 90), "PP:0F1 runs the blocks none; another"),
        (operation("0F0", 0, 90, {"a": (0, 140)}), "the range 'a' begins inside PP:0F0 and ends after it"),
        ([*operation("0F0", 0, 90, {"a": (0, 40)}), event("a", 50, 10)], "PP:0F0 runs the block 'a' twice"),
        ([*operation("0F0", 0, 90), event("a", 50, -10)], "not as expected: ValueError: expected a finite number >= 0, got -10"),
    ],
)
def test_broken_traces_are_refused_with_their_name(run: Run, events: list[Event], message: str) -> None:
    with pytest.raises(ProfileError, match=rf"0\.json: {message}"):
        run(events)


def test_two_files_of_one_stage_with_other_blocks_are_refused(run: Run) -> None:
    one, other = (one_stage(0, in_a_row(**{name: 9}), {"B": 9}) for name in ("a", "b"))
    with pytest.raises(ProfileError, match=r"stage 0 runs the blocks 'b' in .*1\.json, and 'a' in .*0\.json"):
        run(one, other)


def test_a_number_for_each_stage_is_needed(run: Run) -> None:
    with pytest.raises(ProfileError, match="--layers-per-stage has 3 numbers; expected one, or one for each of 2 stages"):
        dealt_layers(run(FIRST, SECOND), (1, 2, 3))


def test_keys_that_follow_from_layers_are_refused_and_others_are_kept(run: Run) -> None:
    profile = run(FIRST, SECOND)
    layers = named_layers(profile)
    text = model_text(profile, "", [setting("memory.limit=9"), setting("data_parallel.all_gather=2"), setting("name=x")], layers)
    model = model_of_text(text, "text")
    assert (model.pipeline.memory.limit, model.pipeline.data_parallel.all_gather, model.pipeline.name) == (9, 2, "x")
    for change in ("memory.activation=3", "costs.forward=1", "layers=[]"):
        with pytest.raises(ModelError, match=change.split("=")[0]):
            model_text(profile, "", [setting(change)], layers)
