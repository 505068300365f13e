"""What a runtime can run of what a pipeline leaves open: which placements, which cuts, and what may recompute.

Sources: megatron/core/recompute.py and megatron/core/pipeline_parallel/schedules.py of NVIDIA/Megatron-LM, d98e8a64;
torchtitan/distributed/pipeline_parallel.py and activation_checkpoint.py of pytorch/torchtitan, b5bcd76c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ppopt.layouts.layout import NotExpressible
from ppopt.layouts.megatron_writing import megatron_options
from ppopt.layouts.of_layers import MTP, layout_of
from ppopt.layouts.torchtitan import torchtitan_options
from ppopt.pipeline import CHOOSE, Layers, Pipeline, PipelineError, routes_of
from ppopt.pipeline.partitions import BEST, Counts
from ppopt.pipeline.runtimes import INTERLEAVED, MEGATRON, TORCHTITAN
from ppopt.text import place

NAMES = {TORCHTITAN: "TorchTitan", MEGATRON: "Megatron", INTERLEAVED: "Megatron"}
LEVELS = ("full", "selective")
"""Ways to recompute that have a name there."""
SHOWN = 8
"""How many sizes of groups a message names at most."""


@dataclass(frozen=True)
class Policy:
    """One way to recompute for the whole job: every decoder layer at a level, never the embedding or the head.

    ``level``: its name, ``None``: nothing recomputes. ``block``: only the first layers of each stage, so many of each as is still
    to be decided. ``mtp``: layers of multi-token prediction, too.
    """

    level: str | None = None
    block: bool = False
    mtp: bool = False
    written: Any = None
    """The tables themselves, where they are settled."""

    def counted(self, layers: Layers, group: int) -> bool:
        """Whether the layers of a group may recompute."""
        own = self.mtp if layers.groups[group].name == MTP else 0 < group < len(layers.groups) - 1
        return own and self.level is not None and layers.level_of(group, self.level) is not None

    def tables(self, layers: Layers, counts: Sequence[int], most: int | None = None) -> Any:
        """``pipeline.recompute`` on a cut; ``most``: of the first so many layers of each stage, by default of all."""
        found, begin = [], 0
        if self.written is not None:
            return self.written
        for count in counts:
            left, stage = count if most is None else most, []
            of = layers.group_of[begin : begin + count]
            for group in dict.fromkeys(of):
                n = min(of.count(group), left) if self.counted(layers, group) else 0
                left -= n
                stage += [(layers.groups[group].name, self.level, n)] * (n > 0)
            found.append(tuple(stage))
            begin += count
        return tuple(found) if any(found) else "none"


# --- what is fixed -----------------------------------------------------------------------------------------------


def places_of(pipeline: Pipeline, runtime: str) -> tuple[Pipeline, ...]:
    """The placements of a pipeline on which a runtime can run it, of those that it leaves open.

    Raises:
        PipelineError: there is none.
    """
    found = tuple(each for each in pipeline.placements() if _takes(each, runtime))
    if not found:
        expected = {
            TORCHTITAN: "linear, loop, or wave with 2 chunks",
            MEGATRON: "linear: one stage on each device",
            INTERLEAVED: "loop with 2 chunks or more",
        }[runtime]
        first = pipeline.placements()[0]
        looped = first.placement == ("wave" if runtime == TORCHTITAN else "loop")
        key = "pipeline.chunks" if looped else "pipeline.routes" if first.placement == "routes" else "pipeline.placement"
        open_ = f'"any" with {pipeline.chunks} chunks' if pipeline.placement == "any" else place(first)
        raise PipelineError(key, f"--runtime {runtime} runs {expected}; got {open_}")
    return found


def _takes(pipeline: Pipeline, runtime: str) -> bool:
    if pipeline.backward_routes or pipeline.memory.weights_on is not None:
        return False
    places = [("linear", 1), ("wave", 2), *([("loop", pipeline.chunks)] if pipeline.chunks > 1 else [])]
    return any(
        has_place(runtime, *place) and pipeline.routes == routes_of(place[0], pipeline.devices, place[1]) for place in places
    )


def has_place(runtime: str, placement: str, chunks: int) -> bool:
    """Whether a runtime can run a placement with so many stages for each device."""
    linear, loop = placement == "linear", placement == "loop" and chunks > 1
    if runtime == TORCHTITAN:
        return linear or loop or (placement, chunks) == ("wave", 2)
    if runtime in (MEGATRON, INTERLEAVED):
        return linear if runtime == MEGATRON else loop
    return True


def has_group(size: int, devices: int, microbatches: int) -> bool:
    """Whether Megatron's interleaved order takes groups of so many microbatches."""
    return devices <= size <= microbatches and not 0 < microbatches % size < devices


def check_groups(pipeline: Pipeline, size: int | None) -> None:
    """Raise where Megatron's interleaved order cannot take groups of this many microbatches; by default one for each device.

    Raises:
        PipelineError: it cannot.
    """
    devices, microbatches = pipeline.devices, pipeline.microbatches
    n = devices if size is None else size
    good = [n for n in range(devices, microbatches + 1) if has_group(n, devices, microbatches)]
    if n in good:
        return
    some = ", ".join(map(str, good[:SHOWN])) + ", …" * (len(good) > SHOWN)
    shown = f"{n}, the number of devices" if size is None else str(n)
    raise PipelineError(
        "pipeline.microbatches" if size is None else "pipeline.schedule_params.group_size",
        f"interleaved 1F1B of Megatron takes groups of N microbatches with {devices} (devices) <= N <= {microbatches} "
        f"(microbatches), and {microbatches} mod N = 0 or >= {devices}: {some or 'none is possible'}; got N = {shown}"
        + ("; --param group_size=N gives another" if size is None and good else ""),
    )


