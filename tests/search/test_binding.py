"""Solving under words that bind beside the rules."""

import json
from pathlib import Path

import pytest

from ppopt.constraints import Capacity, Exclusive, Family, Hold, Listed, OneOf, Precede, Together, Word, chain
from ppopt.files import read_result, result_dict
from ppopt.named import find
from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.search import Binding, model_text, solve, verify
from ppopt.timing import broken
from tests.support.tiers import thorough
from tests.support.words import obeyed

F, B, I, W = Kind  # noqa: E741


@pytest.mark.parametrize("name", ["1f1b", *(pytest.param(name, marks=thorough) for name in ("zb-h1", "zb-h2", "gpipe"))])
def test_the_best_under_words_is_between_the_best_and_a_schedule_that_obeys_them(name: str) -> None:
    pipeline = Pipeline(3, 5, costs=Costs(forward=[2, 3, 2], backward_input=2, backward_weight=1), memory=Memory(limit=5))
    free = solve(pipeline)
    schedule = find(name).schedule(pipeline)
    assert free.ticks.value is not None
    relations = [word for word in find(name).words(pipeline) if isinstance(word, Precede)]
    for words in (relations, relations[::2], relations[1::3]):
        result = solve(pipeline, constraints=words)
        assert result.reason == "optimal"
        assert result.schedule is not None
        assert result.ticks.value is not None
        assert not broken(schedule, words)
        assert free.ticks.value <= result.ticks.value <= schedule.makespan
        obeyed(result.schedule, result.binding)


def test_words_bind_together_with_a_named_order() -> None:
    pipeline = Pipeline(3, 4)
    wait = Precede(Family(2, F), Family(0, F), shift=2, lag=8)  # across devices
    alone, both = solve(pipeline, order="1f1b"), solve(pipeline, order="1f1b", constraints=[wait])
    assert alone.schedule is not None
    assert both.schedule is not None
    assert both.reason == "optimal"
    assert both.proved_by == "the binding order, which leaves nothing open"
    assert both.schedule.order == alone.schedule.order
    assert alone.ticks.value is not None
    assert both.ticks.value is not None
    assert both.ticks.value > alone.ticks.value
    assert broken(alone.schedule, [wait])
    obeyed(both.schedule, both.binding)
    later = solve(pipeline, order=Binding("1f1b", free=(B,)), constraints=[wait])
    assert later.ticks.value is not None
    assert later.ticks.value <= both.ticks.value
    against = Precede(Listed((Op(0, B, 0),)), Listed((Op(0, F, 1),)))  # 1F1B begins with three forwards on device 0
    assert solve(pipeline, order="1f1b", constraints=[against]).reason == "infeasible"


def test_a_word_with_a_lag_is_waited_for_on_one_device_too() -> None:
    pipeline = Pipeline(1, 3)
    words = [chain(Family(0, F)), Precede(Family(0, F), Family(0, B), lag=5), *find("gpipe").words(pipeline)]
    result = solve(pipeline, constraints=words)
    assert result.schedule is not None
    assert (result.reason, result.ticks.value) == ("optimal", 12)
    assert solve(pipeline, constraints=words, objective="span").ticks.value == 12


def test_what_a_device_does_is_fixed_by_one_word() -> None:
    """Weight gradients of a stage at the end: an optimum that is worse, and still proved."""
    pipeline = Pipeline(2, 3, memory=Memory(limit=3))
    free = solve(pipeline)
    last: list[Word] = [
        chain(Family(0, I)),
        chain(Family(0, W)),
        Precede(Family(0, I), Family(0, W), shift=1 - 3),
        OneOf(((Family(0, I), Family(0, W)),)),
    ]
    result = solve(pipeline, constraints=last)
    assert result.reason == "optimal"
    assert result.schedule is not None
    assert [str(op)[1] for op in result.schedule.order.ops(0)][-3:] == ["W"] * 3
    assert result.ticks.value is not None
    assert free.ticks.value is not None
    assert result.ticks.value >= free.ticks.value
    opinion = verify(result, seconds=20)
    assert opinion.confirmed
    assert "minimise the makespan" in model_text(result)
    assert "minimise the makespan" in model_text(result, "ilp")


