"""Many cases in one test: each is checked, and every one that fails is told."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def each(cases: Mapping[str, T] | Iterable[tuple[str, T]], check: Callable[[T], object]) -> None:
    """Check every case, by its id. The last line of the error names all that failed, its cause is the first of them."""
    found = dict(cases)
    failed: dict[str, Exception] = {}
    for name, case in found.items():
        try:
            check(case)
        except Exception as error:
            failed[name] = error
    assert found, "there is nothing to check"
    if failed:
        told = [f"{name}: {type(error).__name__}: {str(error).split(chr(10))[0]}" for name, error in failed.items()]
        raise AssertionError(f"{len(failed)} of {len(found)} fail\n" + "\n".join(told)) from next(iter(failed.values()))
