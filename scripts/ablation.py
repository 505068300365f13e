"""What each step of the search is good for: the benchmark of proofs with one step left out at a time.

    python scripts/ablation.py --seed 1 --time-limit 10 --beyond 4

First every instance of ``scripts/benchmark.py`` is solved with all steps. Then, step by step, those instances are solved again
without the step whose search had taken it; the others would go the same way. A line says how many proofs are lost (and won)
without the step, how the gaps added up change, and the ratio of the times (geometric mean over the instances that were solved
again). A search takes some of its steps by the clock, so that a difference of one proof may be chance: ``--runs`` solves each
instance several times and takes the median by time.

Every result is a line of ``scripts/results/ablation-SEED.jsonl``, so that a run that was cut short goes on where it stopped; the
table is in ``ablation-SEED.md`` beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmark import RESULTS, Instance, gap, instances, is_aim, read

from ppopt.search import solve
from ppopt.search.run import Run
from ppopt.search.step import Step
from ppopt.search.strategies import BEGIN_LARGE, BEGIN_SMALL, LARGE, SMALL, SPAN_FIRST
from ppopt.search.turns import each_turn

Row = dict[str, Any]
NEEDED = ("bound: work", "named schedules", "binding order")
"""Steps that make the rows that are shown, or that nothing can do without."""


def steps() -> list[type[Step]]:
    """The steps that the strategies take, in order."""
    tables = (*BEGIN_SMALL, *SMALL, *BEGIN_LARGE, *SPAN_FIRST, *LARGE)
    found = dict.fromkeys(turn.step for turn in each_turn(tables))
    return [step for step in found if step.name not in NEEDED]


@contextmanager
def left_out(step: type[Step] | None) -> Iterator[None]:
    """While this lasts, the step applies nowhere, and does nothing where another takes it."""
    if step is None:
        yield
        return
    with patch.object(step, "applies", lambda self, run: "left out on purpose"), patch.object(step, "run", lambda *_, **__: None):
        yield


@contextmanager
def recorded() -> Iterator[set[str]]:
    """The names of the steps that are taken while this lasts, those of derived problems among them."""
    names: set[str] = set()
    do = Run.do

    def noted(self: Run, step: Step, seconds: float, **options: Any) -> None:
        names.add(step.name)
        do(self, step, seconds, **options)

    with patch.object(Run, "do", noted):
        yield names


def solved(instance: Instance, without: type[Step] | None, seconds: float, runs: int, workers: int | None) -> Row:
    """The run with the median time, of those that proved the optimum if most did."""
    rows = []
    for seed in range(runs):
        begun = time.monotonic()
        with left_out(without), recorded() as taken:
            result = solve(instance.pipeline(), objective=instance.objective, seconds=seconds, workers=workers, seed=seed)
        rows.append(
            {
                "instance": asdict(instance),
                "without": None if without is None else without.name,
                "value": result.value,
                "lower_bound": result.lower_bound,
                "reason": result.reason,
                "seconds": round(time.monotonic() - begun, 3),
                "steps": sorted(taken),
            }
        )
    rows.sort(key=lambda row: (row["reason"] != "optimal", row["seconds"]))
    return rows[len(rows) // 2]


def answer(asked: tuple[Instance, type[Step] | None, float, int, int | None]) -> Row:
    """As :func:`solved`, for a pool of processes."""
    return solved(*asked)


def table(rows: Sequence[Row], command: str) -> str:
    """A line for each step that was left out."""
    base = {key(row): row for row in rows if row["without"] is None}
    lines = ["# What each step is good for", "", f"    {command}", ""]
    proved = sum(row["reason"] == "optimal" for row in base.values())
    lines += [f"With all steps: {proved} of {len(base)} proved, gaps add up to {sum(map(gap, base.values())):.3f}.", ""]
    lines += ["| left out | solved again | proofs lost | proofs won | gaps | time |", "|---|---|---|---|---|---|"]
    for name in dict.fromkeys(row["without"] for row in rows if row["without"] is not None):
        pairs = [(base[key(row)], row) for row in rows if row["without"] == name]
        lost = sum(a["reason"] == "optimal" != b["reason"] for a, b in pairs)
        won = sum(b["reason"] == "optimal" != a["reason"] for a, b in pairs)
        more = sum(gap(b) - gap(a) for a, b in pairs)
        ratio = math.exp(statistics.fmean(math.log(max(b["seconds"], 0.01) / max(a["seconds"], 0.01)) for a, b in pairs))
        lines.append(f"| {name} | {len(pairs)} | {lost} | {won} | {more:+.3f} | x {ratio:.2f} |")
    return "\n".join(lines) + "\n"


def key(row: Row) -> str:
    """What tells instances apart."""
    return json.dumps(row["instance"])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the benchmark's set (1)")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds for an instance whose proof is aimed at (10)")
    parser.add_argument("--beyond", type=float, default=4.0, help="seconds for every other instance (4)")
    parser.add_argument("--runs", type=int, default=1, help="of each instance (1)")
    parser.add_argument("--workers", type=int, help="threads of the solver (all cores)")
    parser.add_argument("--match", default="", help='only instances with this in their name, such as "wave v=2"')
    parser.add_argument("-o", "--output", type=Path, help="the file of results (scripts/results/ablation-SEED.jsonl)")
    parser.add_argument("--jobs", type=int, default=1, help="instances at the same time, each with its own --workers (1)")
    options = parser.parse_args(argv)
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        run(options, pool)


def run(options: argparse.Namespace, pool: Pool) -> None:
    """Solve what is not known yet, and write the table after each step."""
    output: Path = options.output or RESULTS / f"ablation-{options.seed}.jsonl"
    output.parent.mkdir(exist_ok=True)
    known = {(row["without"], key(row)): row for row in read(output)}
    for step in (None, *steps()):
        asked = []
        for instance in (each for each in instances(options.seed) if options.match in str(each)):
            place = (None if step is None else step.name, json.dumps(asdict(instance)))
            if place in known or (step is not None and step.name not in known[None, place[1]]["steps"]):
                continue
            seconds = options.time_limit if is_aim({"instance": asdict(instance)}) else options.beyond
            asked.append((instance, step, seconds, options.runs, options.workers))
        for row in pool.imap_unordered(answer, asked):
            known[row["without"], key(row)] = row
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        given = f"--seed {options.seed} --time-limit {options.time_limit:g} --beyond {options.beyond:g} --runs {options.runs}"
        given += f" --jobs {options.jobs}" + (f" --workers {options.workers}" if options.workers else "")
        given += f' --match "{options.match}"' if options.match else ""
        text = table(list(known.values()), f"python scripts/ablation.py {given}")
        output.with_suffix(".md").write_text(text, encoding="utf-8")
        if step is not None and not any(name == step.name for name, _ in known):
            print(f"{step.name}: no search had taken it", flush=True)
        else:
            print(text.splitlines()[-1 if step is not None else 4], flush=True)


if __name__ == "__main__":
    main()
