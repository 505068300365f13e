"""What a plan is asked for: a transformer, how it is trained, the GPUs, and what may be chosen among."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ppopt.pipeline import ANY
from ppopt.pipeline.runtimes import RUNTIMES
from ppopt.transformer import Cluster, EstimateError, Training, Transformer
from ppopt.transformer.checked import check_keys, optional, whole, word
from ppopt.transformer.settings import RECOMPUTE
from ppopt.transformer.tables import KEYS, cluster_of, needed_training, training_of, transformer_in

Tables = Mapping[str, Mapping[str, Any]]
PLACEMENTS = ("linear", "loop", "wave", ANY)
SIZES = ("tensor", "pipeline", "context", "data", "expert", "expert_tensor")
"""What ``[search]`` may list, and ``[parallel]`` fix."""
SEARCH = (*SIZES, "placement", "chunks", "runtime")
RECIPE = (*SIZES, "microbatch", "zero", "placement", "chunks", "partition", "recompute", "schedule")
TABLES = (*KEYS, "search", "recipe")
Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Search:
    """What may be chosen among. ``None``: all numbers that divide; of ``expert_tensor``: the tensor size.

    ``placement`` and ``chunks`` are as in :class:`~ppopt.pipeline.Pipeline`. ``runtime``: only what it can run, one of
    :data:`ppopt.pipeline.runtimes.RUNTIMES`; empty: anything.
    """

    tensor: Numbers | None = None
    pipeline: Numbers | None = None
    context: Numbers | None = None
    data: Numbers | None = None
    expert: Numbers | None = None
    expert_tensor: Numbers | None = None
    placement: str = ANY
    chunks: Numbers = (1, 2, 4)
    runtime: str = ""


@dataclass(frozen=True)
class Recipe:
    """A choice that somebody has made, to be set beside the plan: sizes as in :class:`~ppopt.transformer.Parallel`.

    ``partition``: the layers of each stage, ``"even"``, ``"balanced"`` or a layout of a runtime. ``schedule``: a named one, by
    default 1F1B or, with chunks, the interleaved one.
    """

    sizes: Mapping[str, int] = field(hash=False, default_factory=dict)
    microbatch: int = 1
    placement: str = ""
    chunks: int = 1
    partition: Any = field(hash=False, default="even")
    recompute: Any = field(hash=False, default="none")
    schedule: str = ""


@dataclass(frozen=True)
class Question:
    """What a plan is asked for. ``clusters`` differ in their number of GPUs alone; ``training`` has the batch of a step.

    ``microbatches``: sequences of a microbatch to choose from (``None``: all that divide), ``zero``: ZeRO stages to choose from.
    """

    sizes: Transformer
    training: Training
    clusters: tuple[Cluster, ...]
    microbatches: Numbers | None = None
    zero: Numbers = (0, 1)
    search: Search = Search()
    sequence_parallel: bool | None = None
    recipe: Recipe | None = None
    name: str = ""


def question_of(tables: Mapping[str, Any], name: str = "") -> Question:
    """The question that the tables of a file ask: ``[transformer]``, ``[training]``, ``[cluster]``, and maybe ``[search]``,
    ``[parallel]``, ``[recipe]``; a ``config`` in ``[transformer]`` is the content of a ``config.json`` here.

    Raises:
        EstimateError: a key is unknown, missing or out of range.
    """
    for key, known in {**KEYS, "search": SEARCH, "recipe": RECIPE}.items():
        table = tables.get(key, {})
        if not isinstance(table, Mapping):
            raise EstimateError(key, f"expected a table [{key}], got {table!r}")
        check_keys(key, tuple(table), known)
    training = _training(tables)
    parallel = tables.get("parallel", {})
    zero = _listed("training.zero", tables.get("training", {}).get("zero", parallel.get("zero", [0, 1])), 0)
    if max(zero) > 3:
        raise EstimateError("training.zero", f"expected ZeRO stages from 0 to 3, got {max(zero)}")
    microbatch = tables.get("training", {}).get("microbatch")
    return Question(
        transformer_in(tables.get("transformer", {})),
        training,
        _clusters(tables.get("cluster", {})),
        None if microbatch is None else _listed("training.microbatch", microbatch),
        zero,
        _search(tables.get("search", {}), parallel),
        parallel.get("sequence_parallel"),
        _recipe(tables["recipe"]) if "recipe" in tables else None,
        name,
    )


def _training(tables: Tables) -> Training:
    table = {key: value for key, value in tables.get("training", {}).items() if key not in ("microbatch", "zero")}
    asked, _ = training_of({**tables, "training": {"recompute": "choose", **table}})
    training = needed_training(asked)
    if training.global_batch is None:
        raise EstimateError("training.global_batch", "missing; expected the sequences of a step")
    return training


def _clusters(table: Mapping[str, Any]) -> tuple[Cluster, ...]:
    cluster = cluster_of({key: value for key, value in table.items() if key != "gpus"})
    if cluster is None:
        raise EstimateError("cluster.gpu", 'missing; times need a GPU, such as gpu = "h100-sxm", or cluster.flops')
    if "gpus" not in table:
        raise EstimateError("cluster.gpus", "missing; expected how many GPUs there are, or a list to choose from")
    return tuple(replace(cluster, gpus=gpus) for gpus in _listed("cluster.gpus", table["gpus"]))


def _listed(key: str, value: Any, least: int = 1) -> Numbers:
    """A whole number or a list of them, ascending."""
    if not isinstance(value, list | tuple):
        return (whole(key, value, least),)
    if not value:
        raise EstimateError(key, "expected a whole number or a list of them, got an empty list")
    return tuple(sorted({whole(f"{key}[{i}]", each, least) for i, each in enumerate(value)}))


def _search(table: Mapping[str, Any], parallel: Mapping[str, Any]) -> Search:
    found: dict[str, Any] = {}
    for name in SIZES:
        if name in table:
            found[name] = _listed(f"search.{name}", table[name])
        elif name in parallel:  # one size, which an estimate has too
            found[name] = (whole(f"parallel.{name}", parallel[name]),)
    if "placement" in table:
        found["placement"] = word("search.placement", table["placement"], PLACEMENTS)
    if "chunks" in table:
        found["chunks"] = _listed("search.chunks", table["chunks"])
    if "runtime" in table:
        found["runtime"] = word("search.runtime", table["runtime"], RUNTIMES)
    return Search(**found)


def _recipe(table: Mapping[str, Any]) -> Recipe:
    sizes = {name: whole(f"recipe.{name}", table[name]) for name in SIZES if name in table}
    if "zero" in table:
        sizes["zero"] = whole("recipe.zero", table["zero"], 0)
    given = {name: table[name] for name in ("placement", "partition", "recompute", "schedule") if name in table}
    for name in ("placement", "schedule"):
        if name in given and not isinstance(given[name], str):
            raise EstimateError(f"recipe.{name}", f"expected a name, got {given[name]!r}")
    if "placement" in given:
        word("recipe.placement", given["placement"], PLACEMENTS[:-1])
    if isinstance(given.get("recompute"), str):
        word("recipe.recompute", given["recompute"], RECOMPUTE)
    counts: dict[str, Any] = {name: optional(f"recipe.{name}", table[name]) for name in ("microbatch", "chunks") if name in table}
    return Recipe(sizes, **counts, **given)


__all__ = ["RECIPE", "SEARCH", "TABLES", "Question", "Recipe", "Search", "question_of"]
