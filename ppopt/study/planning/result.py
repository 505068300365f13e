"""What came of a plan: the combinations with a schedule, best first, and a bound over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ppopt.files.model_tree import recompute_of
from ppopt.layouts.runnable import NAMES
from ppopt.named import Table
from ppopt.named.model import Model
from ppopt.pipeline import Pipeline
from ppopt.search.result import Limit, Reason, Result, Ticks
from ppopt.study.plan import Task, versions_for
from ppopt.study.planning.looks import Found
from ppopt.study.planning.space import Case, Combination
from ppopt.text import number, percent, place

MS = 1000
STOPPED = {"time": "stopped at the time limit", "gap": "stopped at the gap", "interrupted": "interrupted"}
PlanReason = Literal["optimal", "feasible", "infeasible", "no-solution"]


class Space(NamedTuple):
    """How many combinations there are, and what became of them: each is counted once."""

    combinations: int
    over_memory: int
    """In no cut does a microbatch fit."""
    pruned: int
    """Their bound is no less than the best."""
    solved: int
    """A schedule was looked for."""
    open: int
    """Not looked at before the time was over."""


class Unrestricted(NamedTuple):
    """What is known of the same question without the restriction to a runtime, in seconds."""

    step_time: float | None
    """The best; ``None``: no schedule is known."""
    lower_bound: float


@dataclass(frozen=True)
class Plan:
    """One combination with its best schedule: times in seconds, memory in GB (1e9 bytes).

    No schedule of the combination takes less than ``lower_bound``, which ``proved_by`` shows. ``found`` has the schedule and its
    name, ``ppopt`` where it was searched for. ``seconds``, ``seed`` and ``limit`` are those of the search for all combinations:
    how long it took, its seed, and what stopped it.
    """

    case: Case
    found: Found
    lower_bound: float
    proved_by: str
    seconds: float = 0.0
    seed: int = 0
    limit: Limit | None = None

    @property
    def combination(self) -> Combination:
        """Its sizes."""
        return self.case.combination

    @property
    def pipeline(self) -> Pipeline:
        """Its pipeline, in ms and GB, with nothing left open."""
        return self.found.schedule.pipeline

    @property
    def step_time(self) -> float:
        """Of a step, in seconds."""
        return float(self.found.value / MS)

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Tokens of a step over its time and all GPUs."""
        return self.case.tokens / self.step_time / self.combination.parallel.gpus

    @property
    def mfu(self) -> float:
        """Model FLOPs of a step (three times those of F, without what is computed again) over what the GPUs could do."""
        peak = self.combination.cluster.gpu.flops
        return self.case.estimate.flops_per_token * self.tokens_per_second_per_gpu / peak

    @property
    def peak_memory(self) -> float:
        """Of the fullest device, in GB, with what is static."""
        schedule = self.found.schedule
        return float(self.pipeline.amount(max(schedule.peak_memory)))

    @property
    def model(self) -> Model:
        """Its model, with the order of its schedule."""
        schedule = self.found.schedule
        return Model(self.pipeline, order=schedule.order, order_name=self.found.name)

    @property
    def result(self) -> Result:
        """As a result of a solve: its schedule, and the bound over all pipelines of the combination."""
        pipeline, schedule = self.pipeline, self.found.schedule
        ticks = Ticks.of(pipeline, "makespan", schedule, int(self.lower_bound * MS * pipeline.ticks.per_unit * (1 - 1e-12)))
        optimal = self.lower_bound >= self.step_time
        reason: Reason = "optimal" if optimal else "feasible"
        if optimal:
            ticks = ticks._replace(lower_bound=schedule.makespan)
        return Result(
            model=Model(pipeline),
            objective="makespan",
            schedule=schedule,
            reason=reason,
            limit=None if optimal else self.limit,
            ticks=ticks,
            proved_by=self.proved_by,
            seconds=self.seconds,
            seed=self.seed,
            versions={} if self.found.name != "ppopt" else versions_for(Task()),
            named=Table((), pipeline),
            steps=(),
        )

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        pipeline = self.pipeline
        return {
            **({"gpus": self.combination.parallel.gpus} if len(self.case.question.clusters) > 1 else {}),
            **self.combination.sizes,
            "placement": pipeline.placement,
            "chunks": pipeline.chunks,
            "partition": list(pipeline.counts),
            "recompute": recompute_of(pipeline.recompute),
            "schedule": self.found.name,
            "step_time": self.step_time,
            "lower_bound": min(self.lower_bound, self.step_time),
            "tokens_per_second_per_gpu": self.tokens_per_second_per_gpu,
            "mfu": self.mfu,
            "peak_memory": self.peak_memory,
            "proved_by": self.proved_by,
        }


