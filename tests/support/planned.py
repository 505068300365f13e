"""Small questions for plans."""

from typing import Any


def tables(**changes: Any) -> dict[str, Any]:
    """The tables of a small question; ``changes``: keys of a table, such as ``cluster={"gpus": 4}``."""
    found: dict[str, Any] = {
        "transformer": {
            **{"layers": 3, "hidden": 512, "heads": 8, "kv_heads": 4, "ffn": 1408, "vocabulary": 4000, "sequence": 512},
        },
        "training": {"global_batch": 4},
        "cluster": {
            **{"gpus": 2, "gpus_per_node": 2, "flops": 1e14, "memory": 0.5, "bandwidth": 1000, "intra": 50, "network": 10},
        },
        "search": {"chunks": [1, 2]},
    }
    for table, keys in changes.items():
        found[table] = {**found.get(table, {}), **keys}
    return found
