"""Searches of CP-SAT that Ctrl-C ends; for the bounds and for the solvers above them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any


def search(solver: Any, model: Any, callback: Any = None) -> tuple[Any, bool]:
    """Solve, and whether Ctrl-C stopped it.

    ``solver`` is a ``CpSolver``, ``callback`` one for its solutions. What the search raises is raised again.
    """
    (status,), interrupted = search_all([(solver, model, callback)])
    return status, interrupted


def race(solvers: Sequence[Any], model: Any) -> tuple[list[Any], bool]:
    """Solve one model by several solvers until the first has ended: their statuses, and whether Ctrl-C stopped them."""
    models = [model, *(model.clone() for _ in solvers[1:])]  # threads share none
    return search_all([(*both, None) for both in zip(solvers, models, strict=True)], first_ends=True)


def search_all(searches: Sequence[tuple[Any, Any, Any]], *, first_ends: bool = False) -> tuple[list[Any], bool]:
    """Solve several at once, each a solver, a model and a callback (or ``None``); and whether Ctrl-C stopped them.

    ``first_ends``: the first that ends stops the others. CP-SAT swallows the signal, so it searches in other threads.
    """
    results: list[Any] = [None] * len(searches)
    ended = threading.Event()

    def work(place: int) -> None:
        try:
            solver, model, callback = searches[place]
            results[place] = solver.solve(model, callback)
        except BaseException as error:  # handed on to the caller's thread
            results[place] = error
        if first_ends or None not in results:
            ended.set()

    for solver, _, _ in searches:
        solver.parameters.catch_sigint_signal = False  # its own handler would swallow Ctrl-C, or abort the process
    threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(len(searches))]
    for thread in threads:
        thread.start()
    interrupted = False
    while any(thread.is_alive() for thread in threads):
        try:
            if interrupted or ended.is_set():
                time.sleep(0.001)
            else:
                ended.wait(0.1)  # not for ever: the signal may go to another thread, and then does not end the wait
        except KeyboardInterrupt:
            interrupted = True
        if interrupted or ended.is_set():
            for solver, _, _ in searches:
                solver.stop_search()  # without effect before the search has begun, so again and again
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results, interrupted
