"""Python's garbage collector, where millions of objects are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = 1000
"""Collections of the middle generation before one of all objects; Python has 10.

8 devices, 2048 microbatches that all differ, ``solve --time-limit 10``: 17.3 to 19.0 s with 10, 12.2 s with 1000, 11.1 to 11.4 s
without any collection. Of all generations 1400 objects were collected, 20 of them by looking at all.
"""


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Inside, the garbage collector seldom looks at all objects; at young ones it looks as often as ever.

    What is immutable has hardly a cycle, but each look at all objects goes through every word, family and operation there is.
    Cycles that die young, and the arrays in them, are found as before.
    """
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, max(old, _SELDOM))
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)
