"""Random pipelines, orders and words: what hypothesis draws for the tests, and shrinks to something small where one fails."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from ppopt.bounds import Objective
from ppopt.constraints import (
    Capacity,
    Dealt,
    Exclusive,
    Family,
    Hold,
    Listed,
    OneOf,
    Precede,
    Stream,
    Together,
    Word,
    chain,
    pairs_save_time,
)
from ppopt.files.sites import links_by_site
from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Pipeline, PipelineError, splitting_takes_memory
from ppopt.schedule import Order

F, B, I, W = Kind  # noqa: E741

PLACEMENTS: dict[tuple[str, int], int] = {
    ("linear", 1): 1,
    ("loop", 2): 2,
    ("wave", 2): 2,
    ("bidirectional", 1): 1,
    ("wave", 3): 3,
}
"""Placements with their numbers of chunks, and stages per device."""

objectives: st.SearchStrategy[Objective] = st.sampled_from(["makespan", "span"])


def values(low: int, high: int, length: int) -> st.SearchStrategy[Any]:
    """One number for all, or a list."""
    one = st.integers(low, high)
    return one | st.lists(one, min_size=length, max_size=length).map(tuple)


def each(low: int, high: int, length: int) -> st.SearchStrategy[tuple[int, ...]]:
    """A list of numbers."""
    return st.lists(st.integers(low, high), min_size=length, max_size=length).map(tuple)


def tables(devices: int, most: int) -> st.SearchStrategy[list[list[int]]]:
    """A number from each device to each other one."""
    rows = st.lists(st.integers(0, most), min_size=devices, max_size=devices)
    return st.lists(rows, min_size=devices, max_size=devices).map(
        lambda table: [[0 if a == b else value for b, value in enumerate(row)] for a, row in enumerate(table)]
    )


def sometimes(draw: st.DrawFn, tenths: int) -> bool:
    """True in about so many of ten cases; what is left out makes an example simpler."""
    return draw(st.integers(1, 10)) > 10 - tenths


# --- plain pipelines ---


def sizes(most: int) -> list[tuple[int, int]]:
    """Devices and microbatches with at most so many forwards in all, several devices twice as often."""
    large = most >= 24
    counts = product(range(1, 5 if large else 4), range(1, 7 if large else 5))
    pairs = [pair for pair in counts if prod(pair) <= most]
    return pairs + [pair for pair in pairs if pair[0] > 1]


@st.composite
def places(draw: st.DrawFn, devices: int, most_stages: int) -> dict[str, Any]:
    """A placement by name, or a route that is written out, on which devices may come more than once."""
    if sometimes(draw, 2):
        more = draw(st.lists(st.integers(0, devices - 1), max_size=min(2, most_stages - devices)))
        return {"routes": [draw(st.permutations([*range(devices), *more]))]}
    fit = [place for place, stages in PLACEMENTS.items() if stages * devices <= most_stages]
    placement, chunks = draw(st.sampled_from(fit if devices > 1 else [p for p in fit if p[0] != "bidirectional"]))
    return {"placement": placement, "chunks": chunks}


@st.composite
def plain_costs(draw: st.DrawFn, devices: int, least: int) -> Costs:
    """Per device, of at least ``least``; the backward split, fused, or either."""
    mode = draw(st.sampled_from(["split", "fused", "either", "split"]))
    costs: dict[str, Any] = {"forward": draw(values(least, 4, devices))}
    if mode != "fused":
        costs |= {"backward_input": draw(values(least, 4, devices)), "backward_weight": draw(values(least, 3, devices))}
    if mode != "split":
        costs["backward"] = draw(values(1, 6, devices))
    return Costs(**costs)


@st.composite
def plain_memory(draw: st.DrawFn, devices: int, limited: bool) -> Memory:
    """Often with a limit, in activations of one microbatch; what is retained between I and W differs, and may be more."""
    retained = draw(st.sampled_from([None, 0.5, 0, None, 1.5]))
    if not limited and not sometimes(draw, 7):
        return Memory(retained=retained, static=draw(st.sampled_from([0, 0, 0.5])))
    one = st.sampled_from([1, 2, 3, 1.5])
    return Memory(retained=retained, limit=draw(one | st.lists(one, min_size=devices, max_size=devices).map(tuple)))


@st.composite
def pipelines(draw: st.DrawFn, most_ops: int = 40, *, least: int = 0, limited: bool = False) -> Pipeline:
    """Up to three devices, or four where there may be many operations; costs of at least ``least``; ``limited``: memory is."""
    devices, microbatches = draw(st.sampled_from(sizes(most_ops // 3)))
    place = draw(places(devices, most_ops // (3 * microbatches)))
    latency = draw(tables(devices, 3)) if sometimes(draw, 2) else draw(st.sampled_from([0, 1, 3, 0]))
    try:
        return Pipeline(
            devices,
            microbatches,
            costs=draw(plain_costs(devices, least)),
            links=Links(latency),
            memory=draw(plain_memory(devices, limited)),
            **place,
        )
    except PipelineError:
        reject()


@st.composite
def rebuilding(draw: st.DrawFn, most_ops: int, *, least: int = 0) -> Pipeline:
    """A split backward takes memory on some stage, and each device has room for one microbatch that is split, or little more."""
    pipeline = draw(pipelines(most_ops).filter(lambda pipeline: pipeline.costs.split))
    stages = pipeline.stages
    activation = draw(each(0, 3, stages))
    retained = tuple(max(0, held + draw(st.integers(-2, 3))) for held in activation)
    kinds = ("forward", "backward_input", "backward_weight")
    costs = Costs("stage", **{kind: draw(each(least, 3, stages)) for kind in kinds})
    if sometimes(draw, 4):
        costs = replace(costs, backward=draw(each(1, 6, stages)))
    room = [0] * pipeline.devices
    for route in pipeline.routes:
        held = [0] * pipeline.devices
        for stage, device in enumerate(route):
            held[device] += activation[stage]
            room[device] = max(room[device], held[device] + max(0, retained[stage] - activation[stage]))
    limit = tuple(most + draw(st.integers(0, 4)) for most in room)
    pipeline = changed(pipeline, costs=costs, memory=Memory(activation, retained, limit=limit))
    return pipeline if splitting_takes_memory(pipeline) else reject()


# --- everything that a machine may have ---


@st.composite
def held_links(draw: st.DrawFn, pipeline: Pipeline) -> Links:
    """Links that transfers hold: all alike or not, shared, blocking, or between two sites."""
    devices = range(pipeline.devices)
    blocking = sometimes(draw, 4)
    if len(devices) > 1 and sometimes(draw, 3):
        sites = [[d for d in devices if d % 2 == site] for site in range(2)]
        inter = {"latency": draw(st.integers(0, 2)), "occupancy": draw(st.integers(1, 3)), "shared": draw(st.booleans())}
        return Links(**links_by_site({"sites": sites, "inter": inter, "blocking": blocking}, len(devices)))
    pairs = [(a, b) for a in devices for b in devices if a != b]
    shared = []
    if pairs and sometimes(draw, 4):
        shared = [draw(st.permutations(pairs))[: draw(st.integers(1, len(pairs)))]]
    occupancy = draw(st.integers(1, 3) | tables(len(devices), 3))
    return Links(pipeline.links.latency, occupancy, blocking, shared)


@st.composite
def linked(draw: st.DrawFn, most_ops: int = 20, *, least: int = 0, limited: bool = False) -> Pipeline:
    """At least one link is held by transfers."""
    pipeline = draw(pipelines(most_ops, least=least, limited=limited).filter(lambda pipeline: pipeline.devices > 1))
    pipeline = changed(pipeline, links=draw(held_links(pipeline)))
    return pipeline if pipeline.lines else reject()


@st.composite
def paired(draw: st.DrawFn, most_ops: int = 15, *, links: bool = False) -> Pipeline:
    """Some overlapped pair saves time; with ``links`` transfers hold links."""
    pipeline = draw(linked(most_ops) if links else pipelines(most_ops))
    overlap = draw(values(1, 4, pipeline.devices))
    pipeline = changed(pipeline, costs=replace(pipeline.costs, overlap=overlap))
    return pipeline if pairs_save_time(pipeline) else reject()


@st.composite
def machines(draw: st.DrawFn, most_ops: int) -> Pipeline:
    """All that a pipeline may have, by chance.

    Stages with costs and memory of their own, two written-out routes, links that are held, shared, blocking or those of two
    sites, overlapped pairs, data-parallel traffic that overlaps computing or not, an optimizer step, stages that recompute.
    """
    pipeline = draw(pipelines(most_ops))
    devices, stages = pipeline.devices, pipeline.stages
    if len(pipeline.routes) == 1 and sometimes(draw, 2):
        second = tuple(draw(st.permutations(pipeline.routes[0])))
        pipeline = changed(pipeline, routes=(pipeline.routes[0], second), route_of_microbatch=())
    if sometimes(draw, 5):
        pipeline = draw(by_stage(pipeline))
    length = stages if pipeline.costs.per == "stage" else devices
    if sometimes(draw, 5):
        pipeline = changed(pipeline, costs=replace(pipeline.costs, overlap=draw(values(1, 4, length))))
    elif sometimes(draw, 4):
        costs = replace(pipeline.costs, recompute=draw(values(1, 2, length)))
        memory = replace(pipeline.memory, recompute_saved=0.5)
        chosen = tuple(sorted(draw(st.sets(st.integers(0, stages - 1), min_size=1))))
        pipeline = changed(pipeline, costs=costs, memory=memory, recompute=chosen)
    if devices > 1 and sometimes(draw, 6):
        pipeline = changed(pipeline, links=draw(held_links(pipeline)))
    if sometimes(draw, 6):
        per = draw(st.sampled_from(["device", "stage"]))
        gather, scatter = (draw(values(0, 4, stages if per == "stage" else devices)) for _ in range(2))
        pipeline = changed(pipeline, data_parallel=DataParallel(gather, scatter, draw(st.booleans()), per))
    if sometimes(draw, 2):
        pipeline = changed(pipeline, costs=replace(pipeline.costs, optimizer=draw(values(1, 4, devices))))
    return pipeline


@st.composite
def by_stage(draw: st.DrawFn, pipeline: Pipeline) -> Pipeline:
    """Costs and memory of each stage, none of them zero; a limit per device."""
    stages = pipeline.stages
    kinds = ("forward", "backward_input", "backward_weight") if pipeline.costs.split else ("forward", "backward")
    activation = draw(each(1, 2, stages))
    retained = tuple(draw(st.integers(0, held + 1)) for held in activation)
    memory = Memory(activation, retained, limit=draw(each(2, 5, pipeline.devices)))
    return changed(pipeline, costs=Costs("stage", **{kind: draw(each(1, 4, stages)) for kind in kinds}), memory=memory)


def changed(pipeline: Pipeline, **changes: Any) -> Pipeline:
    """The pipeline with changes, its microbatches on the same routes; an example without such a pipeline is given up."""
    try:
        return pipeline.changed(**{"route_of_microbatch": pipeline.route_of_microbatch, **changes})
    except PipelineError:
        reject()


def longer(pipeline: Pipeline, factor: int) -> Pipeline:
    """All times so many times as long, in ticks of the same length."""

    def scaled(value: Any) -> Any:
        return tuple(map(scaled, value)) if isinstance(value, tuple) else factor * value if isinstance(value, Fraction) else value

    parts = {
        name: replace(part, **{field.name: scaled(getattr(part, field.name)) for field in fields(part)})
        for name, part in (("costs", pipeline.costs), ("links", pipeline.links), ("data_parallel", pipeline.data_parallel))
    }
    return pipeline.changed(**parts, route_of_microbatch=pipeline.route_of_microbatch)


# --- orders ---


@st.composite
def orders(draw: st.DrawFn, pipeline: Pipeline) -> Order:
    """An order that cannot deadlock: one of all operations, dealt to the devices; each backward whole or split."""
    queues = []
    for m in range(pipeline.microbatches):
        ways = [(I, W), (B,)] if pipeline.costs.split else [(B,)]
        backward = [Op(s, kind, m) for s in reversed(range(pipeline.stages)) for kind in draw(st.sampled_from(ways))]
        queues.append([*(Op(s, F, m) for s in range(pipeline.stages)), *backward])
    rows: list[list[Op]] = [[] for _ in range(pipeline.devices)]
    while any(queues):
        op = draw(st.sampled_from([queue for queue in queues if queue])).pop(0)
        rows[pipeline.routes[pipeline.route_of_microbatch[op.microbatch]][op.stage]].append(op)
    return Order.of(pipeline, rows)


# --- words of the user's own ---


@st.composite
def few_ops(draw: st.DrawFn) -> Pipeline:
    """So small that all orders can be gone through, one chunk per device."""
    devices, microbatches, split = draw(st.sampled_from([(2, 1, True), (1, 2, True), (2, 2, False), (3, 1, True), (2, 2, False)]))
    costs: dict[str, Any] = {"forward": draw(each(1, 3, devices))}
    if split:
        costs |= {"backward_input": draw(st.integers(1, 3)), "backward_weight": draw(st.integers(1, 2))}
        costs |= {"backward": draw(st.integers(1, 5))} if draw(st.booleans()) else {}
    else:
        costs |= {"backward": draw(each(1, 3, devices))}
    links, limit = Links(draw(st.sampled_from([0, 1, 2, 0]))), draw(st.sampled_from([None, 1, 2, None]))
    memory = Memory(limit=limit, retained=draw(st.sampled_from([None, 0.5, 1.5, 2])))
    return Pipeline(devices, microbatches, costs=Costs(**costs), links=links, memory=memory)


def kinds_of(pipeline: Pipeline) -> tuple[Kind, ...]:
    """The kinds of operations that there are."""
    return (F, B, I, W) if pipeline.costs.split else (F, B)


def ends_of(pipeline: Pipeline, stage: int, route: int = 0) -> tuple[Family, ...]:
    """What ends the backward of a stage."""
    return tuple(Family(stage, kind, route) for kind in ((B, W) if pipeline.costs.split else (B,)))


@st.composite
def streams(draw: st.DrawFn, pipeline: Pipeline) -> Stream:
    """A family, or a list of one operation or two."""
    stages, kinds = st.integers(0, pipeline.stages - 1), st.sampled_from(kinds_of(pipeline))
    if draw(st.booleans()):
        return Family(draw(stages), draw(kinds))
    op = st.tuples(stages, kinds, st.integers(0, pipeline.microbatches - 1)).map(lambda given: Op(*given))
    return Listed(tuple(draw(st.lists(op, min_size=1, max_size=2, unique=True))))


@st.composite
def precedences(draw: st.DrawFn, pipeline: Pipeline) -> Precede:
    """One stream before another, or before later ones of its own."""
    before, after = draw(streams(pipeline)), draw(streams(pipeline))
    word = Precede(before, after, draw(st.sampled_from([0, 1, -1, 0])), draw(st.sampled_from([0, 1, 3, 0])))
    return word if before != after or word.shift > 0 else reject()


@st.composite
def choices(draw: st.DrawFn, pipeline: Pipeline) -> OneOf:
    """How backwards are run: whole or split, of a stage, of one operation, of two stages alike."""
    stages = st.integers(0, pipeline.stages - 1)
    stage, other, m = draw(stages), draw(stages), draw(st.integers(0, pipeline.microbatches - 1))
    ways = [
        OneOf(((Family(stage, B),),)),
        OneOf(((Family(stage, I), Family(stage, W)),)),
        OneOf(((Listed((Op(stage, B, m),)),),)),
    ]
    if other != stage:
        ways.append(OneOf(((Family(stage, B),), (Family(other, B),))))
        ways.append(OneOf(((Family(stage, B), Family(other, B)), (Family(stage, I), Family(other, I)))))
    return draw(st.sampled_from(ways))


@st.composite
def capacities(draw: st.DrawFn, pipeline: Pipeline) -> Capacity:
    """What some stages hold from their forwards to the ends of their backwards."""
    chosen = sorted(draw(st.sets(st.integers(0, pipeline.stages - 1), min_size=1)))
    holds = [Hold(Family(s, F), ends_of(pipeline, s), draw(st.integers(1, 2))) for s in chosen]
    return Capacity(tuple(holds), draw(st.integers(1, 4)))


@st.composite
def words(draw: st.DrawFn, pipeline: Pipeline) -> Word:
    """A word over families and lists, such as an enumeration of orders can count."""
    kind = draw(st.sampled_from(["precede"] * 4 + ["one of", "exclusive", "capacity"]))
    if kind == "exclusive":
        return Exclusive((draw(streams(pipeline)), draw(streams(pipeline))))
    if kind == "capacity":
        return draw(capacities(pipeline))
    return draw(choices(pipeline) if kind == "one of" and pipeline.costs.split else precedences(pipeline))


@st.composite
def any_words(draw: st.DrawFn, pipeline: Pipeline) -> Word:
    """Words over streams of any kind, pairs that are asked for among them."""
    stages = st.integers(0, pipeline.stages - 1)
    stage, route = draw(stages), draw(st.integers(0, len(pipeline.routes) - 1))
    kinds = st.sampled_from(kinds_of(pipeline))
    kind = draw(st.sampled_from(["some", "some", "dealt", "together", "limit", "alike"]))
    if kind == "dealt":
        order = draw(st.permutations(range(pipeline.stages)))[:2]
        families = tuple(Family(s, draw(kinds), route) for s in order)
        stream = Dealt(families, draw(st.integers(1, 2)), descending=sometimes(draw, 3))
        return draw(st.sampled_from([chain(stream), Precede(Family(stage, F, route), stream, 0, draw(st.integers(0, 2)))]))
    if kind == "together" and pipeline.costs.overlap is not None:
        return Together(Family(stage, F, route), Family(stage, B, route), shift=draw(st.integers(1, 2)))
    if kind == "limit":
        return Capacity((Hold(Family(stage, F, route), ends_of(pipeline, stage, route), 1),), draw(st.integers(1, 2)))
    if kind == "alike":
        shift, lag = draw(st.integers(1, 2)), draw(st.integers(0, 2))
        return Precede(Family(stage, F, route), Family(draw(stages), F, route), shift, lag)
    word = draw(words(pipeline))
    return reject() if isinstance(word, Capacity) and len(pipeline.routes) > 1 else word
