"""Time to a proof: ppopt against plain CP-SAT and the ILP, on ten instances in one run. Prints a table in Markdown.

*Plain CP-SAT* has the same words and the same solver, but no cuts, no bounds and no start: minimise from the horizon. *ILP* is
the integer program (CBC) of the same words with the cuts, minimised from the horizon too. A time limit that was reached is
``> limit``, with the gap between what was found and what was proved; no schedule at all is ``none``.

    python scripts/proof_times.py --time-limit 60 --into README.md

puts the table into that file, between the lines ``<!-- proof times -->`` and ``<!-- end -->``.

    python scripts/proof_times.py --engines cbc highs scip

sets the engines of the integer program beside each other instead; ``refuses``: the engine gives up, as one whose free licence
is for small programs.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ppopt import cpsat, ilp
from ppopt.bounds import Objective
from ppopt.clock import Limits
from ppopt.constraints import Word, always_split, cuts_of, rules_of, splitting_is_free
from ppopt.files import read_model
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import horizon, solve, span_horizon
from ppopt.solvers.engines import ENGINES, NoEngine
from ppopt.solvers.outcome import TooLarge

GPT = Costs(forward=185, backward_input=181, backward_weight=93)
"""The zero-bubble paper's 1.5B model, in 0.1 ms."""
MARKS = ("<!-- proof times -->", "<!-- end -->")
MODELS = Path(__file__).parents[1] / "models"


@dataclass(frozen=True)
class Instance:
    """What is proved, and how it is called in the table."""

    title: str
    pipeline: Pipeline
    objective: Objective = "makespan"


def _unit(devices: int, microbatches: int, limit: int, **place: Any) -> Pipeline:
    return Pipeline(devices, microbatches, memory=Memory(limit=limit), **place)


def _gpt(devices: int, microbatches: int, limit: int, **place: Any) -> Pipeline:
    memory = Memory(retained=Fraction("0.366"), limit=limit)
    return Pipeline(devices, microbatches, costs=GPT, links=Links(6), memory=memory, **place)


def instances() -> Iterator[Instance]:
    """Ten instances: linear, loop and wave, unit and measured costs, ample and tight memory, both objectives."""
    uneven = Costs(forward=(12, 9, 11, 8), backward_input=(12, 9, 11, 8), backward_weight=(7, 5, 7, 5))
    wave = {"placement": "wave", "chunks": 2}
    yield Instance("linear, D=4 M=8, unit, limit 4", _unit(4, 8, 4))
    yield Instance("linear, D=4 M=8, 1.5B, limit 3", _gpt(4, 8, 3))
    yield Instance("linear, D=4 M=8, 1.5B, limit 2", _gpt(4, 8, 2))
    yield Instance("linear, D=8 M=16, 1.5B, limit 6", _gpt(8, 16, 6))
    yield Instance("linear, D=8 M=24, `models/gpt-1.5b.toml`", read_model(str(MODELS / "gpt-1.5b.toml")).pipeline)
    yield Instance("loop v=2, D=4 M=8, unit, limit 3", _unit(4, 8, 3, placement="loop", chunks=2))
    yield Instance("wave v=2, D=4 M=8, unit, limit 3", _unit(4, 8, 3, **wave))
    yield Instance("wave v=2, D=4 M=4, 1.5B, limit 4", _gpt(4, 4, 4, **wave))
    memory = Memory(retained=Fraction("0.366"), limit=6)
    yield Instance("linear, D=4 M=8, uneven, limit 6, span", Pipeline(4, 8, costs=uneven, links=Links(1), memory=memory), "span")
    yield Instance("linear, D=4 M=16, unit, limit 4, span", _unit(4, 16, 4), "span")


@dataclass(frozen=True)
class Answer:
    """What a method had when it ended: value and bound in ticks; its seconds. ``refused``: why there is nothing."""

    value: int | None
    bound: int
    seconds: float
    refused: str = ""

    @property
    def proved(self) -> bool:
        """Whether the two meet."""
        return self.value is not None and self.value <= self.bound

    def shown(self, limit: float) -> str:
        """A cell of the table."""
        if self.refused:
            return self.refused
        if self.proved:
            return f"{self.seconds:.2g} s"
        gap = "none" if self.value is None else f"{100 * (self.value - self.bound) / self.value:.1f} %"
        return f"> {limit:g} s ({gap})" if self.seconds >= 0.9 * limit else f"{gap} ({self.seconds:.2g} s)"


