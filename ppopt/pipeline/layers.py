"""The layers of a model: what the stages of a pipeline are cut from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ppopt.pipeline.parts import Number, PipelineError, exact, plain, whole

MAX_LAYERS = 4096
"""Most layers of a model."""
TIMES = ("forward", "backward_input", "backward_weight", "backward")
PARTS = ("forward_quadratic", "backward_input_quadratic", "backward_quadratic")
"""The parts of these that grow with the square of a sequence's length."""
AMOUNTS = ("activation", "retained", "weights")
STEP = ("all_gather", "reduce_scatter", "optimizer")
"""Times of a layer once per step, not once per microbatch."""


@dataclass(frozen=True)
class Level:
    """A way to recompute a layer: what its backward takes longer, and how much less of its activation is held.

    Raises:
        PipelineError: a number is out of range, or there is no name.
    """

    name: str
    time: Fraction
    saved: Fraction
    quadratic: Fraction = Fraction(0)
    """The part of the time that grows with the square of a sequence's length."""

    if TYPE_CHECKING:

        def __init__(self, name: str, time: Number, saved: Number, quadratic: Number = 0) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or self.name in ("none", "all", "choose"):
            raise PipelineError("layers.recompute.name", f'expected a name other than "none", "all", "choose", got {self.name!r}')
        for name in ("time", "saved", "quadratic"):
            object.__setattr__(self, name, exact(f"layers.recompute.{name}", getattr(self, name)))
        if self.quadratic > self.time:
            problem = f"expected at most the whole time, {plain(self.time)}, got {plain(self.quadratic)}"
            raise PipelineError("layers.recompute.quadratic", problem)


