"""What may be said of microbatches that differ, what is refused, and what they take."""

from fractions import Fraction

import pytest

from ppopt.checker import violations
from ppopt.files import Model, ModelError, model_dict, model_of
from ppopt.files.model import model_of_text
from ppopt.files.torch_export import for_torch
from ppopt.named import NAMED
from ppopt.pipeline import Costs, Links, Memory, Mix, Pipeline
from ppopt.pipeline.runtimes import NotForTorch, as_torch_runs
from tests.support.many import each

CUT = 'partition = "best"\n[[layers]]\nname = "layer"\ncount = 3\nforward = 1\nbackward = 2'
BAD = {
    "microbatch_costs = [1, 0]": "pipeline.microbatch_costs[1]: expected a factor > 0, got 0",
    "microbatch_costs = [1, -2]": "pipeline.microbatch_costs[1]: expected a number >= 0, got -2",
    "microbatch_costs = 3": "pipeline.microbatch_costs: expected a list of factors",
    "microbatch_costs = [1, 2, 3]": "pipeline.microbatch_costs: expected 2 factors (one per microbatch), got 3",
    "microbatch_costs = [[1, 2]]": "pipeline.microbatch_costs: expected a row of factors for each of the 2 stages, got 1 rows",
    "microbatch_costs = [[1, 2], [1]]": "pipeline.microbatch_costs[1]: expected 2 factors (one per microbatch), got 1",
    'microbatch_activations = ["x", 1]': "pipeline.microbatch_activations[0]: expected a number >= 0, got 'x'",
    "lengths = [4, 8]": "pipeline.length: missing",
    "lengths = [4, 0]\nlength = 4": "pipeline.lengths[1]: expected a whole number of tokens, 1 to 1000000000, got 0",
    "lengths = [[4, 1.5], 2]\nlength = 4": "pipeline.lengths[0][1]: expected a whole number of tokens",
    "lengths = [[], 2]\nlength = 4": "pipeline.lengths[0]: expected the length of at least one sequence",
    "lengths = [4]\nlength = 4": "pipeline.lengths: expected 2 lengths (one per microbatch), got 1",
    "lengths = [4, 4]\nlength = 4\nmicrobatch_costs = [1, 1]": "pipeline.microbatch_costs: follows from pipeline.lengths",
    "length = 4": "pipeline.length: is the length for which the costs are; it needs pipeline.lengths",
    'microbatch_order = "best"': 'pipeline.microbatch_order: expected "given" or "choose", got \'best\'',
    "pieces = 0": "pipeline.pieces: expected a whole number of pieces >= 1, got 0",
    "pieces = 3": "pipeline.pieces: expected a part of the 2 microbatches",
    "pieces = [1, 2]": "pipeline.pieces: expected pieces of all 2 microbatches, got 3 in all",
    f"microbatch_activations = [[1, 2], [1, 2]]\n{CUT}": "pipeline.microbatch_activations: a table per stage belongs to one cut",
    "microbatch_costs = [1, 2]\n[costs]\noverlap = 2": "costs.overlap: what an overlapped pair of microbatches that differ",
    "microbatch_costs = [1, 2]\n[costs]\nforward_quadratic = 2": "costs.forward_quadratic: expected at most the whole duration",
    'microbatch_costs = [1, 2]\nruntime = "torch"': "pipeline.microbatch_costs: PyTorch's pipelines exchange microbatches of one",
    'microbatch_activations = [1, 2]\nruntime = "torch"': "pipeline.microbatch_activations: PyTorch's pipelines exchange",
    'lengths = [1, 2]\nlength = 1\nruntime = "torch"': "pipeline.lengths: PyTorch's pipelines exchange microbatches of one shape",
    'pieces = 2\nruntime = "torch"': "pipeline.pieces: PyTorch's pipelines know of no pieces of a sequence",
    "microbatch_costs = [1, 2]\n[data_parallel]\nall_gather = 1\nper_pass = true": "data_parallel.per_pass: what passes over",
    "microbatch_costs = [1, 2]\n[offload]\ntime = 1\namount = 2": "offload.amount: expected at most the activation (1), got 2",
    "pieces = 2\n[memory]\nlimit = 1": "memory.limit: device 0 needs at least 2 (its static memory and one sequence's",
}