def by_ppopt(instance: Instance, limit: float, workers: int | None) -> Answer:
    """The whole strategy."""
    begun = time.monotonic()
    result = solve(instance.pipeline, objective=instance.objective, seconds=limit, workers=workers)
    return Answer(result.ticks.value, result.ticks.lower_bound, time.monotonic() - begun)


def by_plain_cpsat(instance: Instance, limit: float, workers: int | None) -> Answer:
    """The rules alone."""
    return _minimised(instance, cpsat.solve, rules_of(instance.pipeline), limit, workers)


def by_ilp(instance: Instance, limit: float, workers: int | None, engine: str = "cbc") -> Answer:
    """The rules with the cuts, as an integer program."""
    pipeline = instance.pipeline
    split = always_split(pipeline) if splitting_is_free(pipeline) else ()
    try:
        solver = functools.partial(ilp.solve, engine=engine)
        return _minimised(instance, solver, (*rules_of(pipeline), *split, *cuts_of(pipeline)), limit, workers)
    except TooLarge:
        return Answer(None, 0, limit)
    except NoEngine:
        return Answer(None, 0, 0.0, "refuses")


def _minimised(
    instance: Instance, solver: Callable[..., Any], words: Sequence[Word], limit: float, workers: int | None
) -> Answer:
    pipeline = instance.pipeline
    upper = horizon(pipeline)
    begun = time.monotonic()
    outcome = solver(
        pipeline,
        words,
        objective=instance.objective,
        lower=0,
        upper=upper,
        horizon=upper if instance.objective == "makespan" else span_horizon(pipeline, upper, free=True),
        limits=Limits.of(limit, workers=workers),
    )
    value = None if outcome.schedule is None else outcome.schedule.objective(instance.objective)
    return Answer(value, outcome.lower_bound, time.monotonic() - begun)


METHODS = {"ppopt": by_ppopt, "plain CP-SAT": by_plain_cpsat, "ILP": by_ilp}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each method and instance (60)")
    parser.add_argument("--workers", type=int, help="threads of the solvers (all cores)")
    parser.add_argument("--quick", action="store_true", help="only the first instance")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, help="compare these engines of the integer program")
    parser.add_argument("--into", type=Path, help="a Markdown file whose table is replaced")
    options = parser.parse_args(argv)
    chosen = list(instances())[: 1 if options.quick else None]
    methods: dict[str, Callable[..., Answer]] = METHODS
    if options.engines:
        for name in options.engines:
            ilp.check(name)
        methods = {f"{name} {ilp.version_of(name)}": functools.partial(by_ilp, engine=name) for name in options.engines}
    lines: list[str] = []

    def show(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    show(f"| instance | optimum | {' | '.join(methods)} |")
    show(f"|---|---|{'---|' * len(methods)}")
    for instance in chosen:
        answers = [method(instance, options.time_limit, options.workers) for method in methods.values()]
        values = {answer.value for answer in answers if answer.proved}
        if len(values) > 1:
            raise AssertionError(f"{instance.title}: two optima, {values}")
        best = [f"{instance.pipeline.time(value):g}" for value in values if value is not None]
        cells = [instance.title, best[0] if best else "open", *(answer.shown(options.time_limit) for answer in answers)]
        show(f"| {' | '.join(cells)} |")
    if options.into is not None:
        text = options.into.read_text(encoding="utf-8")
        options.into.write_text(replaced(text, "\n".join(lines)), encoding="utf-8")


def replaced(text: str, table: str) -> str:
    """The text with a table between its two marks.

    Raises:
        ValueError: the marks are not there.
    """
    before, _, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not end:
        raise ValueError(f"expected the lines {MARKS[0]} and {MARKS[1]} around the table")
    return f"{before}{MARKS[0]}\n{table}\n{end}{after}"


if __name__ == "__main__":
    main()
