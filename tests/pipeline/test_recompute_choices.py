"""What the stages may recompute, as options with more and more time for less and less memory."""

from fractions import Fraction
from itertools import pairwise, permutations

from hypothesis import strategies as st

from ppopt.pipeline import Costs, Layers, Memory, Mix, Pipeline
from ppopt.pipeline.recompute_choices import RecomputeChoices
from tests.support.every_cut import layers, levels
from tests.support.tiers import drawn


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


@drawn(40, 100, layers(7, True), st.integers(1, 2))
def test_no_option_is_beaten_and_every_choice_is_covered(own: object, devices: int) -> None:
    pipeline = Pipeline(min(devices, len(own)), 2, layers=own, partition="balanced", recompute="choose")  # type: ignore[arg-type]
    choices = RecomputeChoices(pipeline)
    for options in choices.options:
        assert options[0].time == 0
        assert all(a.saved <= b.saved for a, b in pairwise(options))
        assert all(a.time < b.time or a.saved > b.saved or a.unkept > b.unkept for a, b in permutations(options, 2))
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


RETAINS = [
    {"name": "keeps", "forward": 1, "backward_input": 1, "backward_weight": 1, "activation": 4},
    {"name": "makes", "forward": 1, "backward_input": 1, "backward_weight": 1, "activation": 6, "retained": 6},
]
RETAINS[0]["recompute"] = [{"name": "some", "time": 1, "saved": 3}]
RETAINS[1]["recompute"] = [{"name": "full", "time": 2, "saved": 5}]


def test_what_saves_more_may_retain_more() -> None:
    """A choice between two retains no less than both: else the pipeline between them would not have room for one of them."""
    choices = RecomputeChoices(Pipeline(1, 2, layers=Layers(RETAINS), partition=(2,), recompute="choose"))
    assert [(option.time, option.saved, option.unkept) for option in choices.options[0]] == [
        (0, 0, 0),
        (1, 3, 3),
        (2, 5, 0),
        (3, 8, 3),
    ]
    between = choices.relaxed((1,), (2,))
    assert between.memory.retained == (10 - 3,)
    for number in (1, 2):
        one, amounts = choices.resolved((number,)).amounts, between.amounts
        assert amounts.activation[0, 0] <= one.activation[0, 0]
        assert amounts.retained[0, 0] <= one.retained[0, 0]


def test_a_relaxed_time_has_a_relaxed_part_that_is_quadratic() -> None:
    """Else the part would be more than the whole, and the pipeline would be refused."""
    costs = Costs(per="stage", backward=3, recompute=(4, 2), recompute_quadratic=(1, 2))
    pipeline = Pipeline(2, 3, costs=costs, memory=Memory(activation=2, recompute_saved=1), recompute="choose")
    choices = RecomputeChoices(pipeline)
    assert choices.relaxed((0, 0), (1, 1)).costs.recompute_quadratic is None
    between = choices.relaxed((0, 1), (1, 1))
    assert (between.costs.recompute, between.costs.recompute_quadratic) == ((0, 2), (0, 2))


def test_no_option_is_the_fastest_for_all_lengths() -> None:
    """Attention is recomputed faster for short sequences, the rest for long ones: between the two the least of each counts."""
    levels = [
        {"name": "attention", "time": 2, "quadratic": 2, "saved": 1},
        {"name": "rest", "time": 3, "quadratic": 0, "saved": 2},
    ]
    layer = {"name": "layer", "forward": 4, "backward": 8, "activation": 4, "recompute": levels}
    for lengths, times in (([1, 4], [0, 2, 3]), ([1, 1], [0, 2, 3]), ([4, 4], [0, 3])):
        mix = Mix(lengths=lengths, length=2)
        pipeline = Pipeline(1, 2, layers=Layers([layer]), partition=(1,), recompute="choose", mix=mix)
        choices = RecomputeChoices(pipeline)
        assert [option.time for option in choices.options[0]] == times
        if len(times) == 3:
            between = choices.relaxed((1,), (2,)).costs
            assert between.recompute == ((0,) if lengths == [1, 4] else (2,))


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
