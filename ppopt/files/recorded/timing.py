"""Records of :class:`~ppopt.files.torch_timing.StageTimer`."""

from __future__ import annotations

from typing import Any

from ppopt.files.recorded.record import Clock, ProfileError, Ran, Recorded, as_seconds, in_time
from ppopt.files.torch_timing import VERSION
from ppopt.op import Kind, Op

FORMAT = "timing records"


def read_timing(path: str, tree: dict[str, Any], skip: int) -> Recorded:
    """The record of a rank.

    Raises:
        ProfileError: it is of another version.
        KeyError, TypeError, ValueError: it is none.
    """
    if tree["ppopt_timing"] != VERSION:
        raise ProfileError(f"expected a timing record of version {VERSION}, got {tree['ppopt_timing']!r}")
    found = Recorded(path, int(tree["rank"]), int(tree["microbatches"]), {}, format=FORMAT, clock=Clock.HOST)
    found.ranks, found.zero = int(tree["ranks"]) if "ranks" in tree else None, int(tree.get("clock_ns", 0))
    for of_stage in tree["stages"]:
        stage = int(of_stage["stage"])
        for name, steps in of_stage["seconds"].items():
            samples = [as_seconds(sample) for step in steps[skip:] for sample in step]
            if samples:
                found.times[stage, Kind[name]] = samples
        for key, sizes in (("activation_bytes", found.activation), ("output_bytes", found.output)):
            if key in of_stage:
                sizes[stage] = as_seconds(of_stage[key])
        if "began" in of_stage:
            _add_steps(found, stage, of_stage)
    found.steps = {number: in_time(ran) for number, ran in sorted(found.steps.items()) if ran}
    for link in tree["links"]:
        pair = int(link["from"]), int(link["to"])
        found.links.setdefault(pair, {})[int(link.get("bytes", 0))] = [as_seconds(seconds) for seconds in link["seconds"]]
    return found


def _add_steps(found: Recorded, stage: int, of_stage: dict[str, Any]) -> None:
    """When the operations of a stage were run, step by step; the lists stand beside each other."""
    for name, steps in of_stage["seconds"].items():
        columns = (of_stage["microbatch"][name], of_stage["began"][name], steps)
        for number, step in enumerate(zip(*columns, strict=True), 1):
            for microbatch, began, seconds in zip(*step, strict=True):
                begin = as_seconds(began)
                found.steps.setdefault(number, []).append(
                    Ran(Op(stage, Kind[name], int(microbatch)), begin, begin + as_seconds(seconds))
                )
