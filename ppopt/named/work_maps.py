"""Maps from work to devices and from weights to devices: data parallel, fully sharded, looped in groups, cuckoo; fused backward.

From A. Rahimi, "Unifying Distributed Training Strategies Under one Scheme" (github.com/a-rahimi/parallel-training, parallelsim):
every strategy is a function from (stage, microbatch, direction) to a device, one from stages to the device that keeps the
weights, and one greedy rule that orders what is left. Each schedule here keeps the stages that the pipeline has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ppopt.constraints import Family, Listed, Word, chain
from ppopt.heuristics import FILLINGS, by_frontier
from ppopt.named.definition import Definition, Parameter, Parameters, Restriction, fused
from ppopt.op import Kind, Op
from ppopt.pipeline import Pipeline
from ppopt.pipeline.work_map import WorkMap
from ppopt.schedule import Schedule
from ppopt.timing import time_order

SOURCE = "A. Rahimi, parallelsim, a-rahimi/parallel-training"
FILLING = Parameter(
    "filling",
    "which of the operations that can start at the same time is placed first: oldest-microbatch or oldest-stage",
    "oldest-microbatch",
    choices=tuple(FILLINGS),
)
GROUP = Parameter("group", "devices in a group (g), a divisor of D", "the largest divisor of D below D")


def replicas(pipeline: Pipeline, params: Parameters) -> WorkMap:
    """Microbatch m runs on device m mod D, all its stages; every device keeps all weights.

    Raises:
        Restriction: there are fewer microbatches than devices.
    """
    devices, stages = pipeline.devices, pipeline.stages
    _enough("ddp", pipeline, devices)
    return WorkMap(tuple((d,) * stages for d in range(devices)), tuple(m % devices for m in range(pipeline.microbatches)))


def sharded(pipeline: Pipeline, params: Parameters) -> WorkMap:
    """As :func:`replicas`; the weights of stage s live on device s mod D.

    Raises:
        Restriction: there are fewer microbatches than devices.
    """
    _enough("fsdp", pipeline, pipeline.devices)
    home = tuple(s % pipeline.devices for s in range(pipeline.stages))
    return replicas(pipeline, params)._replace(weights_on=(home,) * pipeline.devices)


def groups(name: str, pipeline: Pipeline, params: Parameters) -> WorkMap:
    """The devices are groups of g in a row. Microbatch m goes to group m mod D/g; there stage s runs on device s mod g of it.

    Raises:
        Restriction: the group does not divide the devices, or some device would have no work.
    """
    devices, stages = pipeline.devices, pipeline.stages
    group = params.get("group") or next((g for g in range(devices // 2, 0, -1) if devices % g == 0), 1)
    if devices % group:
        raise Restriction(f"{name}: group must divide devices ({devices}), got {group}")
    if stages < group:
        raise Restriction(f"{name}: stages must be at least group ({group}), got {stages}")
    count = devices // group
    _enough(name, pipeline, count)
    routes = tuple(tuple(group * r + s % group for s in range(stages)) for r in range(count))
    return WorkMap(routes, tuple(m % count for m in range(pipeline.microbatches)))


def looped(pipeline: Pipeline, params: Parameters) -> WorkMap:
    """:func:`groups`; a device keeps the weights of what it runs."""
    return groups("looped-pp", pipeline, params)


def sharded_looped(pipeline: Pipeline, params: Parameters) -> WorkMap:
    """:func:`groups`; the weights of stage s live where microbatch s would run it: on device s mod g of group s mod D/g."""
    found = groups("fslpp", pipeline, params)
    count = len(found.routes)
    home = tuple(found.routes[s % count][s] for s in range(pipeline.stages))
    return found._replace(weights_on=(home,) * count)


def cuckoos(pipeline: Pipeline, params: Parameters) -> WorkMap:
    """Stage s on device s; but the backwards of the first M//2 - 2 microbatches and first S//2 + 2 stages on device S - 1 - s,
    which gets what their forwards leave behind, and fetches the weights.

    Raises:
        Restriction: stages and devices are not as many, or so few that no backward would move.
    """
    devices, stages, moved = pipeline.devices, pipeline.stages, pipeline.microbatches // 2 - 2
    if stages != devices:
        raise Restriction(f"cuckoo: stages must be devices ({devices}), got {stages}")
    if devices < 2 or moved < 1:
        sizes = f"got devices = {devices}, microbatches = {pipeline.microbatches}"
        raise Restriction(f"cuckoo: devices must be at least 2 and microbatches at least 6, {sizes}")
    up = tuple(range(devices))
    back = tuple(devices - 1 - s if s < stages // 2 + 2 else s for s in up)
    return WorkMap((up, up), tuple(int(m >= moved) for m in range(pipeline.microbatches)), (back, up))


def _enough(name: str, pipeline: Pipeline, least: int) -> None:
    if pipeline.microbatches < least:
        raise Restriction(f"{name}: microbatches must be at least {least}, got {pipeline.microbatches}")


def in_turn(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """A device takes one microbatch after the other through all stages and back: the only order that data allow."""
    stages = pipeline.stages
    path = [(s, Kind.F) for s in range(stages)] + [(s, Kind.B) for s in reversed(range(stages))]
    for route, microbatches in enumerate(pipeline.microbatches_of):
        yield from fused(range(stages), route)
        yield chain(Listed(tuple(Op(s, kind, m) for m in microbatches.tolist() for s, kind in path)))


def in_order(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """Each stage runs each kind in the order of the microbatches of a route; the rest is open."""
    for route in range(len(pipeline.routes)):
        yield from fused(range(pipeline.stages), route)
        yield from (chain(Family(s, kind, route)) for s in range(pipeline.stages) for kind in (Kind.F, Kind.B))


def filled_from_the_frontier(pipeline: Pipeline, words: tuple[Word, ...], params: Parameters) -> Schedule:
    """Of the next operations of all microbatches the one that can start first is placed (:mod:`ppopt.heuristics.frontier`)."""
    return time_order(pipeline, by_frontier(pipeline, params.get("filling", "oldest-microbatch")))


def _looped(name: str, summary: str, work_map: Callable[[Pipeline, Parameters], WorkMap], aliases: tuple[str, ...]) -> Definition:
    return Definition(
        name=name,
        summary=summary,
        source=SOURCE,
        placement="routes",
        constrain=in_order,
        aliases=aliases,
        work_map=work_map,
        parameters=(GROUP, FILLING),
        needs="g divides D, S >= g, M >= D/g",
        peak="at most ceil(S/g) of each of its group's microbatches",
        open_rule="what can start first is placed next; of several the oldest microbatch, or stage (filling)",
        fill=filled_from_the_frontier,
    )


DEFINITIONS = (
    Definition(
        name="ddp",
        summary="data parallel: every device runs all stages of its microbatches and keeps all weights",
        source=SOURCE,
        placement="routes",
        constrain=in_turn,
        aliases=("data-parallel",),
        work_map=replicas,
        needs="M >= D",
        peak="S",
        idle="0 where D divides M",
    ),
    Definition(
        name="fsdp",
        summary="fully sharded data parallel: as ddp, but stage s lives on device s mod D, and the others fetch its weights",
        source=SOURCE,
        placement="routes",
        constrain=in_turn,
        aliases=("fully-sharded-data-parallel",),
        work_map=sharded,
        needs="M >= D",
        peak="S",
        idle="0 where D divides M and nothing waits for weights",
    ),
    _looped(
        "looped-pp",
        "looped pipeline in groups: microbatches are dealt to groups of g devices, whose devices take the stages in turn",
        looped,
        ("looped-pipeline",),
    ),
    _looped(
        "fslpp",
        "fully sharded looped pipeline: as looped-pp, but stage s lives where microbatch s would run it",
        sharded_looped,
        ("fully-sharded-looped-pipeline",),
    ),
    Definition(
        name="cuckoo",
        summary="a linear pipeline; early backwards of the first stages run on the devices that mirror them",
        source=SOURCE,
        placement="routes",
        constrain=in_order,
        work_map=cuckoos,
        parameters=(FILLING,),
        needs="S = D >= 2, M >= 6",
        peak="at most M, and M//2 - 2 more where others' backwards run",
        open_rule="what can start first is placed next; of several the oldest microbatch, or stage (filling)",
        fill=filled_from_the_frontier,
    ),
)
