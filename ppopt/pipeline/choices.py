"""What a pipeline leaves open: its placement, its chunks, its partition, which stages recompute; and several numbers of
microbatches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppopt.pipeline.cutting import groups_of
from ppopt.pipeline.partitions import BEST
from ppopt.pipeline.parts import PipelineError, whole
from ppopt.pipeline.recompute import CHOOSE
from ppopt.pipeline.routes import MAX_STAGES

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline

ANY = "any"
"""The placement that is left open: linear once, loop and wave for each number of chunks above 1."""
SEVERAL = ("loop", "wave")
"""The placements that take any number of chunks."""
CHUNKS = 2
"""Chunks of these where nothing else is said."""


def read_counts(key: str, value: Any, largest: int) -> Any:
    """A whole number, or several as a tuple, ascending; a list of one is that number.

    Raises:
        PipelineError: it is neither.
    """
    if not isinstance(value, list | tuple):
        return whole(key, value, largest)
    if not value:
        raise PipelineError(key, "expected a whole number >= 1 or a list of them, got an empty list")
    counts = sorted({whole(f"{key}[{i}]", count, largest) for i, count in enumerate(value)})
    return counts[0] if len(counts) == 1 else tuple(counts)


def read_chunks(placement: str, value: Any, routes: bool) -> Any:
    """``pipeline.chunks`` of a placement (or of ``routes`` that are written out): a number; or a tuple, which leaves it open.

    A list is a tuple for linear and bidirectional too, which ignore it: named schedules are shown for its numbers.

    Raises:
        PipelineError: it is neither, or routes that are written out come with a list.
    """
    key = "pipeline.chunks"
    if value is None:
        several = not routes and placement in (*SEVERAL, ANY)
        value = CHUNKS if several else 1
    counts = read_counts(key, value, MAX_STAGES)
    if isinstance(value, list | tuple) and routes:
        raise PipelineError(key, "routes that are written out have one number of chunks, got a list")
    stays_open = placement == ANY or (isinstance(value, list | tuple) and placement not in SEVERAL)
    return (counts,) if stays_open and not isinstance(counts, tuple) else counts


def placements_of(placement: str, chunks: Any) -> list[tuple[str, int]]:
    """The placements, each with its number of chunks, among which a placement with these chunks (a tuple: open) is the choice."""
    if not isinstance(chunks, tuple):
        return [(placement, chunks)]
    if placement == ANY:
        return [("linear", 1), *((each, count) for each in SEVERAL for count in chunks if count > 1)]
    return [(placement, count) for count in chunks] if placement in SEVERAL else [(placement, 1)]


def left_open(pipeline: Pipeline) -> tuple[str, ...]:
    """The keys of the model file that leave something open."""
    found = {
        "placement": pipeline.placement == ANY,
        "chunks": isinstance(pipeline.chunks, tuple),
        "partition": pipeline.partition == BEST,
        "recompute": pipeline.recompute == CHOOSE,
        "microbatches": isinstance(pipeline.microbatches, tuple),
    }
    return tuple(f"pipeline.{name}" for name, is_open in found.items() if is_open)


def problem(pipeline: Pipeline, key: str) -> PipelineError:
    """That ``key`` is left open where a single choice is needed."""
    value = getattr(pipeline, key.removeprefix("pipeline."))
    shown = f'"{value}"' if isinstance(value, str) else list(value)
    return PipelineError(key, f"{shown} is left open, which only solve settles; expected a single choice here")


def saving_most(pipeline: Pipeline) -> Pipeline:
    """The pipeline recomputing all that saves memory: of each layer the level that saves most, whichever is listed last.

    Raises:
        TooLittleMemory: the memory limit is too low for it, and so for whatever recomputes.
        PipelineError: the partition is left open.
    """
    layers = pipeline.layers
    groups = () if layers is None else layers.groups
    best = [max(group.recompute, key=lambda level: level.saved, default=None) for group in groups]
    if layers is None or all(b is None or b.saved == group.recompute[-1].saved for b, group in zip(best, groups, strict=True)):
        return pipeline.resolved("all")
    tables = [
        {groups[g].name: {level.name: n} for g, (level, n) in enumerate(zip(best, row, strict=True)) if level and n}
        for row in groups_of(layers, pipeline.counts)
    ]
    return pipeline.changed(recompute=tables, route_of_microbatch=pipeline.route_of_microbatch)
