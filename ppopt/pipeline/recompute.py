"""Which stages recompute their activations in the backward instead of keeping them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from ppopt.pipeline.parts import PipelineError

CHOOSE: Literal["choose"] = "choose"
Recompute: TypeAlias = Literal["none", "all", "choose"] | tuple[int, ...]
"""No stage, every stage, left open for a solver, or these stages, ascending (neither none nor all of them)."""


def read_recompute(value: Any, stages: int) -> Recompute:
    """``value`` as one of the words, or as the stages that recompute.

    Raises:
        PipelineError: it is neither, or there is no such stage.
    """
    key = "pipeline.recompute"
    if isinstance(value, str) and value in ("none", "all", "choose"):
        return value  # type: ignore[return-value]
    if not isinstance(value, list | tuple):
        raise PipelineError(key, f'expected "none", "all", "choose" or a list of stages, got {value!r}')
    for i, stage in enumerate(value):
        if isinstance(stage, bool) or not isinstance(stage, int):
            raise PipelineError(f"{key}[{i}]", f"expected a stage, got {stage!r}")
        if not 0 <= stage < stages:
            raise PipelineError(f"{key}[{i}]", f"there is no stage {stage}; stages are 0..{stages - 1}")
        if stage in value[:i]:
            raise PipelineError(f"{key}[{i}]", f"stage {stage} is given twice")
    if not value:
        return "none"
    return "all" if len(value) == stages else tuple(sorted(value))


def in_words(stages: Iterable[int]) -> str:
    """Stages, ascending, as ``0,1,4-7``: three or more in a row by the first and the last."""
    runs: list[list[int]] = []
    for stage in stages:
        if runs and runs[-1][-1] == stage - 1:
            runs[-1].append(stage)
        else:
            runs.append([stage])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)
