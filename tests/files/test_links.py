"""Transfers in result files, PyTorch files and traces."""

import json
from pathlib import Path

import pytest

from ppopt.checker import Rule, violations
from ppopt.files.checked import check_file
from ppopt.files.chrome_trace import trace_lines
from ppopt.files.exported import row_in, schedule_in
from ppopt.files.model import Model, read_model
from ppopt.files.result import document, json_text, result_dict
from ppopt.files.torch_export import for_torch, with_comms
from ppopt.search import solve
from ppopt.timing import left_shifted, time_order
from tests.support.links import listed, two
from tests.support.places import MODELS
from tests.support.tiers import thorough


def test_a_file_records_the_transfers(tmp_path: Path) -> None:
    schedule = two(latency=0.5, occupancy=1.5)
    tree = document(Model(schedule.pipeline), schedule=schedule)
    path = tmp_path / "result.json"
    path.write_text(json_text(tree))
    assert check_file(str(path), None) == []
    assert tree["schedule"]["transfers"][0]["order"] == ["0SEND_F0", "0SEND_F1", "0SEND_F2"]
    for change, rule in (
        (lambda line: line["start"].__setitem__(1, line["start"][0]), Rule.LINK),
        (lambda line: line["end"].__setitem__(1, line["end"][0]), Rule.DURATION),
        (lambda line: line["order"].__setitem__(1, "0SEND_F9"), Rule.UNKNOWN),
        (lambda line: line["order"].__setitem__(1, "0F1"), Rule.UNKNOWN),
        (lambda line: line["order"].__setitem__(1, "0SEND_F0"), Rule.TWICE),
        (lambda line: line["start"].__setitem__(0, -1), Rule.NEGATIVE),
    ):
        wrong = json.loads(json_text(tree))
        change(wrong["schedule"]["transfers"][0])
        path.write_text(json_text(wrong))
        assert rule in {v.rule for v in check_file(str(path), None)}
    del tree["schedule"]["transfers"]
    path.write_text(json_text(tree))
    assert Rule.MISSING in {v.rule for v in check_file(str(path), None)}


@pytest.mark.parametrize("name", ["two-sites", pytest.param("two-sites-v", marks=thorough)])
def test_files_keep_the_order_of_the_transfers(name: str, tmp_path: Path) -> None:
    model = read_model(str(MODELS / f"{name}.toml"))
    pipeline = model.pipeline
    result = solve(pipeline, seconds=30, workers=1)
    best = result.schedule
    assert best is not None
    path = tmp_path / "best.json"
    path.write_text(json_text(result_dict(result)))
    again = schedule_in(str(path))
    assert again.makespan == best.makespan < time_order(pipeline, best.order).makespan
    assert listed(again)[1] == listed(left_shifted(best))[1]
    row = row_in(str(path), pipeline)
    assert row.schedule is not None
    assert row.schedule.makespan == best.makespan

    runnable = for_torch(again).schedule
    assert violations(runnable.pipeline, runnable) == []
    assert runnable.makespan <= best.makespan
    for line, (row_, _) in zip(pipeline.lines, zip(*runnable.transfers, strict=True), strict=True):
        expected = [str(pipeline.index.op(number)) for number in row_.tolist()]
        for rank, actions in enumerate(with_comms(runnable)):
            sent = [str(a) for a in actions if "SEND" in str(a) and str(a) in expected]
            own = [text for text in expected if any(pair[0] == rank for pair in line) and text in sent]
            assert sent == own

    events = json.loads("".join(trace_lines(again)))["traceEvents"]
    slices = sorted(event["ts"] for event in events if event.get("cat") == "transfer" and event["ph"] == "X")
    assert slices == sorted(1000 * time for row_ in again.transfers.start for time in row_.tolist())