@dataclass(frozen=True)
class Layer:
    """A group of ``count`` alike layers in a row; the other numbers are those of one layer and one microbatch.

    ``forward``, ``backward_input``, ``backward_weight`` and ``backward`` (fused) are times as in :class:`~ppopt.pipeline.Costs`,
    ``activation`` and ``retained`` amounts as in :class:`~ppopt.pipeline.Memory`. ``weights`` is what a device that holds the
    layer always holds for it: weights, gradients, optimizer state. ``all_gather``, ``reduce_scatter`` (as in
    :class:`~ppopt.pipeline.DataParallel`) and ``optimizer`` are times once per step, which add up over the layers of a device.
    ``forward_quadratic`` and so on are the parts of the times that grow with the square of a sequence's length.
    ``recompute`` lists the ways in which the layer can be recomputed. A ``frozen`` layer has no weight gradient and no step; and
    no input gradient either where no layer before it is trained.

    Raises:
        PipelineError: a number is out of range, or some are missing.
    """

    name: str
    count: int = 1
    forward: Fraction = None  # type: ignore[assignment]
    backward_input: Fraction | None = None
    backward_weight: Fraction | None = None
    backward: Fraction | None = None
    activation: Fraction = Fraction(0)
    retained: Fraction | None = None
    weights: Fraction = Fraction(0)
    recompute: tuple[Level, ...] = ()
    frozen: bool = False
    all_gather: Fraction = Fraction(0)
    reduce_scatter: Fraction = Fraction(0)
    optimizer: Fraction = Fraction(0)
    forward_quadratic: Fraction = Fraction(0)
    backward_input_quadratic: Fraction = Fraction(0)
    backward_quadratic: Fraction | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            name: str,
            count: int = 1,
            forward: Number = ...,
            backward_input: Number | None = None,
            backward_weight: Number | None = None,
            backward: Number | None = None,
            activation: Number = 0,
            retained: Number | None = None,
            weights: Number = 0,
            recompute: Sequence[Level | Mapping[str, Any]] = (),
            frozen: bool = False,
            all_gather: Number = 0,
            reduce_scatter: Number = 0,
            optimizer: Number = 0,
            forward_quadratic: Number = 0,
            backward_input_quadratic: Number = 0,
            backward_quadratic: Number | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise PipelineError("layers.name", f"expected a name, got {self.name!r}")
        self._set("count", whole("layers.count", self.count, MAX_LAYERS))
        if not isinstance(self.frozen, bool):
            raise PipelineError("layers.frozen", f"expected true or false, got {self.frozen!r}")
        if self.forward is None:
            raise PipelineError("layers.forward", "missing; expected the time of one layer's forward")
        for name in (*TIMES, *AMOUNTS, *STEP, *PARTS):
            value = getattr(self, name)
            if value is not None:
                self._set(name, exact(f"layers.{name}", value))
        if (self.backward_input is None) != (self.backward_weight is None):
            missing = "backward_input" if self.backward_input is None else "backward_weight"
            raise PipelineError(f"layers.{missing}", "missing; give both parts of the backward, or backward alone")
        if self.backward_input is None and self.backward is None:
            raise PipelineError("layers.backward", "missing; expected backward, or backward_input and backward_weight")
        if self.frozen and self.backward_input is None:
            raise PipelineError("layers.backward_input", "missing; backward alone does not say what a frozen layer leaves out")
        for name in PARTS:
            part, given = getattr(self, name), getattr(self, name.removesuffix("_quadratic"))
            if part and (given is None or part > given):
                most = "which is not given" if given is None else f"{plain(given)}"
                raise PipelineError(f"layers.{name}", f"expected at most the whole time, {most}, got {plain(part)}")
        self._set("recompute", self._levels())
        for level in self.recompute:
            if level.saved > self.activation:
                raise PipelineError("layers.recompute.saved", f"{level.name!r} saves more than the activation holds")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _levels(self) -> tuple[Level, ...]:
        given: Any = self.recompute
        if not isinstance(given, list | tuple):
            raise PipelineError("layers.recompute", f"expected a list of {{name, time, saved}}, got {given!r}")
        levels = []
        for i, level in enumerate(given):
            try:
                levels.append(level if isinstance(level, Level) else Level(**level))
            except TypeError:
                raise PipelineError(f"layers.recompute[{i}]", f"expected a table {{name, time, saved}}, got {level!r}") from None
        names = [level.name for level in levels]
        if len(set(names)) < len(names):
            raise PipelineError("layers.recompute", f"two levels have one name: {', '.join(names)}")
        return tuple(levels)

    def level(self, name: str) -> Level | None:
        """The level of that name; ``None``: the layer has none."""
        return next((level for level in self.recompute if level.name == name), None)


