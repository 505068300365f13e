"""The tables ``[transformer]``, ``[training]``, ``[parallel]`` and ``[cluster]`` of a file, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any, TypeAlias

from ppopt.transformer.checked import EstimateError, check_keys, whole
from ppopt.transformer.configs import sizes_of
from ppopt.transformer.estimating import Estimate, estimate
from ppopt.transformer.hardware import FIELDS, GPU, preset
from ppopt.transformer.settings import Cluster, Parallel, Training
from ppopt.transformer.sizes import Transformer

Tables: TypeAlias = Mapping[str, Mapping[str, Any]]
TRAINING = tuple(field.name for field in fields(Training) if field.name != "sequence")
KEYS = {
    "transformer": ("config", "sequence", *(field.name for field in fields(Transformer))),
    "training": (*TRAINING, "zero"),
    "parallel": tuple(field.name for field in fields(Parallel)),
    "cluster": ("gpu", "gpus", "gpus_per_node", "reserve", *FIELDS),
}
"""The keys of each table. ``zero`` may be in ``[training]`` or in ``[parallel]``."""
ELSEWHERE = {"sequence": "transformer", "zero": "parallel", "global_batch": "training", "microbatch": "training"}
"""Keys that are easily put into another table."""


@dataclass(frozen=True)
class Asked:
    """What an estimate is asked for. ``training`` is ``None`` where there is no sequence, ``cluster`` where there is no GPU.

    Without a sequence nothing but parameters and their state can be counted.
    """

    transformer: Transformer
    training: Training | None
    parallel: Parallel
    cluster: Cluster | None
    dtype: str = "bf16"

    def estimate(self) -> Estimate:
        """The estimate.

        Raises:
            EstimateError: there is no sequence; the sizes cannot be cut like that; the cluster lacks a number.
        """
        return estimate(self.transformer, needed_training(self.training), self.parallel, self.cluster)


def needed_training(training: Training | None) -> Training:
    """What is trained with.

    Raises:
        EstimateError: there is no sequence.
    """
    if training is None:
        raise EstimateError("transformer.sequence", "missing; expected the number of tokens of a sequence")
    return training


def asked_of(tables: Tables) -> Asked:
    """What the four tables ask for; a ``config`` in ``[transformer]`` is the content of a ``config.json`` here.

    Raises:
        EstimateError: an unknown key, a value out of range, sizes at odds with each other, a list where one value is needed.
    """
    for name, known in KEYS.items():
        table = tables.get(name, {})
        if not isinstance(table, Mapping):
            raise EstimateError(name, f"expected a table [{name}], got {table!r}")
        _check_known(name, table, known)
        for key, value in table.items():
            if isinstance(value, list) and key not in ("dense", "windowed"):
                raise EstimateError(f"{name}.{key}", f"expected one value, got {value!r}; what is left open is for planning")
    training, dtype = training_of(tables)
    cluster = cluster_of(tables.get("cluster", {}))
    return Asked(transformer_in(tables.get("transformer", {})), training, parallel_of(tables, cluster), cluster, dtype)


def _check_known(name: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known and ELSEWHERE.get(key, name) != name:
            raise EstimateError(f"{name}.{key}", f"unknown key; did you mean {ELSEWHERE[key]}.{key}?")
    check_keys(name, tuple(table), known)


def transformer_in(table: Mapping[str, Any]) -> Transformer:
    """The sizes in ``[transformer]``; what is written out goes before what its ``config`` says.

    Raises:
        EstimateError: a size is missing or out of range.
    """
    config = table.get("config")
    given = {key: value for key, value in table.items() if key not in ("config", "sequence")}
    if config is not None:
        if not isinstance(config, Mapping):
            raise EstimateError("transformer.config", f"expected the content of a config.json, got {config!r}")
        layers = given.get("layers")
        given = {**sizes_of(config, None if layers is None else whole("transformer.layers", layers)), **given}
    for key in ("layers", "hidden", "heads", "vocabulary"):
        if key not in given:
            hint = "" if given else ", or a config.json as transformer.config"
            raise EstimateError(f"transformer.{key}", f"missing; expected a whole number{hint}")
    return Transformer(**given)


def training_of(tables: Tables) -> tuple[Training | None, str]:
    """``[training]`` with the sequence of ``[transformer]``, or ``None`` where that is missing; and the type of the weights.

    Raises:
        EstimateError: a value is out of range.
    """
    sequence = tables.get("transformer", {}).get("sequence")
    given = {key: value for key, value in tables.get("training", {}).items() if key != "zero"}
    training = Training(**{"sequence": 1 if sequence is None else sequence, **given})
    return (None if sequence is None else training), training.dtype


def parallel_of(tables: Tables, cluster: Cluster | None) -> Parallel:
    """``[parallel]``; ``zero`` may stand in ``[training]``, and ``data`` follows from the GPUs of the cluster where it is not
    given.

    Raises:
        EstimateError: a value is out of range, or the GPUs are others than the cluster has.
    """
    given = dict(tables.get("parallel", {}))
    zero = tables.get("training", {}).get("zero")
    if zero is not None and given.setdefault("zero", zero) != zero:
        raise EstimateError("training.zero", f"parallel.zero is {given['zero']}; give one of them")
    gpus = cluster.gpus if cluster is not None else tables.get("cluster", {}).get("gpus")
    if gpus is None:
        return Parallel(**given)
    gpus = whole("cluster.gpus", gpus)
    spread = {**given, "data": 1, "expert": 1, "expert_tensor": None}
    used = Parallel(**spread).gpus
    if "data" not in given:
        if gpus % used:
            problem = f"{gpus} is no multiple of the {used} GPUs of one replica (tensor x pipeline x context)"
            raise EstimateError("cluster.gpus", problem)
        given["data"] = gpus // used
    found = Parallel(**given)
    if found.gpus != gpus:
        problem = f"tensor x pipeline x context x data in [parallel] is {found.gpus} GPUs, got {gpus}"
        raise EstimateError("cluster.gpus", problem)
    return found


def cluster_of(table: Mapping[str, Any]) -> Cluster | None:
    """``[cluster]``: a preset, with what is written out in its place; ``None`` where nothing says how fast the GPU is.

    Raises:
        EstimateError: there is no such preset, or a value is out of range.
    """
    fields_given = {key: value for key, value in table.items() if key in FIELDS}
    given = {key: value for key, value in table.items() if key in ("gpus", "gpus_per_node", "reserve")}
    if "gpu" in table:
        gpu = replace(preset(table["gpu"]), **fields_given)
    elif "flops" in fields_given:
        gpu = GPU(**fields_given)
    elif fields_given:
        raise EstimateError("cluster.gpu", f"missing; cluster.{next(iter(fields_given))} belongs to a GPU: give gpu or flops too")
    else:
        return None
    return Cluster(gpu, **given)


def tables_of(asked: Asked) -> dict[str, dict[str, Any]]:
    """The four tables as a model file keeps them: sizes written out, every setting that is not at its default, numbers as JSON
    has them."""
    found: dict[str, dict[str, Any]] = {
        "transformer": asked.transformer.as_table(),
        "training": {},
        "parallel": {},
        "cluster": {},
    }
    if asked.training is not None:
        found["transformer"]["sequence"] = asked.training.sequence
        found["training"] = {key: getattr(asked.training, key) for key in TRAINING}
    else:
        found["training"] = {"dtype": asked.dtype}
    found["parallel"] = {key: getattr(asked.parallel, key) for key in KEYS["parallel"]}
    if asked.cluster is not None:
        gpu = asked.cluster.gpu
        known = preset(gpu.name) if gpu.name else None
        own = {key: getattr(gpu, key) for key in FIELDS if known is None or getattr(known, key) != getattr(gpu, key)}
        found["cluster"] = {"gpu": gpu.name} if known is not None else {}
        found["cluster"] |= {key: getattr(asked.cluster, key) for key in ("gpus_per_node", "reserve")}
        found["cluster"]["gpus"] = asked.parallel.gpus
        found["cluster"] |= own
    return {
        name: {key: _plain(value) for key, value in table.items() if value not in (None, "")} for name, table in found.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float | Decimal):
        number = float(value)
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    return value
