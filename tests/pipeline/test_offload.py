"""What a pipeline says of copies to the host: what may be given, what follows, and what is refused."""

from fractions import Fraction
from typing import Any

import pytest

from ppopt.files import Model, ModelError, model_dict, model_of
from ppopt.op import Op, Send
from ppopt.pipeline import Costs, Layer, Layers, Memory, Mix, Offload, Pipeline, PipelineError
from ppopt.pipeline.offload import copied
from ppopt.pipeline.rewriting import never_copied


@pytest.mark.parametrize(
    ("table", "key", "words"),
    [
        ({}, "offload.time", "missing; expected the time of a copy, or offload.rate"),
        ({"time": 1, "rate": 2}, "offload.rate", "give either time or rate, not both"),
        ({"time": 1, "rate_in": 2}, "offload.rate_in", "expected time_in beside time"),
        ({"rate": 1, "time_in": 2}, "offload.time_in", "expected rate_in beside rate"),
        ({"time": -1}, "offload.time", "expected a number >= 0, got -1"),
        ({"time": "1 ms"}, "offload.time", "write 1 (units.time is a label)"),
        ({"time": [1, 1, 1]}, "offload.time", "expected one number or a list of 2 (one per device), got a list of 3"),
        ({"rate": [1]}, "offload.rate", "expected one number or a list of 2 (one per device), got a list of 1"),
        ({"time": 1, "amount": 2}, "offload.amount", "expected at most the activation (1), got 2"),
        ({"time": 1, "amount": [1, 3]}, "offload.amount[1]", "expected at most the activation (1), got 3"),
        ({"time": 1, "engines": 3}, "offload.engines", "expected 1 (one for both directions) or 2 (one for each), got 3"),
        ({"time": 1, "engines": True}, "offload.engines", "got True"),
        ({"time": 1, "shared": 3}, "offload.shared", "expected a list of groups of devices, got 3"),
        ({"time": 1, "shared": [0]}, "offload.shared[0]", "expected a list of devices, got 0"),
        ({"time": 1, "shared": [[0, "a"]]}, "offload.shared[0][1]", "expected a device, got 'a'"),
        ({"time": 1, "shared": [[0, 1], [1]]}, "offload.shared[1][0]", "device 1 is in a group already"),
        ({"time": 1, "shared": [[0, 2]]}, "offload.shared[0][1]", "there is no device 2; devices are 0..1"),
        ({"time": 1, "margin": -1}, "offload.margin", "expected a number >= 0, got -1"),
        ({"time": 1, "host_limit": "x"}, "offload.host_limit", "expected a number >= 0, got 'x'"),
        ({"time": 1, "stages": "some"}, "offload.stages", "got 'some'"),
        ({"time": 1, "stages": 1.5}, "offload.stages", "expected a fraction of the microbatches, 0 to 1, got 1.5"),
        ({"time": 1, "stages": [0, 2]}, "offload.stages[1]", "expected a fraction of the microbatches, 0 to 1, got 2"),
        ({"time": 1, "stages": [0]}, "offload.stages", "expected one number or a list of 2 (one per stage), got a list of 1"),
        ({"tme": 1}, "offload.tme", "unknown key; did you mean offload.time?"),
    ],
)
def test_bad_values(table: dict[str, Any], key: str, words: str) -> None:
    tree = {"pipeline": {"devices": 2, "microbatches": 2}, "offload": table}
    with pytest.raises(ModelError) as caught:
        model_of(tree, "mine.toml")
    assert str(caught.value).startswith(f"mine.toml: {key}: ")
    assert words in str(caught.value)


def test_an_open_cut_and_layers() -> None:
    layers = Layers([Layer("decoder", count=4, forward=1, backward=2, activation=1)])
    with pytest.raises(PipelineError, match=r'pipeline\.partition: "best" is left open, and its search knows nothing of'):
        Pipeline(2, 2, layers=layers, offload=Offload(rate=1))
    with pytest.raises(PipelineError, match=r"offload\.time: stages are made of layers here; expected offload\.rate"):
        Pipeline(2, 2, layers=layers, partition="even", offload=Offload(time=1))
    assert Pipeline(2, 2, layers=layers, partition=[1, 3], offload=Offload(rate=2)).ticks.copying[0, 0].tolist() == [1, 3]


def test_files_have_all_of_it() -> None:
    offload = Offload(
        time=[1, 2],
        time_in=0.5,
        amount=[1, 0.5],
        engines=1,
        shared=[[0, 1]],
        margin=0.25,
        host_limit=3,
        stages=[0.5, 1],
    )
    pipeline = Pipeline(2, 4, offload=offload)
    assert model_of(model_dict(Model(pipeline)), "tree").pipeline == pipeline
    assert "offload" not in model_dict(Model(Pipeline(2, 4)))


