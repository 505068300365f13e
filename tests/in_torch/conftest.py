"""Tests that run schedules in PyTorch (``pytest -m torch tests/in_torch``).

The folder is not called ``torch``: without PyTorch, ``import torch`` would find it.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "scripts"), str(Path(__file__).parents[1])]
