"""CrossPipe's optima."""

import json

from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import solve
from tests.support.places import DATA


def test_crosspipe_optima_are_reproduced_and_proved() -> None:
    entries = json.loads((DATA / "crosspipe_optima.json").read_text())
    assert len(entries) == 4
    for entry in entries:
        pipeline = Pipeline(
            entry["devices"],
            entry["microbatches"],
            costs=Costs(**{key: entry[key] for key in ("forward", "backward_input", "backward_weight")}),
            links=Links(entry["comm"]),
            memory=Memory(**{key: entry[key] for key in ("activation", "retained", "limit")}),
        )
        for solver in ("auto", "ilp"):
            result = solve(pipeline, objective="span", solver=solver, seconds=30, workers=1)
            assert (result.reason, result.value) == ("optimal", entry["device_span"])