def test_free_choices_stay_open_under_words_of_forwards_only() -> None:
    """A backward is cheaper in one operation here; words about forwards must not settle how it is run."""
    pipeline = Pipeline(2, 3, costs=Costs(forward=2, backward_input=2, backward_weight=2, backward=3))
    words = [Precede(Family(0, F), Family(1, F), lag=1)]
    result = solve(pipeline, constraints=words)
    assert result.reason == "optimal"
    split_only = solve(pipeline, constraints=[*words, *(OneOf(((Family(s, I), Family(s, W)),)) for s in range(2))])
    assert split_only.ticks.value is not None
    assert result.ticks.value is not None
    assert result.ticks.value < split_only.ticks.value


def test_pairs_that_save_time_stay_open_and_can_be_asked_for() -> None:
    pipeline = Pipeline(2, 4, costs=Costs(forward=2, backward_input=2, backward_weight=2, overlap=4))
    words = [Precede(Family(0, F), Family(1, F), lag=1)]
    result = solve(pipeline, constraints=words)
    assert result.schedule is not None
    assert result.reason == "optimal"
    assert result.schedule.order.paired
    asked = solve(pipeline, constraints=[Together(Listed((Op(1, F, 1),)), Listed((Op(1, B, 0),)))])
    assert asked.schedule is not None
    assert "(1F1;1B0)OVERLAP_F_B" in asked.schedule.order.texts()[1]
    assert asked.reason == "optimal"


def test_one_transfer_of_two_devices_at_a_time() -> None:
    """What takes a resource that two devices share: their forwards never run at once."""
    pipeline = Pipeline(2, 4)
    word = Exclusive((Family(0, F), Family(1, F)))
    result = solve(pipeline, constraints=[word])
    assert result.reason == "optimal"
    assert result.schedule is not None
    obeyed(result.schedule, [*result.binding, word])
    assert solve(pipeline, constraints=[word], objective="span").reason == "optimal"
    free = solve(pipeline)
    assert free.schedule is not None
    assert broken(free.schedule, [word])


def test_words_that_no_schedule_can_obey_are_infeasible() -> None:
    pipeline = Pipeline(2, 2)
    before_data = Precede(Family(1, F), Family(0, F))
    for solver in ("auto", "ilp"):
        result = solve(pipeline, constraints=[before_data], solver=solver)
        assert result.reason == "infeasible"
        assert result.schedule is None
    assert verify(solve(pipeline, constraints=[before_data])).confirmed
    full = Capacity((Hold(Family(0, F), (Family(0, B), Family(0, W)), 2),), 1)
    assert solve(pipeline, constraints=[full]).reason == "infeasible"


def test_large_pipelines_have_an_answer_under_words() -> None:
    pipeline = Pipeline(8, 100, memory=Memory(limit=8))
    words = [Precede(Family(7, F), Family(0, F), shift=8, lag=1), Exclusive((Family(0, F), Family(1, F)))]
    result = solve(pipeline, constraints=words, seconds=2, workers=1)
    assert result.schedule is not None
    obeyed(result.schedule, result.binding)
    assert 0 < result.ticks.lower_bound <= result.schedule.makespan
    assert result.seconds < 60


def test_an_answer_that_breaks_a_word_is_never_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the times of list schedules to forget the words, and nobody to look at them there, the result would be refused."""
    import ppopt.timing.timed as timed
    from ppopt.search import problem
    from ppopt.search.steps import list_schedules
    from ppopt.timing.demands import NO_DEMANDS

    words = [Precede(Family(2, F), Family(0, F), shift=1, lag=2)]
    assert solve(Pipeline(3, 3), constraints=words, seconds=20, workers=1).reason == "optimal"
    monkeypatch.setattr(timed, "demands_of", lambda pipeline, words: NO_DEMANDS)
    for module in (list_schedules, problem):
        monkeypatch.setattr(module, "obeys_all", lambda schedule, words: True)
    with pytest.raises(AssertionError, match="breaks a constraint: 2F"):
        solve(Pipeline(3, 3), constraints=words, seconds=20, workers=1)


def test_a_results_file_says_which_words_bound(tmp_path: Path) -> None:
    pipeline = Pipeline(2, 3)
    words = [Precede(Family(1, F), Family(0, F), shift=1, lag=2), Exclusive((Family(0, F), Family(1, F)))]
    result = solve(pipeline, constraints=words)
    assert result.constraints == tuple(words)
    tree = result_dict(result)
    assert tree["result"]["constraints"] == ["1F(k-1) + 2 < 0F(k)", "one at a time: 0F, 1F"]
    path = tmp_path / "r.json"
    path.write_text(json.dumps(tree))
    assert read_result(str(path)).schedule is not None
    assert "constraints" not in result_dict(solve(pipeline))["result"]
