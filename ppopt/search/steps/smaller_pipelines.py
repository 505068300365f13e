"""Steps that begin with a smaller pipeline: with few microbatches, or with few devices as well."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Any

from ppopt import periodic
from ppopt.clock import Clock
from ppopt.constraints import graphs_of
from ppopt.heuristics import each_baseline, each_paced
from ppopt.pipeline import Pipeline, PipelineError, fewer_devices
from ppopt.schedule import Schedule
from ppopt.search import tuning
from ppopt.search.problem import Problem
from ppopt.search.run import Run
from ppopt.search.step import DIFFERENT, SCATTERED, Kind, Step
from ppopt.search.steps.modulo_scheduling import ModuloScheduling

if TYPE_CHECKING:
    from ppopt.search.turns import Entry


def few(pipeline: Pipeline) -> int:
    """So many microbatches are few: prologue, epilogue and some kernels, long ones too."""
    return tuning.ROUNDS * pipeline.devices + tuning.KERNELS * tuning.LONG_UNROLL


class FewMicrobatches(Step):
    """List schedules of few microbatches; modulo scheduling from the one whose kernel, repeated, gives the best schedule."""

    name = "few microbatches"
    kind = Kind.IMPROVE

    def applies(self, run: Run) -> str | None:
        """Where modulo scheduling does: where a kernel can be repeated."""
        if run.problem.pipeline.backward_routes:
            return SCATTERED
        if run.problem.differing:
            return DIFFERENT
        return "it knows nothing of what is exchanged between passes" if run.problem.pipeline.ticks.pauses else None

    def run(self, run: Run, seconds: float, **options: Any) -> None:
        """A third of the time for the list schedules, the rest for modulo scheduling."""
        problem = run.problem
        small = with_few_microbatches(problem.pipeline, few(problem.pipeline))
        schedules = chain(each_baseline(small), each_paced(small, problem.objective, run.seed))
        step = f"kernels of schedules of {small.microbatches} microbatches"
        example = best_repeated(run, step, small, schedules, run.clock.slice(seconds / 3))
        schedule_modulo(run, 2 * seconds / 3, example)


class FewerDevices(Step):
    """Solve a like pipeline of few devices; modulo scheduling from what follows for all of them, with few microbatches."""

    name = "fewer devices"
    kind = Kind.IMPROVE

    def applies(self, run: Run) -> str | None:
        """Where the schedule of a like pipeline can be stretched."""
        pipeline = run.problem.pipeline
        if pipeline.devices < tuning.MANY_DEVICES:
            return f"fewer than {tuning.MANY_DEVICES} devices"
        if len(pipeline.routes) > 1:
            return "microbatches take several routes"
        if pipeline.lines or pipeline.ticks.margins:
            return "the order on links counts, or what a device does before and after its operations"
        return None if self._with_few_devices(pipeline) is not None else "there is no such placement of few devices"

    def _with_few_devices(self, pipeline: Pipeline) -> Pipeline | None:
        try:
            small = fewer_devices(pipeline, tuning.DEVICES)
            return small.changed(microbatches=max(small.microbatches, tuning.LARGE // small.stages))
        except PipelineError:
            return None  # it has no such placement, or would hold less than a microbatch

    def run(self, run: Run, seconds: float, *, strategy: Iterable[Entry] = (), **options: Any) -> None:
        """Follow a ``strategy`` for few devices for a quarter of the time; then stretch its schedule and go on from there."""
        pipeline = run.problem.pipeline
        small = self._with_few_devices(pipeline)
        assert small is not None
        inner = run.derived(Problem(small, gap=run.problem.gap), seconds / 4)
        try:
            inner.follow(strategy)
        finally:
            run.learn(inner, f"{tuning.DEVICES} devices")
        found = inner.step(ModuloScheduling).best
        if found is None:
            return
        most = pipeline.microbatches * small.devices // pipeline.devices
        copies = min(tuning.ROUNDS * tuning.DEVICES, most) - found.microbatches[0]
        found = found.with_more_kernels(max(0, -(-copies // found.unroll)))
        few = with_few_microbatches(pipeline, -(-found.microbatches[0] * pipeline.devices // small.devices))
        if found.microbatches[0] <= most:
            step = f"after {inner.incumbent.text()} of {tuning.DEVICES} devices"
            example = best_repeated(run, step, few, periodic.stretched(found, few), run.clock.slice(seconds / 4))
            if example is not None:
                schedule_modulo(run, seconds / 2, example)


def schedule_modulo(run: Run, seconds: float, example: Schedule | None) -> None:
    """Modulo scheduling from the kernel of an ``example``; for spans too: a short makespan is a good beginning."""
    if run.goes_on:
        run.do(run.step(ModuloScheduling), seconds, example=example)


def with_few_microbatches(pipeline: Pipeline, most: int) -> Pipeline:
    """The pipeline with about ``most`` microbatches: fewer by a multiple of :data:`~ppopt.search.tuning.LONG_UNROLL`."""
    fewer = max(0, pipeline.microbatches - most) // tuning.LONG_UNROLL * tuning.LONG_UNROLL
    return pipeline.changed(microbatches=pipeline.microbatches - fewer)


def best_repeated(
    run: Run, step: str, small: Pipeline, schedules: Iterable[tuple[str, Schedule]], clock: Clock
) -> Schedule | None:
    """Of ``schedules`` of few microbatches the one that is best with its kernel repeated."""
    pipeline, graphs, incumbent = run.problem.pipeline, graphs_of(run.problem.pipeline), run.incumbent
    best: tuple[Fraction, str, Schedule] | None = None
    with run.note(step) as say:
        for name, schedule in schedules:
            if small.microbatches == pipeline.microbatches:
                incumbent.offer(schedule, name)
            value = periodic.repeated_value(schedule, graphs, pipeline.microbatches, tuning.MODULO)
            if value is not None and (best is None or value < best[0]):
                best = value, name, schedule
                say(f"about {pipeline.time(round(value))} ({name})")
            clock.charge(tuning.SCHEDULED * small.index.size)
            if clock.over:
                break
        if best is None:
            say("none has a kernel")
        elif pipeline.ticks.margins:  # modulo scheduling does not count it, and what it finds may have more of it
            whole = periodic.repeated(best[2], graphs, pipeline, tuning.MODULO)
            if whole is not None and whole.within_memory:
                incumbent.offer(whole, f"{best[1]}, repeated")
                say(incumbent.text())
    return None if best is None else best[2]