def test_times_and_amounts() -> None:
    memory = Memory(activation=[4, 2])
    pipeline = Pipeline(2, 4, memory=memory, offload=Offload(rate=[2, 4], rate_in=1, amount=[3, 2]))
    per_unit = pipeline.ticks.per_unit
    assert pipeline.ticks.copying[0].tolist() == [[3 * per_unit // 2, per_unit // 2], [3 * per_unit, 2 * per_unit]]
    assert pipeline.amounts.away.tolist() == [[3, 2]]
    chunks = Pipeline(2, 4, placement="loop", chunks=2, memory=memory, offload=Offload(time=4, amount=[3, 2]))
    assert chunks.ticks.copying[0, 0].tolist() == [2 * chunks.ticks.per_unit] * 4
    assert (chunks.amounts.away / chunks.amounts.per_unit).tolist() == [[1.5, 1, 1.5, 1]]
    assert [str(engine) for engine in pipeline.engines] == [
        "copies out of 0",
        "copies into 0",
        "copies out of 1",
        "copies into 1",
    ]


def test_no_speed_is_no_copy() -> None:
    for offload in (Offload(rate=0), Offload(rate=1, rate_in=0), Offload(time=1, stages="none"), Offload(time=1, amount=0)):
        pipeline = Pipeline(2, 4, offload=offload)
        assert pipeline.engines == ()
        assert (pipeline.ticks.copying < 0).all()
        assert not pipeline.amounts.away.any()


def test_which_are_copied() -> None:
    def of(stages: Any, **place: Any) -> list[Any]:
        pipeline = Pipeline(2, 4, offload=Offload(time=1, stages=stages), **place)
        return [copied(pipeline, 0, stage) for stage in range(pipeline.stages)]

    every = (0, 1, 2, 3)
    assert of("choose") == [None, None]
    assert of("all") == [every, every]
    assert of("half", placement="loop", chunks=3) == [every] * 4 + [()] * 2
    assert of(0.5) == [(1, 3), (1, 3)]
    assert of([0.25, 1]) == [(3,), every]


def test_a_limit_needs_room_for_what_stays() -> None:
    loop: dict[str, Any] = {"placement": "loop", "chunks": 2, "offload": Offload(time=1, amount=0.5)}
    with pytest.raises(PipelineError, match=r"device 0 needs at least 0\.75 "):
        Pipeline(2, 2, memory=Memory(limit=0.5), **loop)
    assert Pipeline(2, 2, memory=Memory(limit=0.75), **loop).memory.limit == Fraction(3, 4)


def test_the_relaxation_never_holds_what_may_be_away() -> None:
    pipeline = Pipeline(2, 4, memory=Memory(activation=[4, 2], limit=5), offload=Offload(time=1, amount=[3, 1]))
    without = never_copied(pipeline)
    assert without.offload is None
    assert without.amounts.activation.tolist() == [[1, 1]]
    assert without.amounts.retained.tolist() == [[1, 1]]


def test_the_relaxation_is_one_of_every_route() -> None:
    """Device 0 copies nothing: on route 0 stage 0 keeps all, on route 1 stage 1 does; the other one of each may be away."""
    pipeline = Pipeline(2, 4, "bidirectional", memory=Memory(limit=3), offload=Offload(rate=[0, 1]))
    assert pipeline.amounts.away.tolist() == [[0, 1], [1, 0]]
    assert never_copied(pipeline).amounts.activation.tolist() == [[0, 0], [0, 0]]


def test_a_copy_is_as_long_as_what_is_held() -> None:
    """``time`` and ``amount`` are of a microbatch that holds what the memory says; one of twice as much takes twice as long."""
    mix = Mix(lengths=[2, 4, [1, 1]], length=2, microbatch_order="choose")
    of_time = Pipeline(1, 3, memory=Memory(activation=4), mix=mix, offload=Offload(time=1, time_in=3, amount=2))
    of_rate = of_time.changed(offload=Offload(rate=2, rate_in=1, amount=2))
    for pipeline, back in ((of_time, 3), (of_rate, 2)):
        route = list(pipeline.route_of_microbatch)
        assert (pipeline.ticks.copying[route, :, 0] / pipeline.ticks.per_unit).tolist() == [[1, back], [2, 2 * back], [1, back]]
        assert pipeline.amounts.away[route, 0].tolist() == [2, 4, 2]


def test_the_pieces_of_a_sequence_may_be_away_but_for_one() -> None:
    """Two pieces of 1 and of 2: while the second one runs forward it holds 2, and of the first one what stays, half."""
    mix = Mix(microbatch_costs=[1, 2], pieces=2)
    pieces: dict[str, Any] = {"mix": mix, "offload": Offload(time=1, amount=0.5)}
    with pytest.raises(PipelineError, match=r"device 0 needs at least 2\.5 .*one sequence"):
        Pipeline(2, 2, memory=Memory(limit=2.25), **pieces)
    assert Pipeline(2, 2, memory=Memory(limit=2.5), **pieces).memory.limit == Fraction(5, 2)


def test_elsewhere_a_device_moves_as_much() -> None:
    costs = Costs(per="stage", forward=[1, 2])
    memory = Memory(activation=[4, 2])
    pipeline = Pipeline(2, 4, costs=costs, memory=memory, offload=Offload(time=[1, 2], amount=[2, 2]))
    there = pipeline.placed("loop", 2)
    assert (there.amounts.away / there.amounts.per_unit).tolist() == [[1, 1, 1, 1]]
    assert (there.ticks.copying[0, 0] / there.ticks.per_unit).tolist() == [0.5, 1, 0.5, 1]


def test_notation() -> None:
    index = Pipeline(2, 3).index
    assert [str(index.op(index.number(Op(1, send, 2)))) for send in Send] == ["1SEND_F2", "1SEND_B2", "1OFFLOAD2", "1RELOAD2"]
