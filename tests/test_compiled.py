"""Inner loops: Python and numba run the same source and give the same; which of them does depends on how much there is to do."""

import random
import signal
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from ppopt import compiled
from ppopt.bounds.cut_list import Listed
from ppopt.bounds.edge_finding import EdgeFinding
from ppopt.bounds.halved_cuts import _pairs
from ppopt.bounds.shaving import Shaving
from ppopt.checker import violations
from ppopt.checker.quick import sound
from ppopt.clock import Clock, Limits
from ppopt.compiled import LOADING, Loop, bare, heaps, loop, using
from ppopt.constraints import Family, Precede, relaxed_graph, rules_of
from ppopt.dynamic import Question, layers
from ppopt.dynamic import question as question_module
from ppopt.heuristics import PRIORITIES, Jobs, run_jobs
from ppopt.named import find
from ppopt.named.definition import Restriction
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Order
from ppopt.timing import OrderError, time_order, time_settings
from tests.support.fresh import heavy_after
from tests.support.strategies import machines, orders, pipelines
from tests.support.tiers import drawn, thorough

with_numba = pytest.mark.skipif(not compiled.available(), reason="numba is not there")


class Tables(NamedTuple):
    values: Any
    sums: Any


@loop(1.0, ("tables.sums",))
def sums(tables: Any, start: int) -> int:
    total = start
    for i in range(len(tables.values)):
        total += tables.values[i]
        tables.sums[i] = total
    return total


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A process whose loops have done nothing yet; what is asked of numba is noted."""
    asked: list[str] = []
    state = compiled._State()
    monkeypatch.setattr(compiled, "_state", state)
    monkeypatch.setattr(compiled, "_loads", lambda: asked.append("load") or True)
    monkeypatch.setattr(compiled, "_compiled", lambda function, parts: asked.append(function.__name__) or function)
    return asked


def test_heaps_of_one_array_are_heaps() -> None:
    generator = random.Random(3)
    array = heaps.Heaps.of(np.array([7, 0, 40]))
    lists: list[list[int]] = [[], [], []]
    assert array.plain() == lists
    for _ in range(2000):
        heap = generator.choice((0, 2))
        own = lists[heap]
        assert heaps.compiled_count(heap, array) == len(own)
        if own and (len(own) == (7, 0, 40)[heap] or generator.random() < 0.45):
            assert heaps.compiled_first(heap, array) == heaps.first(heap, lists)
            assert heaps.compiled_pop(heap, array) == heaps.pop(heap, lists)
        else:
            number = generator.randrange(-20, 20)
            heaps.compiled_push(heap, number, array)
            heaps.push(heap, number, lists)


def test_what_is_kept_knows_the_modules_of_its_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The name under which a loop is kept changes with the text of another module that a part is from, and with that alone."""
    function, parts = sums.function, (heaps.first,)
    assert compiled._stamped(function, (bare_sum,)) is function
    one, again = (compiled._stamped(function, parts) for _ in range(2))
    assert one.__qualname__ == again.__qualname__ != function.__qualname__
    assert one(Tables([1, 2], [0, 0]), 3) == 6
    changed = tmp_path / "heaps.py"
    changed.write_text(Path(heaps.__file__).read_text() + "# changed")
    monkeypatch.setattr(heaps, "__file__", str(changed))
    assert compiled._stamped(function, parts).__qualname__ not in (one.__qualname__, function.__qualname__)


def bare_sum(tables: Any, rest: Any) -> int:
    total: int = tables.values[1] + rest[1][0][0]
    tables.sums[0] = total
    return total


@loop(1.0, parts=(bare_sum,))
def bare_sums(tables: Any, rest: Any) -> int:
    return bare_sum(bare(tables), bare(rest)) + len(tables.values)


@with_numba
def test_bare_tuples_have_the_same_numbers() -> None:
    for compiled_too in (False, True):
        given = tables(5, 7)
        with using(compiled=compiled_too):
            assert bare_sums(1, 100, given, (3, (np.array([10]), True))) == 19
        assert (given.sums[0] == 17) == compiled_too  # Python changes a list, which is not among the changes


