"""Both solvers, all bounds, the list scheduler, the checker and the whole search, held against each other on random pipelines."""

from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ppopt import bounds, cpsat, ilp
from ppopt.bounds import Bound, Objective
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import Word, always_split, cuts_of, free_choices, in_order, pairs_of, pairs_save_time, splitting_is_free
from ppopt.heuristics import baselines
from ppopt.pipeline import Pipeline, room_to_split, splitting_takes_memory
from ppopt.search import solve
from tests.support import tuned
from tests.support.cases import Case, best_of, left_open, some
from tests.support.strategies import linked, machines, paired, pipelines, rebuilding
from tests.support.tiers import thorough
from tests.support.unaided import optimum, solved

Ways = dict[str, tuple[ModuleType, Callable[[Pipeline], Sequence[Word]]]]

FEW = pytest.mark.parametrize(
    "share", [1, pytest.param(2, marks=thorough), pytest.param(36, marks=pytest.mark.slow)], ids=["few", "more", "many"]
)
"""Twice as many examples in thorough runs, and 36 times as many in slow ones."""

PATIENCE = 3
"""Seconds for a way that may take long, that never contradicts. CP-SAT counts them by its own work; the ILP has no such count, so
that one instance decided by it is enough."""

BY_ILP: Ways = {"ilp": (ilp, lambda pipeline: (*free_choices(pipeline), *cuts_of(pipeline)))}
WITHOUT_CUTS: Ways = {"without cuts": (cpsat, pairs_of)}
CUTS_LEFT_OUT: Ways = {
    "always_split left out": (cpsat, lambda pipeline: (*pairs_of(pipeline), *cuts_of(pipeline))),
    "room_in_order left out": (cpsat, lambda pipeline: (*free_choices(pipeline), *in_order(pipeline))),
    "all order left out": (cpsat, free_choices),
}
"""``room_in_order`` holds with ``in_order`` only, so that one is never left out alone."""


