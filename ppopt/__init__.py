"""ppopt: optimal pipeline-parallel training schedules, with proof.

``import ppopt as pp`` is all that most scripts need (docs/api.md). What stands here is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppopt import named
    from ppopt.files import read_model
    from ppopt.files.checked import check
    from ppopt.files.result import save
    from ppopt.named import compare, register
    from ppopt.pictures.plot import plot
    from ppopt.pipeline import Costs, DataParallel, Layer, Layers, Links, Memory, Offload, Pipeline, Units
    from ppopt.search import Binding, Settings, solve, verify
    from ppopt.study.planning import plan
    from ppopt.transformer import Cluster, Parallel, Training, Transformer, estimate

__version__ = "0.1.0"

_ROOMS = {
    "ppopt.pipeline": ("Costs", "DataParallel", "Layer", "Layers", "Links", "Memory", "Offload", "Pipeline", "Units"),
    "ppopt.transformer": ("Cluster", "Parallel", "Training", "Transformer", "estimate"),
    "ppopt.named": ("compare", "register"),
    "ppopt.search": ("Binding", "Settings", "solve", "verify"),
    "ppopt.files": ("read_model",),
    "ppopt.files.checked": ("check",),
    "ppopt.files.result": ("save",),
    "ppopt.pictures.plot": ("plot",),
    "ppopt.study.planning": ("plan",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "Binding",
    "Cluster",
    "Costs",
    "DataParallel",
    "Layer",
    "Layers",
    "Links",
    "Memory",
    "Offload",
    "Parallel",
    "Pipeline",
    "Settings",
    "Training",
    "Transformer",
    "Units",
    "check",
    "compare",
    "estimate",
    "named",
    "plan",
    "plot",
    "read_model",
    "register",
    "save",
    "solve",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import a name of the face, or a room, when it is first used."""
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name == "named":
        return importlib.import_module("ppopt.named")
    raise AttributeError(f"module 'ppopt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
