"""List schedules of every priority rule."""

from ppopt.checker import violations
from ppopt.heuristics import baselines
from ppopt.pipeline import Memory, Offload, Pipeline
from ppopt.pipeline.rewriting import kept_here


def test_with_copies_to_the_host_more_is_held_than_there_is_room_for() -> None:
    """Made as if nothing moved, at one limit after the other, and timed with copies."""
    pipeline = Pipeline(2, 4, memory=Memory(limit=1), offload=Offload(time=0.25))
    found = [schedule for _, schedule in baselines(pipeline)]
    fitting = [schedule for schedule in found if schedule.within_memory]
    assert all(schedule.pipeline == pipeline for schedule in found)
    assert fitting
    assert not any(violations(pipeline, schedule) for schedule in fitting)
    kept = kept_here(pipeline)
    without = min(kept.time(schedule.makespan) for _, schedule in baselines(kept))
    assert min(pipeline.time(schedule.makespan) for schedule in fitting) < without