def test_bad_values_name_file_key_given_and_expected() -> None:
    def refused(given: str, message: str) -> None:
        with pytest.raises(ModelError) as error:
            model_of_text(f"[pipeline]\ndevices = 2\nmicrobatches = 2\n{given}\n", "mixed.toml")
        assert f"mixed.toml: {message}" in str(error.value)

    each(((given, (given, message)) for given, message in BAD.items()), lambda case: refused(*case))


def test_a_microbatch_takes_its_tokens_and_the_squares_of_its_lengths() -> None:
    """4 tokens in one sequence are N = 4, Q = 16 as in ``length``; in two of 2 each Q is half; of 8 N is twice, Q 4 times."""
    costs = Costs(forward=1, forward_quadratic=Fraction(1, 2), backward_input=2, backward_input_quadratic=1)
    mix = Mix(lengths=[4, [2, 2], 8], length=4, microbatch_order="choose")
    pipeline = Pipeline(1, 3, costs=costs, memory=Memory(activation=3), mix=mix)
    times = {
        kind: [
            Fraction(int(pipeline.ticks.duration[route, kind, 0]), pipeline.ticks.per_unit)
            for route in pipeline.route_of_microbatch
        ]
        for kind in range(4)
    }
    assert times[0] == [1, Fraction(3, 4), 3]
    assert times[2] == [2, Fraction(3, 2), 6]
    assert times[3] == [1, 1, 2], "W has no quadratic part"
    assert times[1] == [a + b for a, b in zip(times[2], times[3], strict=True)]
    assert [pipeline.amount(pipeline.amounts.activation[r, 0]) for r in pipeline.route_of_microbatch] == [3, 3, 6]


def test_transfers_are_as_long_as_what_is_held() -> None:
    mix = Mix(microbatch_costs=[1, 1], microbatch_activations=[1, 3])
    pipeline = Pipeline(2, 2, links=Links(latency=5, occupancy=2), mix=mix)
    assert [int(pipeline.ticks.sending[route, 0, 0]) for route in pipeline.route_of_microbatch] == [2, 6]
    assert int(pipeline.ticks.latency[0, 1]) == 5


@pytest.mark.parametrize(
    "mix",
    [Mix(microbatch_costs=[1, 2, 2, 1]), Mix(lengths=[3, [1, 2], 4, 5], length=[2, 2], microbatch_order="choose"), Mix(pieces=2)],
)
def test_files_keep_it(mix: Mix) -> None:
    pipeline = Pipeline(2, 4, "bidirectional", mix=mix)
    assert model_of(model_dict(Model(pipeline)), "again").pipeline == pipeline
    moved = pipeline.placed("loop", 2)
    assert moved.mix == mix
    assert len(moved.ways) == 1


def test_pytorch_has_one_shape() -> None:
    pipeline = Pipeline(2, 2, mix=Mix(microbatch_costs=[1, 2]))
    with pytest.raises(NotForTorch, match=r"microbatches differ: pipeline\.microbatch_costs: PyTorch's pipelines exchange"):
        for_torch(NAMED["1f1b"].schedule(pipeline))


def test_pytorch_runs_what_only_takes_longer() -> None:
    """As many tokens in sequences of other lengths: one shape, other times of attention. What is renumbered keeps its times."""
    costs = Costs(forward=2, forward_quadratic=1, backward_input=3, backward_input_quadratic=2, backward_weight=1)
    mix = Mix(lengths=[[1, 1, 1, 1], 4, [2, 2], [3, 1]], length=4, microbatch_order="choose")
    pipeline = Pipeline(2, 4, costs=costs, mix=mix)
    one_f_one_b = NAMED["1f1b"]
    turned = one_f_one_b.turned(one_f_one_b.schedule(pipeline), (3, 1, 0, 2))
    found = for_torch(turned)
    assert found.schedule.pipeline.mix.lengths == ((3, 1), (4,), (1, 1, 1, 1), (2, 2))
    assert found.schedule.makespan == turned.makespan
    assert violations(found.schedule.pipeline, found.schedule) == []
    assert "feed those of the model in the order 3, 1, 0, 2" in found.notes[0]
    planned = as_torch_runs(pipeline)
    assert planned.runtime == "torch"
    again = one_f_one_b.schedule(planned)
    assert violations(planned, again) == []
    same = Mix(microbatch_costs=[1, 2, 3, 1], microbatch_activations=[1] * 4)
    assert for_torch(one_f_one_b.schedule(Pipeline(2, 4, mix=same))).schedule.pipeline.mix == same
