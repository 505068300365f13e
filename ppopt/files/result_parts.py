"""The parts of a result file (docs/result-json.md), each checked by itself as it is read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Figure = Annotated[Real, AfterValidator(lambda value: int(value) if value.is_integer() else value)]
Whole = Annotated[int, Field(strict=True)]


class _Part(BaseModel):
    """Known keys have these types; others may stand beside them."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())


class LeftOpen(_Part):
    """``scope``: what a bound holds over."""

    placements: list[str]
    chunks: list[Whole]
    recompute: Any


class RunBy(_Part):
    """``runtime``: the one to which a search was kept."""

    name: str


class Outcome(_Part):
    """``result``: what a solver says."""

    reason: Literal["optimal", "feasible", "infeasible", "no-solution"]
    limit: Literal["time", "gap", "interrupted"] | None
    objective: Literal["makespan", "span"]
    value: Figure | None
    lower_bound: Figure
    gap: Figure | None
    proved_by: str | None
    seconds: Figure
    seed: Whole
    versions: dict[str, str]
    scope: LeftOpen | None = None
    runtime: RunBy | None = None
    placements: list[dict[str, Any]] = []


class Bound(_Part):
    """``binding``: the named schedule whose constraints bound, and the kinds that were free."""

    schedule: str
    free: list[str] = []


class Carried(_Part):
    """What a link or an engine carries, with the times."""

    order: list[str]
    start: list[Real]
    end: list[Real]


class Sending(Carried):
    """An entry of ``schedule.transfers``: a link, as its pairs of devices."""

    link: list[list[Whole]]


class Copying(Carried):
    """An entry of ``schedule.copies``: an engine, as its devices."""

    devices: list[Whole]


class Recorded(_Part):
    """``schedule``: per device, operations with their times; the transfers that hold a link; the copies to the host and back."""

    order: list[list[str]]
    start: list[list[Real]]
    end: list[list[Real]]
    transfers: list[Sending] = []
    copies: list[Copying] = []


class Metrics(_Part):
    """``metrics``: what follows from the schedule."""

    makespan: Figure
    device_span: Figure
    bubble_ratio: Figure
    span_bubble_ratio: Figure
    overhead: Figure
    work: list[Figure]
    peak_memory: list[Figure]


class NamedRow(_Part):
    """An entry of ``named``. Files of earlier versions have no ``work`` and no ``assumes_equal_work``."""

    schedule: str
    placement: str
    chunks: Whole
    makespan: Figure | None
    device_span: Figure | None
    bubble_ratio: Figure | None
    work: list[Figure] | None = None
    peak_memory: list[Figure] | None
    within_memory: bool | None
    assumes_equal_work: bool = False
    excluded: str | None
    recompute: str | list[Whole] | list[dict[str, dict[str, Whole]]] | None = None


class File(_Part):
    """The whole file."""

    ppopt: str
    format: Literal[1]
    model: dict[str, Any]
    result: Outcome | None
    schedule: Recorded | None
    metrics: Metrics | None
    named: list[NamedRow]
    binding: Bound | None = None
