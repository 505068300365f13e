"""A Dask cluster as an Executor (extra ``dask``)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from ppopt.study.plan import StudyError


@contextmanager
def connected(address: str, threads: int = 1) -> Iterator[tuple[Executor, int]]:
    """The executor of the cluster at ``address``, and how many instances of ``threads`` solver threads it can run at once.

    Raises:
        StudyError: Dask is not installed, no scheduler answers, or it has no worker.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise StudyError("--dask needs the extra dask: pip install 'ppopt-pipeline[dask]'") from None
    try:
        client = distributed.Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise StudyError(f"{address}: no Dask scheduler answers: {error}") from None
    with client:
        client.wait_for_workers(1, timeout=30)
        available = sum(client.ncores().values())
        if available < threads:
            raise StudyError(f"{address}: an instance needs {threads} cores; the workers have {available}")
        yield client.get_executor(pure=False), available // threads