@dataclass(frozen=True, repr=False)
class Plans(Sequence[Plan]):
    """Combinations with a schedule, best first: a sequence of :class:`Plan`.

    No combination has a schedule that takes less than ``lower_bound`` seconds. ``limit`` says why the search stopped before that
    was the best (``None``: it did not). ``nearest``: where nothing fits, what is missing. ``recipe``: that of the question.
    """

    plans: tuple[Plan, ...]
    lower_bound: float
    space: Space
    reason: PlanReason
    limit: Limit | None = None
    nearest: Mapping[str, Any] | None = None
    recipe: Plan | None = None
    recipe_problem: str | None = None
    seconds: float = 0.0
    runtime: str = ""
    """The runtime that the question names."""
    unrestricted: Unrestricted | None = None
    """What is known without the restriction to a runtime, where the question names one."""

    def __len__(self) -> int:
        return len(self.plans)

    def __getitem__(self, index: Any) -> Any:
        return self.plans[index]

    def raised(self, lower: float) -> Plans:
        """With a bound of all combinations that is known besides."""
        lower = min(lower, self.plans[0].step_time)
        optimal = lower >= self.plans[0].step_time * (1 - 1e-12)
        plans = tuple(replace(one, lower_bound=min(max(one.lower_bound, lower), one.step_time)) for one in self.plans)
        state: tuple[PlanReason, Limit | None] = ("optimal", None) if optimal else (self.reason, self.limit)
        return replace(self, plans=plans, lower_bound=lower, reason=state[0], limit=state[1])

    @property
    def gap(self) -> float | None:
        """``(best step time - lower bound) / best step time``; ``None`` without a schedule."""
        return None if not self.plans else max(0.0, 1 - self.lower_bound / self.plans[0].step_time)

    @property
    def frontier(self) -> tuple[Plan, ...]:
        """Those that no other one beats both in step time and in memory, the fastest first."""
        found: list[Plan] = []
        for one in self.plans:
            if not found or one.peak_memory < found[-1].peak_memory:
                found.append(one)
        return tuple(found)

    def as_dict(self) -> dict[str, Any]:
        """As ``ppopt plan --json`` prints it."""
        tree: dict[str, Any] = {
            "plans": [one.as_dict() for one in self.plans],
            "lower_bound": self.lower_bound,
            "space": self.space._asdict(),
            "reason": self.reason,
            "limit": self.limit,
            "frontier": [self.plans.index(one) for one in self.frontier],
            "seconds": round(self.seconds, 3),
        }
        if self.runtime:
            known = None if self.unrestricted is None else self.unrestricted._asdict()
            tree["runtime"] = {"name": self.runtime, "unrestricted": known}
        if self.nearest is not None:
            tree["nearest"] = dict(self.nearest)
        if self.recipe is not None:
            tree["recipe"] = self.recipe.as_dict()
        elif self.recipe_problem is not None:
            tree["recipe"] = {"excluded": self.recipe_problem}
        return tree

    def __str__(self) -> str:
        space = self.space
        counted = [
            (space.solved, "were solved"),
            (space.pruned, "cannot be by their bound"),
            (space.over_memory, "do not fit"),
            (space.open, "were not looked at"),
        ]
        parts = ", ".join(f"{count:,} {what}" for count, what in counted if count)
        seconds = f"{self.seconds:.1f} s" + ("" if self.limit is None else f"; {STOPPED[self.limit]}")
        name = NAMES.get(self.runtime, "PyTorch") if self.runtime else ""
        on, runs = (f" on {name}", f" that {name} runs") if name else ("", "")
        if not self.plans:
            known = f"; none takes less than {number(self.lower_bound)} s" if self.lower_bound else ""
            return f"No schedule{runs} was found for any of {space.combinations:,} combinations{known}: {parts} ({seconds})."
        best = self.plans[0]
        limit = best.case.memory.limit
        room = "" if limit is None else f" of {number(float(limit))} GB"  # type: ignore[arg-type]
        lines = [
            f"{number(best.step_time)} s per step{on}: {best.combination}, {place(best.pipeline)}, {best.found.name}",
            f"{best.tokens_per_second_per_gpu:.0f} tokens/s/GPU, MFU {percent(best.mfu)}; the fullest device holds "
            f"{number(round(best.peak_memory, 2))} GB{room}",
            f"Nothing{runs} in these {space.combinations:,} combinations is faster than {number(self.lower_bound)} s "
            f"(gap {percent(self.gap or 0.0)}).",
            f"Of these, {parts} ({seconds}).",
        ]
        return "\n".join([*lines, *self._restriction()])

    def _restriction(self) -> list[str]:
        """What the restriction to a runtime costs, in a line."""
        if self.unrestricted is None:
            return []
        (value, bound), name = self.unrestricted, NAMES[self.runtime]
        if not bound:
            return [f"What more than {name} runs could do was not looked at."]
        if value is None:
            return [f"Without the restriction to what {name} runs every schedule takes at least {number(bound)} s."]
        known = f"{number(value)} s, " + (f"lower bound {number(bound)} s" if bound < value else "the optimum")
        if not self.plans:
            return [f"Without the restriction to what {name} runs the best that is known takes {known}."]
        time = self.plans[0].step_time
        more = f"{percent(time / value - 1)} more than" if time > value else "as good as"
        return [f"{name}: {more} the best that is known without the restriction ({known})."]

    def __repr__(self) -> str:
        return f"<Plans: {str(self).partition(chr(10))[0]}>"
