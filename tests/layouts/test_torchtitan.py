"""How TorchTitan cuts models, and layouts written for it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppopt.layouts import AUTOMODEL, Layout, ModuleNames, NotExpressible, OptionError, Refused, filled, read, torchtitan_options
from tests.support.layouts import Case, layouts, lists, of
from tests.support.many import each

FIRST, LAST = "pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers"
SIZE, PARTS = "pipeline_parallel_layers_per_stage", "module_fqns_per_model_part"


def counts(**given: Any) -> tuple[int, ...]:
    return read("torchtitan", given).layout.layers


def refused(**given: Any) -> str:
    with pytest.raises(Refused) as error:
        read("torchtitan", given)
    return str(error.value)


def warnings(rows: list[list[str]], **given: Any) -> tuple[str, ...]:
    return read("torchtitan", {"pp": 2, "num_layers": 2, PARTS: rows, **given}).warnings


# --- dealing ---


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"pp": 4, "num_layers": 32}, (8, 9, 8, 7)),
        ({"pp": 1, "num_layers": 3}, (3,)),
        ({"pp": 1, "num_layers": 4, "schedule": "GPipe", FIRST: 99}, (4,)),
        ({"pp": 2, "num_layers": 6, "schedule": "interleaved1f1b"}, (1, 2, 2, 1)),
        ({"pp": 2, "num_layers": 6, "schedule": "PIPELINESCHEDULEMULTI", SIZE: 1}, (0, 1, 1, 1, 1, 1, 1, 0)),
        ({"pp": 2, "num_layers": 4, FIRST: 0, LAST: 0}, (2, 2)),
        ({"pp": 2, "num_layers": 5, FIRST: 0, LAST: 2}, (4, 1)),
    ],
)
def test_dealing(given: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert counts(**given) == expected


@given(
    st.integers(1, 8),
    st.integers(1, 60),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["1F1B", "LoopedBFS", "DualPipeV"]),
)
def test_shares_differ_by_one_layer(devices: int, layers: int, first: int, last: int, schedule: str) -> None:
    """What a stage holds, with what counts as layers; the larger shares come first."""
    given = {"pp": devices, "num_layers": layers, FIRST: first, LAST: last, "schedule": schedule}
    count = devices * (1 if schedule == "1F1B" else 2)
    share, more = divmod(layers + first + last, count)
    if count > 1 and (share < max(first, last) or not share):
        assert refused(**given)
        return
    layout = read("torchtitan", given).layout
    weighed = list(layout.layers)
    weighed[0] += first
    weighed[-1] += last
    assert weighed == [share + 1] * more + [share] * (count - more)
    assert [item for stage in layout.stages for item in stage] == ["E", *range(layers), "N", "L"]
    assert layout.placement == ("wave" if schedule == "DualPipeV" else "loop")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"schedule": "zb-h1"}, "'zb-h1' is no schedule of PyTorch's; these are 1F1B, GPipe"),
        ({SIZE: 5}, "12 layers, with what counts as such, in stages of 5 are 3 stages, which cannot be dealt equally to 2"),
        ({SIZE: 3}, "are 4 stages; 1F1B takes one on each of 2 devices"),
        ({SIZE: 6, "schedule": "LoopedBFS"}, "are 2 stages; LoopedBFS takes at least two on each of 2 devices"),
        ({SIZE: 2, "schedule": "DualPipeV"}, "DualPipeV needs two stages on each device, got 3"),
        ({FIRST: 12, LAST: 0}, "first_stage_less_layers is 12, more than the 11 layers of a stage"),
        ({FIRST: 1, LAST: 13}, "last_stage_less_layers is 13, more than the 12 layers of a stage"),
        ({"num_layers": 1, "pp": 4, "schedule": "LoopedBFS"}, "8 stages are more than 3 layers"),
        ({PARTS: [["tok_embeddings"]] * 3}, "3 stages cannot be dealt equally to 2 devices"),
        ({PARTS: [["tok_embeddings"]] * 6, "schedule": "ZBVZeroBubble"}, "needs two stages on each device, got 3"),
        ({PARTS: []}, "0 stages cannot be dealt"),
    ],
)
def test_what_is_refused(given: dict[str, Any], reason: str) -> None:
    assert reason in refused(**{"pp": 2, "num_layers": 10, **given})


# --- lists ---


def test_lists_are_taken_as_they_are() -> None:
    rows = [["vision_encoder", "tok_embeddings", "layers.1", "layers.0", "layers.0"], ["output", "norm"]]
    reading = read("torchtitan", {"pp": 2, "num_layers": 2, PARTS: rows})
    assert lists(reading.layout) == [[["vision_encoder", "E", 0, 1]], [["N", "L"]]]
    assert reading.warnings == ("stage 0 names 'vision_encoder': kept if the model has it, else nobody says anything",)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([["tok_embeddings", "layers.0"], ["layers.1", "norm", "lm_head"]], ()),
        ([["tok_embeddings"], ["layers.1", "norm", "lm_head"]], ("no stage names layers.0:",)),
        ([["layers.0"], ["layers.1", "norm"]], ("no stage names E, L:",)),
        (
            [["tok_embeddings", "layers.0"], ["layers.0", "layers.1", "norm", "lm_head"]],
            ("more than one stage names layers.0 (stages 0, 1)",),
        ),
        ([["tok_embeddings", "layers.1"], ["layers.0", "norm", "lm_head"]], ("the layers are not in order",)),
        (
            [["tok_embeddings", "layers.0", "layers.1"], ["layers.2", "norm", "lm_head"]],
            ("stage 1 names layer 2, which a model of 2",),
        ),
        ([["tok_embeddings", "layers.0", "layers.01"], ["layers.1", "norm", "lm_head"]], ("stage 0 names 'layers.01'",)),
        ([["layers.0"], ["tok_embeddings", "layers.1", "norm", "lm_head"]], ("the embedding is on stage 1, not on stage 0",)),
        (
            [["tok_embeddings", "layers.0", "norm", "lm_head"], ["layers.1"]],
            ("the norm is on stage 0, not on stage 1", "the head is on stage 0, not on stage 1"),
        ),
    ],
)
def test_what_torchtitan_does_not_see(rows: list[list[str]], expected: tuple[str, ...]) -> None:
    found = warnings(rows)
    assert len(found) == len(expected)
    assert all(warning.startswith(text) for warning, text in zip(found, expected, strict=True))


def test_several_stages_of_a_schedule_for_one() -> None:
    rows = [["tok_embeddings"], ["layers.0"], ["layers.1"], ["norm", "lm_head"]]
    assert warnings(rows, schedule="gpipe")[0].startswith("GPipe runs one stage on each device")
    assert warnings(rows, schedule="LoopedBFS") == ()


def test_the_number_of_layers_is_checked_against_the_size_of_stages_even_with_lists() -> None:
    rows = [["tok_embeddings", "layers.0"], ["layers.1", "norm", "lm_head"]]
    assert "3 stages" in refused(pp=2, num_layers=4, **{PARTS: rows, SIZE: 2})


def test_lists_say_the_number_of_layers() -> None:
    rows = [["tok_embeddings", "layers.0"], ["layers.1", "norm", "lm_head"]]
    reading = read("torchtitan", {"pp": 2, PARTS: rows})
    assert reading.layout.layers == (1, 1)
    assert "taken are the 2 that the lists name" in reading.warnings[0]
    for options in ({"pp": 2}, {"pp": 2, PARTS: [["norm"], ["lm_head"]]}):
        with pytest.raises(OptionError, match="torchtitan: num_layers: missing"):
            read("torchtitan", options)


# --- writing ---


def read_back(written: dict[str, Any], layers: int) -> Any:
    return read(
        "torchtitan",
        {
            "pp": written["pipeline_parallel_degree"],
            "num_layers": layers,
            "schedule": written["pipeline_parallel_schedule"],
            PARTS: written[PARTS],
        },
    )


@given(layouts(mtp=False), st.booleans())
def test_layouts_are_read_back(layout: Layout, wave: bool) -> None:
    if wave and layout.virtual == 2:
        layout = Layout.of(layout.stages, len(layout.devices), "wave")
    stages = [[*stage[:-1], "N", "L"] if stage[-1:] == ("L",) else stage for stage in layout.stages]
    expected = Layout.of(stages, len(layout.devices), layout.placement)
    for each_layout in (layout, expected):
        reading = read_back(torchtitan_options(each_layout), sum(layout.layers))
        assert reading.layout == expected
        assert reading.warnings == ()


def test_golden_layouts_are_read_back() -> None:
    def check(case: Case) -> None:
        layout = read("torchtitan", case["input"]).layout
        if "note" in case:
            with pytest.raises(NotExpressible):
                torchtitan_options(layout, schedule=case["input"]["schedule"])
            return
        written = torchtitan_options(layout, schedule=case["input"]["schedule"])
        assert lists(read_back(written, case["input"]["num_layers"]).layout) == case["devices"]

    each(of("torchtitan", True), check)


def test_names_of_modules() -> None:
    layout = Layout.of(filled([1, 0]), 2)
    assert torchtitan_options(layout)[PARTS] == [["tok_embeddings", "layers.0"], ["norm", "lm_head"]]
    assert torchtitan_options(layout, names=AUTOMODEL)[PARTS] == [
        ["model.embed_tokens", "model.layers.0", "model.rotary_emb"],
        ["model.norm", "lm_head", "model.rotary_emb"],
    ]
    own = ModuleNames("wte", "h.{i}.block", "ln_f", "head")
    assert torchtitan_options(layout, names=own)[PARTS] == [["wte", "h.0.block"], ["ln_f", "head"]]
    with pytest.raises(OptionError, match="place of its number; got 'h'"):
        ModuleNames(layer="h")


TWO = filled([1, 1, 1, 1])


@pytest.mark.parametrize(
    ("layout", "schedule", "reason"),
    [
        (Layout.of(TWO, 2), "zb-h1", "'zb-h1' is no schedule"),
        (Layout.of(TWO, 2), "1F1B", "1F1B takes one stage on each device, not 2"),
        (Layout.of(TWO, 2), "DualPipeV", "DualPipeV deals stages as a wave, not as a loop"),
        (Layout.of(TWO, 2, "wave"), "Interleaved1F1B", "deals stages as a loop, not as a wave"),
        (Layout.of(TWO, 4), "ZBVZeroBubble", "takes two stages on each device, not 1"),
        (Layout.of(TWO, 1, "wave"), None, "takes two stages on each device, not 4"),
        (Layout.of(filled([1, 1], [0, 1]), 2), None, "no multi-token prediction"),
        (Layout.of([["E", 1], [0, "L"]], 2), None, "out of place"),
    ],
)
def test_what_cannot_be_written(layout: Layout, schedule: str | None, reason: str) -> None:
    with pytest.raises(NotExpressible, match=reason):
        torchtitan_options(layout, schedule=schedule)


def test_schedules_of_a_placement() -> None:
    def name(layout: Layout) -> Any:
        return torchtitan_options(layout)["pipeline_parallel_schedule"]

    assert name(Layout.of(TWO, 4)) == "1F1B"
    assert name(Layout.of(TWO, 2)) == "Interleaved1F1B"
    assert name(Layout.of(TWO, 2, "wave")) == "ZBVZeroBubble"
    options = torchtitan_options(Layout.of(TWO, 4), schedule="pipelineschedulemulti")
    assert options["pipeline_parallel_schedule"] == "PipelineScheduleMulti"