@dataclass(frozen=True)
class Layers:
    """Groups of alike layers, in data-flow order, from which the stages of a pipeline are cut.

    Raises:
        PipelineError: there is none, two groups have one name, or the backward is split in some groups only.
    """

    groups: tuple[Layer, ...]

    if TYPE_CHECKING:

        def __init__(self, groups: Sequence[Layer | Mapping[str, Any]]) -> None: ...

    def __post_init__(self) -> None:
        given: Any = self.groups
        if not isinstance(given, list | tuple) or not given:
            raise PipelineError("layers", f"expected at least one group of layers, got {given!r}")
        object.__setattr__(self, "groups", tuple(_group(i, group) for i, group in enumerate(given)))
        first: dict[str, int] = {}
        for i, group in enumerate(self.groups):
            if group.name in first:
                raise PipelineError(f"layers[{i}].name", f"layers[{first[group.name]}] has the name {group.name!r} already")
            first[group.name] = i
            if (group.backward_input is None) != (self.groups[0].backward_input is None):
                problem = "some groups give the backward in two parts, others as one; expected the same of all"
                raise PipelineError(f"layers[{i}].backward", problem)
        if len(self) > MAX_LAYERS:
            raise PipelineError("layers", f"at most {MAX_LAYERS} layers are supported, got {len(self)}")

    def __len__(self) -> int:
        """The number of layers."""
        return sum(group.count for group in self.groups)

    @cached_property
    def group_of(self) -> tuple[int, ...]:
        """Per layer its group."""
        return tuple(i for i, group in enumerate(self.groups) for _ in range(group.count))

    @property
    def split(self) -> bool:
        """Whether the backward can be run as ``I`` and ``W``."""
        return self.groups[0].backward_input is not None

    @cached_property
    def trained_before(self) -> tuple[bool, ...]:
        """Per group, whether a layer before it is trained."""
        return tuple(accumulate((not group.frozen for group in self.groups[:-1]), lambda a, b: a or b, initial=False))

    def each(self, name: str) -> tuple[Fraction | None, ...]:
        """Per group, a time or an amount of one layer as it counts in a stage: nothing of what a frozen layer leaves out."""
        return tuple(map(self._counted, self.groups, self.trained_before, [name] * len(self.groups)))

    @staticmethod
    def _counted(group: Layer, trained_before: bool, name: str) -> Fraction | None:
        value: Fraction | None = getattr(group, name)
        if not group.frozen or name in ("forward", "weights"):
            return value
        if name == "forward_quadratic":
            return value
        if name in ("retained", "backward_weight", *STEP) or not trained_before:
            return Fraction(0)  # nothing is kept for a backward that it does not have
        if name == "backward_quadratic":
            return group.backward_input_quadratic
        return group.backward_input if name == "backward" else value

    def has_backward(self, group: int) -> bool:
        """Whether layers of the group have a backward at all."""
        return not self.groups[group].frozen or self.trained_before[group]

    def level_of(self, group: int, name: str) -> Level | None:
        """How a group recomputes at a level; ``None``: it has no such level, or no backward."""
        if not self.has_backward(group):
            return None
        return self.groups[group].level(name) if name != "all" else (self.groups[group].recompute or (None,))[-1]

    def has(self, *names: str) -> bool:
        """Whether some layer gives one of these times or amounts, other than 0."""
        return any(getattr(group, name) for group in self.groups for name in names)

    def without_step(self) -> Layers:
        """The same layers without what they take once per step."""
        if not self.has(*STEP):
            return self
        return Layers(
            [replace(group, all_gather=Fraction(0), reduce_scatter=Fraction(0), optimizer=Fraction(0)) for group in self.groups]
        )

    @property
    def levels(self) -> tuple[str, ...]:
        """The names of all levels of recomputing, in the order in which they are listed."""
        return tuple(dict.fromkeys(level.name for group in self.groups for level in group.recompute))


def _group(i: int, given: Any) -> Layer:
    key = f"layers[{i}]"
    if isinstance(given, Layer):
        return given
    if not isinstance(given, Mapping):
        raise PipelineError(key, f"expected a group of layers, got {given!r}")
    known = [field.name for field in fields(Layer)]
    for name in given:
        if name not in known:
            raise PipelineError(f"{key}.{name}", f"unknown key; expected one of {', '.join(known)}")
    if "name" not in given:
        raise PipelineError(f"{key}.name", "missing; expected a name")
    try:
        return Layer(**given)
    except PipelineError as error:
        raise PipelineError(error.key.replace("layers", key, 1), error.message) from None


def kind_of(name: str) -> str:
    """The name of a layer or of a group without its numbers: ``layers`` of ``layers.3``, ``mamba`` of ``mamba 6-7``."""
    return re.sub(r"[ ._-]*\d+", "", name)


def as_tables(layers: Layers) -> list[dict[str, Any]]:
    """The groups as a model file has them, numbers as JSON has them; what is left out there is left out here."""

    def table(part: Layer | Level) -> dict[str, Any]:
        found = {field.name: getattr(part, field.name) for field in fields(part)}
        left_out = {
            "count": 1,
            "activation": 0,
            "weights": 0,
            "recompute": (),
            "frozen": False,
            **dict.fromkeys((*STEP, *PARTS, "quadratic"), 0),
        }
        kept = {name: value for name, value in found.items() if value is not None and left_out.get(name, ...) != value}
        return {
            name: [table(level) for level in value]
            if name == "recompute"
            else plain(value)
            if isinstance(value, Fraction)
            else value
            for name, value in kept.items()
        }

    return [table(group) for group in layers.groups]
