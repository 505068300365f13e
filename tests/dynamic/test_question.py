"""Dynamic programming: whether there is a schedule, and which one is the best, compared with a plain model of all operations."""

from random import Random

import pytest

from ppopt.clock import Clock, Limits
from ppopt.constraints import relaxed_graph
from ppopt.dynamic import Question, layers, unknown
from ppopt.dynamic import question as questions
from ppopt.dynamic.layers import Layers
from ppopt.pipeline import Costs, Links, Memory, Pipeline, PipelineError
from ppopt.timing import time_order
from tests.support.plain_model import optimum
from tests.support.tiers import thorough

PLACES = (("linear", 3, 1, 5), ("wave", 2, 2, 4), ("loop", 2, 2, 4), ("wave", 3, 2, 3), ("loop", 2, 3, 3), ("linear", 4, 1, 4))


def limits(seconds: float = 100, workers: int = 1, deterministic: bool = False) -> Limits:
    return Limits(Clock(seconds, deterministic=deterministic), 0.0, workers)


def drawn(rng: Random) -> Pipeline | None:
    """A random pipeline whose backwards are whole, maybe within little memory; ``None``: that is too little."""
    placement, devices, chunks, microbatches = rng.choice(PLACES)
    stages = devices * chunks

    def each(least: int, most: int) -> list[int]:
        return [rng.randint(least, most) for _ in range(stages)]

    costs = Costs(per="stage", forward=each(0, 7), backward=each(0, 12))
    memory = Memory(activation=each(0, 4), limit=rng.choice((None, 6 + 4 * chunks)))
    try:
        return Pipeline(devices, microbatches, placement, chunks, costs=costs, memory=memory)
    except PipelineError:
        return None


def check(number: int, seed: int) -> tuple[int, int]:
    """Compare with optima: how many, and how many of them are within a limit that binds."""
    rng, seen, bound = Random(seed), 0, 0
    while seen < number:
        pipeline = drawn(rng)
        best = None if pipeline is None else optimum(pipeline, "makespan", patience=5)
        if pipeline is None or best is None:
            continue
        graph, workers = relaxed_graph(pipeline), rng.choice((1, 2))
        assert unknown(graph) is None
        below = Question(graph, best - 1)
        below.go_on(limits(workers=workers))
        assert below.refuted, pipeline
        for most in (best, best + rng.randint(1, 4), best + 60):
            above = Question(graph, most)
            above.go_on(limits(workers=workers))
            assert above.started is not None, (pipeline, most)
            schedule = time_order(pipeline, above.order(pipeline))
            assert schedule.within_memory
            assert schedule.makespan <= most
            assert schedule.makespan == above.least == best
        seen += 1
        free = optimum(pipeline.changed(memory=Memory()), "makespan", patience=5) if pipeline.memory.limit else best
        bound += free is not None and free < best
    return seen, bound


def test_what_is_found_is_the_best_and_less_is_refuted() -> None:
    seen, bound = check(30, 1)
    assert seen == 30
    assert bound >= 2


@thorough
def test_what_is_found_is_the_best_and_less_is_refuted_of_many() -> None:
    _, bound = check(150, 2)
    assert bound >= 5


def test_what_a_beam_finds_is_a_schedule_and_it_refutes_only_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, seen, found, best_found, refuted = Random(5), 0, 0, 0, 0
    while seen < 40:
        pipeline = drawn(rng)
        best = None if pipeline is None else optimum(pipeline, "makespan", patience=5)
        if pipeline is None or best is None:
            continue
        seen += 1
        monkeypatch.setattr(questions, "WIDEST", rng.choice((1, 2, 100)))
        for most in (best - 1, best, best + rng.randint(1, 6)):
            asked = Question(relaxed_graph(pipeline), most)
            asked.look(limits())
            assert asked.least <= best
            assert not (asked.refuted and most >= best)
            assert not (asked.started and most < best)
            refuted += asked.refuted
            if asked.started is not None:
                schedule = time_order(pipeline, asked.order(pipeline))
                assert schedule.within_memory
                assert best <= schedule.makespan <= most
                found, best_found = found + 1, best_found + (schedule.makespan == best)
                assert asked.least in (0, best)
    assert found > 40
    assert best_found > 30
    assert refuted >= 20


def test_a_beam_keeps_what_leaves_the_machines_the_most_time() -> None:
    graph = relaxed_graph(HARD)
    asked = Question(graph, 300)
    asked.look(limits())
    assert asked.started is not None
    windows = asked._windows
    assert windows is not None
    few, many = Layers(graph, windows, 5), Layers(graph, windows)
    while few.number == many.number:
        few.advance(limits())
        many.advance(limits())
    assert few.number == 5
    assert not few.whole
    assert many.whole
    kept = few._most_slack(5, Clock(1))
    of_all = many._most_slack(many.number, Clock(1))
    best = many._rows.reshape(-1, many._tables.width)[of_all[:5]]
    assert few._rows.reshape(-1, few._tables.width)[kept].tolist() == best.tolist()


HARD = Pipeline(3, 6, "loop", 2, costs=Costs(per="stage", forward=(3, 4, 2, 5, 3, 4), backward=(7, 6, 8, 5, 9, 7)))


def test_it_goes_on_where_it_stopped() -> None:
    graph = relaxed_graph(HARD)
    at_once = Question(graph, 10**3)
    at_once.go_on(limits())
    assert at_once.started is not None
    best = time_order(HARD, at_once.order(HARD)).makespan
    slow, turns = Question(graph, best), 0
    while not slow.answered:
        slow.go_on(limits(0.002, deterministic=True))
        turns += 1
        assert turns < 10_000
    assert turns > 5
    assert slow.started is not None
    assert time_order(HARD, slow.order(HARD)).makespan == best
    refuted = Question(graph, best - 1)
    refuted.go_on(limits())
    assert refuted.refuted


def test_several_threads_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "AT_LEAST", 1)
    found = []
    for workers in (1, 2, 3):
        question = Question(relaxed_graph(HARD), 10**3)
        question.go_on(limits(workers=workers))
        assert question.started is not None
        found.append(time_order(HARD, question.order(HARD)).makespan)
    assert len(set(found)) == 1


def test_too_many_states_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MOST", 5)
    question = Question(relaxed_graph(HARD), 10**3)
    question.go_on(limits())
    assert question.given_up
    assert not question.answered
    question.go_on(limits())
    assert not question.answered


def test_what_comes_before_and_behind_operations_counts() -> None:
    pipeline = Pipeline(2, 3, costs=Costs(forward=2, backward=3, optimizer=4))
    refuted, found = (Question(relaxed_graph(pipeline), most) for most in (23, 24))
    for question in (refuted, found):
        question.go_on(limits())
    assert refuted.refuted  # 2 + 3 * 5 on the second device, then its gradient has 3 to go on the first one, and 4
    assert found.started is not None


def test_what_states_cannot_tell_is_said() -> None:
    assert unknown(relaxed_graph(HARD)) is None
    assert unknown(relaxed_graph(HARD.changed(links=Links(latency=1)))) == "it knows nothing of latency"
    assert unknown(relaxed_graph(HARD.changed(links=Links(occupancy=1)))) == "it knows nothing of links that are busy"
    assert unknown(relaxed_graph(Pipeline(2, 4, "bidirectional"))) == "it knows one route alone"
