"""Pipelines whose stages may recompute."""

import random

from ppopt.pipeline import Costs, Links, Memory, Pipeline, PipelineError

COSTS = Costs(forward=(2, 3, 2, 4), backward_input=(3, 2, 2, 1), backward_weight=1, recompute=(1, 2, 0, 1.5))

MEMORY = Memory(activation=(4, 3, 2, 1), retained=(2, 2, 0, 1), recompute_saved=(3, 0, 1, 0.5), limit=9, static=1)


def random_choice(rng: random.Random) -> Pipeline:
    """A small pipeline with a tight limit; at most three stages, so that every choice can be solved."""
    while True:
        devices = rng.randint(1, 3)
        place = rng.choice([{"placement": "linear"}, {"routes": [[*range(devices), *range(max(0, 3 - devices))]]}])
        stages = devices if place.get("placement") else max(devices, 3)

        def some(values: list[float], stages: int = stages) -> list[float]:
            return [rng.choice(values) for _ in range(stages)]

        costs = Costs(
            per="stage",
            forward=some([1, 2, 3]),  # type: ignore[arg-type]
            **(
                {"backward": some([2, 4])}
                if rng.random() < 0.3
                else {"backward_input": some([1, 2]), "backward_weight": some([0, 1, 2])}
            ),  # type: ignore[arg-type]
            recompute=some([0, 1, 2, 2.5]),  # type: ignore[arg-type]
        )
        memory = Memory(
            activation=some([2, 3]),  # type: ignore[arg-type]
            retained=some([0, 1, 2]),  # type: ignore[arg-type]
            recompute_saved=some([0.5, 1, 2]),  # type: ignore[arg-type]
            limit=rng.choice([3, 4, 5, 7]),  # type: ignore[arg-type]
        )
        try:
            return Pipeline(
                devices,
                rng.randint(1, 4),
                costs=costs,
                memory=memory,
                links=Links(rng.choice([0, 1])),
                recompute="choose",
                **place,  # type: ignore[arg-type]
            )
        except PipelineError:
            continue
