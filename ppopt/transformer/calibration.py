"""Fit what is not on a data sheet, efficiency, passes and link efficiency, to measured times: least squares on logarithms.

On logarithms, so that ten percent of a short time weigh as much as ten percent of a long one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ppopt.transformer.checked import EstimateError
from ppopt.transformer.estimating import Estimate, LayerEstimate
from ppopt.transformer.hardware import GPU
from ppopt.transformer.tables import Asked
from ppopt.transformer.times import Parts, Seconds

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

OPS = ("F", "I", "W", "B")
NAMES = ("efficiency", "passes", "passes_backward", "link_efficiency", "launch", "latency")
"""The settings that can be fitted. The last two only where that is asked for: few runs tell them from passes."""
SHORT = 1e-5
"""Where the fit of a time of launches or messages begins, in seconds."""
AT_MOST = {"efficiency": 1.0, "link_efficiency": 1.0}
ROUNDS = 60
"""Most steps of the fit; it ends when a step changes nothing."""


@dataclass(frozen=True)
class Measured:
    """Times of ``count`` layers of one kind, in seconds by operation (F, I, W, or B for both parts of the backward).

    ``layer`` is the name of a group of the estimate, ``label`` how reports call the row. Where the training recomputes, I and B
    were measured with that.
    """

    label: str
    asked: Asked
    layer: str
    count: float
    seconds: Mapping[str, float] = field(hash=False)


@dataclass(frozen=True)
class Compared:
    """One measured time beside the estimate, in seconds."""

    label: str
    op: str
    measured: float
    before: float
    """With the settings that were given."""
    after: float
    """With the fitted ones."""

    @property
    def error(self) -> float:
        """How far the fitted estimate is off, as a part of the measured time."""
        return self.after / self.measured - 1


@dataclass(frozen=True)
class Calibration:
    """A GPU with fitted settings, which ones those are, and each measured time beside the estimate."""

    gpu: GPU
    fitted: tuple[str, ...]
    compared: tuple[Compared, ...]

    def errors(self, op: str | None = None) -> tuple[float, float]:
        """Mean and largest error, as parts of the measured times; of one kind of operation, or of all."""
        found = [abs(one.error) for one in self.compared if op in (None, one.op)]
        return sum(found) / len(found), max(found)


def calibrate(rows: Sequence[Measured], basis: str, names: Sequence[str] = ()) -> Calibration:
    """Fit the GPU of the rows to their times; ``basis`` says in the result where its settings are from.

    Fitted are ``names``, some of :data:`NAMES`. By default these are the efficiency; passes where something is bound by memory,
    those of the backward by themselves where I was measured alone; the link efficiency where something is sent.

    Raises:
        EstimateError: a row has no GPU or no such layer, the rows have several GPUs, or there are fewer times than settings.
    """
    gpu = _gpu_of(rows)
    terms = [(row, op) for row in rows for op in row.seconds]
    groups = [_group(row, gpu) for row in rows]
    parts = [part for group in groups if group.seconds is not None for part in group.seconds.parts]
    names = list(names) or list(_told(rows, parts))
    for name in names:
        if name not in NAMES:
            raise EstimateError("", f"expected some of {', '.join(NAMES)} to fit, got {name!r}")
    if gpu.passes == 0 and "passes" in names:
        gpu = replace(gpu, passes=1.0)
    if len(terms) < len(names):
        problem = f"{len(terms)} measured times do not fix {len(names)} settings ({', '.join(names)}); give more rows"
        raise EstimateError("", problem)
    fitted = _fit(rows, gpu, names)
    before, after = (_estimated(rows, of) for of in (gpu, fitted))
    compared = tuple(
        Compared(row.label, op, row.seconds[op], *values)
        for (row, op), values in zip(terms, zip(before, after, strict=True), strict=True)
    )
    return Calibration(replace(fitted, basis=basis), tuple(names), compared)


def _told(rows: Sequence[Measured], parts: Sequence[Parts]) -> Iterator[str]:
    """The settings that the times tell."""
    yield "efficiency"
    if any(part.memory for part in parts):
        yield "passes"
        if any("I" in row.seconds for row in rows):
            yield "passes_backward"
    if any(part.transfers for part in parts):
        yield "link_efficiency"


def _gpu_of(rows: Sequence[Measured]) -> GPU:
    if not rows:
        raise EstimateError("", "no measured times")
    found: GPU | None = None
    for row in rows:
        if row.asked.cluster is None:
            raise EstimateError("cluster.gpu", f"missing; the measured times ({row.label}) need the peaks of a GPU")
        if found not in (None, row.asked.cluster.gpu):
            raise EstimateError("cluster.gpu", f"expected one GPU in all rows, {row.label} has another one")
        found = row.asked.cluster.gpu
        for op, seconds in row.seconds.items():
            if op not in OPS or not seconds > 0:
                raise EstimateError("", f"{row.label}: expected times above 0 of {', '.join(OPS)}, got {op} = {seconds}")
    assert found is not None
    return found


def _on(row: Measured, gpu: GPU) -> Estimate:
    assert row.asked.cluster is not None
    return replace(row.asked, cluster=replace(row.asked.cluster, gpu=gpu)).estimate()


def _group(row: Measured, gpu: GPU) -> LayerEstimate:
    groups = {group.name: group for group in _on(row, gpu).layers}
    if row.layer not in groups:
        raise EstimateError("", f"{row.label}: there is no layer {row.layer!r}; expected one of {', '.join(groups)}")
    return groups[row.layer]


def _times(seconds: Seconds, recompute: str) -> dict[str, float]:
    more = {"selective": seconds.selective, "full": seconds.full}.get(recompute, 0.0)
    backward = seconds.backward_input + more
    return {"F": seconds.forward, "I": backward, "W": seconds.backward_weight, "B": backward + seconds.backward_weight}


def _estimated(rows: Sequence[Measured], gpu: GPU) -> list[float]:
    found = []
    for row in rows:
        group = _group(row, gpu)
        assert group.seconds is not None
        assert row.asked.training is not None
        times = _times(group.seconds, row.asked.training.recompute)
        found += [row.count * times[op] for op in row.seconds]
    return found


def _with(gpu: GPU, names: Sequence[str], logs: Iterable[float]) -> GPU:
    values: dict[str, Any] = {
        name: min(math.exp(log), AT_MOST.get(name, math.inf)) for name, log in zip(names, logs, strict=True)
    }
    return replace(gpu, **values)


def _fit(rows: Sequence[Measured], gpu: GPU, names: Sequence[str]) -> GPU:
    """Gauss-Newton steps on the logarithms of the settings, damped as Levenberg and Marquardt do."""
    import numpy as np

    measured = np.log([row.seconds[op] for row in rows for op in row.seconds])

    def residuals(logs: Array) -> Array:
        estimated = np.array(_estimated(rows, _with(gpu, names, logs)))
        if not estimated.all():
            raise EstimateError("", "an operation that was measured takes no time in the estimate: leave its time out")
        found: Array = np.log(estimated) - measured
        return found

    logs: Array = np.log([getattr(gpu, name) or (SHORT if name in NAMES[4:] else gpu.passes) for name in names])
    now, damping, step = residuals(logs), 1e-3, 1e-6
    for _ in range(ROUNDS):
        columns = [(residuals(logs + step * unit) - now) / step for unit in np.eye(len(names))]
        slope = np.array(columns).T
        change = np.linalg.solve(slope.T @ slope + damping * np.eye(len(names)), -slope.T @ now)
        there = residuals(logs + change)
        if there @ there < now @ now:
            smaller = now @ now - there @ there < 1e-12 * (now @ now)
            logs, now, damping = logs + change, there, damping / 10
            if smaller:
                break
        else:
            damping *= 10
            if damping > 1e6:
                break
    return _with(gpu, names, logs)
