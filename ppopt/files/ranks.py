"""Which devices of a run its files are of, and which are missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ppopt.files.recorded import ProfileError, Recorded


def by_device(files: Sequence[Recorded]) -> list[list[Recorded]]:
    """The files of each device; none of a device that is missing, where the files say that there is one.

    Where they do not say which device a rank is, files of the same stages are one (several runs, or replicas), in the order of
    their ranks.

    Raises:
        ProfileError: stages are on two ranks, or the files are of different runs.
    """
    sizes = {file.microbatches: file.source for file in files}
    if len(sizes) > 1:
        (a, first), (b, second) = list(sizes.items())[:2]
        raise ProfileError(f"{first} has {a} microbatches, {second} {b}")
    routes = {file.route: file.source for file in files if file.route}
    if len(routes) > 1:
        (one, first), (other, second) = list(routes.items())[:2]
        (d, s), (e, t) = ((max(route) + 1, len(route)) for route in (one, other))
        raise ProfileError(f"{first} is of {d} devices and {s} stages, {second} of {e} devices and {t} stages")
    if all(file.device is not None for file in files):
        return [[file for file in files if file.device == device] for device in range(max(next(iter(routes))) + 1)]
    by_stages: dict[frozenset[int], list[Recorded]] = defaultdict(list)
    for file in files:
        by_stages[file.stages].append(file)
    groups = list(by_stages.values())
    if all(file.rank is not None for file in files):
        groups.sort(key=lambda group: min(file.rank or 0 for file in group))
    owner: dict[int, str] = {}
    for group in groups:
        for stage in group[0].stages:
            if stage in owner:
                raise ProfileError(f"stage {stage} is in {owner[stage]} with other stages than in {group[0].source}")
            owner[stage] = group[0].source
    return groups


def stages_of(groups: Sequence[Sequence[Recorded]]) -> tuple[tuple[int, ...], ...]:
    """Per device its stages, of devices as :func:`by_device` gives them.

    Raises:
        ProfileError: a stage is on no device.
    """
    route = next((file.route for group in groups for file in group if file.route), ())
    if route and len(groups) == max(route) + 1:
        return tuple(tuple(stage for stage, home in enumerate(route) if home == device) for device in range(len(groups)))
    held = tuple(tuple(sorted(group[0].stages)) for group in groups)
    there = {stage for stages in held for stage in stages}
    missing = sorted(set(range(max(there) + 1)) - there)
    if missing:
        raise ProfileError(f"stage {missing[0]} of 0..{max(there)} is in no file; give the files of all ranks")
    return held


def missing_ranks(files: Sequence[Recorded], groups: Sequence[Sequence[Recorded]]) -> list[str]:
    """What is to be said of devices, or ranks, that the run had and that no file is of."""
    if any(file.device is not None for file in files):
        gone = [device for device, group in enumerate(groups) if not group]
        return [f"{_listed('device', gone)} of {len(groups)} {_are(gone)} in no file"] if gone else []
    sizes = {file.ranks for file in files if file.ranks is not None and file.rank is not None}
    ranks = {file.rank for file in files}
    gone = sorted(set(range(max(sizes, default=0))) - ranks)
    if not gone:
        return []
    what = "if they hold other stages than these, those are missing" if len(gone) > 1 else "its stages may be missing"
    return [f"{_listed('rank', gone)} of {max(sizes)} {_are(gone)} in no file; {what}"]


def _listed(noun: str, numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8])) + ", …" * (len(numbers) > 8)
    return f"{noun}{'s' * (len(numbers) > 1)} {shown}"


def _are(numbers: Sequence[int]) -> str:
    return "are" if len(numbers) > 1 else "is"
