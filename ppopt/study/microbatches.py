"""The same pipeline with different numbers of microbatches, computed together.

A schedule with a period that is found for one number is where the search for the next begins; so the first takes the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ppopt.files import Model, result_dict
from ppopt.files.result import row_dict
from ppopt.pipeline import Pipeline
from ppopt.search import Result, solve


def over_microbatches(
    pipeline: Pipeline, counts: Iterable[int], *, progress: Callable[[Result], None] | None = None, **search: Any
) -> tuple[Result, ...]:
    """A result for each number of microbatches, ascending. ``search`` is for :func:`ppopt.search.solve`, its time limit for each.

    ``progress`` is called with every result as it is found. A search that is interrupted is the last.
    """
    results: list[Result] = []
    periodic = None
    for count in sorted(set(counts)):
        result = solve(pipeline.changed(microbatches=count), periodic=periodic, **search)
        periodic = result.periodic or periodic
        results.append(result)
        if progress is not None:
            progress(result)
        if result.limit == "interrupted":
            break
    return tuple(results)


def microbatches_dict(results: tuple[Result, ...]) -> dict[str, Any]:
    """The results as the tree of a JSON file: points with microbatches, result, schedule, metrics; the last one's named rows."""
    trees = [result_dict(Model(result.pipeline), result=result) for result in results]
    return {
        **{key: trees[-1][key] for key in ("ppopt", "format", "model")},
        "objective": results[-1].objective,
        "points": [
            {"microbatches": result.pipeline.microbatches, **{key: tree[key] for key in ("result", "metrics", "schedule")}}
            for result, tree in zip(results, trees, strict=True)
        ],
        "named": [row_dict(row) for row in results[-1].named],
    }
