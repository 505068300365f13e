"""How TorchTitan cuts a model, by numbers or by lists of module names; and layouts written as such lists.

Source of the rules: torchtitan/distributed/pipeline_parallel.py and torchtitan/config/configs.py of pytorch/torchtitan, b5bcd76c;
schedules as in torch/distributed/pipelining/schedules.py of PyTorch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from ppopt.layouts.layout import EMBEDDING, HEAD, LOOP, NORM, WAVE, Item, Layout, NotExpressible, Reading, Refused, counts_of
from ppopt.layouts.options import (
    COUNT,
    DEVICES,
    LAYERS,
    NAMES,
    SOME_LAYERS,
    TEXT,
    OptionError,
    Options,
    Rows,
    check_stages,
)

RUNTIME = "TorchTitan"


class Schedule(NamedTuple):
    """What TorchTitan derives from a schedule's name."""

    name: str
    single: bool
    """It runs one stage on each device."""
    placement: str = LOOP


SCHEDULES = {
    schedule.name.lower(): schedule
    for schedule in (
        Schedule("1F1B", True),
        Schedule("GPipe", True),
        Schedule("PipelineScheduleSingle", True),
        Schedule("Interleaved1F1B", False),
        Schedule("LoopedBFS", False),
        Schedule("InterleavedZeroBubble", False),
        Schedule("PipelineScheduleMulti", False),
        Schedule("ZBVZeroBubble", False, WAVE),
        Schedule("DualPipeV", False, WAVE),
    )
}
"""PyTorch's names in lower case; it does not tell cases apart."""


@dataclass(frozen=True)
class TorchTitan(Options):
    """What cuts a model in TorchTitan.

    Raises:
        OptionError: a value is of the wrong kind.
    """

    RUNTIME: ClassVar[str] = "torchtitan"
    GIVEN_AS: ClassVar[str] = "module_fqns_per_model_part"

    pp: int = field(metadata=DEVICES)
    """Devices; ``pipeline_parallel_degree``."""
    num_layers: int | None = field(default=None, metadata=LAYERS)
    """Decoder layers; without it, those that the lists name."""
    schedule: str = field(default="1F1B", metadata=TEXT)
    """PyTorch's name of the schedule; ``pipeline_parallel_schedule``."""
    module_fqns_per_model_part: Rows | None = field(default=None, metadata=NAMES)
    """The names of each stage's modules."""
    pipeline_parallel_layers_per_stage: int | None = field(default=None, metadata=COUNT)
    """Layers of each stage, from which the number of stages follows."""
    pipeline_parallel_first_stage_less_layers: int = field(default=1, metadata=SOME_LAYERS)
    """For how many layers the embedding counts."""
    pipeline_parallel_last_stage_less_layers: int = field(default=1, metadata=SOME_LAYERS)
    """For how many layers norm and head count."""


def read(given: TorchTitan) -> Reading:
    """What TorchTitan builds on each device.

    Lists are taken as they are; what is then missing or there twice, TorchTitan does not see, and the reading warns of it.

    Raises:
        Refused: TorchTitan does not take it; the first of its checks that fails.
        OptionError: the number of layers is missing, or something is larger than what is supported.
    """
    schedule = SCHEDULES.get(given.schedule.lower())
    if schedule is None:
        names = ", ".join(each.name for each in SCHEDULES.values())
        raise Refused(f"{given.schedule!r} is no schedule of PyTorch's; these are {names}")
    rows = given.module_fqns_per_model_part
    layers = given.num_layers or (_largest(rows) if rows else 0)
    if not layers:
        raise OptionError("torchtitan: num_layers: missing; nothing else says it")
    count = _stages(given, layers, schedule)
    if rows is None:
        stages = list(_dealt(given, layers, count))
        return Reading(_placed(stages, given.pp, schedule))
    stages = [_contents(row) for row in rows]
    layout = _placed(stages, given.pp, schedule)
    warnings = [] if given.num_layers else [f"the number of layers is not given; taken are the {layers} that the lists name"]
    if schedule.single and layout.virtual > 1:
        warnings.append(
            f"{schedule.name} runs one stage on each device: it is given the first only, "
            f"what stages from {given.pp} on hold is not run"
        )
    return Reading(layout, (*warnings, *_faults(stages, layers)))


