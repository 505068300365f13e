"""A gallery: the pictures that the field's projects show of their schedules, one file each.

Sizes and times are those of PP-Emulation's README (a forward 1, a backward 2 per stage, a pair 3) and of parallelsim's
notebook (6 stages, 12 microbatches); V-Half, V-Min, Chimera and ZB-H2 are added, and one run of 1024 microbatches.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ppopt.named import find
from ppopt.pictures.figure import figure, save
from ppopt.pipeline import Costs, Pipeline
from ppopt.schedule import Schedule

STAGE = Costs(per="stage", forward=1, backward_input=1, backward_weight=1, overlap=3)
PICTURES: dict[str, tuple[str, int, int, int | None]] = {
    "1f1b": ("1f1b", 4, 8, None),
    "interleaved": ("interleaved-1f1b", 4, 8, 2),
    "zb1p": ("zb-h1", 4, 8, None),
    "dualpipe": ("dualpipe", 8, 20, None),
    "1f1b-overlap": ("1f1b-overlap", 4, 8, None),
    "interleaved-overlap": ("interleaved-1f1b-overlap", 4, 8, 2),
    "gpipe-6-stages": ("gpipe", 6, 12, None),
    "dualpipe-v": ("dualpipe-v", 4, 10, None),
    "hanayo": ("hanayo", 8, 8, 2),
    "chimera": ("chimera", 8, 8, None),
    "zb-h2": ("zb-h2", 4, 8, None),
    "zb-v": ("zb-v", 4, 8, None),
    "v-half": ("v-half", 4, 8, None),
    "v-min": ("v-min", 4, 8, None),
    "1f1b-32-devices": ("1f1b", 32, 64, None),
    "zb-h1-1024-microbatches": ("zb-h1", 8, 1024, None),
}
"""File -> schedule, devices, microbatches, chunks."""


def schedule(name: str) -> Schedule:
    """The schedule of a picture."""
    known, devices, microbatches, chunks = PICTURES[name]
    definition = find(known)
    placed = definition.place(Pipeline(devices, microbatches), chunks)
    return definition.schedule(placed.changed(costs=STAGE), placed.chunks)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("studies"), help="folder for the pictures (studies)")
    parser.add_argument("--suffix", default="png", choices=["png", "svg", "pdf"], help="of the files (png)")
    parser.add_argument("--memory", action="store_true", help="with the memory of each device over time")
    parser.add_argument("--quick", action="store_true", help="only the first four")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    for name in list(PICTURES)[: 4 if args.quick else None]:
        path = args.output / f"gallery-{name}.{args.suffix}"
        save(figure([(name, schedule(name))], memory=args.memory), str(path))
        print(path)


if __name__ == "__main__":
    main()
