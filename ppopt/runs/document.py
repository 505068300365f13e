"""A run as JSON (docs/result-json.md)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import ppopt
from ppopt.files.figures import metrics_dict, usage_dict
from ppopt.files.result import FORMAT, schedule_dict
from ppopt.runs.beside import Beside, Late, figures_of, shares
from ppopt.runs.run import Run
from ppopt.runs.timeline import RunSchedule, gaps_of, idle_of


def document(run: Run, measured: RunSchedule, found: Beside | None) -> dict[str, Any]:
    """A step of a run, and its plan; times in the unit of ``units.time``, those of the clocks in seconds."""
    pipeline = measured.pipeline
    metrics = metrics_dict(measured)
    idle = idle_of(measured)
    devices = zip(usage_dict(measured)["devices"], idle, strict=True)
    metrics["devices"] = [
        {**of, "idle": {str(cause): pipeline.time(ticks) for cause, ticks in why.items()}} for of, why in devices
    ]
    tree: dict[str, Any] = {
        "ppopt": ppopt.__version__,
        "format": FORMAT,
        "run": {
            "files": list(run.sources),
            "of": run.format,
            "devices": pipeline.devices,
            "microbatches": pipeline.microbatches,
            "stages": [list(stages) for stages in run.held],
            "step": run.step,
            "steps": [{"step": number, "seconds": length} for number, length in run.lengths.items()],
            "clocks": {
                "basis": run.clocks.basis.name.lower(),
                "fitted": run.clocks.fitted,
                "offsets": list(run.clocks.offsets),
                "uncertain": run.clocks.uncertain,
                "early": run.clocks.early,
            },
            "warnings": list(run.warnings),
        },
        "units": {"time": pipeline.units.time},
        "schedule": schedule_dict(measured),
        "metrics": metrics,
        "idle": [
            [{"from": pipeline.time(gap.since), "to": pipeline.time(gap.until), "cause": str(gap.cause)} for gap in row]
            for row in gaps_of(measured)
        ],
        "operations": [asdict(each) for each in (found.figures() if found else figures_of(measured))],
        "plan": None,
    }
    if found is not None:
        longer, between = shares(found.path)
        tree["plan"] = {
            "schedule": schedule_dict(found.plan),
            "metrics": metrics_dict(found.plan),
            "makespan": found.planned,
            "notes": list(found.notes),
            "late": [_late(each) for each in found.late],
            "path": [_late(each) for each in found.path],
            "path_longer": longer,
            "path_between": between,
        }
    return tree


def _late(each: Late) -> dict[str, Any]:
    waited = None if each.waited_for is None else {"op": each.waited_for, "device": each.waited_device, "late": each.waited_late}
    return {
        "op": each.op,
        "device": each.device,
        "planned": each.planned,
        "began": each.began,
        "late": each.late,
        "took": each.took,
        "planned_took": each.planned_took,
        "longer": each.longer,
        "between": each.between,
        "waited_for": waited,
        "planned_wait": list(each.planned_wait),
    }
