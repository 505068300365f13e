"""Edge finding: never more than the best schedule, compared with every order of a machine and with exact optima."""

import dataclasses
from fractions import Fraction
from itertools import permutations
from random import Random

import numpy as np

from ppopt.bounds.closed_form import makespan_of
from ppopt.bounds.cut_list import Listed
from ppopt.bounds.edge_finding import ALL, EMPTY, FULL, LATER, MAYBE, NEVER, EdgeFinding, change, join, raise_starts
from ppopt.bounds.many_cuts import counts_of
from ppopt.clock import Clock, Limits
from ppopt.constraints import relaxed_graph
from ppopt.pipeline import Costs, Layer, Layers, Links, Pipeline
from ppopt.search import Settings, solve_closed
from ppopt.search.over_cuts import Counts, OverCuts
from tests.bounds.test_many_cuts import PLACES, drawn
from tests.support.layered import cuts
from tests.support.tiers import thorough

Windows = list[tuple[int, int, int]]
"""Of each operation of a machine the earliest start, the latest end and the duration."""


def limits(seconds: float = 100, workers: int = 1) -> Limits:
    return Limits(Clock(seconds), 0.0, workers)


def raised(windows: Windows) -> list[int] | None:
    """Earliest starts after one turn; ``None``: they do not fit."""
    count = len(windows)
    early, end, time = (list(column) for column in zip(*windows, strict=True))
    starts = early, [-one for one in end], time, [0] * count, [0] * count
    width = 1 << max(count - 1, 0).bit_length()
    orders = tuple(list(range(count)) for _ in range(4))
    tree = tuple([0] * (2 * width) for _ in range(6))
    return None if raise_starts(0, count, width, starts, orders, tree) == FULL else early


def feasible(windows: Windows) -> list[list[int]]:
    """The starts of every order that fits, each as early as can be."""
    found = []
    for order in permutations(range(len(windows))):
        now, starts = 0, [0] * len(windows)
        for operation in order:
            early, end, time = windows[operation]
            starts[operation] = max(now, early)
            now = starts[operation] + time
            if now > end:
                break
        else:
            found.append(starts)
    return found


def test_no_start_is_raised_beyond_that_of_an_order_that_fits() -> None:
    rng, later, none = Random(1), 0, 0
    for _ in range(1500):
        windows: Windows = []
        for _ in range(rng.randint(2, 5)):
            early, time = rng.randint(0, 12), rng.randint(1, 6)
            windows.append((early, early + time + rng.randint(0, 9), time))
        orders, found = feasible(windows), raised(windows)
        if found is None:
            assert not orders
            none += 1
            continue
        for operation, (early, _, _) in enumerate(windows):
            assert found[operation] >= early
            assert found[operation] <= min((starts[operation] for starts in orders), default=10**6)
            later += found[operation] > early
    assert none > 100
    assert later > 100


def test_what_would_not_fit_between_others_comes_behind_them() -> None:
    # 1 and 2 have to end by 8; with 0 in front of the last of them they would end at 10. Neither has to be behind 0 by itself
    assert raised([(0, 20, 4), (1, 8, 3), (1, 8, 3)]) == [7, 1, 1]


def test_what_ends_behind_the_latest_start_of_another_comes_behind_it() -> None:
    assert raised([(3, 30, 5), (0, 10, 4), (2, 30, 1)]) == [4, 0, 2]


def test_what_takes_no_time_is_in_nobodys_way() -> None:
    assert raised([(2, 2, 0), (0, 5, 5)]) == [2, 0]
    assert raised([(2, 2, 1), (0, 5, 5)]) is None


def test_a_tree_says_which_one_makes_it_so_late() -> None:
    tree = tuple([0] * 8 for _ in range(6))
    for leaf in range(4, 8):
        change(tree, leaf, EMPTY, -1, 0, 0)
    change(tree, 4, ALL, 0, 1, 3)
    change(tree, 6, MAYBE, 1, 2, 5)
    change(tree, 7, MAYBE, 2, 6, 2)
    total, until, more, late, of_more, of_late = tree
    assert (total[1], until[1]) == (3, 4)
    assert (more[1], of_more[1]) == (8, 1)
    assert (late[1], of_late[1]) == (9, 1)
    change(tree, 6, EMPTY, -1, 0, 0)
    assert (late[1], of_late[1]) == (8, 2)
    assert until[3] == NEVER
    join(tree, 1)
    assert late[1] == 8


