"""The models of the solvers as text, for other programs to read and solve."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable

from ppopt.constraints import Word
from ppopt.pipeline import Pipeline

SOLVERS = ("cp-sat", "ilp")


def model_text(
    pipeline: Pipeline, words: Iterable[Word], *, solver: str, objective: str, lower: int, upper: int, horizon: int
) -> str:
    """The model that ``solver`` is given to minimise ``objective`` within ``lower..upper``, every end by ``horizon``, in ticks.

    ``"cp-sat"``: a ``CpModelProto`` of OR-Tools in the text format of protocol buffers. ``"ilp"``: a program in LP format.
    A comment in the first line says how many ticks a unit of time has.

    Raises:
        TypeError: a word that the solver does not know.
        ValueError: an unknown solver, or words that contradict each other.
        TooLarge: the program for the ILP would be too large.
    """
    build = {"cp-sat": _cpsat_text, "ilp": _ilp_text}.get(solver)
    if build is None:
        raise ValueError(f"solver: expected one of {', '.join(SOLVERS)}, got {solver!r}")
    comment = f"minimise the {objective}; {pipeline.ticks.per_unit} ticks are a unit of time"
    return build(pipeline, tuple(words), comment, objective=objective, lower=lower, upper=upper, horizon=horizon)


def _cpsat_text(pipeline: Pipeline, words: tuple[Word, ...], comment: str, **limits: int | str) -> str:
    from ppopt.cpsat.model import Model

    return f"# {comment}\n{Model(pipeline, words, **limits).model.proto}"  # type: ignore[arg-type]


def _ilp_text(pipeline: Pipeline, words: tuple[Word, ...], comment: str, **limits: int | str) -> str:
    import ortools.sat.python.cp_model  # noqa: F401 - see ppopt.ilp.engine

    from ppopt.ilp.program import Program

    program = Program(pipeline, words, **limits)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:  # PuLP writes to a path only
        path = os.path.join(folder, "model.lp")
        program.problem.writeLP(path)
        with open(path, encoding="utf-8") as file:
            return f"\\ {comment}\n{file.read()}"
