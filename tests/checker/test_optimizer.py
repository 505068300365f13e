"""The checker on the optimizer step."""

from __future__ import annotations

import json
from pathlib import Path

import ppopt as pp
from ppopt.pipeline import Costs, Pipeline


def test_a_longer_step_is_found_out_by_the_checker(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    pp.save(pp.solve(Pipeline(2, 3, costs=Costs(optimizer=(0, 2))), seconds=5), str(file))
    assert pp.check(str(file)) == []
    told = json.loads(file.read_text())
    told["model"]["costs"]["optimizer"] = [0, 3]
    file.write_text(json.dumps(told))
    assert any("makespan" in violation.message for violation in pp.check(str(file)))
