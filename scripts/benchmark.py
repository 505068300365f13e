"""The benchmark: how many of many pipelines are proved optimal, how fast, and how far the others are open.

Seventy-two instances, drawn with ``--seed``: one for each combination of placement (linear, loop with 2 chunks, wave with 2
and with 4), size (2-4, 5-8, 9-16 devices), memory limit (1.0, 0.75, 0.5 of what 1F1B needs) and objective (makespan, device
span). Numbers of microbatches (4-64), costs and latency are dealt out over them from shuffled decks, so that each occurs
equally often. Costs: all 1; those of four GPTs (models/gpt-*.toml); and uneven ones, F = I = 10 and W = 6, with one slow
stage, with a heavy first and last stage, or random. Latency: none, or real (the GPT's own, else 3 % of a forward).

    python scripts/benchmark.py --seed 1

Every result is a line of ``scripts/results/proof-1.jsonl``, and ``proof-1.md`` beside it says how far the aims are reached and
what stayed open. A run that was cut short goes on where it stopped when the same command is given again; only the summary is
made where all is there. Instances whose proof is aimed at have ``--time-limit`` seconds, those beyond ``--beyond``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib.metadata import version
from itertools import cycle, product
from pathlib import Path
from typing import Any

from ppopt.bounds import Objective
from ppopt.files import read_model
from ppopt.heuristics import baselines
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Schedule
from ppopt.search import Result, solve
from ppopt.timing import time_order

PLACEMENTS = (("linear", 1), ("loop", 2), ("wave", 2), ("wave", 4))
DEVICES = ((2, 3, 4), (5, 6, 7, 8), (9, 10, 12, 14, 16))
SHARES = (1.0, 0.75, 0.5)
OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")
MICROBATCHES = (4, 6, 8, 12, 16, 24, 32, 48, 64)
GPTS = ("gpt-1.5b", "gpt-6.2b", "gpt-14.6b", "gpt-28.3b")
COSTS = ("unit", "unit", *GPTS, "slow stage", "heavy ends", "random")
MODELS = Path(__file__).parents[1] / "models"
RESULTS = Path(__file__).parent / "results"

Tree = dict[str, Any]


@dataclass(frozen=True)
class Instance:
    """What is solved. ``seed`` fixes the uneven costs."""

    placement: str
    chunks: int
    devices: int
    microbatches: int
    share: float
    costs: str
    latency: bool
    objective: Objective
    seed: int

    def __str__(self) -> str:
        latency = "latency" if self.latency else "no latency"
        size = f"{self.placement} v={self.chunks} D={self.devices} M={self.microbatches}"
        return f"{size} limit {self.share:g}, {self.costs}, {latency}, {self.objective}"

    def pipeline(self) -> Pipeline:
        """The pipeline, its limit a share of 1F1B's memory and no less than one microbatch needs."""
        costs, latency, retained = self._costs()
        memory = Memory(
            activation=Fraction(1, self.chunks) if costs.per == "stage" else 1,
            retained=retained / self.chunks if costs.per == "stage" and retained is not None else retained,
            limit=max(Fraction(1), Fraction(str(self.share)) * min(self.devices, self.microbatches)),
        )
        return Pipeline(
            self.devices,
            self.microbatches,
            placement=self.placement,
            chunks=self.chunks,
            costs=costs,
            links=Links(latency if self.latency else 0),
            memory=memory,
        )

    def _costs(self) -> tuple[Costs, Any, Fraction | None]:
        """Costs, latency, and what of an activation is retained until W."""
        if self.costs == "unit":
            return Costs(), Fraction("0.03"), None
        if self.costs in GPTS:
            model = read_model(str(MODELS / f"{self.costs}.toml")).pipeline
            return model.costs, model.links.latency, Fraction(model.memory.retained)
        rng, stages = random.Random(self.seed), self.devices * self.chunks
        forward, backward_input, backward_weight = [10] * stages, [10] * stages, [6] * stages
        if self.costs == "slow stage":
            slow = rng.randrange(stages)
            forward[slow], backward_input[slow], backward_weight[slow] = 15, 15, 9
        elif self.costs == "heavy ends":
            for end in (0, stages - 1):
                forward[end], backward_input[end], backward_weight[end] = 14, 16, 10
        else:
            forward, backward_input = ([rng.randint(8, 12) for _ in range(stages)] for _ in range(2))
            backward_weight = [rng.randint(4, 8) for _ in range(stages)]
        costs = Costs(per="stage", forward=forward, backward_input=backward_input, backward_weight=backward_weight)
        return costs, Fraction("0.3"), Fraction("0.366")


def instances(seed: int) -> list[Instance]:
    """The set of a seed."""
    rng = random.Random(seed)
    cells = list(product(PLACEMENTS, DEVICES, SHARES, OBJECTIVES))
    decks = [_deck(rng, values, len(cells)) for values in (MICROBATCHES, COSTS, (False, True))]
    return [
        Instance(placement, chunks, rng.choice(devices), microbatches, share, costs, latency, objective, rng.randrange(2**31))
        for ((placement, chunks), devices, share, objective), microbatches, costs, latency in zip(cells, *decks, strict=True)
    ]


