"""How DynaPipe puts sequences into microbatches: by a model of the time that a pipeline takes, with padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ppopt.sequences.bags import Bags


def dynapipe_cut(
    times: Sequence[float], devices: int, replicas: int = 1, chunks: int = 1, fits: Callable[[int], bool] = lambda count: True
) -> Bags:
    """DynaPipe's microbatches: the sequences by time, longest first, cut into runs so that
    ``(devices - 1) * longest / chunks + sum / replicas`` is least. ``fits``: whether so many sequences may be one microbatch.

    The time of a run is that of its longest sequence times their number: they are padded. Exact, by dynamic programming for each
    time that a run may have.

    Raises:
        ValueError: nothing fits.
    """
    order = sorted(range(len(times)), key=lambda i: (-times[i], i))
    run = [[times[order[a]] * (b - a) for b in range(len(order) + 1)] for a in range(len(order))]
    best: tuple[float, list[int]] | None = None
    for longest in sorted({run[a][b] for a in range(len(order)) for b in range(a + 1, len(order) + 1)}):
        least: list[tuple[float, int]] = [(0.0, 0)]
        for n in range(1, len(order) + 1):
            ways = [
                (least[i][0] + run[i][n], i) for i in range(n) if run[i][n] <= longest and fits(n - i) and least[i][0] < math.inf
            ]
            least.append(min(ways, default=(math.inf, 0)))
        value = (devices - 1) * longest / chunks + least[-1][0] / replicas
        if least[-1][0] < math.inf and (best is None or value < best[0]):
            cuts, n = [len(order)], len(order)
            while n:
                n = least[n][1]
                cuts.append(n)
            best = value, cuts[::-1]
    if best is None:
        raise ValueError("no run of sequences fits")
    return [order[a:b] for a, b in zip(best[1], best[1][1:], strict=False)]
