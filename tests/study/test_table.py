"""Rows of results: which are shown, and in which order."""

import pytest

from ppopt.study.store import Stored
from ppopt.study.table import chosen, rows_of

ROWS = [
    {"study": "s", "position": 0, "plan.tensor": 1, "schedule": "1f1b", "makespan": 30, "fits": True},
    {"study": "s", "position": 1, "plan.tensor": 2, "schedule": "zb-v", "makespan": 20.5, "fits": False},
    {"study": "s", "position": 2, "plan.tensor": 4, "schedule": "1f1b", "makespan": None, "fits": True},
]


@pytest.mark.parametrize(
    ("where", "places"),
    [
        (["makespan<=30"], [0, 1]),
        (["makespan<30"], [1]),
        (["schedule=1f1b"], [0, 2]),
        (["schedule!=1f1b"], [1]),
        (["plan.tensor>1", "tensor<4"], [1]),
        (["fits=yes"], [0, 2]),
        (["schedule=30"], []),
    ],
)
def test_conditions(where: list[str], places: list[int]) -> None:
    assert [row["position"] for row in chosen(ROWS, where)] == places


def test_what_has_no_value_comes_last() -> None:
    assert [row["position"] for row in chosen(ROWS, sort=["makespan"])] == [1, 0, 2]
    assert [row["position"] for row in chosen(ROWS, sort=["-makespan"])] == [0, 1, 2]
    assert [row["position"] for row in chosen(ROWS, sort=["schedule", "-tensor"], top=2)] == [2, 0]


def test_what_cannot_be_asked() -> None:
    with pytest.raises(ValueError, match="there is no column 'nosuch'"):
        chosen(ROWS, sort=["nosuch"])
    with pytest.raises(ValueError, match="expected a condition"):
        chosen(ROWS, ["makespan"])


def test_relative_efficiency_is_among_results_of_one_pipeline_that_fit() -> None:
    """The fastest that fits takes 20; what does not fit is faster, and no result of another pipeline counts."""

    def stored(changes: dict[str, int], **outcome: object) -> Stored:
        return Stored("", "s", 0, changes, {"schedule": "1f1b"}, {}, "done", outcome, 0.0, "")

    one, two = {"pipeline.microbatches": 4}, {"pipeline.microbatches": 8}
    rows = rows_of(
        [
            stored(one, makespan=25, within_memory=True),
            stored(one, makespan=20),
            stored(one, makespan=16, within_memory=False),
            stored(one, reason="infeasible"),
            stored(two, makespan=60, within_memory=True),
        ]
    )
    assert [row.get("relative_efficiency") for row in rows] == [0.8, 1.0, 1.25, None, 1.0]