def check_layers(pipeline: Pipeline, runtime: str) -> None:
    """Raise where a runtime does not have the layers of a settled placement, or not that cut of them.

    Raises:
        PipelineError: it does not.
    """
    layers = pipeline.layers
    if layers is None:
        return
    for number, group in enumerate(layers.groups):
        if group.name == MTP and (runtime == TORCHTITAN or number != len(layers.groups) - 2):
            has = "has no multi-token prediction" if runtime == TORCHTITAN else "has multi-token prediction right before the head"
            raise PipelineError(f"layers[{number}].name", f"{NAMES[runtime]} {has}; got layers named {MTP!r}")
    if pipeline.partition == BEST:
        return
    try:
        layout = layout_of(pipeline, NAMES[runtime])
        _ = torchtitan_options(layout) if runtime == TORCHTITAN else megatron_options(layout)
    except NotExpressible as error:
        counts = ", ".join(map(str, pipeline.counts))
        raise PipelineError("pipeline.partition", f"{error}; the stages have {counts} layers") from None


def mtp_of(layers: Layers) -> range:
    """The places of the layers of multi-token prediction."""
    return range(*_bounds([place for place, group in enumerate(layers.group_of) if layers.groups[group].name == MTP]))


def _bounds(places: Sequence[int]) -> tuple[int, int]:
    return (places[0], places[-1] + 1) if places else (0, 0)


# --- what recomputes ---------------------------------------------------------------------------------------------


def policies_of(pipeline: Pipeline, runtime: str) -> tuple[Policy, ...]:
    """The ways to recompute of a pipeline of layers among which a runtime leaves the choice; one, where it is settled.

    Raises:
        PipelineError: it is settled in a way that the runtime does not have.
    """
    layers, asked = pipeline.layers, pipeline.recompute
    assert layers is not None
    levels = [level for level in LEVELS if _every_decoder(layers, level)]
    known = [Policy(level) for level in levels]
    if (
        runtime != TORCHTITAN
        and "full" in levels
        and any(Policy("full", mtp=True).counted(layers, g) for g in mtp_groups(layers))
    ):
        known.append(Policy("full", mtp=True))
    if asked == CHOOSE:
        if runtime == TORCHTITAN or "full" not in levels:
            return (Policy(), *known)
        return (Policy("full", block=True), *(policy for policy in known if policy != Policy("full")))
    if asked == "none":
        return (Policy(),)
    if isinstance(asked, str):
        for policy in known:
            if all(_level(policy, layers, g) == _word(layers, asked, g) for g in range(len(layers.groups))):
                return (policy,)
    elif pipeline.partition == BEST:
        raise PipelineError("pipeline.recompute", "a table per stage belongs to one cut; pipeline.partition leaves the cut open")
    else:
        for policy in _of_tables(layers, pipeline.counts, known, runtime):
            if pipeline.resolved(policy).recompute == asked:
                return (Policy(written=policy),)
    raise PipelineError("pipeline.recompute", f"{_offers(runtime)}; got {_shown(asked)}")


def mtp_groups(layers: Layers) -> list[int]:
    """The groups of layers of multi-token prediction."""
    return [number for number, group in enumerate(layers.groups) if group.name == MTP]


def _every_decoder(layers: Layers, level: str) -> bool:
    """Whether the embedding and the head are groups of their own, and all layers between can recompute at a level."""
    between = [g for g in range(1, len(layers.groups) - 1) if layers.groups[g].name != MTP]
    alone = len(layers.groups) > 2 and layers.groups[0].count == layers.groups[-1].count == 1
    return alone and bool(between) and all(layers.level_of(g, level) is not None for g in between)


def _level(policy: Policy, layers: Layers, group: int) -> str | None:
    return policy.level if policy.counted(layers, group) else None


def _word(layers: Layers, word: str, group: int) -> str | None:
    level = layers.level_of(group, word)
    return None if level is None else level.name


def _of_tables(layers: Layers, counts: Counts, known: Sequence[Policy], runtime: str) -> list[Any]:
    """All tables that a runtime can have on a cut."""
    found = [policy.tables(layers, counts) for policy in known]
    if runtime != TORCHTITAN and Policy("full") in known:
        found += [Policy("full", block=True).tables(layers, counts, n) for n in range(max(counts) + 1)]
    return ["none", *found]


def _offers(runtime: str) -> str:
    one = 'one way for all decoder layers, a level named "full" or "selective" that all of them list'
    block = ", or the first n layers of every stage wholly" if runtime != TORCHTITAN else ""
    return f"--runtime {runtime} recomputes nothing, or {one}{block}; never the embedding or the head"


def _shown(asked: Any) -> str:
    return repr(asked) if isinstance(asked, str) else "a table per stage that says another choice"
