"""Small random pipelines, for comparing methods with each other."""

import random
from typing import Any

from ppopt.pipeline import Costs, Links, Memory, Pipeline, PipelineError

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
