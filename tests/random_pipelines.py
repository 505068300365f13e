"""Small random pipelines, for comparing methods with each other."""

import dataclasses
import random
from typing import Any

from ppopt.files.sites import links_by_site
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Pipeline, PipelineError

PLACEMENTS: list[tuple[str, int]] = [("linear", 1), ("linear", 1), ("loop", 2), ("wave", 2), ("bidirectional", 1)]


def random_pipeline(rng: random.Random, most_ops: int = 40) -> Pipeline:
    """Uneven costs (some zero), latency, retained memory and limits; linear, loop, wave, bidirectional and written-out routes."""
    while True:
        devices, microbatches = rng.randint(1, 3), rng.randint(1, 4)
        place: dict[str, Any]
        if rng.random() < 0.2:
            stages = [*range(devices), *(rng.randrange(devices) for _ in range(rng.randint(0, 2)))]
            rng.shuffle(stages)
            place = {"routes": [stages]}
        else:
            placement, chunks = rng.choice(PLACEMENTS)
            place = {"placement": placement, "chunks": chunks}

        def some(low: int, high: int, devices: int = devices) -> int | list[int]:
            return rng.randint(low, high) if rng.random() < 0.6 else [rng.randint(low, high) for _ in range(devices)]

        chunks = place.get("chunks", 1)
        costs: dict[str, Any] = {"forward": some(0, 4)}
        mode = rng.choice(["split", "split", "fused", "either"])
        if mode != "fused":
            costs |= {"backward_input": some(0, 4), "backward_weight": some(0, 3)}
        if mode != "split":
            costs["backward"] = some(1, 6)
        latency: Any = rng.choice([0, 0, 1, 3])
        if rng.random() < 0.2:
            latency = [[0 if a == b else rng.randint(0, 3) for b in range(devices)] for a in range(devices)]
        limit: Any = None
        if rng.random() < 0.7:
            limit = rng.choice([1, 1.5, 2, 3]) if rng.random() < 0.7 else [rng.choice([1, 2, 3]) for _ in range(devices)]
        retained = rng.choice([None, None, 0.5, 0])
        try:
            pipeline = Pipeline(
                devices,
                microbatches,
                costs=Costs(**costs),
                links=Links(latency),
                memory=Memory(limit=limit, retained=retained, static=rng.choice([0, 0, 0.5]) if limit is None else 0),
                **place,
            )
        except PipelineError:
            continue
        if 3 * pipeline.stages * microbatches <= most_ops:
            return pipeline


def random_machine(rng: random.Random, most_ops: int) -> Pipeline:
    """All that a pipeline may have, by chance: stages with costs and memory of their own, two written-out routes, links that are
    held, shared, blocking or those of two sites, overlapped pairs, data-parallel traffic that overlaps computing or not."""
    while True:
        plain = random_pipeline(rng, most_ops)
        if plain.devices == 1 and rng.random() < 0.8:
            continue
        devices, changes = range(plain.devices), dict[str, Any](route_of_microbatch=plain.route_of_microbatch)
        if rng.random() < 0.2 and len(plain.routes) == 1:
            others = list(plain.routes[0])
            rng.shuffle(others)
            changes |= {"routes": (plain.routes[0], tuple(others)), "route_of_microbatch": ()}

        def some(low: int, high: int, length: int) -> int | list[int]:
            return rng.randint(low, high) if rng.random() < 0.4 else [rng.randint(low, high) for _ in range(length)]

        per = rng.choice(["device", "stage"])
        length = plain.stages if per == "stage" else plain.devices
        if per == "stage":
            kinds = [("backward_input", 1), ("backward_weight", 0)] if plain.costs.split else [("backward", 1)]
            changes["costs"] = Costs("stage", **{name: some(low, 4, length) for name, low in [("forward", 1), *kinds]})
            activation = [rng.randint(1, 2) for _ in range(length)]
            retained = [rng.randint(0, held) for held in activation]
            changes["memory"] = Memory(activation, retained, limit=[rng.randint(2, 5) for _ in devices])
        if rng.random() < 0.5:
            changes["costs"] = dataclasses.replace(changes.get("costs", plain.costs), overlap=some(1, 4, length))
        if rng.random() < 0.7:
            changes["links"] = _random_links(rng, plain)
        if rng.random() < 0.6:
            per_traffic = rng.choice(["device", "stage"])
            length = plain.stages if per_traffic == "stage" else plain.devices
            gather, scatter = some(0, 4, length), some(0, 4, length)
            changes["data_parallel"] = DataParallel(gather, scatter, rng.random() < 0.5, per_traffic)
        try:
            return plain.changed(**changes)
        except PipelineError:
            continue


def _random_links(rng: random.Random, pipeline: Pipeline) -> Links:
    devices = range(pipeline.devices)
    blocking = rng.random() < 0.4
    if rng.random() < 0.3 and len(devices) > 1:
        sites = [[d for d in devices if d % 2 == site] for site in range(2)]
        inter = {"latency": rng.randint(0, 2), "occupancy": rng.randint(1, 3), "shared": rng.random() < 0.5}
        return Links(**links_by_site({"sites": sites, "inter": inter, "blocking": blocking}, len(devices)))
    pairs = [(a, b) for a in devices for b in devices if a != b]
    rng.shuffle(pairs)
    shared = [pairs[: rng.randint(1, len(pairs))]] if pairs and rng.random() < 0.4 else []
    uneven = [[0 if a == b else rng.randint(0, 3) for b in devices] for a in devices]
    return Links(pipeline.links.latency, rng.choice([1, 2]) if rng.random() < 0.5 else uneven, blocking, shared)
