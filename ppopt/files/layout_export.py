"""Schedules of pipelines with layers as the options of other runtimes: the cut, what recomputes, and whose order runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from ppopt import layouts
from ppopt.files.launch import has_experts, launch_note, launch_of, megatron_flags, torchtitan_tables
from ppopt.files.runtime_order import compared, interleaved, own_order
from ppopt.layouts import Layout, ModuleNames, NotExpressible, Recomputing
from ppopt.pipeline import Pipeline, in_words
from ppopt.pipeline.cutting import groups_of, levels_of
from ppopt.schedule import Schedule

GROUP_SIZE = "--microbatch-group-size-per-virtual-pipeline-stage"


class Written(NamedTuple):
    """What a runtime is given, and what should be known about it."""

    text: str
    notes: tuple[str, ...]


def written_for(runtime: str, schedule: Schedule, names: ModuleNames | None = None) -> Written:
    """The options of a runtime, one of :data:`RUNTIMES`, for a schedule whose pipeline has layers.

    Args:
        runtime: Its name.
        schedule: Whose cut is written. Its order is written by none of these; where the runtime's own is another one, a note says
            so, with the time that this takes.
        names: The modules' names for TorchTitan; by default its own.

    Raises:
        NotExpressible: the runtime has no way to say it.
    """
    name, write = RUNTIMES[runtime]
    pipeline = schedule.pipeline
    if any(map(len, schedule.copies.rows)):
        problem = "here single activations are copied to the host, each at its time, which no option there says"
        raise NotExpressible(name, problem)
    layout = layouts.layout_of(pipeline, name)
    recomputing = layouts.recomputing_of(pipeline, name)
    if recomputing.mtp and runtime != "megatron":
        raise NotExpressible(name, "layers of multi-token prediction do not recompute there, and here they do")
    written = write(schedule, layout, recomputing, names)
    return Written(written.text, (*cut_lines(pipeline), *_ends(pipeline), *written.notes))


# --- in words ----------------------------------------------------------------------------------------------------


def cut_lines(pipeline: Pipeline) -> tuple[str, ...]:
    """Which layers each stage has, and which of them recompute, in a line each; without layers which stages recompute, if any."""
    if pipeline.layers is None:
        stages = sorted(pipeline.recomputing)
        return (f"stages that recompute: {', '.join(map(str, stages))}",) if stages else ()
    names = [group.name for group in pipeline.layers.groups]
    held = [
        ", ".join(name if n == 1 else f"{n} {name}" for name, n in zip(names, row, strict=True) if n) or "empty"
        for row in groups_of(pipeline.layers, pipeline.counts)
    ]
    again = [", ".join(f"{n} {names[group]} {level.name}" for group, level, n in stage) for stage in levels_of(pipeline)]
    recompute = _by_stage(again) if any(again) else "no layer"
    return (f"layers of the stages: {_by_stage(held)}", f"layers that recompute: {recompute}")


def _by_stage(texts: Sequence[str]) -> str:
    """``0: …; 1-6: …``: stages in a row that have the same are said together, those that have nothing left out."""
    runs = [[stage for stage, _ in run] for _, run in groupby(enumerate(texts), lambda item: item[1])]
    return "; ".join(f"{in_words(run)}: {texts[run[0]]}" for run in runs if texts[run[0]])


def _ends(pipeline: Pipeline) -> Iterator[str]:
    """That layers which may be none are taken for embedding and head."""
    assert pipeline.layers is not None
    groups = pipeline.layers.groups
    for group, place, role in ((groups[0], "first", "embedding"), (groups[-1], "last", "head")):
        if group.count > 1:
            yield f"Warning: the {place} layer of the model, one of {group.count} {group.name!r}, is written as the {role}"


# --- runtimes ----------------------------------------------------------------------------------------------------


def _megatron(schedule: Schedule, layout: Layout, recomputing: Recomputing, names: ModuleNames | None) -> Written:
    words = list(layouts.command_line(layouts.megatron_options(layout)))
    launch = launch_of(schedule.pipeline)
    microbatches, devices = schedule.pipeline.microbatches, len(layout.devices)
    notes = [f"Megatron: --global-batch-size is {microbatches} x --micro-batch-size x the data-parallel degree"]
    if launch is not None:
        words += megatron_flags(launch, has_experts(schedule.pipeline))
        notes = [launch_note(launch, "Megatron")]
    if layout.virtual > 1:
        if microbatches < devices:
            problem = f"interleaving needs as many microbatches as devices ({devices}) at least, got {microbatches}"
            raise NotExpressible("Megatron", problem)
        sizes = [n for n in range(devices, microbatches + 1) if not 0 < microbatches % n < devices]
        own = own_order(schedule, interleaved(sorted(sizes, key=lambda n: (microbatches % n != 0, n))))
        words += [GROUP_SIZE, str(own.params["group_size"])]
    else:
        own = own_order(schedule, [("1f1b", {})])
    words += _megatron_recompute(layout, recomputing)
    if any(recomputing.selective):
        notes.append("Megatron: selective is written as its default, core_attn; --recompute-modules takes others")
    lines: list[str] = []
    for word in words:
        if word.startswith("--"):
            lines.append(word)
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return Written("\n".join(lines) + "\n", (*notes, compared("Megatron", schedule, own)))


def _megatron_recompute(layout: Layout, recomputing: Recomputing) -> tuple[str, ...]:
    if not recomputing.mtp:
        return layouts.megatron_recompute(layout, recomputing.full, recomputing.selective)
    if recomputing.full != layout.layers:
        problem = "layers of multi-token prediction recompute only where all others do, wholly"
        raise NotExpressible("Megatron", problem)
    without = layouts.filled(layout.layers)
    return layouts.megatron_recompute(Layout.of(without, len(layout.devices)), recomputing.full)


def _torchtitan(schedule: Schedule, layout: Layout, recomputing: Recomputing, names: ModuleNames | None) -> Written:
    options = layouts.torchtitan_options(layout, names=names)
    name, microbatches = options["pipeline_parallel_schedule"], schedule.pipeline.microbatches
    mode = _one_policy("TorchTitan", layout, recomputing)
    own = own_order(schedule, [({"1F1B": "1f1b", "Interleaved1F1B": "interleaved-1f1b"}.get(name, "zb-v"), {})])
    note = compared("TorchTitan", schedule, own)
    if not own.same:
        note += "; for the file's: --to torch-csv, and pipeline_parallel_schedule_csv = FILE beside these options"
    rows = ",\n".join(f"    {json.dumps(row)}" for row in options["module_fqns_per_model_part"])
    launch = launch_of(schedule.pipeline)
    tables = {} if launch is None else torchtitan_tables(launch, has_experts(schedule.pipeline))
    text = _torchtitan_table("training", tables) + (
        "[parallelism]\n"
        f"pipeline_parallel_degree = {options['pipeline_parallel_degree']}\n"
        f'pipeline_parallel_schedule = "{name}"\n'
        f"num_pp_microbatches = {microbatches}\n"
        f"{_torchtitan_keys(tables.get('parallelism', {}))}"
        f"module_fqns_per_model_part = [\n{rows},\n]\n"
        f'\n[activation_checkpoint]\nmode = "{mode}"\n'
    )
    notes = (
        "TorchTitan: older versions have no num_pp_microbatches, but a local batch of "
        f"{microbatches} x pipeline_parallel_microbatch_size; newer ones take the checkpointing's mode as a subcommand",
        *(["TorchTitan: selective is its own policy, which may keep other things than the model's"] * (mode == "selective")),
        *_torch_needs(name, microbatches, layout),
        *([] if launch is None else [launch_note(launch, "TorchTitan")]),
    )
    return Written(text, (*notes, note))


def _torchtitan_keys(table: dict[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def _torchtitan_table(name: str, tables: dict[str, dict[str, Any]]) -> str:
    return f"[{name}]\n{_torchtitan_keys(tables[name])}\n" if name in tables else ""


def _torch_needs(name: str, microbatches: int, layout: Layout) -> Iterator[str]:
    """What PyTorch's own schedules would refuse."""
    devices = len(layout.devices)
    if name == "1F1B" and microbatches < devices:
        yield f"Warning: PyTorch's 1F1B needs as many microbatches as stages ({devices}) at least, and has {microbatches}"
    if name == "Interleaved1F1B" and microbatches % max(1, microbatches // devices):
        yield f"Warning: PyTorch's Interleaved1F1B needs a multiple of {microbatches // devices} microbatches, got {microbatches}"


def _one_policy(runtime: str, layout: Layout, recomputing: Recomputing) -> str:
    """``none``, ``full`` or ``selective``, for all layers."""
    if not any(recomputing.full + recomputing.selective):
        return "none"
    for mode, counts in (("full", recomputing.full), ("selective", recomputing.selective)):
        if counts == layout.layers:
            return mode
    shown = ", ".join(map(str, map(sum, zip(recomputing.full, recomputing.selective, strict=True))))
    raise NotExpressible(runtime, f"one way to recompute holds for all layers; here {shown} layers of the stages do")


def _deepspeed(schedule: Schedule, layout: Layout, recomputing: Recomputing, names: ModuleNames | None) -> Written:
    mode = _one_policy("DeepSpeed", layout, recomputing)
    if mode == "selective":
        raise NotExpressible("DeepSpeed", "whole modules recompute there, not parts of layers")
    notes = ["DeepSpeed: for a list of one module for the embedding, one for each layer, and one for the head with the norm"]
    if mode == "full":
        notes.append("DeepSpeed: embedding and head recompute too, unless checkpointable_layers names the layers' class")
    own = own_order(schedule, [("1f1b", {})])
    options = {**layouts.deepspeed(layout), "activation_checkpoint_interval": int(mode == "full")}
    return Written(_json(options), (*notes, compared("DeepSpeed", schedule, own)))


def _colossalai(schedule: Schedule, layout: Layout, recomputing: Recomputing, names: ModuleNames | None) -> Written:
    runtime = "ColossalAI"
    options = {**layouts.colossalai(layout), "num_microbatches": schedule.pipeline.microbatches}
    if any(recomputing.selective):
        raise NotExpressible(runtime, "layers recompute wholly there, not in part")
    notes = [f"{runtime}: arguments of HybridParallelPlugin"]
    if any(recomputing.full):
        options |= layouts.colossalai_recompute(layout, recomputing.full)
        notes[0] += "; num_ckpt_layers_per_stage is one of PipelineGradientCheckpointConfig"
    orders = {"1f1b": "1f1b", "interleaved": "interleaved-1f1b", "zbv": "zb-v"}
    own = own_order(schedule, [(orders[options["pp_style"]], {})])
    note = compared(runtime, schedule, own)
    if not own.same and options["pp_style"] == "zbv":
        note += "; another order is given to it as scheduler_nodes"
    return Written(_json(options), (*notes, note))


def _mindformers(schedule: Schedule, layout: Layout, recomputing: Recomputing, names: ModuleNames | None) -> Written:
    options = layouts.mindformers(layout)
    if any(recomputing.full + recomputing.selective):
        options |= layouts.mindformers_recompute(layout, recomputing.full, recomputing.selective)
    own = own_order(schedule, [("1f1b" if layout.virtual == 1 else "interleaved-1f1b", {})])
    return Written(_json(options), (compared("MindFormers", schedule, own),))


def _galvatron(schedule: Schedule, layout: Layout, recomputing: Recomputing, names: ModuleNames | None) -> Written:
    options = layouts.galvatron(layout)
    if any(recomputing.selective):
        raise NotExpressible("Galvatron", "layers recompute wholly there, not in part")
    own = own_order(schedule, [("1f1b", {}), ("gpipe", {})])
    options |= {
        "chunks": schedule.pipeline.microbatches,
        "pipeline_type": "gpipe" if own.name == "gpipe" else "pipedream_flush",
        **layouts.galvatron_recompute(layout, recomputing.full),
    }
    return Written(_json(options), (compared("Galvatron", schedule, own),))


def _json(options: dict[str, Any]) -> str:
    lines = ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in options.items())
    return f"{{{lines}}}\n"


class Runtime(NamedTuple):
    """A runtime's own name, and what writes its options."""

    name: str
    write: Callable[[Schedule, Layout, Recomputing, ModuleNames | None], Written]


RUNTIMES = {
    "megatron": Runtime("Megatron", _megatron),
    "torchtitan": Runtime("TorchTitan", _torchtitan),
    "deepspeed": Runtime("DeepSpeed", _deepspeed),
    "colossalai": Runtime("ColossalAI", _colossalai),
    "mindformers": Runtime("MindFormers", _mindformers),
    "galvatron": Runtime("Galvatron", _galvatron),
}
