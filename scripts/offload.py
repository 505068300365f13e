"""What copying activations to the host buys: the best makespan under limits of memory, with copies and without, with bounds.

    python scripts/offload.py -d 4 -m 8 --limits 1 2 3 --times 1 0.5 --seconds 60 --at 5 15 30
    python scripts/offload.py -d 4 8 -m 8 16 --limits 1 2 4 --times 1 0.5 --seconds 40 --at 5 15 30 --into docs/studies.md

Unit costs: F, I and W take 1 each, a microbatch holds 1 on every device, a copy takes the time given, each way, on an engine of
its own for each direction. Beside it stand the gaps that were left after some seconds, and the named schedule 1f1b with its
copies by sail's rule, with the memory that they need. ``--into`` puts the table into a page, between the lines
``<!-- copies -->`` and ``<!-- end of copies -->``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from proof_times import replaced

import ppopt as pp
from ppopt.named import find
from ppopt.pipeline import Memory, Number, Offload, Pipeline
from ppopt.search import Result
from ppopt.timing import time_order

MARKS = "<!-- copies -->", "<!-- end of copies -->"
"""Between these lines of a page stands the table."""


class Gaps:
    """The gap of a search over time: told of the best value and the bound, whenever one improves."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.told: list[tuple[float, float | None]] = []

    def __call__(self, value: Number | None, bound: Number) -> None:
        """Note the gap."""
        self.told.append((time.monotonic() - self.begun, None if value is None else 1 - float(bound) / float(value)))

    def after(self, seconds: float) -> str:
        """The gap that was left after that many seconds."""
        left = [gap for when, gap in self.told if when <= seconds]
        return "-" if not left or left[-1] is None else f"{100 * left[-1]:.1f} %"


def solved(
    devices: int, microbatches: int, limit: float, offload: Offload | None, seconds: float, workers: int, gaps: Gaps
) -> Result:
    """The answer at a limit of memory."""
    pipeline = Pipeline(devices, microbatches, memory=Memory(limit=limit), offload=offload)
    return pp.solve(pipeline, seconds=seconds, workers=workers, progress=gaps)


def sails(devices: int, microbatches: int, takes: float) -> str:
    """What 1f1b takes and holds with sail's copies."""
    pipeline = Pipeline(devices, microbatches, offload=Offload(time=takes, stages="sail"))
    schedule = time_order(pipeline, find("1f1b").order(pipeline))
    return f"{pipeline.time(schedule.makespan)} at {max(map(pipeline.amount, schedule.peak_memory))}"


def row(result: Result) -> str:
    """Value, bound, and how long it took."""
    gap = "-" if result.gap is None else f"{100 * result.gap:.1f} %"
    return f"{result.value} | {result.lower_bound} | {gap} | {result.reason} | {result.seconds:.0f}"


def rows(given: argparse.Namespace, devices: int, microbatches: int) -> Iterator[str]:
    """The rows of one size of pipelines, as they are found."""
    for limit in given.limits:
        for takes in (None, *given.times):
            offload, gaps = None if takes is None else Offload(time=takes), Gaps()
            result = solved(devices, microbatches, limit, offload, given.seconds, given.workers, gaps)
            beside = "" if takes is None else sails(devices, microbatches, takes)
            cells = [
                f"{devices}, {microbatches}",
                f"{limit:g}",
                "none" if takes is None else f"{takes:g}",
                row(result),
                *(gaps.after(seconds) for seconds in given.at),
                beside,
            ]
            yield f"| {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, and put it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-d", "--devices", type=int, nargs="+", default=[4])
    parser.add_argument("-m", "--microbatches", type=int, nargs="+", default=[8], help="one for each number of devices")
    parser.add_argument("--limits", type=float, nargs="+", default=[1, 2, 3])
    parser.add_argument("--times", type=float, nargs="+", default=[1, 0.5])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--at", type=float, nargs="*", default=[5, 15, 30], help="seconds after which the gap is shown")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--into", type=Path, help="a Markdown file whose table is replaced")
    given = parser.parse_args(argv)
    if len(given.devices) != len(given.microbatches):
        parser.error(f"expected as many --microbatches as --devices ({len(given.devices)}), got {len(given.microbatches)}")
    after = [f"gap after {seconds:g} s" for seconds in given.at]
    heads = ["D, M", "limit", "copy", "makespan", "bound", "gap", "", "seconds", *after, "1F1B, sail's copies"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    print(*lines, sep="\n", flush=True)
    for size in zip(given.devices, given.microbatches, strict=True):
        for line in rows(given, *size):
            lines.append(line)
            print(line, flush=True)
    if given.into is not None:
        text = given.into.read_text(encoding="utf-8")
        given.into.write_text(replaced(text, "\n".join(lines), MARKS), encoding="utf-8")


if __name__ == "__main__":
    main()
