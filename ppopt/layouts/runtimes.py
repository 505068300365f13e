"""The runtimes whose layouts are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ppopt.layouts import hybrid, megatron, torchtitan
from ppopt.layouts.layout import Reading
from ppopt.layouts.megatron_flags import Megatron
from ppopt.layouts.options import OptionError, Options


class Runtime(NamedTuple):
    """A runtime: what it can be given, and how it reads that."""

    options: type[Options]
    read: Callable[[Any], Reading]


RUNTIMES = {
    "megatron": Runtime(Megatron, megatron.read),
    "megatron-hybrid": Runtime(hybrid.Hybrid, hybrid.read),
    "torchtitan": Runtime(torchtitan.TorchTitan, torchtitan.read),
}


def read(runtime: str, given: Mapping[str, object]) -> Reading:
    """How a runtime reads its options, given by their names.

    Raises:
        Refused: the runtime does not take them.
        OptionError: an option is unknown, missing, of the wrong kind, or larger than what is supported; so is the runtime.
    """
    if runtime not in RUNTIMES:
        raise OptionError(f"there is no runtime {runtime!r}; expected one of {', '.join(RUNTIMES)}")
    of = RUNTIMES[runtime]
    return of.read(of.options.of(given))
