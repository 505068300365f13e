"""What a process of its own has imported once some code has run."""

import json
import subprocess
import sys

HEAVY = frozenset({"matplotlib", "numba", "numpy", "ortools", "pulp", "pydantic", "rich", "torch", "transformers"})
"""Packages that take long to import."""


def heavy_after(code: str) -> set[str]:
    """Those of ``HEAVY`` that are loaded after ``code``; it may end in ``SystemExit``."""
    guarded = f"import json, sys\ntry:\n    exec({code!r})\nexcept SystemExit:\n    pass\nprint(json.dumps(list(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", guarded], capture_output=True, text=True, check=True)
    return HEAVY & set(json.loads(result.stdout.splitlines()[-1]))