def settled(rng: Random, place: tuple[str, int, int, int]) -> Pipeline:
    """A random pipeline on some cut, maybe with latency, without a limit of memory."""
    pipeline = drawn(rng, place)
    links = Links(latency=rng.choice((0, 0, 2)))
    pipeline = pipeline.changed(memory=dataclasses.replace(pipeline.memory, limit=None), links=links)
    every = list(cuts(len(pipeline.layers or ()), pipeline.stages))
    return pipeline.changed(partition=rng.choice(every))


def check(number: int, seed: int) -> int:
    """Compare with exact optima; how often the bound is more than the closed form."""
    rng, more = Random(seed), 0
    for _ in range(number):
        pipeline = settled(rng, rng.choice(PLACES))
        graph, per_unit = relaxed_graph(pipeline, links=False), pipeline.ticks.per_unit
        result = solve_closed(pipeline, settings=Settings(seconds=30, workers=1))
        assert result.reason == "optimal"
        assert result.value is not None
        least, known = int(result.value * per_unit), makespan_of(graph)
        durations = np.array([graph.duration], dtype=np.int64)
        found = EdgeFinding(graph).raised(durations, np.array([0]), least + 50, limits())[0]
        assert 0 < found <= least, pipeline
        assert EdgeFinding(graph).raised(durations, np.array([0]), least - 1, limits())[0] <= found
        more += found > known
        again = EdgeFinding(graph, 3).raised(3 * durations, np.array([0]), 3 * (least + 50), limits())[0]
        assert 3 * found - 2 <= again <= 3 * least
    return more


def test_bounds_are_no_more_than_optima() -> None:
    assert check(25, 3) > 2


@thorough
def test_bounds_of_hundreds_are_no_more_than_optima() -> None:
    assert check(300, 4) > 40


def test_margins_of_devices_count() -> None:
    pipeline = Pipeline(2, 3, costs=Costs(forward=2, backward=3, optimizer=4))
    graph = relaxed_graph(pipeline, links=False)
    result = solve_closed(pipeline, settings=Settings(seconds=10, workers=1))
    assert result.value is not None
    below = int(result.value * pipeline.ticks.per_unit) + 1
    found = EdgeFinding(graph).raised(np.array([graph.duration]), np.array([0]), below, limits())
    assert found[0] <= below - 1
    assert found[0] > max(graph.work)


def varied(rng: Random) -> Pipeline:
    """Few layers with step costs, frozen ones, half ticks and recompute, on devices that are apart; the partition is open."""
    place, (devices, chunks), microbatches = rng.choice((("linear", (3, 1), 4), ("wave", (2, 2), 3), ("loop", (2, 2), 3)))
    level, frozen = {"name": "full", "time": rng.choice((1, Fraction(3, 2))), "saved": 1}, rng.random() < 0.5

    def layer(i: int) -> Layer:
        back = {"backward_input": rng.randint(1, 6), "backward_weight": Fraction(rng.randint(0, 9), 2)}
        once = {} if frozen and i < 2 else {"optimizer": rng.randint(0, 3), "reduce_scatter": rng.randint(0, 2)}
        return Layer(f"l{i}", forward=rng.randint(0, 6), **back, activation=2, frozen=frozen and i < 2, recompute=[level], **once)

    layers, links = Layers([layer(i) for i in range(devices * chunks + 2)]), Links(latency=rng.choice((0, 1)))
    recompute = rng.choice(("none", "full"))
    return Pipeline(devices, microbatches, place, chunks, layers=layers, links=links, recompute=recompute, partition="best")