class Both(NamedTuple):
    one: Any
    offset: int
    other: Any


def both_sum(both: Any) -> int:
    both.other.sums[1] += both.one.values[0]
    total: int = both.offset + both.one.sums[0] + both.other.sums[1]
    return total


@loop(1.0, parts=(both_sum,))
def both_sums(both: Any) -> int:
    return both_sum(bare(both)) * 100 + both_sum(bare(both))


@with_numba
def test_bare_tuples_of_tuples() -> None:
    given = Both(Tables(np.array([3]), np.array([50])), 1, Tables(np.array([0]), np.array([0, 5])))
    with using(compiled=True):
        assert both_sums(1, 100, given) == 59 * 100 + 62
    assert given.other.sums.tolist() == [0, 11]


@with_numba
def test_a_part_is_compiled_once() -> None:
    """For all loops that call it, with a number that stands in the source, too."""
    names: dict[str, Any] = {}
    source = "def part(n): return 2 * n\ndef one(n): return part(n) + part(3)\ndef other(n): return part(n) + part(-1)"
    exec(source, names)  # what is in no file is not kept on disk, but compiled in every process
    with using(compiled=True):
        for name, value in (("one", 16), ("other", 8)):
            assert Loop(names[name], 1.0, (), (names["part"],))(1, 100, 5) == value
    assert len(compiled._parts[names["part"]].signatures) == 1


def tables(*values: int) -> Tables:
    return Tables(np.array(values), np.zeros(len(values), np.int64))


