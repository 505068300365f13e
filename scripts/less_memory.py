"""The zero-bubble papers' configurations with their memory, and with three quarters and half of it.

    python scripts/less_memory.py                     # all twelve, 20 seconds per cell
    python scripts/less_memory.py --most-devices 8 --time-limit 60

Per row and memory: the bubble rate (1 - work / device span, the papers' measure) of the best named schedule of that placement
that fits, and of what ``solve`` finds or the best named one, whichever is better. Memory is a share of D activations, what 1F1B,
ZB-1P and ZB-V hold; ZB-2P holds twice that. The search minimises the makespan; behind it stands the least bubble ratio that its
bound leaves. The exit code is 1 where a found rate is above that of ZB-1P, ZB-2P or ZB-V at its memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fractions import Fraction

from bubble_tables import PARAMS, ROWS, TOLERANCE, Row

from ppopt.checker import violations
from ppopt.named import compare, find
from ppopt.pipeline import Memory
from ppopt.search import solve

SHARES = (Fraction(2), Fraction(3, 2), Fraction(1), Fraction(3, 4), Fraction(1, 2))


def cell(row: Row, share: Fraction, time_limit: float, workers: int | None) -> tuple[str, float | None]:
    """The text of a cell, and the best bubble rate."""
    plain = row.pipeline()
    memory = Memory(retained=plain.memory.retained, limit=share * row.devices)
    pipeline = plain.changed(memory=memory, **({"placement": "wave", "chunks": 2} if row.v else {}))
    result = solve(pipeline, seconds=time_limit, workers=workers, beside=compare(pipeline, params=PARAMS))
    named: dict[str, float] = {}
    for of in result.named:
        if of.schedule is not None and of.schedule.within_memory and of.schedule.pipeline.routes == pipeline.routes:
            named[of.name] = min(of.schedule.span_bubble_ratio, named.get(of.name, 1.0))
    rates = dict(named)
    if result.schedule is not None:
        assert not violations(pipeline, result.schedule)
        rates["found"] = result.schedule.span_bubble_ratio
    if not rates:
        return f"{float(share):4g}: nothing fits", None
    name = min(named, key=lambda name: named[name], default="-")
    bound = 1 - float(max(pipeline.work) / result.ticks.lower_bound)
    best = min(rates.values())
    known = f"{named[name]:.4f} {name}" if named else "none"
    return f"{float(share):4g}: {best:.4f} (named {known}; makespan at least {bound:.4f})", best


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 where a paper's schedule is better."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--most-devices", type=int, default=64)
    parser.add_argument("--shares", type=Fraction, nargs="+", default=SHARES)
    arguments = parser.parse_args(argv)
    worse = []
    for row in (row for row in ROWS if row.devices <= arguments.most_devices):
        print(f"{row.model or 'V':6} D = {row.devices}, M = {row.microbatches}", flush=True)
        for share in (share for share in arguments.shares if share <= (1 if row.v else 2)):
            text, best = cell(row, share, arguments.time_limit, arguments.workers)
            print(f"  {text}", flush=True)
            rivals = {Fraction(1): ("zb-v",) if row.v else ("zb-1p",), Fraction(2): ("zb-2p",)}.get(share, ())
            for name in rivals:
                rate = find(name).schedule(row.pipeline(), None, **PARAMS.get(name, {})).span_bubble_ratio
                if best is None or best > rate + TOLERANCE:
                    worse.append(f"{name} at D = {row.devices}, M = {row.microbatches}: {rate:.4f}")
    print("\n".join(["better than found:", *worse]) if worse else "Nowhere worse than ZB-1P, ZB-2P and ZB-V at their memory.")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
