"""The optimizer step in files and pictures, and on other placements."""

from __future__ import annotations

from pathlib import Path

import ppopt as pp
from ppopt.files.chrome_trace import trace_lines
from ppopt.pictures.gantt import legend_handles
from ppopt.pipeline import Pipeline


def test_in_files_on_other_placements_and_in_pictures(tmp_path: Path) -> None:
    file = tmp_path / "model.toml"
    file.write_text("[pipeline]\ndevices = 2\nmicrobatches = 3\n[costs]\noptimizer = [1, 2.5]\n")
    pipeline = pp.read_model(str(file)).pipeline
    assert [float(step) for step in pipeline.costs.optimizer] == [1, 2.5]
    assert pipeline.placed("loop", 2).ticks.tail[:, 0].tolist() == [[2, 5, 2, 5]]
    result = pp.solve(pipeline, seconds=5)
    assert result.schedule is not None
    labels = legend_handles([result.schedule])[1]
    assert "before the first and after the last operation" in labels
    trace = "".join(trace_lines(result.schedule))
    assert trace.count("after the last operation") == 2
    plain = pp.compare(Pipeline(2, 3))["gpipe"].makespan
    assert plain is not None
    assert pp.compare(pipeline)["gpipe"].makespan == plain + 1  # device 1 ends a forward and a backward before device 0
