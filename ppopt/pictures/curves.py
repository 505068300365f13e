"""Curves over a parameter: bubble ratio or time against devices, latency, microbatches, …"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from ppopt.pictures.palette import MARKERS, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def curves(
    x: Sequence[float],
    series: Mapping[str, Sequence[float | None]],
    ax: Axes,
    *,
    xlabel: str,
    ylabel: str = "bubble ratio",
    log: bool = False,
) -> Axes:
    """Draw one line per series over ``x``; ``None`` is a gap (there is no such schedule).

    Each series has its own colour, marker and dashes, so that none is told by colour alone; one called ``optimal`` is black
    and thick. Ratios (``ylabel`` ends in "ratio") are shown in percent. The x axis shows the values of ``x`` themselves,
    evenly spaced in their logarithm where each is the same multiple of the one before.
    """
    for k, (name, values) in enumerate(series.items()):
        y = [np.nan if value is None else value for value in values]
        optimal = name.startswith("optimal")
        ax.plot(
            x,
            y,
            label=name,
            color="black" if optimal else SERIES[k % len(SERIES)],
            marker="" if optimal else MARKERS[k % len(MARKERS)],
            linestyle="-" if optimal else ("-", "--", "-.", ":")[k % 4],
            linewidth=2.2 if optimal else 1.3,
            markersize=5,
            zorder=1 if optimal else 2,
        )
    if len(x) > 2 and x[0] > 0 and all(abs(b / a - x[1] / x[0]) < 1e-9 for a, b in pairwise(x)):
        ax.set_xscale("log", base=2)
    ax.set_xticks(list(x), [f"{value:.4g}" for value in x])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    if log:
        logarithmic(ax)
    elif ylabel.endswith("ratio"):
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        ax.set_ylim(bottom=0)
    ax.grid(alpha=0.3)
    return ax


def logarithmic(ax: Axes) -> None:
    """A logarithmic y axis with plain numbers."""
    ax.set_yscale("log")
    for set_formatter in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        set_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    ax.yaxis.set_minor_locator(LogLocator(subs=(1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8)))
