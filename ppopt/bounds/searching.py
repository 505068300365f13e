"""A search of CP-SAT that Ctrl-C ends; for the bounds and for the solvers above them."""

from __future__ import annotations

import threading
from typing import Any


def search(solver: Any, model: Any, callback: Any = None) -> tuple[Any, bool]:
    """Solve, and whether Ctrl-C stopped it. CP-SAT swallows the signal, so it searches in another thread.

    ``solver`` is a ``CpSolver``, ``callback`` one for its solutions. What the search raises is raised again.
    """
    solver.parameters.catch_sigint_signal = False  # its own handler would swallow Ctrl-C, or abort the process
    result: list[Any] = []
    done = threading.Event()

    def work() -> None:
        try:
            result.append(solver.solve(model, callback))
        except BaseException as error:  # handed on to the caller's thread
            result.append(error)
        finally:
            done.set()

    threading.Thread(target=work, daemon=True).start()
    interrupted = False
    while not done.is_set():
        try:
            done.wait(0.1)  # not for ever: the signal may go to another thread, and then does not end the wait
        except KeyboardInterrupt:
            interrupted = True
        if interrupted:
            solver.stop_search()  # without effect before the search has begun, so again and again
    (status,) = result
    if isinstance(status, BaseException):
        raise status
    return status, interrupted
