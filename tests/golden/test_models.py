"""The model files say at their top what their schedule takes, and it does."""

from pathlib import Path

import pytest

from ppopt.files import model_dict, read_model
from tests.support.command import read
from tests.support.places import MODELS


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.toml")), ids=lambda path: path.stem)
def test_models_say_what_their_schedule_takes(path: Path) -> None:
    """A model that stands for a schedule has room for it, and a comment that gives its makespan and peak.

    The limit is what the schedule needs; with layers, it is what the machine has.
    """
    model = read_model(str(path))
    name, limit = model.schedule, model_dict(model)["memory"]["limit"]
    assert name is not None
    layered = model.pipeline.layers is not None
    metrics = read("order", name, str(path), *(["--partition", "balanced"] if model.pipeline.partition == "best" else []))[
        "metrics"
    ]
    assert limit / 2 < max(metrics["peak_memory"]) <= limit if layered else max(metrics["peak_memory"]) == limit
    if path.stem == name:
        comment = " ".join(line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("#"))
        assert f"Makespan {metrics['makespan']} at a peak of {limit} activations" in comment
