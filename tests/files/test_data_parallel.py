"""Data-parallel traffic in files."""

import json

import pytest

from ppopt.files.model import ModelError, model_of_text, read_model
from ppopt.files.model_tree import model_dict
from ppopt.pipeline import DataParallel
from tests.support.places import MODELS


def test_files() -> None:
    pipeline = read_model(str(MODELS / "zero-1.toml")).pipeline
    assert pipeline.data_parallel == DataParallel(54, 54)
    text = json.dumps(model_dict(read_model(str(MODELS / "zero-1.toml"))))
    expected = {"all_gather": 54, "reduce_scatter": 54, "overlap": False, "per": "device"}
    assert json.loads(text)["data_parallel"] == expected
    assert "data_parallel" not in model_dict(read_model(str(MODELS / "gpt-6.2b.toml")))
    start = "[pipeline]\ndevices = 2\nmicrobatches = 2\n[data_parallel]\n"
    for line, message in (
        ("all_gather = [1, 2, 3]", r"data_parallel\.all_gather: expected one number or a list of 2"),
        ("all_gathr = 1", r"data_parallel\.all_gathr.*all_gather"),
        ("reduce_scatter = -1", r"data_parallel\.reduce_scatter"),
        ("overlap = 1", r"data_parallel\.overlap: expected true or false"),
        ('per = "chunk"', r'data_parallel\.per: expected "device" or "stage"'),
        (
            'per = "stage"\nall_gather = [1, 2, 3]',
            r"data_parallel\.all_gather: expected one number or a list of 2 \(one per stage\)",
        ),
    ):
        with pytest.raises(ModelError, match=message):
            model_of_text(start + line, "test")