def windows(pipeline: Pipeline, objective: Objective) -> Bound | None:
    """The best window certificate of two lengths."""
    floor = bounds.machine(pipeline, pairs=True)
    assert floor is not None
    half = floor.value // 2
    found = [
        tuned.window(pipeline, length, length, objective, makespan=floor.value, pairs=True) for length in {half, 2 * half // 3}
    ]
    return max((bound for bound in found if bound is not None), key=lambda bound: bound.value, default=None)


def states(pipeline: Pipeline, objective: Objective) -> Bound | None:
    """The state graph, where it is small."""
    return tuned.throughput(pipeline, pairs=True, most=2000) if objective == "makespan" else None


BOUNDS: dict[str, Callable[[Pipeline, Objective], Bound | None]] = {
    "work": lambda pipeline, objective: bounds.work(pipeline, objective, pairs=True),
    "one-machine": lambda pipeline, objective: bounds.machine(pipeline, objective, pairs=True),
    "memory": lambda pipeline, objective: bounds.memory(pipeline, objective, pairs=True),
    "window": windows,
    "state graph": states,
}


def hold(pipeline: Pipeline, objective: Objective, ways: Ways, count: Counter[str]) -> None:
    """Nobody says anything else than CP-SAT with all cuts; counted is who reaches its optimum."""
    best = best_of(pipeline, objective)
    if best is None:  # operations without duration pass each other
        return
    count["optimum"] += 1
    for name, (solver, words) in ways.items():
        found = solved(solver, pipeline, objective, words(pipeline), PATIENCE, deterministic=solver is cpsat)
        assert found.lower_bound <= best, name
        if found.schedule is not None:
            assert found.schedule.objective(objective) >= best, name
            count[name] += found.lower_bound == found.schedule.objective(objective)
    for name, bound_of in BOUNDS.items():
        bound = bound_of(pipeline, objective)
        assert bound is None or bound.value <= best, name
        count[name] += bound is not None and bound.value == best
    for name, schedule in baselines(pipeline)[:4]:
        assert violations(pipeline, schedule, earliest=True) == [], name
        assert schedule.objective(objective) >= best, name
    if pairs_save_time(pipeline):
        split = always_split(pipeline) if splitting_is_free(pipeline) else ()
        alone = optimum(cpsat, pipeline, objective, (*split, *cuts_of(pipeline)))
        assert alone is None or best <= alone, "more choice is worse"
        count["gain of pairs"] += alone is not None and best < alone
    count.update(name for name, has in FEATURES.items() if has(pipeline))


FEATURES: dict[str, Callable[[Pipeline], object]] = {
    "has latency": lambda p: p.ticks.latency.any(),
    "has occupancy": lambda p: p.lines,
    "has shared": lambda p: any(len(line) > 1 for line in p.lines),
    "has blocking": lambda p: p.lines and p.links.blocking,
    "has pairs": pairs_save_time,
    "has two routes": lambda p: len(p.routes) > 1,
    "has written-out routes": lambda p: p.placement == "routes",
    "has stages": lambda p: p.costs.per == "stage",
    "has speeds": lambda p: p.costs.per == "device" and isinstance(p.costs.forward, tuple),
    "has limits": lambda p: isinstance(p.memory.limit, tuple),
    "has traffic": lambda p: p.ticks.margins and not p.data_parallel.overlap,
    "has overlapping traffic": lambda p: p.ticks.margins and p.data_parallel.overlap,
    "has an optimizer": lambda p: p.costs.optimizer,
    "has recompute": lambda p: p.recompute not in ("none", ()),
    "has more retained than held": splitting_takes_memory,
    "has no room to split": lambda p: not room_to_split(p).all(),
}


def agree(cases: st.SearchStrategy[Case], examples: int, ways: Ways, shrink: bool = True) -> Counter[str]:
    """Hold the methods against each other on so many examples; how many each decides."""
    count: Counter[str] = Counter()

    @settings(max_examples=examples, phases=set(Phase) if shrink else [Phase.generate])
    @given(cases)
    def on(case: Case) -> None:
        hold(*case, ways, count)

    on()
    print(dict(count))  # shown with -s
    return count


@FEW
def test_on_plain_pipelines(share: int) -> None:
    count = agree(some(pipelines(15)), 14 * share, BY_ILP)
    assert count["optimum"] >= 11 * share
    assert count["ilp"] >= share
    for name in ("work", "one-machine", "memory", "window"):
        assert count[name] >= share, f"{name}: too few tight cases, a bound one tick too high might go unnoticed"


@FEW
def test_on_what_lists_and_closed_forms_leave_open(share: int) -> None:
    """Every cut can be left out."""
    count = agree(some(pipelines(21)).filter(left_open), 4 * share, WITHOUT_CUTS | CUTS_LEFT_OUT)
    for name in ("optimum", "without cuts", *CUTS_LEFT_OUT):
        assert count[name] >= 2 * share, name


@FEW
def test_on_pairs(share: int) -> None:
    count = agree(some(paired(15)), 7 * share, BY_ILP | WITHOUT_CUTS | {"in order": CUTS_LEFT_OUT["room_in_order left out"]})
    for name, least in (("optimum", 5), ("ilp", 1), ("without cuts", 3), ("gain of pairs", 1)):
        assert count[name] >= least * share, name


@FEW
def test_where_splitting_takes_memory(share: int) -> None:
    count = agree(some(rebuilding(12, least=1)), 6 * share, BY_ILP | WITHOUT_CUTS | CUTS_LEFT_OUT)
    for name in ("optimum", "without cuts", *CUTS_LEFT_OUT):
        assert count[name] >= 4 * share, name
    assert count["ilp"] >= share
    assert min(count["memory"], count["window"]) >= share


@FEW
def test_on_links_that_are_held(share: int) -> None:
    """Also where pairs save time; there by the ILP in thorough runs only, to which links and pairs are nothing new."""
    count = agree(some(linked(12 if share == 1 else 15, least=1)), 4 * share, BY_ILP | WITHOUT_CUTS)
    assert min(count["optimum"], count["without cuts"]) >= 3 * share
    assert count["ilp"] >= share
    both = agree(some(paired(12, links=True)), 2 * share, WITHOUT_CUTS if share == 1 else BY_ILP | WITHOUT_CUTS)
    assert 3 * both["optimum"] >= 4 * share


@FEW
def test_on_everything_that_a_machine_may_have(share: int) -> None:
    count = agree(some(machines(12)), 20 * share, BY_ILP | WITHOUT_CUTS)
    assert 3 * count["optimum"] >= 40 * share
    assert count["ilp"] >= share
    rare = [name for name in FEATURES if count[name] < max(1, share // 3)]
    assert len(rare) <= (share == 1), f"no cases with these: {rare}"  # twenty cases may lack what one in fifty has


@FEW
def test_the_whole_search_agrees(share: int) -> None:
    @settings(max_examples=4 * share)
    @given(some(machines(12)))
    def on(case: Case) -> None:
        pipeline, objective = case
        best = best_of(pipeline, objective)
        result = solve(pipeline, objective=objective, workers=1, seconds=60)
        assert result.reason == "optimal"
        assert best is None or result.ticks.value == best

    on()


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_one_tick_too_high_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = BOUNDS[name]

    def too_high(pipeline: Pipeline, objective: Objective) -> Bound | None:
        bound = of(pipeline, objective)
        return None if bound is None else Bound(bound.value + 1, bound.argument)

    monkeypatch.setitem(BOUNDS, name, too_high)
    with pytest.raises(AssertionError, match=name):
        agree(some(pipelines(12, limited=True)), 30, {}, shrink=False)


@settings(max_examples=15)
@given(linked(15, least=1))
def test_the_ladder_of_bounds_stays_below_what_links_allow(pipeline: Pipeline) -> None:
    best = best_of(pipeline, "makespan")
    for bound in tuned.best(pipeline, limits=Limits.of(0.5, deterministic=True)):
        assert best is None or bound.value <= best, bound.argument
