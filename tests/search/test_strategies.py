"""The tables of the strategies, and the conditions of their turns."""

from __future__ import annotations

from ppopt.pipeline import Pipeline
from ppopt.search.problem import Problem
from ppopt.search.step import Kind
from ppopt.search.strategies import BEGIN_LARGE, BEGIN_SMALL, ILP, LARGE, SMALL, SPAN_FIRST, strategy_of
from ppopt.search.turns import Entry
from tests.support.search import turns

TABLES: tuple[tuple[Entry, ...], ...] = (BEGIN_SMALL, BEGIN_LARGE, SMALL, LARGE, ILP, *SPAN_FIRST.values())


def test_tables() -> None:
    steps = {turn.step for entries in TABLES for turn in turns(entries)}
    assert len({step.name for step in steps}) == len(steps)
    for step in steps:
        assert step.kind in Kind
        assert step.__doc__
    small, large = Problem(Pipeline(2, 3)), Problem(Pipeline(8, 512))
    assert strategy_of(small, "auto") == (*BEGIN_SMALL, *SMALL)
    assert strategy_of(large, "auto") == (*BEGIN_LARGE, *LARGE)
    assert strategy_of(Problem(Pipeline(2, 3), "span"), "auto") == (*BEGIN_SMALL, *SPAN_FIRST["small"], *SMALL)
    assert strategy_of(large, "ilp") == ILP