def _stages(given: TorchTitan, layers: int, schedule: Schedule) -> int:
    """How many stages there are where no list says it; checked even where one does."""
    size = given.pipeline_parallel_layers_per_stage
    if size is None:
        return given.pp if schedule.single else 2 * given.pp
    weighed = _weighed(given, layers)
    count = -(-weighed // size)
    counted = f"{weighed} layers, with what counts as such, in stages of {size} are {count} stages"
    if count % given.pp:
        raise Refused(f"{counted}, which cannot be dealt equally to {given.pp} devices")
    if schedule.single and count != given.pp:
        raise Refused(f"{counted}; {schedule.name} takes one on each of {given.pp} devices")
    if not schedule.single and count < 2 * given.pp:
        raise Refused(f"{counted}; {schedule.name} takes at least two on each of {given.pp} devices")
    return count


def _weighed(given: TorchTitan, layers: int) -> int:
    return layers + given.pipeline_parallel_first_stage_less_layers + given.pipeline_parallel_last_stage_less_layers


def _dealt(given: TorchTitan, layers: int, count: int) -> Iterator[tuple[Item, ...]]:
    """Equal shares, the first stages one more; less on the first and last for what else they hold."""
    if count == 1:
        yield (EMBEDDING, *range(layers), NORM, HEAD)
        return
    weighed = _weighed(given, layers)
    if count > weighed:
        raise Refused(f"{count} stages are more than {weighed} layers with what counts as such")
    check_stages(count)
    share, more = divmod(weighed, count)
    ends = (given.pipeline_parallel_first_stage_less_layers, given.pipeline_parallel_last_stage_less_layers)
    for name, less in zip(("first", "last"), ends, strict=True):
        if less > share:
            raise Refused(f"pipeline_parallel_{name}_stage_less_layers is {less}, more than the {share} layers of a stage")
    at = 0
    for s in range(count):
        length = share + (s < more) - (ends[0] if s == 0 else ends[1] if s == count - 1 else 0)
        held = range(at, at + length)
        at += length
        yield (*((EMBEDDING,) if s == 0 else ()), *held, *((NORM, HEAD) if s == count - 1 else ()))


def _placed(stages: Sequence[tuple[Item, ...]], devices: int, schedule: Schedule) -> Layout:
    if not stages or len(stages) % devices:
        raise Refused(f"{len(stages)} stages cannot be dealt equally to {devices} devices")
    virtual = len(stages) // devices
    if schedule.placement == WAVE and virtual != 2:
        raise Refused(f"{schedule.name} needs two stages on each device, got {virtual}")
    check_stages(len(stages))
    return Layout.of(stages, devices, schedule.placement)


# --- names of modules --------------------------------------------------------------------------------------------

_KNOWN = {"tok_embeddings": EMBEDDING, "norm": NORM, "lm_head": HEAD, "output": HEAD}
"""``output`` is what ``lm_head`` was called before."""
_LAYER = re.compile(r"layers\.(0|[1-9][0-9]{0,8})")


def _largest(rows: Rows) -> int:
    """One more than the largest number of a layer."""
    return 1 + max((item for row in rows for item in _contents(row) if isinstance(item, int)), default=-1)


def _contents(names: Sequence[str]) -> tuple[Item, ...]:
    """What a stage holds. Each module is kept or not, so that neither order nor repetition within a stage matter."""
    held = {_item(name) for name in names}
    ends: list[Item] = [end for end in (NORM, HEAD) if end in held]
    begin: list[Item] = [EMBEDDING] if EMBEDDING in held else []
    other = [name for name in dict.fromkeys(names) if _item(name) == name and name not in (EMBEDDING, NORM, HEAD)]
    return (*other, *begin, *sorted(item for item in held if isinstance(item, int)), *ends)


def _item(name: str) -> Item:
    layer = _LAYER.fullmatch(name)
    return int(layer[1]) if layer else _KNOWN.get(name, name)


def _faults(stages: Sequence[tuple[Item, ...]], layers: int) -> Iterator[str]:
    """What lists have wrong without TorchTitan's seeing it."""
    held: dict[Item, list[int]] = {}
    for number, stage in enumerate(stages):
        for item in stage:
            held.setdefault(item, []).append(number)
    needed: dict[Item, None] = dict.fromkeys((EMBEDDING, *range(layers), NORM, HEAD))
    missing = [item for item in needed if item not in held]
    if missing:
        yield f"no stage names {_listed(missing)}: TorchTitan leaves out what is not named, and says nothing"
    twice = [item for item in needed if len(held.get(item, ())) > 1]
    if twice:
        at = ", ".join(map(str, held[twice[0]]))
        yield f"more than one stage names {_listed(twice)} (stages {at}): each of them runs it"
    for item in held:
        if isinstance(item, int) and item >= layers:
            yield f"stage {held[item][0]} names layer {item}, which a model of {layers} layers does not have"
        elif isinstance(item, str) and item not in needed:
            yield f"stage {held[item][0]} names {item!r}: kept if the model has it, else nobody says anything"
    last = len(stages) - 1
    for name, item, end in (("the embedding", EMBEDDING, 0), ("the norm", NORM, last), ("the head", HEAD, last)):
        if item in held and end not in held[item]:
            yield f"{name} is on stage {held[item][0]}, not on stage {end}"
    numbers = [item for stage in stages for item in stage if isinstance(item, int)]
    if numbers != sorted(numbers):
        yield "the layers are not in order from stage to stage: data pass through them in another order than in the model"


def _listed(items: Sequence[Item]) -> str:
    shown = [f"layers.{item}" if isinstance(item, int) else str(item) for item in items[:8]]
    return ", ".join(shown) + (", …" if len(items) > 8 else "")


# --- writing -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModuleNames:
    """The modules of a model by their names.

    Raises:
        OptionError: the name of layers has no place for their number.
    """

    embedding: str = "tok_embeddings"
    layer: str = "layers.{i}"
    """``{i}`` stands for the number."""
    norm: str = "norm"
    head: str = "lm_head"
    everywhere: tuple[str, ...] = ()
    """Modules that every stage has."""

    def __post_init__(self) -> None:
        if "{i}" not in self.layer:
            raise OptionError(f"the name of a layer has to hold {{i}}, the place of its number; got {self.layer!r}")


AUTOMODEL = ModuleNames("model.embed_tokens", "model.layers.{i}", "model.norm", "lm_head", ("model.rotary_emb",))
"""As NeMo Automodel calls them for models of Hugging Face."""


def torchtitan_options(layout: Layout, *, schedule: str | None = None, names: ModuleNames | None = None) -> dict[str, Any]:
    """TorchTitan's options for a layout, by their names.

    Args:
        layout: The norm (N) may be left out: it is on the last stage then.
        schedule: PyTorch's name; by default one that has this placement. A schedule in a file (CSV) is given beside a name, too.
        names: The modules' names, by default TorchTitan's own.

    Raises:
        NotExpressible: it has layers of multi-token prediction, its layers are not all of them in order, or the schedule takes
            another placement or number of stages on each device.
    """
    several = "ZBVZeroBubble" if layout.placement == WAVE else "Interleaved1F1B"
    name = schedule or (several if layout.virtual > 1 else "1F1B")
    found = SCHEDULES.get(name.lower())
    if found is None:
        raise NotExpressible(RUNTIME, f"{name!r} is no schedule of PyTorch's")
    if any(counts_of(layout, RUNTIME).mtp):
        raise NotExpressible(RUNTIME, "it has no multi-token prediction with pipelines")
    if found.single and layout.virtual > 1:
        raise NotExpressible(RUNTIME, f"{found.name} takes one stage on each device, not {layout.virtual}")
    if layout.virtual > 1 and found.placement != layout.placement:
        raise NotExpressible(RUNTIME, f"{found.name} deals stages as a {found.placement}, not as a {layout.placement}")
    if found.placement == WAVE and layout.virtual != 2:
        raise NotExpressible(RUNTIME, f"{found.name} takes two stages on each device, not {layout.virtual}")
    of = names or ModuleNames()
    rows = [[*_module_names(stage, of), *of.everywhere] for stage in layout.stages]
    return {
        "pipeline_parallel_degree": len(layout.devices),
        "pipeline_parallel_schedule": found.name,
        "module_fqns_per_model_part": rows,
    }


def _module_names(stage: Sequence[Item], names: ModuleNames) -> Iterator[str]:
    for item in stage:
        if item == NORM:
            continue
        if item == HEAD:
            yield from (names.norm, names.head)
        elif item == EMBEDDING:
            yield names.embedding
        else:
            yield names.layer.replace("{i}", str(item))
