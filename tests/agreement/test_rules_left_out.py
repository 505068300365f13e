"""A back end that is not told a rule is found out: no rule is redundant."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from pulp import PulpSolverError

from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import Capacity, Exclusive, Family, OneOf, Pairable, Precede, Word, free_choices, rules_of, sends
from ppopt.cpsat import question
from ppopt.ilp import engine
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import horizon
from ppopt.solvers.outcome import Outcome


def rule_of(word: Word) -> str:
    """Which rule a word is part of."""
    if isinstance(word, Precede):
        assert isinstance(word.before, Family)
        assert isinstance(word.after, Family)
        kinds = ["F" if family.kind == Kind.F else "W" if family.kind == Kind.W else "B" for family in (word.before, word.after)]
        ends = ["transfer" if sends(s) else kind for s, kind in zip((word.before, word.after), kinds, strict=True)]
        return f"{ends[0]} before {ends[1]}"
    if isinstance(word, Exclusive):
        sending = [sends(stream) for stream in word.streams]
        return "device" if not any(sending) else "link" if all(sending) else "blocking"
    if isinstance(word, OneOf):
        stream = word.alternatives[0][0]
        assert isinstance(stream, Family)
        return f"{'transfer' if sends(stream) else 'F' if stream.kind == Kind.F else 'B'} is run"
    assert isinstance(word, Capacity)
    return "memory"


RULES = (
    *("F is run", "B is run", "F before F", "F before B", "B before B", "B before W", "device", "memory"),
    *("transfer is run", "F before transfer", "B before transfer", "transfer before F", "transfer before B", "link", "blocking"),
)


def outcome(solver: Any, pipeline: Pipeline, seconds: float) -> Outcome:
    until = horizon(pipeline)
    words, limits = (*rules_of(pipeline), *free_choices(pipeline)), Limits.of(seconds, workers=1)
    found: Outcome = solver.solve(pipeline, words, objective="makespan", lower=0, upper=until, horizon=until, limits=limits)
    return found


def found_out(solver: Any, back_end: str, pipeline: Pipeline, best: int, dropped: str, patch: pytest.MonkeyPatch) -> bool:
    """Whether a solver whose model is not told a rule claims less than the optimum, or finds what is no schedule."""
    model = getattr(solver, back_end)

    def untold(pipeline: Pipeline, words: Sequence[Word], **settings: Any) -> Any:
        return model(pipeline, [word for word in words if isinstance(word, Pairable) or rule_of(word) != dropped], **settings)

    patch.setattr(solver, back_end, untold)
    begun = time.monotonic()
    try:
        found = outcome(solver, pipeline, seconds=60)
    except (ValueError, KeyError, PulpSolverError):  # what it found has no times, or something in it is not run
        return True
    claimed = found.lower_bound < best and time.monotonic() - begun < 50  # else it may have run out of time
    return claimed or (found.schedule is not None and bool(violations(pipeline, found.schedule)))


@pytest.mark.parametrize(("solver", "back_end"), [(question, "Model"), (engine, "Program")], ids=["cp-sat", "ilp"])
def test_every_rule_that_a_back_end_is_not_told_is_found_out(solver: Any, back_end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left, both_ways = set(RULES), [[[0, 1], [1, 0]]]
    for pipeline in (
        Pipeline(2, 2, costs=Costs(backward=2, backward_input=1, backward_weight=1), memory=Memory(limit=1)),
        Pipeline(2, 2),
        Pipeline(2, 3, costs=Costs(backward=2), links=Links(0, 3, False, both_ways)),
        Pipeline(2, 2, costs=Costs(backward=2), links=Links(0, 3, True)),
    ):
        some = left & {rule_of(word) for word in rules_of(pipeline)}
        whole = outcome(solver, pipeline, seconds=60)
        assert whole.schedule is not None
        assert whole.lower_bound == whole.schedule.makespan
        for rule in sorted(some):
            with monkeypatch.context() as patch:
                left -= {rule} if found_out(solver, back_end, pipeline, whole.lower_bound, rule, patch) else set()
    assert not left
