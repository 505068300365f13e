"""The zero-bubble papers' tables of bubble rates, beside what ppopt's named schedules give.

The bubble rate is 1 - work / device span. Linear: arXiv 2401.10241, milliseconds per microbatch and device. V: the comparison
with ZB-V on branch arxiv of sail-sg/zero-bubble-pipeline-parallelism, milliseconds per chunk; its linear schedules take twice
as long, with the same latency. Each cell is "ours (printed)".

1F1B, ZB-H1 and ZB-H2 must be within 1e-4 of the printed figures, which have four digits and come from rounded costs; ZB-1P,
ZB-2P and ZB-V no worse than printed, to the same digits. The limits of ZB-1P and ZB-2P count memory as their authors do: of an
activation the share ``retained`` stays after the input gradient (with all of it, ZB-2P idles more). ZB-V is the variant that
adapts to the costs. The papers' interleaved column is a closed form of the authors, not a schedule; it is shown beside the
figure of the real order, which is larger.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ppopt.named import find
from ppopt.pipeline import Costs, Links, Memory, Pipeline

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Row:
    """A line of the papers' tables: sizes, times, the share of an activation retained after the input gradient, the number of
    chunks in the authors' form for interleaving, and the bubble rates that they print, by schedule."""

    devices: int
    microbatches: int
    times: tuple[str, str, str]
    latency: str
    chunks: int
    printed: dict[str, float]
    model: str = ""
    retained: str = "1"

    @property
    def v(self) -> bool:
        """Whether the times are of a chunk of a V."""
        return "zb-v" in self.printed

    def pipeline(self) -> Pipeline:
        """The pipeline, with times per device."""
        forward, input_, weight = (Fraction(time) * (2 if self.v else 1) for time in self.times)
        return Pipeline(
            self.devices,
            self.microbatches,
            costs=Costs(forward=forward, backward_input=input_, backward_weight=weight),
            links=Links(Fraction(self.latency)),
            memory=Memory(retained=Fraction(self.retained)),
        )

    def form(self) -> float:
        """The authors' form for interleaving."""
        pipeline, D, v = self.pipeline(), self.devices, self.chunks
        costs = pipeline.costs
        assert isinstance(costs.forward, Fraction)
        assert isinstance(costs.backward_input, Fraction)
        assert isinstance(costs.backward_weight, Fraction)
        work = costs.forward + costs.backward_input + costs.backward_weight
        idle = (D - 1) * work / v + (2 * D * (v - 1) + D - 2) * Fraction(self.latency)
        return float(idle / (self.microbatches * work + idle))


def _linear(model: str, retained: str, sizes: str, times: str, chunks: int, *printed: float) -> Row:
    names = ("1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p")
    return _row(sizes, times, chunks, dict(zip(names, printed, strict=True)), model=model, retained=retained)


def _v(sizes: str, times: str, *printed: float) -> Row:
    names = ("1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-v")
    return _row(sizes, times, 2, dict(zip(names, printed, strict=True)))


def _row(sizes: str, times: str, chunks: int, printed: dict[str, float], **more: Any) -> Row:
    devices, microbatches = map(int, sizes.split())
    forward, input_, weight, latency = times.split()
    return Row(devices, microbatches, (forward, input_, weight), latency, chunks, printed, **more)


