"""Certificates: the one-machine bound of one pipeline, said so that it holds for others with the same placement."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import strategies as st

from ppopt import bounds
from ppopt.bounds.certificates import Certificate, certificates, durations_of, plain_certificates, work_certificates
from ppopt.bounds.ways import Part, Way
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Mix, Pipeline
from ppopt.schedule import Objective
from tests.support.tiers import drawn, thorough

PLACES = (("linear", 2, 1), ("linear", 4, 1), ("wave", 2, 2), ("wave", 3, 2), ("loop", 2, 2), ("loop", 2, 3), ("wave", 2, 3))
TWO_ROUTES = (("bidirectional", 2, 1), ("bidirectional", 3, 1), ("bidirectional", 4, 1))


def alike(seed: int, number: int, places: Sequence[tuple[str, int, int]] = PLACES) -> list[Pipeline]:
    """Pipelines of one placement and the same links, with random costs of their stages; one tick is one unit in all of them."""
    rng = Random(seed)
    placement, devices, chunks = rng.choice(places)
    microbatches, links, split = rng.randint(2, 6), Links(rng.choice((0, 0, 1, 4))), rng.random() < 0.6
    optimizer = rng.choice((None, 2, tuple(rng.randint(0, 5) for _ in range(devices))))

    def some(least: int = 0) -> list[int]:
        top = rng.choice((3, 9, 30))
        return [rng.randint(least, top) for _ in range(devices * chunks)]

    found = []
    for _ in range(number):
        backward = {"backward_input": some(), "backward_weight": some()} if split else {"backward": some(1)}
        costs = Costs(per="stage", forward=some(1), optimizer=optimizer, **backward)
        found.append(Pipeline(devices, microbatches, placement, chunks, costs=costs, links=links))
    assert all(pipeline.ticks.per_unit == 1 for pipeline in found)
    return found


def machine(pipeline: Pipeline, objective: Objective = "makespan") -> int:
    bound = bounds.machine(pipeline, objective)
    assert bound is not None
    return bound.value


def with_bounds(pipelines: Iterable[Pipeline], objective: Objective = "makespan") -> list[tuple[dict[Part, int], int]]:
    """Of each pipeline the durations and the one-machine bound."""
    return [(durations_of(pipeline), machine(pipeline, objective)) for pipeline in pipelines]


def too_much(certificate: Certificate, others: Iterable[tuple[dict[Part, int], int]]) -> bool:
    """Whether a certificate says more of some pipeline than its own one-machine bound."""
    return any(certificate.value(duration) > bound for duration, bound in others)


OBJECTIVES = st.sampled_from(("makespan", "span"))


@drawn(16, 40, st.integers(0, 10**9), OBJECTIVES)
def test_a_certificate_is_the_bound_at_its_own_cut_and_holds_at_others(seed: int, objective: Objective) -> None:
    one, *others = alike(seed, 5, (*PLACES, *TWO_ROUTES))
    found = certificates(one, one.devices + 1, objective)
    assert len(found) == one.devices + (objective == "makespan")
    values = [certificate.value(durations_of(one)) for certificate in found]
    assert values == sorted(values, reverse=True)
    assert values[0] == machine(one, objective)
    all_bounds = with_bounds([one, *others], objective)
    assert not any(too_much(certificate, all_bounds) for certificate in found)


@drawn(15, 35, st.integers(0, 10**9), OBJECTIVES)
def test_plain_certificates_hold_everywhere(seed: int, objective: Objective) -> None:
    one, *others = alike(seed, 4)
    found = list(plain_certificates(one, objective))
    assert len(found) == 4 * one.stages  # of each stage of each device
    all_bounds = with_bounds([one, *others], objective)
    assert not any(too_much(certificate, all_bounds) for certificate in found)


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_plain_certificates_are_often_the_bound(objective: Objective) -> None:
    """They are not only valid."""
    equal = sum(
        max(each.value(durations_of(one)) for each in plain_certificates(one, objective)) == machine(one, objective)
        for (one,) in (alike(seed, 1) for seed in range(40))
    )
    assert equal > 5


def test_by_hand() -> None:
    """Two devices, three microbatches. The first device waits for nothing, the last one for 0F and the transfer.

    One-machine bound of the last device: head 2 + 1, work 3 (5 + 7), tail of the last 1B to 0B: 1 + 4 and the end.
    """
    costs = Costs(per="stage", forward=(2, 5), backward=(4, 7))
    pipeline = Pipeline(2, 3, costs=costs, links=Links(1))
    duration = durations_of(pipeline)
    assert duration == {
        Part(Kind.F, 0): 2,
        Part(Kind.F, 1): 5,
        Part(Kind.I, 0): 4,
        Part(Kind.I, 1): 7,
        Part(Kind.W, 0): 0,
        Part(Kind.W, 1): 0,
    }
    expected = Certificate(
        heads=(Way.of({Part(Kind.F, 0): 1}, 1),),
        work=Way.of({Part(Kind.F, 1): 3, Part(Kind.I, 1): 3}),
        tails=(Way.of({Part(Kind.I, 0): 1}, 1),),
    )
    assert expected in certificates(pipeline, 3)
    assert expected.value(duration) == machine(pipeline) == 3 + 36 + 5


def test_the_span_of_a_device_by_hand() -> None:
    """From its own first F to its own last B the first device waits for all forwards and backwards of the second."""
    costs = Costs(per="stage", forward=(2, 5), backward=(4, 7))
    pipeline = Pipeline(2, 3, costs=costs, links=Links(1))
    best, other = certificates(pipeline, 2, "span")
    (head,), (tail,) = best.heads, best.tails
    one_each, three_each = ({Part(kind, stage): n for kind in (Kind.F, Kind.I)} for stage, n in ((0, 1), (1, 3)))
    assert head.behind(best.work).behind(tail) == Way.of({**one_each, **three_each}, 2)
    assert best.value(durations_of(pipeline)) == machine(pipeline, "span") == 2 + 1 + 36 + 1 + 4
    assert other == Certificate((Way(),), Way.of(three_each), (Way(),))  # the last device waits for nothing once it has begun


def test_ways() -> None:
    way = Way.of({Part(Kind.F, 1): 2, Part(Kind.F, 0): 1, Part(Kind.W, 0): 0}, 3)
    assert way.times == ((Part(Kind.F, 0), 1), (Part(Kind.F, 1), 2))
    assert way.value({Part(Kind.F, 0): 10, Part(Kind.F, 1): 100}) == 213
    assert Way().below(way)
    assert Way.of({Part(Kind.F, 1): 1}, 3).below(way)
    assert not Way.of({Part(Kind.F, 2): 1}).below(way)
    assert not Way((), 4).below(way)


# --- microbatches that differ ---


def mixed(seed: int, number: int) -> list[Pipeline]:
    """Pipelines of one placement with the same microbatches that differ, with random costs of their stages in whole ticks."""
    rng = Random(seed)
    placement, devices, chunks = rng.choice((*PLACES, *TWO_ROUTES))
    microbatches, links = rng.randint(2, 6), Links(rng.choice((0, 1, 4)))
    pieces = rng.choice((1, 2)) if microbatches % 2 == 0 and placement != "bidirectional" else 1
    sizes = [rng.choice((1, 2, 3)) for _ in range(microbatches)]
    kind, order = rng.random() < 0.5, rng.choice(("given", "choose"))
    mix = replace(Mix(lengths=sizes, length=1) if kind else Mix(microbatch_costs=sizes), pieces=pieces, microbatch_order=order)
    found = []
    for _ in range(number):
        times = {
            name: [rng.randint(0, 30) for _ in range(devices * chunks)]
            for name in ("forward", "backward_input", "backward_weight")
        }
        squares = {
            f"{name}_quadratic": [rng.randint(0, x) for x in times[name]] for name in ("forward", "backward_input") if kind
        }
        costs = Costs(per="stage", **times, **squares)  # type: ignore[arg-type]
        found.append(Pipeline(devices, microbatches, placement, chunks, costs=costs, links=links, mix=mix))
    return found


@drawn(6, 15, st.integers(0, 10**9), OBJECTIVES)
def test_of_microbatches_that_differ(seed: int, objective: Objective) -> None:
    """The bound at its own cut, valid at others, linear in what a stage takes for each size."""
    one, *others = mixed(seed, 4)
    found = certificates(one, one.devices + 1, objective)
    assert found[0].value(durations_of(one)) == machine(one, objective)
    all_bounds = with_bounds([one, *others], objective)
    assert not any(too_much(certificate, all_bounds) for certificate in (*found, *work_certificates(one)))


@thorough
def test_a_chain_divides_where_it_is_not_settled_which_operation_comes_first() -> None:
    """As the least of several ways, one of which is too long elsewhere."""
    several, found = with_one_way_each(mixed(seed, 4) for seed in range(25))
    assert several > found >= 2


# --- what is wrong is found ---


def only_the_least_here(certificate: Certificate, pipeline: Pipeline) -> Certificate:
    """The mistake to keep the one way that is least at this cut, in place of the least of all."""
    duration = durations_of(pipeline)
    heads, tails = (min(ways, key=lambda way: way.value(duration)) for ways in (certificate.heads, certificate.tails))
    return replace(certificate, heads=(heads,), tails=(tails,))


def with_one_way_each(cuts: Iterable[Sequence[Pipeline]]) -> tuple[int, int]:
    """How many certificates of the first cuts have several ways; and how many of these say too much at another cut with one."""
    several = found = 0
    for one, *others in cuts:
        other_bounds = with_bounds(others)
        for certificate in certificates(one, one.devices + 1):
            wrong = only_the_least_here(certificate, one)
            assert wrong.value(durations_of(one)) == certificate.value(durations_of(one))
            several += wrong != certificate
            found += too_much(wrong, other_bounds)
    return several, found


def test_a_minimum_that_is_dropped_is_found() -> None:
    """At its own cut such a certificate is right; elsewhere it says too much, sooner or later."""
    several, found = with_one_way_each(alike(seed, 4) for seed in range(40))
    assert several > found >= 3


def test_a_coefficient_that_is_doubled_is_found() -> None:
    """In the work, or in the way to it."""
    for seed in range(30):
        one, *_ = alike(seed, 1)
        certificate = certificates(one, 1)[0]
        for place in ("work", "heads"):
            way = certificate.work if place == "work" else certificate.heads[0]
            longest = max(way.times, key=lambda part: part[1] * durations_of(one)[part[0]], default=None)
            if longest is None or not durations_of(one)[longest[0]]:
                continue
            doubled = Way.of({part: n * (1 + (part == longest[0])) for part, n in way.times}, way.constant)
            ways = tuple(doubled if other == way else other for other in certificate.heads)
            wrong = replace(certificate, work=doubled) if place == "work" else replace(certificate, heads=ways)
            if place == "work" or len(ways) == 1:
                assert too_much(wrong, with_bounds([one]))