def check_lists(number: int, seed: int) -> tuple[int, int]:
    """Compare the tight bounds of all cuts with exact optima: how many cuts, and how many bounds are more than was known."""
    rng, seen, more = Random(seed), 0, 0
    for _ in range(number):
        over = OverCuts(varied(rng), "makespan", Fraction(0))
        many = over.many
        assert many is not None
        every = list(cuts(many.layers, over.pipeline.stages))
        known = dict(zip(every, many.each(np.array([np.cumsum(counts)[:-1] for counts in every])).max(axis=1), strict=True))
        assert over.list_cuts(Fraction(10**6), len(every), limits(), lambda counts: False, 100)
        assert over.listed is not None
        assert over.listed.tight
        for row, bound in zip(over.listed.ends, over.listed.bounds, strict=True):
            counts = counts_of(row, many.layers)
            result = solve_closed(over.pipeline.changed(partition=counts), settings=Settings(seconds=30, workers=1))
            assert result.value is not None
            assert bound <= result.value * over.per_unit
            assert bound >= known[counts]
            more += bound > known[counts]
            seen += 1
    return seen, more


def test_tight_bounds_of_cuts_are_no_more_than_optima() -> None:
    seen, more = check_lists(3, 1)
    assert seen > 25
    assert more > 3


@thorough
def test_tight_bounds_of_hundreds_of_cuts_are_no_more_than_optima() -> None:
    seen, more = check_lists(40, 2)
    assert seen > 300
    assert more > 50


def over_cuts(rng: Random, place: tuple[str, int, int, int]) -> OverCuts:
    pipeline = drawn(rng, place)
    return OverCuts(
        pipeline.changed(memory=dataclasses.replace(pipeline.memory, limit=None)), "makespan", Fraction(0)
    )  # fmt: skip


def values_of(over: OverCuts) -> dict[Counts, int]:
    """The optimum of every cut, in ticks."""
    values = {}
    for counts in cuts(len(over.pipeline.layers or ()), over.pipeline.stages):
        result = solve_closed(over.pipeline.changed(partition=counts), settings=Settings(seconds=30, workers=1))
        assert result.reason == "optimal"
        assert result.value is not None
        values[counts] = int(result.value * over.per_unit)
    return values


def left_of(over: OverCuts, values: dict[Counts, int], below: int) -> dict[Counts, int]:
    """The listed cuts that are left with their bounds, none above its optimum; all others have at least ``below``."""
    assert over.listed is not None
    assert over.many is not None
    left = {counts_of(row, over.many.layers): int(bound) for row, bound in zip(over.listed.ends, over.listed.bounds, strict=True)}
    assert all(bound <= values[counts] for counts, bound in left.items())
    assert all(value >= below for counts, value in values.items() if counts not in left)
    assert over.bound == Fraction(over.listed.bound, over.per_unit)
    return left


def test_listed_cuts_are_left_out_only_where_none_is_better() -> None:
    rng, left_out, stayed = Random(7), 0, 0
    for place in (*PLACES[:3], *PLACES[:3]):
        over = over_cuts(rng, place)
        many, per_unit = over.many, over.per_unit
        assert many is not None
        values = values_of(over)
        below = min(values.values()) + 1
        known = many.each(np.array([np.cumsum(counts)[:-1] for counts in values])).max(axis=1)
        assert over.list_cuts(Fraction(below, per_unit), len(values), limits(workers=2), lambda counts: False, 100)
        listed = left_of(over, values, below)
        left_out += int((known < below).sum()) - len(listed)
        stayed += len(listed)
    assert left_out > 4
    assert stayed >= 6  # the best itself, each time


def test_bounds_stay_as_they_are_once_the_clock_is_over() -> None:
    graph = relaxed_graph(Pipeline(3, 4), links=False)
    durations, bounds = np.array([graph.duration] * 3), np.array([1, 2, 3])
    assert EdgeFinding(graph).raised(durations, bounds, 10**6, limits(0)).tolist() == [1, 2, 3]
    both = [EdgeFinding(graph).raised(durations, bounds, 10**4, limits(workers=n)).tolist() for n in (1, 2)]
    assert both[0] == both[1]
    assert min(both[0]) > 3


def test_a_list_of_none_stays_empty() -> None:
    over = over_cuts(Random(5), PLACES[0])
    over.listed = Listed(np.zeros((0, 2), np.int64), np.zeros(0, np.int64), 100)
    over.shorten_list(Fraction(50, over.per_unit))
    assert over.listed.below == 50
    over.shorten_list(Fraction(70, over.per_unit))
    assert over.listed.below == 50
    assert LATER > 0 > FULL
