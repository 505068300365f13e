"""Jobs in the order of a priority rule, laid out for a loop over them (:mod:`ppopt.heuristics.loops`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ppopt.heuristics.jobs import Jobs
from ppopt.op import Kind
from ppopt.pipeline import IntArray
from ppopt.schedule import of_stages


class Ranked:
    """The jobs by rank: job 0 is the one that the rule puts first, job 1 the next, and so on.

    Columns have one entry per job, times are in ticks. ``release``: per job of ``jobs``, the time before which it must not start;
    by default the end of its all-gather.
    """

    def __init__(self, jobs: Jobs, keys: Sequence[IntArray], release: IntArray | None = None) -> None:
        pipeline, claims = jobs.pipeline, jobs.claims
        self.pipeline, self.claims = pipeline, claims
        self.count = count = len(jobs.numbers)
        job = np.lexsort(keys[::-1])  # jobs with equal keys stay in their order
        rank = np.empty(count, dtype=np.int64)
        rank[job] = np.arange(count)
        self.place = job
        """Its place in ``jobs``."""
        self.numbers = jobs.numbers[job]
        """The operations and pairs (:class:`~ppopt.op.OpIndex`)."""
        if release is None:
            release = of_stages(pipeline, jobs.numbers, pipeline.ticks.lead)
        self.release = release[job]
        self.duration = jobs.duration[job]

        before, after = rank[jobs.before], rank[jobs.after]
        by_before = np.argsort(before, kind="stable")
        self.after = after[by_before]
        self.lag = jobs.lag[by_before]
        self.offset = np.concatenate(([0], np.cumsum(np.bincount(before, minlength=count))))
        """Entries ``offset[j]`` to ``offset[j + 1]`` of ``after`` and ``lag`` are the jobs that wait for job j, and how long
        after its end."""
        self.needs = np.bincount(after, minlength=count)
        """How many jobs it waits for."""

        self.machine = jobs.machine[job]
        self.machines = int(self.machine.max(initial=-1)) + 1
        self.devices = min(pipeline.devices, self.machines)
        """How many of the machines are devices. They come first, the others are links."""
        weight = jobs.features.kind[job] == Kind.W
        self.awaited = (~weight & (jobs.machine[job] < self.devices)).astype(np.int64)
        """Whether a patient device waits for it: a computation other than a weight gradient."""

        columns = claims.memory, claims.amount, claims.returned, claims.claimer, claims.finishes
        self.memory, self.amount, self.returned, self.claimer, self.finishes = (column[job] for column in columns)
        """As in :class:`~ppopt.heuristics.claims.Claims`."""

    def text(self, job: int) -> str:
        """Its operation or pair in PyTorch's notation."""
        return str(self.pipeline.index.op(int(self.numbers[job])))
