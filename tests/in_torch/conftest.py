"""Tests that run schedules in PyTorch (``pytest -m torch tests/in_torch``).

The folder is not called ``torch``: without PyTorch, ``import torch`` would find it.
"""