ROWS = (
    _linear("1.5B", ".366", "8 24", "18.522 18.086 9.337 .601", 3, 0.2431, 0.1055, 0.1585, 0.1083, 0.1585, 0.0433),
    _linear("6.2B", ".432", "8 24", "29.718 29.444 19.927 .527", 4, 0.2347, 0.0808, 0.1323, 0.0698, 0.1323, 0.0029),
    _linear("6.2B", ".432", "8 32", "29.802 29.428 19.530 .577", 4, 0.1898, 0.0628, 0.1045, 0.0559, 0.1045, 0.0022),
    _linear("6.2B", ".432", "8 64", "29.935 29.621 19.388 .535", 4, 0.1091, 0.0320, 0.0554, 0.0294, 0.0554, 0.0010),
    _linear("14.6B", ".44", "16 64", "11.307 11.254 8.101 .379", 3, 0.2082, 0.0852, 0.1088, 0.0516, 0.1088, 0.0054),
    _linear("28.3B", ".432", "32 96", "10.419 10.207 7.715 .408", 2, 0.2646, 0.1493, 0.1421, 0.0641, 0.1421, 0.0038),
    _linear("28.3B", ".432", "32 128", "10.408 10.204 7.703 .408", 2, 0.2168, 0.1164, 0.1106, 0.0490, 0.1106, 0.0029),
    _v("16 48", "14.407 14.380 9.676 1.610", 0.2668, 0.1499, 0.1536, 0.0823, 0.0697),
    _v("24 72", "6.763 6.969 5.251 .755", 0.2699, 0.1519, 0.1439, 0.0628, 0.0638),
    _v("24 96", "6.783 6.984 5.259 .758", 0.2229, 0.1184, 0.1121, 0.0480, 0.0483),
    _v("32 128", "9.469 9.744 7.306 .892", 0.2204, 0.1177, 0.1111, 0.0478, 0.0451),
    _v("32 256", "9.447 9.644 7.193 .887", 0.1362, 0.0626, 0.0593, 0.0251, 0.0236),
)
MATCHED = ("1f1b", "zb-h1", "zb-h2")
"""Compared both ways; the others may be better than printed."""
PARAMS: dict[str, dict[str, Any]] = {"zb-v": {"variant": "adapted"}}


def rates(row: Row) -> dict[str, float]:
    """The bubble rate of every schedule of the row."""
    pipeline, found = row.pipeline(), {}
    for name in row.printed:
        chunks = row.chunks if name == "interleaved-1f1b" else None
        found[name] = find(name).schedule(pipeline, chunks, **PARAMS.get(name, {})).span_bubble_ratio
    return found


def misses(row: Row, found: dict[str, float]) -> list[str]:
    """What is not as it must be, in words."""
    wrong = []
    for name, printed in row.printed.items():
        if name == "interleaved-1f1b":
            off = abs(row.form() - printed)
        else:
            off = abs(found[name] - printed) if name in MATCHED else found[name] - printed
        if off > TOLERANCE:
            wrong.append(f"{name} at D = {row.devices}, M = {row.microbatches}: off by {off:.5f}")
    return wrong


def line(row: Row, found: dict[str, float]) -> str:
    """One line of the printed table."""
    cells = [f"{row.model:6}{row.devices:3}{row.microbatches:4}"]
    for name, printed in row.printed.items():
        if name == "interleaved-1f1b":
            cells.append(f"{row.chunks} {found[name]:.4f} {row.form():.4f} ({printed:.4f})")
        else:
            cells.append(f"{found[name]:.4f} ({printed:.4f})")
    return "  ".join(cells)


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables; 1 where a figure is not as it must be."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments:
        print(__doc__)
        return 0 if arguments[0] in ("-h", "--help") else 2
    wrong: list[str] = []
    for title, rows in (
        ("Linear placement (ZB-1P, ZB-2P: automatic scheduler)", [row for row in ROWS if not row.v]),
        ("V placement (ZB-V adapted to the costs) beside the linear schedules", [row for row in ROWS if row.v]),
    ):
        print(f"\n{title}: ours (printed); interleaved: v, real order, authors' form (printed)")
        heads = [f"{name:>24}" if name == "interleaved-1f1b" else f"{name:>15}" for name in rows[0].printed]
        print(f"{'model':6}{'D':>3}{'M':>4}" + "  ".join(["", *heads]))
        for row in rows:
            found = rates(row)
            print(line(row, found), flush=True)
            wrong += misses(row, found)
    print("\nThe interleaved column of the papers is a closed form, idle = (D-1)(F+B)/v + (2D(v-1)+D-2) comm, not a schedule.")
    print("\n".join(wrong) if wrong else f"All figures as printed or better (to {TOLERANCE:g}).")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
