"""The layers of a model file, and a layout of a runtime as their partition."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from ppopt.layouts import Cut, cut_of, is_layout
from ppopt.pipeline import ANY, MAX_DEVICES, Layers, PipelineError, routes_of

MAX_DIGITS = 60
"""Longest number, in digits."""
Tree: TypeAlias = dict[str, Any]


def check_digits(value: Any, key: str) -> None:
    """Raise where a number is too long.

    Raises:
        PipelineError: one is.
    """
    if isinstance(value, dict):
        for name, item in value.items():
            check_digits(item, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            check_digits(item, f"{key}[{i}]")
    elif isinstance(value, int):
        if abs(value) >= 10**MAX_DIGITS:
            raise PipelineError(key, f"expected a number of at most {MAX_DIGITS} digits")
    elif isinstance(value, Decimal) and value.is_finite() and len(value.as_tuple().digits) > MAX_DIGITS:
        raise PipelineError(key, f"expected a number of at most {MAX_DIGITS} digits")


def layers_of(tree: Mapping[str, Any], tables: Mapping[str, Tree]) -> Layers | None:
    """The layers of the file, which say what costs and activations of stages say elsewhere.

    Raises:
        PipelineError: they are no layers, or costs and memory say these things as well.
    """
    if "layers" not in tree:
        return None
    beside = {"costs": ("optimizer", "weight_pieces"), "memory": ("static", "limit", "weights_on", "weights_kept")}
    for table, allowed in beside.items():
        for key in tables[table]:
            if (table, key) == ("memory", "working"):
                problem = f"beside [[layers]] it belongs to memory.static: [memory] has {', '.join(allowed)}"
                raise PipelineError(f"{table}.{key}", problem)
            if key not in allowed:
                raise PipelineError(f"{table}.{key}", f"follows from [[layers]]; beside them [{table}] has {', '.join(allowed)}")
    groups = tree["layers"]
    if isinstance(groups, list):
        for i, group in enumerate(groups):
            if isinstance(group, dict):
                check_digits(group, f"layers[{i}]")
    return Layers(groups)


# --- a layout as the partition -----------------------------------------------------------------------------------


def with_counts(fields: Tree, layers: Layers | None, flags: frozenset[str]) -> Tree:
    """The fields of a pipeline with numbers of layers where its partition is a layout; placement and chunks follow from that.

    Those that are open are settled. Chunks that are given have to be the same, but where the layout came from outside (a key of
    ``flags``) and they did not.

    Raises:
        PipelineError: the layout is for other layers or devices, or says another placement or number of chunks.
    """
    value, devices = fields.get("partition"), fields["devices"]
    if layers is None or not is_layout(value) or not isinstance(devices, int) or not 1 <= devices <= MAX_DEVICES:
        return fields  # the pipeline says what is wrong
    cut = cut_of(value, layers, devices)
    if "routes" in fields:
        loop = routes_of("loop", devices, cut.virtual)
        if cut.looped and [list(route) for route in loop] != fields["routes"]:
            raise _misplaced(cut, devices, "the routes are others")
        return {**fields, "partition": cut.counts}
    placement = _placement(fields.get("placement"), cut, devices)
    beaten = "pipeline.partition" in flags and "pipeline.chunks" not in flags
    chunks = None if beaten else fields.get("chunks")
    if chunks is not None:
        allowed = chunks if isinstance(chunks, list) else [chunks]
        alone = placement == "linear" and isinstance(chunks, list)  # which ignores such a list
        if all(isinstance(count, int) and not isinstance(count, bool) for count in allowed):
            if cut.virtual not in allowed and not alone:
                shown = ", ".join(map(str, allowed))
                raise PipelineError(
                    "pipeline.partition",
                    f"the layout has {len(cut.counts)} stages, {cut.virtual} on each of {devices} devices; "
                    f"pipeline.chunks is {shown}",
                )
        else:
            return fields | {"partition": cut.counts}  # the pipeline says what is wrong with them
    return {**fields, "placement": placement, "chunks": cut.virtual, "partition": cut.counts}


def _placement(given: Any, cut: Cut, devices: int) -> Any:
    """The placement of a layout's stages: a loop, linear with one stage on each device, a wave where that is given."""
    if given in (None, ANY):
        return "loop" if cut.virtual > 1 else "linear"
    fits = ("linear", "loop") if cut.looped else ("linear", "loop", "wave")
    if isinstance(given, str) and (given not in fits or (given == "linear" and cut.virtual > 1)):
        raise _misplaced(cut, devices, f"pipeline.placement is {given}")
    return given


def _misplaced(cut: Cut, devices: int, given: str) -> PipelineError:
    expected = "loop" if cut.virtual > 1 else "linear or loop"
    expected += "" if cut.looped else " or wave"
    return PipelineError(
        "pipeline.partition",
        f"the layout has {len(cut.counts)} stages, {cut.virtual} on each of {devices} devices, "
        f"for which the placement is {expected}; {given}",
    )
