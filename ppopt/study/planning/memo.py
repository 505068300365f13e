"""What plans have found, in a store of results: a plan that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ppopt.named import Restriction, find
from ppopt.named.recomputing import best_of
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError
from ppopt.schedule import Order
from ppopt.study.plan import Task, canonical, versions_for
from ppopt.study.planning.looks import Found
from ppopt.study.planning.space import Case
from ppopt.study.store import Store
from ppopt.timing import OrderError, time_order

__all__ = ["Memo"]


class Memo:
    """The steps of plans by the problem that they were about; without a ``store`` nothing is kept."""

    def __init__(self, store: Store | None, study: str) -> None:
        self.store, self.study = store, study or "plan"

    def key(self, pipeline: Pipeline, step: str) -> str:
        """Identifies a step for a pipeline that leaves its partition open, and the versions that take it."""
        identity = {"problem": canonical(pipeline), "plan": step, "versions": versions_for(Task())}
        return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()

    def known(self, key: str) -> dict[str, Any] | None:
        """What is known of a step."""
        return None if self.store is None else self.store.outcome(key)

    def keep(self, key: str, case: Case, pipeline: Pipeline, step: str, outcome: dict[str, Any], seconds: float) -> None:
        """Write down what came of a step."""
        if self.store is None:
            return
        changes: dict[str, Any] = {f"plan.{name}": value for name, value in case.combination.sizes.items()}
        changes |= {"plan.placement": pipeline.placement, "plan.chunks": pipeline.chunks}
        self.store.add(key, {"plan": step}, versions_for(Task()), "done", outcome, seconds)
        self.store.note(self.study, key, changes)

    @staticmethod
    def tree(found: Found | None, **more: Any) -> dict[str, Any]:
        """A schedule as it is kept: what is needed to make it again."""
        if found is None:
            return {"schedule": None, **more}
        schedule = found.schedule
        pipeline = schedule.pipeline
        chosen: Any = pipeline.recompute
        return {
            "schedule": found.name,
            "step_time": float(found.value / 1000),
            "partition": list(pipeline.counts),
            "recompute": chosen if isinstance(chosen, str) else [[list(level) for level in stage] for stage in chosen],
            "order": schedule.order.texts() if found.name == "ppopt" else None,
            **more,
        }

    @staticmethod
    def found(pipeline: Pipeline, tree: dict[str, Any]) -> Found | None:
        """The schedule that was kept, made again; ``None``: there was none."""
        if tree.get("schedule") is None:
            return None
        chosen: Any = tree["recompute"]
        if not isinstance(chosen, str):
            chosen = tuple(tuple((group, level, count) for group, level, count in stage) for stage in chosen)
        try:
            settled = pipeline.changed(partition=tree["partition"], recompute=chosen)
            if tree["order"] is not None:
                return Found("ppopt", time_order(settled, Order.of(settled, tree["order"])))
            definition = find(tree["schedule"])
            schedule = definition.schedule(settled, settled.chunks)
            if pipeline.recompute == CHOOSE and not schedule.within_memory:
                schedule = best_of(definition, pipeline.changed(partition=tree["partition"]), pipeline.chunks, {}, "makespan")
        except (PipelineError, OrderError, Restriction, ValueError):
            return None
        return Found(definition.name, schedule) if schedule.within_memory else None