@with_numba
@pytest.mark.parametrize("where", ["core.compiler.compile_extra", "core.dispatcher.Dispatcher.compile"])
def test_a_signal_waits_until_a_loop_is_compiled(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes in the midst of it, or while what is on disk is looked for, is heard at its end, and the loop is whole."""
    names: dict[str, Any] = {}
    exec("def part(n): return 3 * n\ndef one(n): return part(n) + 1", names)
    one = Loop(names["one"], 1.0, (), (names["part"],))
    place, _, name = f"numba.{where}".rpartition(".")
    own, heard = getattr(resolve_name(place), name), []

    def interrupted(*given: Any, **named: Any) -> Any:
        if not heard:
            heard.append("signal")
            signal.raise_signal(signal.SIGINT)
            heard.append("after it")
        return own(*given, **named)

    monkeypatch.setattr(f"numba.{where}", interrupted)
    with using(compiled=True):
        with pytest.raises(KeyboardInterrupt):
            one(1, 100, 5)
        assert heard == ["signal", "after it"]
        assert one(1, 100, 5) == 16


def test_python_runs_a_loop_until_loading_pays(fresh: list[str]) -> None:
    own, given = Loop(sums.function, LOADING / 10, ["tables.sums"], ()), tables(1, 2, 3)
    for _ in range(10):
        assert own(1, 100, given, 4) == 10
    assert not fresh
    assert given.sums.tolist() == [5, 7, 10]
    assert own(1, 100, given, 4) == 10
    assert fresh == ["load", "sums"]
    assert own(1, 100, given, 4) == 10
    assert fresh == ["load", "sums"]


def test_much_work_is_compiled_at_once(fresh: list[str]) -> None:
    Loop(sums.function, 1e-6, ["tables.sums"], ())(10**8, 100, tables(1), 0)
    assert fresh == ["load", "sums"]


def test_what_is_expected_is_compiled_from_the_first_loop_on(fresh: list[str]) -> None:
    own, further = Loop(sums.function, LOADING / 10, ["tables.sums"], ()), Loop(sums.function, LOADING / 10, ["tables.sums"], ())
    compiled.expect(4, own, further)
    own(1, 100, tables(1), 0)
    assert not fresh
    compiled.expect(5, own, further)
    own(1, 100, tables(1), 0)
    assert fresh == ["load", "sums"]


def test_python_runs_what_has_more_than_64_bits(fresh: list[str]) -> None:
    with using(compiled=True):
        assert sums(1, 2**70, Tables(np.array([2**62]), [0]), 2**69) == 2**69 + 2**62
        assert "sums" not in fresh
        with pytest.raises(OverflowError):  # never a wrong number
            sums(1, 2**70, tables(2**62, 2**62), 2**62)


def test_what_is_small_loads_no_numba() -> None:
    assert "numba" not in heavy_after("from ppopt.cli import main; main(['order', 'zb-v', '-d', '4', '-m', '8'])")


# --- compiled or not, the same ---


def each_way(action: Any) -> list[Any]:
    """What an action gives, or its error in words, uncompiled and compiled."""
    found = []
    for way in (False, True):
        with using(compiled=way):
            try:
                found.append(action())
            except (OrderError, Restriction, ValueError) as error:
                found.append(str(error))
    return found


def rows(order: Order) -> list[list[int]]:
    return [row.tolist() for row in order.rows]


@thorough
@with_numba
@drawn(30, 120, st.one_of(pipelines(40), machines(20)).flatmap(lambda p: st.tuples(st.just(p), orders(p))))
def test_times(case: tuple[Pipeline, Order]) -> None:
    pipeline, order = case
    last = pipeline.stages - 1
    word = Precede(Family(0, Kind.F), Family(last, Kind.F), shift=1, lag=5)
    for words in ((), (word,)):
        plain, fast = each_way(lambda words=words: [row.tolist() for row in time_order(pipeline, order, words=words).start])
        assert plain == fast
    shuffled = Order(order.index, tuple(row[::-1].copy() for row in order.rows))
    plain, fast = each_way(lambda: [row.tolist() for row in time_order(pipeline, shuffled).start])
    assert plain == fast


@thorough
@with_numba
@drawn(20, 40, machines(24))
def test_list_schedules(pipeline: Pipeline) -> None:
    jobs = Jobs(pipeline, rules_of(pipeline), links=True)
    for rule in ("oldest-backward-first", "forward-first"):
        for patient in (False, True):
            for reserve in (False, True):
                keys = PRIORITIES[rule](jobs)
                plain, fast = each_way(
                    lambda keys=keys, patient=patient, reserve=reserve: rows(
                        run_jobs(jobs, keys, patient=patient, reserve=reserve)
                    )
                )
                assert plain == fast


@thorough
@with_numba
@pytest.mark.parametrize("seed", range(10))
def test_schedulers_of_the_zero_bubble_papers(seed: int) -> None:
    rng = random.Random(seed)
    devices, microbatches = rng.choice([2, 3, 6]), rng.choice([1, 5, 14])
    costs = Costs(
        forward=[rng.randint(0, 6) for _ in range(devices)], backward_input=rng.randint(0, 6), backward_weight=rng.randint(1, 5)
    )
    memory = Memory(activation=rng.randint(1, 3), retained=rng.choice([None, 0, 0.5, 4]))
    pipeline = Pipeline(devices, microbatches, costs=costs, links=Links(rng.choice([0, 1, 3])), memory=memory)
    for name, params in (("zb-1p", {}), ("zb-2p", {}), ("zb-v", {"variant": "adapted", "limit": devices + 1})):
        plain, fast = each_way(lambda name=name, params=params: rows(find(name).schedule(pipeline, **params).order))
        assert plain == fast


@thorough
@with_numba
@drawn(30, 120, pipelines(30).flatmap(lambda p: st.tuples(st.just(p), orders(p), st.randoms(use_true_random=False))))
def test_the_checker_in_one_go(case: tuple[Pipeline, Order, random.Random]) -> None:
    pipeline, order, _ = case
    schedule = time_order(pipeline, order)
    plain, fast = each_way(lambda: sound(pipeline, schedule))
    assert plain == fast
    assert not plain or not violations(pipeline, schedule)


@thorough
@with_numba
def test_many_costs() -> None:
    schedule = find("zb-v").schedule(Pipeline(3, 4))
    duration = np.random.default_rng(0).integers(0, 9, size=(20, *schedule.pipeline.ticks.duration.shape))
    plain, fast = each_way(lambda: time_settings(schedule.pipeline, schedule.order, duration))
    assert all(map(np.array_equal, plain, fast))


@thorough
@with_numba
def test_halves_of_cuts() -> None:
    rng = np.random.default_rng(1)
    first, second = (np.sort(rng.integers(0, 40, size=(n, 3)), axis=0) for n in (200, 90))

    def together() -> list[tuple[int, int]]:
        limit = Listed(np.zeros((0, 1), np.int64), np.zeros(0, np.int64), 45)
        return [(int(i), int(j)) for pair in _pairs(first, second, limit, Clock(100)) for i, j in zip(*pair, strict=True)]

    plain, fast = each_way(together)
    assert plain == fast
    assert sorted(plain) == [(i, j) for i, j in np.ndindex(200, 90) if (first[i] + second[j] < 45).all()]
    assert len(plain) > 100


@thorough
@with_numba
def test_edge_finding() -> None:
    rng = np.random.default_rng(2)
    graph = relaxed_graph(Pipeline(3, 5, "wave", 2), links=False)
    times = rng.integers(0, 9, size=(40, 3, len(graph.families)))
    durations = times[:, 0]
    bounds, below = durations.sum(axis=1), 5 * int(durations.sum(axis=1).max())

    def found() -> list[int]:
        edges, limits = EdgeFinding(graph), Limits(Clock(100), 0.0, 2)
        once = edges.asked(times, bounds, int(np.median(bounds)) * 2, limits, once=True)
        return [*edges.raised(durations, bounds, below, limits).tolist(), *once[0].tolist(), *once[1].tolist()]

    plain, fast = each_way(found)
    assert plain == fast
    assert (np.array(fast[:40]) > bounds).sum() > 30
    assert 0 < (np.array(fast[40:80]) > bounds).sum() < 40


@thorough
@with_numba
def test_shaving() -> None:
    rng, refuted = np.random.default_rng(3), 0
    graph = relaxed_graph(Pipeline(3, 4, "loop", 2, costs=Costs(forward=1, backward=2)), links=False)
    for _ in range(12):
        durations = rng.integers(1, 30, size=len(graph.families))
        most = int(EdgeFinding(graph).raised(durations[None], np.array([0]), 10**4, Limits(Clock(100), 0.0, 1))[0])

        def found(durations: Any = durations, most: int = most) -> tuple[bool, list[int], list[int]]:
            shaving = Shaving(EdgeFinding(graph), durations, most)
            shaving.go_on(Clock(100))
            return shaving.refuted, shaving.windows.early.tolist(), shaving.windows.late.tolist()

        plain, fast = each_way(found)
        assert plain == fast
        refuted += plain[0]
    assert 0 < refuted < 12


@thorough
@with_numba
@pytest.mark.parametrize("limit", [None, 4])
def test_dynamic_programming(limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "AT_LEAST", 1)
    monkeypatch.setattr(question_module, "WIDEST", 3)
    costs = Costs(per="stage", forward=(3, 4, 2, 5), backward=(7, 6, 8, 5))
    graph = relaxed_graph(Pipeline(2, 4, "wave", 2, costs=costs, memory=Memory(limit=limit)))

    def found() -> list[Any]:
        questions = [Question(graph, most) for most in range(80, 130, 7)]
        beams = [Question(graph, most) for most in range(80, 130, 7)]
        for question, beam in zip(questions, beams, strict=True):
            question.go_on(Limits(Clock(100), 0.0, 2))
            beam.look(Limits(Clock(100), 0.0, 1))
        return [(question.refuted, question.started) for question in (*questions, *beams)]

    plain, fast = each_way(found)
    assert plain == fast
    assert {refuted for refuted, _ in plain} == {True, False}