def _deck(rng: random.Random, values: Sequence[Any], length: int) -> list[Any]:
    """Each value equally often, up to one, in random order."""
    deck = [value for value, _ in zip(cycle(rng.sample(values, len(values))), range(length), strict=False)]
    rng.shuffle(deck)
    return deck


def run(instance: Instance, time_limit: float, workers: int | None) -> Tree:
    """Solve one instance. Times are in the units of the pipeline."""
    pipeline = instance.pipeline()
    begun = time.monotonic()
    result = solve(pipeline, objective=instance.objective, seconds=time_limit, workers=workers)
    seconds = time.monotonic() - begun
    baseline, name = best_baseline(pipeline, result)
    return {
        "instance": asdict(instance),
        "time_limit": time_limit,
        "baseline": None if baseline is None else pipeline.time(baseline),
        "baseline_name": name,
        "value": result.value,
        "lower_bound": result.lower_bound,
        "work": pipeline.time(int(pipeline.work.max())),
        "reason": result.reason,
        "proved_by": result.proved_by,
        "seconds": round(seconds, 2),
    }


def best_baseline(pipeline: Pipeline, result: Result) -> tuple[int | None, str]:
    """The best of the named schedules of this placement and of greedy list scheduling, within the memory limit."""
    rows: list[tuple[str, Schedule]] = [
        (row.name, time_order(pipeline, row.schedule.order))
        for row in result.named
        if row.schedule is not None and row.schedule.pipeline.routes == pipeline.routes
    ]
    fitting = [
        (schedule.objective(result.objective), name) for name, schedule in (*rows, *baselines(pipeline)) if schedule.within_memory
    ]
    return min(fitting, default=(None, ""))


# --- what is printed ---------------------------------------------------------------------------------------------


def gap(row: Tree) -> float:
    """``(value - lower bound) / value``; 1 without a value."""
    if row["value"] is None:
        return 1.0
    return (row["value"] - row["lower_bound"]) / row["value"] if row["value"] else 0.0


def idle_gap(row: Tree) -> float:
    """``(value - lower bound) / (value - work)``: how much of the idle time might be avoidable."""
    if row["value"] is None:
        return 1.0
    idle = row["value"] - row["work"]
    return (row["value"] - row["lower_bound"]) / idle if idle > 0 else 0.0


def line(row: Tree) -> str:
    """One instance: baseline, result, bound, reason, gap, seconds, proving argument."""

    def figure(value: float | None) -> str:
        return "-" if value is None else f"{value:.7g}"

    figures = " ".join(f"{figure(row[key]):>9}" for key in ("baseline", "value", "lower_bound"))
    name = str(Instance(**row["instance"]))
    proved = f"{row['reason']} ({row['proved_by']})"
    return f"{name:70} {figures} {100 * gap(row):6.2f} % {row['seconds']:7.1f} s  {proved}"


@dataclass(frozen=True)
class Aim:
    """What is aimed at within a minute: a proof of every instance of a class, or at least a small ``gap``."""

    title: str
    objective: Objective
    least: int
    most: int
    microbatches: int
    gap: float

    def of(self, row: Tree) -> bool:
        """Whether it is about this result."""
        instance = Instance(**row["instance"])
        sizes = self.least <= instance.devices <= self.most and instance.microbatches <= self.microbatches
        return instance.objective == self.objective and sizes


AIMS = (
    Aim("makespan, D <= 8, M <= 32: proved", "makespan", 1, 8, 32, 0.0),
    Aim("makespan, D > 8: proved or within 1 %", "makespan", 9, 16, 64, 0.01),
    Aim("device span, D <= 4: proved", "span", 1, 4, 64, 0.0),
    Aim("device span, D 5-8: proved or within 2 %", "span", 5, 8, 64, 0.02),
)


def is_aim(row: Tree) -> bool:
    """Whether a proof within a minute is aimed at."""
    return any(aim.of(row) for aim in AIMS if not aim.gap)


def classes() -> Iterator[tuple[str, Callable[[Tree], bool]]]:
    """The rows of the summary: what they are called, and which results they take."""

    def has(**wanted: Any) -> Callable[[Tree], bool]:
        return lambda row: all(row["instance"][key] == value for key, value in wanted.items())

    for objective in OBJECTIVES:
        of = has(objective=objective)
        yield objective, of
        yield f"  {'D <= 8, M <= 32' if objective == 'makespan' else 'D <= 4'}", lambda row, of=of: of(row) and is_aim(row)
        for placement, chunks in PLACEMENTS:
            yield f"  {placement} v={chunks}", has(objective=objective, placement=placement, chunks=chunks)
        for sizes in DEVICES:
            title = f"  D {sizes[0]}-{sizes[-1]}"
            yield title, lambda row, of=of, sizes=sizes: of(row) and row["instance"]["devices"] in sizes
        for share in SHARES:
            yield f"  limit {share:g}", has(objective=objective, share=share)


