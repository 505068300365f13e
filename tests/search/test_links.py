"""Solving where transfers hold links."""

import json

from ppopt.checker import violations
from ppopt.files.result import json_text, result_dict
from ppopt.pipeline import Links, Memory, Pipeline
from ppopt.search import solve


def test_solve_takes_links() -> None:
    pipeline = Pipeline(3, 4, links=Links(0.5, 1, True, [[[0, 1], [1, 2]]]), memory=Memory(limit=3))
    result = solve(pipeline, seconds=20, workers=1)
    assert result.schedule is not None
    assert violations(pipeline, result.schedule) == []
    free = solve(pipeline.changed(links=pipeline.links.uncontended()), seconds=20, workers=1)
    assert free.value is not None
    assert result.value is not None
    assert free.lower_bound <= result.value
    assert json.loads(json_text(result_dict(result)))["schedule"]["transfers"]
