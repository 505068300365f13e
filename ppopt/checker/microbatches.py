"""Whether microbatches that differ run in their order, and the pieces of a sequence in theirs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ppopt.checker.factors import Factors, factors
from ppopt.checker.records import Entry, Run
from ppopt.checker.violation import Rule, Violation
from ppopt.op import Kind
from ppopt.pipeline import Pipeline


def misplaced(run: Run) -> Iterator[Violation]:
    """Every operation that runs before one that has to come first, for the sake of the order of microbatches or of the pieces of
    a sequence."""
    pipeline = run.pipeline
    if not pipeline.mix.differs:
        return
    way = {m: pipeline.routes[route] for m, route in enumerate(pipeline.route_of_microbatch)}
    sizes = _sizes(pipeline)
    for device, row in enumerate(run.rows):
        ran: dict[tuple[int, bool], list[tuple[int, Entry]]] = {}
        for entry in row:
            for key in entry.keys:
                family, microbatch = divmod(key, pipeline.microbatches)
                kind, stage = divmod(family, pipeline.stages)
                if kind < Kind.W:
                    ran.setdefault((stage, kind != Kind.F), []).append((microbatch, entry))
        for (stage, back), ops in ran.items():
            for group in {way[m] for m, _ in ops}:
                own = [(m, entry) for m, entry in ops if way[m] == group]
                yield from _in_turn(run, device, stage, back, own, sizes)


def _in_turn(
    run: Run, device: int, stage: int, back: bool, ops: list[tuple[int, Entry]], size_of: list[int]
) -> Iterator[Violation]:
    mix, many = run.pipeline.mix, run.pipeline.microbatches
    sizes = mix.pieces if len(mix.pieces) > 1 else (mix.pieces or (1,)) * many
    sequence_of = [(s, piece) for s, size in enumerate(sizes) for piece in range(size)][:many]
    given = mix.microbatch_order == "given" and (bool(mix.pieces) or len({size_of[m] for m, _ in ops}) > 1)
    for (m, entry), (later, after) in pairwise(ops):
        (first, piece), (second, other) = sequence_of[m], sequence_of[later]
        wrong = first == second and (piece < other if back else piece > other)
        wrong = wrong or (given and first > second)
        if wrong:
            op, at = run.shown(after), run.time(after.start)
            direction = "backward" if back else "forward"
            message = (
                f"{op} runs behind {run.shown(entry)} on device {device} at {at}: microbatch {later} has to come before "
                f"microbatch {m} there on the way {direction}"
            )
            yield Violation(Rule.TURN, device, op, at, message)


def _sizes(pipeline: Pipeline) -> list[int]:
    """By microbatch a number, the same for those that take the same on every stage."""
    numbers: dict[tuple[Factors, ...], int] = {}
    takes = (tuple(factors(pipeline, m, stage) for stage in range(pipeline.stages)) for m in range(pipeline.microbatches))
    return [numbers.setdefault(each, len(numbers)) for each in takes]
