"""Routes: the devices that a microbatch visits, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ppopt.pipeline.parts import ChunksMisplaced, PipelineError

Routes: TypeAlias = tuple[tuple[int, ...], ...]

PLACEMENTS = ("linear", "loop", "wave", "bidirectional")
MAX_STAGES = 4096


def routes_of(placement: str, devices: int, chunks: int) -> Routes:
    """The routes of a placement: for each, the device of every stage.

    ``linear``: 0..D-1 (one chunk). ``loop``: stage s on device s mod D. ``wave``: up, down, up, ….
    ``bidirectional``: one route up and one down (one chunk each).

    Raises:
        PipelineError: there is no such placement, or it has one chunk per device and more were asked for.
    """
    up = tuple(range(devices))
    if placement in ("linear", "bidirectional") and chunks != 1:
        raise ChunksMisplaced("pipeline.chunks", f"the {placement} placement has one chunk per device and route, got {chunks}")
    if placement == "linear":
        return (up,)
    if placement == "loop":
        return (up * chunks,)
    if placement == "wave":
        return (tuple(d for chunk in range(chunks) for d in (up if chunk % 2 == 0 else up[::-1])),)
    if placement == "bidirectional":
        return (up, up[::-1])
    raise PipelineError("pipeline.placement", f"expected one of {', '.join(PLACEMENTS)} (or routes), got {placement!r}")


def split_evenly(microbatches: int, routes: int) -> tuple[int, ...]:
    """The route of each microbatch: the first part of them on route 0, the next on route 1, and so on."""
    share = -(-microbatches // routes)
    return tuple(m // share for m in range(microbatches))


def read_split(given: Any, microbatches: int, routes: int) -> tuple[int, ...]:
    """The route of each microbatch; split evenly where none are given.

    Raises:
        PipelineError: there is not one for each microbatch, or one of them is no route.
    """
    if not given:
        return split_evenly(microbatches, routes)
    key = "pipeline.route_of_microbatch"
    if len(given) != microbatches:
        raise PipelineError(key, f"expected {microbatches} routes (one per microbatch), got {len(given)}")
    for m, route in enumerate(given):
        if isinstance(route, bool) or not isinstance(route, int) or not 0 <= route < routes:
            raise PipelineError(f"{key}[{m}]", f"expected a route 0..{routes - 1}, got {route!r}")
    return tuple(given)


def explicit_routes(routes: Any, devices: int, others: Sequence[Sequence[int]] = ()) -> Routes:
    """Routes that are written out, validated: equally long, every device on one of them, or of ``others``.

    Raises:
        PipelineError: they are not; the message names the route.
    """
    if not isinstance(routes, list | tuple) or not all(isinstance(route, list | tuple) for route in routes):
        raise PipelineError("pipeline.routes", f"expected a list of routes, each a list of devices, got {routes!r}")
    for r, route in enumerate(routes):
        key = f"pipeline.routes[{r}]"
        if not route:
            raise PipelineError(key, "expected at least one stage")
        if len(route) != len(routes[0]):
            raise PipelineError(key, f"expected {len(routes[0])} stages as on the first route, got {len(route)}")
        if len(route) > MAX_STAGES:
            raise PipelineError(key, f"at most {MAX_STAGES} stages are supported, got {len(route)}")
        for s, device in enumerate(route):
            if isinstance(device, bool) or not isinstance(device, int) or not 0 <= device < devices:
                raise PipelineError(f"{key}[{s}]", f"expected a device 0..{devices - 1}, got {device!r}")
    unused = set(range(devices)).difference(*routes, (d for row in others for d in row))
    if unused:
        raise PipelineError("pipeline.routes", f"device {min(unused)} holds no stage of any route")
    return tuple(tuple(route) for route in routes)