def summary(rows: Sequence[Tree]) -> str:
    """By class: how many are proved optimal, median seconds, largest gap and idle gap, how many beat their baseline."""
    lines = [f"{'class':22} {'proved':>9} {'median':>9} {'worst gap':>10} {'idle gap':>9} {'improved':>9}"]
    for title, belongs in classes():
        chosen = [row for row in rows if belongs(row)]
        if chosen:
            proved = sum(row["reason"] == "optimal" for row in chosen)
            better = sum(row["value"] is not None and row["value"] < (row["baseline"] or float("inf")) for row in chosen)
            median = statistics.median(row["seconds"] for row in chosen)
            worst, idle = (100 * max(map(of, chosen)) for of in (gap, idle_gap))
            share = f"{proved}/{len(chosen)}"
            lines.append(f"{title:22} {share:>9} {median:>7.1f} s {worst:>8.2f} % {idle:>7.1f} % {better:>9}")
    return "\n".join(lines)


def report(rows: Sequence[Tree], command: str) -> str:
    """The summary as Markdown: the aims, the classes, and every instance that stayed open with its gap and idle gap."""
    lines = ["# Time to proof", "", f"    {command}", ""]
    versions = ", ".join(f"{name} {version(name)}" for name in ("ppopt-pipeline", "ortools"))
    lines += [f"{len(rows)} instances; Python {platform.python_version()}, {versions}, {os.cpu_count()} cores.", ""]
    lines += ["| aim | reached | median seconds | longest |", "|---|---|---|---|"]
    for aim in AIMS:
        chosen = [row for row in rows if aim.of(row)]
        if chosen:
            reached = sum(gap(row) <= aim.gap for row in chosen)
            seconds = [row["seconds"] for row in chosen]
            lines.append(f"| {aim.title} | {reached}/{len(chosen)} | {statistics.median(seconds):.1f} | {max(seconds):.1f} |")
    lines += ["", "```", summary(rows), "```", ""]
    left = sorted((row for row in rows if row["reason"] != "optimal"), key=gap)
    if left:
        lines += [f"Open: {len(left)}", "", "| instance | baseline | value | bound | gap | idle gap | seconds |"]
        lines.append("|---|---|---|---|---|---|---|")
    for row in left:
        figures = ["-" if row[key] is None else f"{row[key]:.7g}" for key in ("baseline", "value", "lower_bound")]
        gaps = [f"{100 * gap(row):.2f} %", f"{100 * idle_gap(row):.1f} %"]
        lines.append(f"| {' | '.join([str(Instance(**row['instance'])), *figures, *gaps, format(row['seconds'], '.1f')])} |")
    return "\n".join(lines) + "\n"


# --- the file ----------------------------------------------------------------------------------------------------


def read(path: Path | None) -> list[Tree]:
    """The results of a file, but for a last line that a killed run left unfinished."""
    if path is None or not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    if lines[-1]:
        path.write_text("".join(f"{text}\n" for text in lines[:-1]), encoding="utf-8")
    return [json.loads(text) for text in lines[:-1]]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the set (1)")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for an instance whose proof is aimed at (60)")
    parser.add_argument("--beyond", type=float, default=10.0, help="seconds for every other instance (10)")
    parser.add_argument("--workers", type=int, help="threads of the solver (all cores)")
    parser.add_argument("--quick", action="store_true", help="only the smallest instances, a second each")
    parser.add_argument("--match", default="", help='only instances with this in their name, such as "wave v=2"')
    parser.add_argument(
        "-o", "--output", type=Path, help="the file of results (scripts/results/proof-SEED.jsonl; none with --quick or --match)"
    )
    options = parser.parse_args(argv)
    output: Path | None = options.output
    if output is None and not (options.quick or options.match):
        output = RESULTS / f"proof-{options.seed}.jsonl"
        output.parent.mkdir(exist_ok=True)
    chosen: Iterable[Instance] = [each for each in instances(options.seed) if options.match in str(each)]
    limits = {True: options.time_limit, False: options.beyond}
    if options.quick:
        limits = {aim: min(limit, 1.0) for aim, limit in limits.items()}
        chosen = [each for each in chosen if each.devices <= 4 and each.microbatches <= 12]
    known = {str(Instance(**row["instance"])) + str(row["instance"]["seed"]): row for row in read(output)}
    rows = []
    for instance in chosen:
        row = known.get(str(instance) + str(instance.seed))
        if row is None:
            row = run(instance, limits[is_aim({"instance": asdict(instance)})], options.workers)
            if output is not None:
                with output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
        rows.append(row)
        print(line(row), flush=True)
    print()
    if not rows:
        sys.exit("no instance has such a name")
    print(summary(rows))
    if output is not None:
        given = " ".join(sys.argv[1:] if argv is None else argv)
        output.with_suffix(".md").write_text(report(rows, f"python scripts/benchmark.py {given}".rstrip()), encoding="utf-8")


if __name__ == "__main__":
    main()
