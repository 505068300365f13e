"""What the stages may recompute, as options with more and more time for less and less memory."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ppopt.pipeline import Costs, Layers, Memory, Pipeline
from ppopt.pipeline.recompute_choices import RecomputeChoices
from tests.support.every_cut import layers, levels


def test_a_stage_recomputes_or_not() -> None:
    costs = Costs(per="stage", recompute=(1, 2))
    pipeline = Pipeline(2, 3, costs=costs, memory=Memory(recompute_saved=Fraction(1, 2)), recompute="choose")
    choices = RecomputeChoices(pipeline)
    assert (choices.lowest, choices.highest) == ((0, 0), (1, 1))
    assert choices.resolved((0, 1)).recomputing == {1}
    assert choices.time(1, 1) == 2
    relaxed = choices.relaxed((0, 1), (1, 1))
    assert relaxed.costs.recompute == (0, 2)
    assert relaxed.recomputing == {0, 1}


@given(layers(7, True), st.integers(1, 2))
def test_no_option_is_beaten_and_every_choice_is_covered(own: object, devices: int) -> None:
    pipeline = Pipeline(min(devices, len(own)), 2, layers=own, partition="balanced", recompute="choose")  # type: ignore[arg-type]
    choices = RecomputeChoices(pipeline)
    for options in choices.options:
        assert options[0].time == 0
        assert all(a.time < b.time and a.saved < b.saved for a, b in pairwise(options))
    plain = pipeline.resolved("none")
    held, times = plain.memory.activation, plain.costs.backward_input
    assert isinstance(held, tuple)
    assert isinstance(times, tuple)
    for chosen in list(levels(pipeline, pipeline.counts))[:40]:
        other = pipeline.resolved(chosen)
        for stage, options in enumerate(choices.options):
            time = other.costs.recompute[stage] if isinstance(other.costs.recompute, tuple) else Fraction(0)
            saved = other.memory.recompute_saved[stage] if isinstance(other.memory.recompute_saved, tuple) else Fraction(0)
            assert any(option.time <= time and option.saved >= saved for option in options)


def test_the_choice_is_that_of_the_pipeline_that_it_gives() -> None:
    groups = [
        {
            "name": "decoder",
            "count": 4,
            "forward": 3,
            "backward": 6,
            "activation": 2,
            "recompute": [{"name": "some", "time": 1, "saved": 1}, {"name": "full", "time": 3, "saved": Fraction(3, 2)}],
        }
    ]
    pipeline = Pipeline(2, 3, layers=Layers(groups), partition="even", recompute="choose")
    choices = RecomputeChoices(pipeline)
    for number, option in enumerate(choices.options[0]):
        made = choices.resolved((number, 0))
        time = made.costs.recompute[0] if isinstance(made.costs.recompute, tuple) else 0
        assert time == option.time
        assert made.amounts.activation[0, 0] == (4 - option.saved) * made.amounts.per_unit
