"""Run a study: every instance in a pool of processes (or any other Executor), every result stored as it comes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from ppopt.files.figures import metrics_dict
from ppopt.files.result import outcome_dict
from ppopt.named import Definition, Restriction, ScheduleWarning, UnknownSchedule, best_of, find
from ppopt.named.verified import verified
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError
from ppopt.schedule import Schedule
from ppopt.study.frontier import choices
from ppopt.study.plan import Instance, Study, StudyError, Task, Verdict, versions_for
from ppopt.study.store import Store

Tree: TypeAlias = dict[str, Any]
Outcome: TypeAlias = tuple[str, Tree, float]
"""Status, what was found, and the seconds that it took."""

BEAT = 2.0
"""Seconds between two signs of life in the store."""
QUEUED = 2
"""Instances handed out per worker, so that none waits for its next one."""


@dataclass(frozen=True)
class Progress:
    """How far a sweep is."""

    total: int
    """Distinct instances of the study."""
    finished: int
    """With a result, from earlier runs and other sweeps too."""
    failed: int
    """Of those, how many failed in this run."""
    run: int
    """Finished by this run."""
    seconds: float
    """Since this run began."""

    @property
    def rate(self) -> float:
        """Instances per second of this run."""
        return self.run / self.seconds if self.seconds else 0.0

    @property
    def remaining(self) -> float | None:
        """Seconds until the end at this rate; ``None`` before the first result."""
        return (self.total - self.finished) / self.rate if self.run else None


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sweep(
    study: Study,
    path: str,
    *,
    workers: int | None = None,
    executor: Executor | None = None,
    slots: int | None = None,
    retry: bool = False,
    progress: Callable[[Progress], None] = lambda state: None,
) -> Progress:
    """Run what has no result yet and store each result in ``path`` at once.

    A sweep that is killed has lost nothing that was finished; started again, it goes on. Several may share a file; they
    divide the work. An instance that fails is stored as ``failed`` and not run again, unless ``retry``.

    ``workers`` processes are started (by default as many as the cores allow), each with the study's solver threads. With an
    ``executor`` of your own nothing is started; ``slots`` is how many instances it runs at once (by default ``workers``, else 1).

    Raises:
        StudyError: workers times threads exceed the cores.
        StoreError: the file is no store.
    """
    if executor is None:
        workers = _workers(workers, study.threads)
        make = process_pool
    else:
        given = executor
        workers = slots or workers or 1

        @contextmanager
        def make(workers: int) -> Iterator[Executor]:
            yield given

    with Store(path) as store:
        store.register(study)
        run = _Run(store, study, retry, progress)
        try:
            while run.unfinished:
                with make(1 if run.suspects else workers) as pool:
                    run.through(pool, 1 if run.suspects else workers)
        finally:
            store.release()
        return run.state()


def _workers(workers: int | None, threads: int) -> int:
    available = cores()
    if workers is None:
        workers = max(1, available // threads)
    if workers * threads > available:
        raise StudyError(
            f"{workers} workers with {threads} solver threads each need {workers * threads} cores; there are {available}"
        )
    return workers


class _Run:
    """The state of one run of a sweep."""

    def __init__(self, store: Store, study: Study, retry: bool, progress: Callable[[Progress], None]) -> None:
        self._store = store
        self._progress = progress
        instances = {instance.key: instance for instance in study.instances}
        before = store.finished(instances, failed=not retry)
        self._todo = deque(instance for key, instance in instances.items() if key not in before)
        self.suspects: deque[Instance] = deque()
        """Instances that were running when a worker died: each is run again, alone."""
        self._total, self._finished = len(instances), len(before)
        self._failed = self._run = 0
        self._began = time.monotonic()

    @property
    def unfinished(self) -> bool:
        return bool(self._todo or self.suspects)

    def state(self) -> Progress:
        return Progress(self._total, self._finished, self._failed, self._run, time.monotonic() - self._began)

    def through(self, pool: Executor, workers: int) -> None:
        """Run everything, or until a worker dies."""
        source = self.suspects if self.suspects else self._todo
        alone = source is self.suspects
        running: dict[Future[Outcome], Instance] = {}
        beat = 0.0
        while source or running:
            if not self._fill(pool, source, running, 1 if alone else QUEUED * workers) and not running:
                time.sleep(0.2)  # all that is left is being run by other sweeps
            done, _ = wait(running, timeout=BEAT, return_when=FIRST_COMPLETED)
            broken = False
            for future in done:
                instance = running.pop(future)
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    broken = True
                    if alone:
                        self._record(instance, "failed", {"error": "the worker process died (out of memory, or a crash)"}, 0.0)
                    else:
                        self.suspects.append(instance)
                elif error is not None:
                    self._record(instance, "failed", {"error": f"{type(error).__name__}: {error}"}, 0.0)
                else:
                    self._record(instance, *future.result())
            if broken:
                self.suspects.extend(running.values())
                return
            if time.monotonic() - beat > BEAT:
                beat = time.monotonic()
                self._store.alive()
            self._progress(self.state())

    def _fill(self, pool: Executor, source: deque[Instance], running: dict[Future[Outcome], Instance], most: int) -> bool:
        """Hand out instances that nobody else is at; False where there is none."""
        found = False
        for _ in range(len(source)):
            if len(running) >= most:
                break
            instance = source.popleft()
            if self._store.claim(instance.key):
                try:
                    future = pool.submit(run_instance, instance.pipeline, instance.task, instance.error, instance.verdict)
                except BrokenProcessPool:  # what is running will say so too
                    source.appendleft(instance)
                    break
                found = True
                running[future] = instance
            elif self._store.has(instance.key):
                self._finished += 1
            else:
                source.append(instance)
        return found

    def _record(self, instance: Instance, status: str, outcome: Tree, seconds: float) -> None:
        self._store.add(instance.key, instance.task.tree, versions_for(instance.task), status, outcome, seconds)
        self._finished += 1
        self._run += 1
        self._failed += status == "failed"


def run_instance(pipeline: Pipeline | None, task: Task, error: str | None = None, verdict: Verdict = "failed") -> Outcome:
    """What a worker does: run a task on a pipeline; whatever goes wrong becomes an outcome."""
    began = time.perf_counter()
    try:
        if pipeline is None:
            status, outcome = _without_pipeline(task, error, verdict)
        elif task.schedule is None:
            status, outcome = _solved(pipeline, task)
        else:
            status, outcome = _named(pipeline, task)
    except Exception as problem:  # a failing instance must not stop the others
        status, outcome = "failed", {"error": f"{type(problem).__name__}: {problem}"}
    return status, outcome, round(time.perf_counter() - began, 6)


def _without_pipeline(task: Task, error: str | None, verdict: Verdict) -> tuple[str, Tree]:
    """A combination that is no pipeline; one that has too little memory for any schedule is a solver's answer."""
    if verdict == "infeasible" and task.schedule is None:
        return "done", {"reason": "infeasible", "proved_by": error}
    return ("failed", {"error": error}) if verdict == "failed" else ("excluded", {"excluded": error})


