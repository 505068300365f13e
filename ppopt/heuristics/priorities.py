"""Priority rules: which of the jobs that can start goes first. None is best everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ppopt.heuristics.jobs import Jobs
from ppopt.pipeline import IntArray

Keys: TypeAlias = tuple[IntArray, ...]
"""Arrays with one entry per job. Jobs are compared by the first, where that ties by the second, and so on; small goes first."""
Rule: TypeAlias = Callable[[Jobs], Keys]


def _by_kind(jobs: Jobs, forward: int, backward: int, weight: int) -> IntArray:
    return np.array([forward, backward, backward, weight])[jobs.features.kind]


def backward_first(jobs: Jobs) -> Keys:
    """Input gradients, then forwards, then weight gradients; the later stage first, then the older microbatch."""
    return _by_kind(jobs, 1, 0, 2), -jobs.features.stage, jobs.features.turn


def oldest_backward_first(jobs: Jobs) -> Keys:
    """Input gradients, then forwards, then weight gradients; the older microbatch first, then the later stage."""
    return _by_kind(jobs, 1, 0, 2), jobs.features.turn, -jobs.features.stage


def forward_first(jobs: Jobs) -> Keys:
    """Forwards, then input gradients, then weight gradients; the later stage first, then the older microbatch."""
    return _by_kind(jobs, 0, 1, 2), -jobs.features.stage, jobs.features.turn


def weight_early(jobs: Jobs) -> Keys:
    """Input gradients, then weight gradients, then forwards; the later stage first, then the older microbatch."""
    return _by_kind(jobs, 2, 0, 1), -jobs.features.stage, jobs.features.turn


def oldest_first(jobs: Jobs) -> Keys:
    """The oldest microbatch first, then what is nearest to its end; weight gradients last."""
    return _by_kind(jobs, 0, 0, 1), jobs.features.turn, jobs.features.tail


def critical_path(jobs: Jobs) -> Keys:
    """What has the longest way to the end of its microbatch first."""
    return -jobs.features.tail, jobs.features.turn


def paced(jobs: Jobs) -> Keys:
    """What is due earliest first, if a microbatch entered whenever the busiest device has worked off another."""
    features = jobs.features
    work = int(jobs.pipeline.work.max())
    return features.turn * work // max(1, int(features.turn.max()) + 1) + features.head, features.turn, features.stage


PRIORITIES: dict[str, Rule] = {
    "backward-first": backward_first,
    "oldest-backward-first": oldest_backward_first,
    "forward-first": forward_first,
    "weight-early": weight_early,
    "oldest-first": oldest_first,
    "critical-path": critical_path,
    "paced": paced,
}
"""The priority rules by name."""
