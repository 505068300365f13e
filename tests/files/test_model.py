"""The model file: what it means, and that writing and reading give the same model."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppopt.files import Change, Model, ModelError, model_dict, model_of, model_of_text, read_model, setting
from ppopt.named import NAMED
from ppopt.pipeline import Costs, Links, Memory, Pipeline, PipelineError, Units
from tests.support import places

MODELS = sorted(places.MODELS.glob("*.toml"))

HEAD = "[pipeline]\ndevices = 4\nmicrobatches = 8\n"


def read(text: str, *changes: Change) -> Model:
    return model_of_text(text, "text", changes)


def test_what_a_file_leaves_out_is_unit_costs_and_no_limit() -> None:
    assert read(HEAD) == Model(Pipeline(4, 8))


def test_every_key_arrives() -> None:
    model = read(
        """
        format = 1
        name = "all"
        [pipeline]
        devices = 2
        microbatches = 4
        placement = "bidirectional"
        chunks = 1
        route_of_microbatch = [0, 1, 0, 1]
        [costs]
        per = "device"
        forward = [1, 1.5]
        backward_input = 0.1
        backward_weight = 2
        backward = [2.5, 3]
        overlap = 4
        [links]
        latency = [[0, 1], [0.25, 0]]
        occupancy = 0
        blocking = false
        shared = []
        [memory]
        activation = 2
        retained = 0.5
        static = [1, 2]
        limit = [8, 9]
        [units]
        time = "ms"
        memory = "GiB"
        """
    )
    F = Fraction
    assert model.pipeline == Pipeline(
        2,
        4,
        "bidirectional",
        route_of_microbatch=(0, 1, 0, 1),
        costs=Costs("device", (F(1), F(3, 2)), F(1, 10), F(2), (F(5, 2), F(3)), F(4)),
        links=Links(((F(0), F(1)), (F(1, 4), F(0)))),
        memory=Memory(F(2), F(1, 2), (F(1), F(2)), (F(8), F(9))),
    )
    assert (model.pipeline.name, model.pipeline.units) == ("all", Units("ms", "GiB"))


def test_decimals_are_exact() -> None:
    costs = read(HEAD + "[costs]\nforward = 0.1\nbackward_input = 1e-3\nbackward_weight = 12345.9876543\n").pipeline.costs
    assert costs.forward == Fraction(1, 10)
    assert costs.backward_input == Fraction(1, 1000)
    assert costs.backward_weight == Fraction(123459876543, 10**7)


def test_routes_may_be_written_out() -> None:
    model = read("[pipeline]\ndevices = 2\nmicrobatches = 3\nroutes = [[0, 1, 1, 1, 0]]\n")
    assert model.pipeline.routes == ((0, 1, 1, 1, 0),)
    assert model_of(model_dict(model), "again") == model


def test_backward_alone_fuses_the_pipeline() -> None:
    assert not read(HEAD + "[costs]\nbackward = 2\n").pipeline.costs.split


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_the_models_of_the_repository_read_and_round_trip(path: Path) -> None:
    model = read_model(str(path))
    assert model.pipeline.name == path.stem
    assert path.read_text().startswith("# ")
    again = model_of(model_dict(model), "again")
    assert again == model
    assert again.pipeline.name == path.stem


def test_there_is_a_model_for_each_of_the_first_schedules() -> None:
    for name in ("gpipe", "1f1b", "interleaved-1f1b", "hanayo", "zb-h1", "dualpipe"):
        assert read_model(str(MODELS[0].with_name(f"{name}.toml"))).schedule == name


def test_a_change_beats_the_file_and_a_later_change_an_earlier_one() -> None:
    changed = read(HEAD, setting("pipeline.devices=3"), Change("pipeline.devices", 2, "-d 2"))
    assert changed.pipeline == Pipeline(2, 8)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("costs.forward=2", 2),
        ("costs.forward = [1, 2]", [1, 2]),
        ("name=zb-h1", "zb-h1"),
        ('name="a = b"', "a = b"),
        ("links.blocking=true", True),
        ("a.b={c = 1}", {"c": 1}),
    ],
)
def test_settings_are_toml_and_a_bare_word_is_a_text(text: str, value: object) -> None:
    assert setting(text).value == value


def test_another_placement_replaces_routes() -> None:
    text = HEAD + "routes = [[3, 2, 1, 0]]\n"
    assert read(text, Change("pipeline.placement", "linear", "--placement linear")).pipeline == Pipeline(4, 8)
    routes = read(HEAD + 'placement = "wave"\nchunks = 2\n', setting("pipeline.routes=[[0,1,2,3,0,1,2,3]]")).pipeline.routes
    assert routes == ((0, 1, 2, 3, 0, 1, 2, 3),)


def test_a_limit_may_be_left_out() -> None:
    assert read(HEAD + "[memory]\nlimit = 4\n", Change("memory.limit", None, "--memory-limit none")) == read(HEAD)


def test_the_message_names_the_change_or_else_the_file() -> None:
    lists = HEAD + "[costs]\nforward = [1, 1, 1, 1]\n"
    with pytest.raises(ModelError, match=r"^text: costs\.forward: expected one number or a list of 3"):
        read(lists, Change("pipeline.devices", 3, "-d 3"))
    with pytest.raises(
        ModelError, match=r"^--set costs\.forward=\[1,-1,1,1\]: costs\.forward\[1\]: expected a number >= 0, got -1"
    ):
        read(lists, setting("costs.forward=[1,-1,1,1]"))


def test_the_schedule_has_its_own_name_and_parameters() -> None:
    text = HEAD + 'placement = "loop"\nchunks = 2\nschedule = "interleaved"\nschedule_params = { group_size = 8 }\n'
    model = read(text)
    assert (model.schedule, model.params) == ("interleaved-1f1b", {"group_size": 8})
    assert model_of(model_dict(model), "again") == model


@pytest.mark.parametrize("name", NAMED)
def test_a_schedule_that_exists_may_be_named(name: str) -> None:
    placed = NAMED[name].place(Pipeline(4, 8))
    model = Model(placed, name)
    assert model_of(model_dict(model), "again") == model


numbers = st.one_of(st.integers(0, 10**6), st.decimals(0, 10**4, places=3)).map(Fraction)


positive = st.integers(1, 10**4).map(lambda n: Fraction(n, 8))


def values(length: int) -> st.SearchStrategy[Fraction | tuple[Fraction, ...]]:
    return st.one_of(numbers, st.tuples(*[numbers] * length))


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    devices, microbatches = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    placement = draw(st.sampled_from(["linear", "loop", "wave", "bidirectional", "routes"]))
    chunks = draw(st.integers(1, 3)) if placement in ("loop", "wave") else 1
    routes = ()
    if placement == "routes":
        more = draw(st.lists(st.integers(0, devices - 1), max_size=3))
        routes = ((*draw(st.permutations(range(devices))), *more),)
    split = ()
    if placement == "bidirectional":
        split = tuple(draw(st.lists(st.integers(0, 1), min_size=microbatches, max_size=microbatches)))
    per = draw(st.sampled_from(["device", "stage"]))
    length = devices if per == "device" else len(routes[0]) if routes else devices * chunks
    costs = Costs(per, *(draw(values(length)) for _ in range(3)), *(draw(st.none() | values(length)) for _ in range(2)))  # type: ignore[arg-type]
    row = st.tuples(*[numbers] * devices)
    table = tuple(tuple(x * (a != b) for b, x in enumerate(draw(row))) for a in range(devices))
    links = Links(draw(st.one_of(numbers, st.just(table))))
    activation = draw(positive)
    limit = draw(st.none() | st.just(activation * 40) | st.tuples(*[st.just(activation * 40)] * devices))
    memory = Memory(activation, draw(st.none() | st.just(activation / 2)), Fraction(0), limit)
    label = draw(st.text(max_size=5))
    return Pipeline(devices, microbatches, placement, chunks, routes, split, costs, links, memory, label, Units(label, "GiB"))


@given(pipelines())
def test_writing_and_reading_give_the_same_pipeline(pipeline: Pipeline) -> None:
    again = model_of(model_dict(Model(pipeline)), "again").pipeline
    assert again == pipeline
    assert (again.name, again.units) == (pipeline.name, pipeline.units)


def test_a_pipeline_error_keeps_its_key() -> None:
    with pytest.raises(ModelError) as caught:
        read(HEAD + "[memory]\nlimit = 0\n")
    assert caught.value.key == "memory.limit"
    assert isinstance(caught.value, ValueError)
    assert not isinstance(caught.value, PipelineError)
