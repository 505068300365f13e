"""Where the layers of a model file are from: the tables of the transformer that they were estimated for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppopt.pipeline import PipelineError
from ppopt.transformer import EstimateError, asked_of, tables_of
from ppopt.transformer.tables import KEYS as ORIGIN

__all__ = ["ORIGIN", "origin_of"]


def origin_of(tree: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The tables of a model file that say what its layers were estimated from, with what follows written out; empty without any.

    Raises:
        PipelineError: they are such that no estimate could be made.
    """
    given = {name: tree[name] for name in ORIGIN if name in tree}
    if not given:
        return {}
    if isinstance(given.get("transformer"), Mapping) and "config" in given["transformer"]:
        problem = "a model file has the sizes written out; ppopt estimate reads a config.json"
        raise PipelineError("transformer.config", problem)
    try:
        return tables_of(asked_of(given))
    except EstimateError as error:
        raise PipelineError(error.key, error.message) from None