def _named(pipeline: Pipeline, task: Task) -> tuple[str, Tree]:
    try:
        schedule = _scheduled(pipeline, find(task.schedule or ""), task)
    except Restriction as restriction:
        return "excluded", {"excluded": str(restriction)}
    except UnknownSchedule:
        problem = f"there is no schedule {task.schedule!r} in the worker process"
        advice = "what ppopt.named.register adds is there in its own process only; an entry point of ppopt.schedules is in all"
        return "failed", {"error": f"{problem}: {advice}"}
    verified(schedule, task.schedule or "")  # nothing is stored that the checker rejects; the memory limit has its own column
    found = {**_placement(schedule), **choices(pipeline, schedule.pipeline)}
    return "done", {**found, **metrics_dict(schedule), "within_memory": schedule.within_memory}


def _scheduled(pipeline: Pipeline, definition: Definition, task: Task) -> Schedule:
    """A named schedule on its own placement; on the balanced cut, and with what it had best recompute, where these are open.

    Raises:
        Restriction: as :meth:`Definition.schedule`, or there is no room for a microbatch on the balanced cut.
    """
    if isinstance(pipeline.microbatches, tuple):
        pipeline.settled()  # an instance has one number of microbatches: a study varies it
    try:
        place = pipeline.placements()[0].cut()
    except PipelineError as error:
        raise Restriction(f"{definition.name}: {error}") from error
    params = dict(task.params)
    if place.recompute == CHOOSE:
        return best_of(definition, place, task.chunks, definition.read(params), "makespan")
    return definition.schedule(place, task.chunks, **params)


def _solved(pipeline: Pipeline, task: Task) -> tuple[str, Tree]:
    from ppopt.search import solve

    settings = dict(task.settings)
    if "time_limit" in settings:
        settings["seconds"] = settings.pop("time_limit")
    if isinstance(pipeline.microbatches, tuple):
        pipeline.settled()  # an instance has one number of microbatches: a study varies it
    result = solve(pipeline, **settings, best_cut=False)
    outcome = outcome_dict(result)
    found = {key: value for key, value in outcome.items() if key not in ("seconds", "versions", "scope", "placements")}
    found |= choices(pipeline, result.pipeline)
    figures = {} if result.schedule is None else metrics_dict(result.schedule)
    return "done", {"placement": result.pipeline.placement, "chunks": result.pipeline.chunks, **found, **figures}


def _placement(schedule: Schedule) -> Tree:
    return {"placement": schedule.pipeline.placement, "chunks": schedule.pipeline.chunks}


# --- processes ---------------------------------------------------------------------------------------------------


@contextmanager
def process_pool(workers: int) -> Iterator[Executor]:
    """A pool of processes that end with this one, however it ends, and at once when the block is left early."""
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(reader,))
    try:
        yield pool
    except BaseException:
        writer.close()  # workers see the end of the pipe and leave what they are at
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        writer.close()
        reader.close()


def _start_worker(reader: Connection) -> None:
    """Leave interrupts to the main process, and end as soon as it closes its side of the pipe or is gone."""
    warnings.simplefilter("ignore", ScheduleWarning)  # the main process has said it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(reader,), daemon=True).start()


def _end_with(reader: Connection) -> None:
    try:
        reader.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
