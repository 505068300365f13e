"""What a runtime can run: the search kept to that, and what the restriction costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ppopt.clock import Clock
from ppopt.constraints import Word
from ppopt.layouts.runnable import Policy, check_groups, check_layers, places_of, policies_of
from ppopt.named import Table
from ppopt.named.model import Model
from ppopt.pipeline import CHOOSE, Layers, Pipeline, PipelineError, plain
from ppopt.pipeline.mix import KEYS as MIX_KEYS
from ppopt.pipeline.runtimes import INTERLEAVED, MEGATRON, RUNTIMES, TORCH, TORCHTITAN, as_run
from ppopt.schedule import Number, Objective, Schedule
from ppopt.search import strategies
from ppopt.search.binding import Binding
from ppopt.search.choices import Branch, Report, Time, bound_of, combined, solve_branches, value_of
from ppopt.search.result import Result, RunBy, Ticks, Unrestricted
from ppopt.search.settings import Settings
from ppopt.search.whereabouts import at

ORDERS = {MEGATRON: "1f1b", INTERLEAVED: "interleaved-1f1b"}
"""The orders that a runtime has of its own; the others take any."""


def asked(model: Model, runtime: str, order: Binding | None, constraints: Sequence[Word]) -> tuple[Model, Binding | None]:
    """The model with its costs on a runtime (:func:`ppopt.pipeline.runtimes.as_run`), and the schedule that binds there.

    Raises:
        ValueError: there is no such runtime, or it has an order of its own and something else is to bind.
        NotForTorch: PyTorch cannot express the pipeline.
    """
    if runtime not in RUNTIMES:
        raise ValueError(f"runtime: expected one of {', '.join(RUNTIMES)}, got {runtime!r}")
    _check_known(model.pipeline, runtime)
    placed = None if model.placed is None else as_run(model.placed, runtime)
    model = dataclasses.replace(model, pipeline=as_run(model.pipeline, runtime), placed=placed)
    own = ORDERS.get(runtime)
    if own is None:
        return model, order
    if constraints:
        raise ValueError(f"constraints: {runtime} has an order of its own, and takes none")
    if order is not None and (order.definition.name != own or order.free):
        raise ValueError(f"order: {runtime} has an order of its own, {own}; got {order.schedule}")
    return model, order or Binding(own)


def best_cut_asked(runtime: str, best_cut: bool | None) -> bool | None:
    """Whether to look for the best cut beside a settled one: not where the answer is set against the one without the restriction.

    Raises:
        ValueError: it is asked for there.
    """
    if runtime == TORCH:
        return best_cut
    if best_cut:
        raise ValueError(f"best_cut: what {runtime} can run is set against what is known without it, not against other cuts")
    return False


def _check_known(pipeline: Pipeline, runtime: str) -> None:
    """Raise where a runtime has no way to do something, or it is not known what it would do.

    Raises:
        PipelineError: so it is; the message names the key.
    """
    if pipeline.mix.differs and runtime != TORCH:
        given = next(name for name in MIX_KEYS if getattr(pipeline.mix, name))
        problem = f"what {runtime} makes of microbatches that differ is not known; expected microbatches alike, or no --runtime"
        raise PipelineError(f"pipeline.{given}", problem)
    if pipeline.backward_routes and runtime != TORCH:
        problem = f"{runtime} runs the backward of a stage where its forward was; expected none beside --runtime"
        raise PipelineError("pipeline.backward_routes", problem)
    if pipeline.memory.weights_on is not None and runtime != TORCH:
        problem = f"{runtime} keeps the weights of a stage where it runs; expected none beside --runtime"
        raise PipelineError("memory.weights_on", problem)
    if pipeline.offload is not None and pipeline.offload.stages != "none":
        problem = f"--runtime {runtime} has no way to copy single activations to the host"
        raise PipelineError("offload", f'{problem}; expected offload.stages = "none"')


def check(model: Model, runtime: str, params: Mapping[str, Any]) -> None:
    """Raise where a runtime cannot run what a model settles; ``params``: of the schedule that binds there.

    Raises:
        PipelineError: it cannot.
    """
    model, binding = asked(model, runtime, None, ())
    if runtime == TORCH:
        return
    counts: int | tuple[int, ...] = model.pipeline.microbatches
    own = None if binding is None else dataclasses.replace(binding, params=dict(params)).read(model)
    for count in counts if isinstance(counts, tuple) else (counts,):
        places(model.pipeline.changed(microbatches=count) if isinstance(counts, tuple) else model.pipeline, runtime, own)


def places(pipeline: Pipeline, runtime: str, binding: Binding | None) -> tuple[Pipeline, ...]:
    """The placements on which a runtime can run a pipeline, of those that it leaves open; with all that is settled looked at.

    Raises:
        PipelineError: the runtime cannot run what is settled.
    """
    found = places_of(pipeline, runtime)
    if runtime == INTERLEAVED:
        check_groups(pipeline, None if binding is None else binding.params.get("group_size"))
    for each in found:
        check_layers(each, runtime)
        if each.layers is not None:
            policies_of(each, runtime)
        elif isinstance(each.recompute, tuple):
            expected = f'--runtime {runtime} recomputes in all stages or in none; expected "none", "all" or "choose"'
            raise PipelineError("pipeline.recompute", f"{expected}, got {list(each.recompute)}")
    return found


def alternatives(pipeline: Pipeline, runtime: str) -> list[tuple[Policy | str, Pipeline]]:
    """The ways to recompute among which a runtime leaves the choice on a placement, each with the pipeline that is searched.

    For TorchTitan it recomputes at one level, which the embedding and the head do not have there.
    """
    if pipeline.layers is None:
        words = ["none", "all"] if pipeline.recompute == CHOOSE else [str(pipeline.recompute)]
        each = [(word, _changed(pipeline, recompute=word)) for word in words]
        return [(word, own) for word, own in each if own is not None]
    policies = policies_of(pipeline, runtime)
    if runtime != TORCHTITAN:
        return [(policy, pipeline) for policy in policies]
    if pipeline.recompute != CHOOSE:
        return [(policies[0], pipeline)]
    found: list[tuple[Policy | str, Pipeline]] = []
    for policy in policies:
        groups = pipeline.layers.groups
        kept = [g if policy.counted(pipeline.layers, n) else dataclasses.replace(g, recompute=()) for n, g in enumerate(groups)]
        own = _changed(pipeline, layers=Layers(kept), recompute=policy.level or "none")
        if own is not None:
            found.append((policy, own))
    return found


def _changed(pipeline: Pipeline, **changes: object) -> Pipeline | None:
    """The pipeline with these changes; ``None``: the memory limit is too low for it."""
    try:
        return pipeline.changed(route_of_microbatch=pipeline.route_of_microbatch, **changes)
    except PipelineError:
        return None


class Translated:
    """A search on a pipeline whose layers recompute at one level, as one on the pipeline with all its layers."""

    def __init__(self, inner: Branch, pipeline: Pipeline, policy: Policy) -> None:
        self.pipeline, self.result = pipeline, inner.result
        self._inner, self._policy = inner, policy

    def floor(self, objective: Objective) -> Time:
        """As :meth:`Branch.floor`."""
        return self._inner.floor(objective)

    def go_on(self, clock: Clock, enough: Time, progress: Report | None) -> Result:
        """As :meth:`Branch.go_on`."""
        result = self._inner.go_on(clock, enough, progress)
        counts = result.pipeline.counts
        assert self.pipeline.layers is not None
        memory = result.pipeline.memory if result.schedule is None else self.pipeline.memory
        limit = dataclasses.replace(self.pipeline.memory, limit=memory.limit)
        chosen = self._policy.tables(self.pipeline.layers, counts)
        own = self.pipeline.changed(
            partition=counts, recompute=chosen, memory=limit, route_of_microbatch=self.pipeline.route_of_microbatch
        )
        schedule = result.schedule and Schedule(own, result.schedule.order, result.schedule.start, result.schedule.transfers)
        self.result = dataclasses.replace(result, model=Model(own), schedule=schedule)
        return self.result


class OneOfSeveral:
    """The search on one placement for the best of several ways to recompute."""

    def __init__(self, pipeline: Pipeline, branches: Sequence[Branch], objective: Objective, settings: Settings) -> None:
        self.pipeline = pipeline
        self._branches, self._objective, self._settings = branches, objective, settings
        self.result: Result | None = None

    def floor(self, objective: Objective) -> Time:
        """As :meth:`Branch.floor`."""
        return min((branch.floor(objective) for branch in self._branches), default=math.inf)

    def go_on(self, clock: Clock, enough: Time, progress: Report | None) -> Result:
        """As :meth:`Branch.go_on`."""
        settings = dataclasses.replace(self._settings, seconds=max(clock.left, 1e-3))
        if not self._branches:
            return self._nothing()
        results = solve_branches(self._branches, self._objective, settings, progress, enough, clock)
        result = combined(self.pipeline, results, self._branches, settings)
        self.result = dataclasses.replace(result, scope=None, placements=())
        return self.result

    def _nothing(self) -> Result:
        """That there is no room for a microbatch, whichever way recomputes."""
        memory = dataclasses.replace(self.pipeline.memory, limit=None)
        pipeline = self.pipeline.changed(memory=memory, recompute="none").cut()
        self.result = Result(
            model=Model(pipeline),
            objective=self._objective,
            schedule=None,
            reason="infeasible",
            limit=None,
            ticks=Ticks.of(pipeline, self._objective, None, 0),
            proved_by="the memory that one microbatch takes, whichever way to recompute is taken",
            seconds=0.0,
            seed=self._settings.seed,
            versions={},
            named=Table((), pipeline),
            steps=(),
        )
        return self.result


def compared(
    runtime: str, settings: Settings, restricted: Callable[[Settings], Result], free: Callable[[Settings, Time], Result]
) -> Result:
    """The best that a runtime can run, with what is known without the restriction, all within the time of the settings.

    ``restricted`` and ``free`` solve the two, the latter only as far as values are below a given one. What is found under the
    restriction is there without it as well; a bound without it holds under it.
    """
    share = strategies.RESTRICTED * settings.seconds
    result = restricted(dataclasses.replace(settings, seconds=share))
    if result.limit == "interrupted":
        untried = (*result.untried, "what is known without the restriction")
        return dataclasses.replace(result, runtime=RunBy(runtime, Unrestricted(result.value, 0)), untried=untried)
    left = settings.seconds - (share if settings.deterministic else min(share, result.seconds))
    with at("without the restriction"):
        other = free(dataclasses.replace(settings, seconds=left), value_of(result))
    value, bound = min(value_of(result), value_of(other)), bound_of(other)
    result = _raised(result, bound)
    least = plain(Fraction(min(bound, value))) if min(bound, value) < math.inf else other.lower_bound
    return dataclasses.replace(
        result,
        limit="interrupted" if other.limit == "interrupted" and result.reason == "feasible" else result.limit,
        seconds=result.seconds + other.seconds,
        runtime=RunBy(runtime, Unrestricted(plain(Fraction(value)) if value < math.inf else None, least)),
    )


def _raised(result: Result, lower: Time) -> Result:
    """A result with a bound that is known besides."""
    ticks = result.ticks
    if result.reason == "infeasible" or lower == math.inf or ticks.value is None:
        return result
    known = math.floor(min(lower, value_of(result)) * ticks.per_unit)
    if known <= ticks.lower_bound:
        return result
    optimal = known >= ticks.value
    return dataclasses.replace(
        result,
        ticks=ticks._replace(lower_bound=known),
        proved_by="what holds without the restriction of the runtime",
        reason="optimal" if optimal else result.reason,
        limit=None if optimal else result.limit,
    )


def _with(result: Result, runtime: str, value: Number | None, bound: Number) -> Result:
    return dataclasses.replace(result, runtime=RunBy(runtime, Unrestricted(value, bound)))
