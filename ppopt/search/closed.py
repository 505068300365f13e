"""The best schedule of one pipeline that leaves nothing open: the strategy, from what is known already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ppopt.bounds import Objective
from ppopt.interrupt import noting
from ppopt.named import Row
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.search.result import Result
from ppopt.search.settings import Settings
from ppopt.search.state import Search
from ppopt.search.strategy import run
from ppopt.timing import time_order

if TYPE_CHECKING:
    from ppopt.constraints import Word
    from ppopt.periodic import Periodic


def solve_closed(
    pipeline: Pipeline,
    objective: Objective = "makespan",
    settings: Settings | None = None,
    *,
    words: tuple[Word, ...] = (),
    beside: Callable[[], Sequence[Row]] = lambda: (),
    start: Schedule | None = None,
    lower_bound: int = 0,
    enough: int | None = None,
    periodic: Periodic | None = None,
    progress: Callable[[int | None, int], None] | None = None,
) -> Result:
    """The best schedule of ``pipeline`` that can be found within the ``settings``, and what is proved about it.

    ``words`` bind beside the rules. ``beside`` gives rows to show, and to begin from where they have this placement.
    What only saves work: ``start`` is a schedule of this pipeline to begin with, ``lower_bound`` a bound (ticks of the objective)
    that is known to hold, ``periodic`` what a result for other numbers of microbatches has (:attr:`Result.periodic`).
    ``enough``: only values below so many ticks are of interest; a bound that reaches it ends the search. ``progress`` is called
    with the best value and the bound, in ticks, whenever one improves, from any thread. Ctrl-C ends the search and keeps its
    best.

    Raises:
        TooLarge: the pipeline is too large for the ILP.
    """
    settings = settings or Settings()
    search = Search(
        pipeline,
        objective,
        words,
        settings.limits(),
        progress=progress,
        enough=enough,
        periodic=periodic,
    )
    if start is not None:
        known = search.obeying(start if start.pipeline == pipeline else time_order(pipeline, start.order))
        if known is not None and (search.pairs or not known.order.paired):
            search.found(known, "start")
    if lower_bound:
        search.prove(lower_bound, "a bound that was given")
    try:
        with noting():
            run(search, settings.solver, beside)
    except KeyboardInterrupt:
        search.interrupted = True
    return search.result()
