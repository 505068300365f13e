"""The cut and what recomputes, chosen for the order of a runtime: compared with every cut and every way to recompute."""

import math
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ppopt.clock import Clock
from ppopt.layouts.runnable import policies_of
from ppopt.named import find
from ppopt.pipeline import Costs, Layers, Links, Memory, Pipeline, PipelineError
from ppopt.schedule import Objective
from ppopt.search import Settings, solve_closed
from ppopt.search.fixed_order import FixedOrder
from ppopt.search.result import Result
from ppopt.search.running import ORDERS
from tests.support.every_cut import cuts
from tests.support.tiers import drawn, thorough


@st.composite
def layers(draw: st.DrawFn) -> Layers:
    """An embedding, one or two groups of decoder layers, maybe layers of multi-token prediction, and a head."""
    times = st.sampled_from((0, 1, 2, Fraction(1, 2)))

    def group(name: str, count: int, levels: tuple[str, ...]) -> dict[str, Any]:
        activation = draw(st.sampled_from((0, 1, 2)))
        more = [
            {"name": level, "time": draw(times), "saved": Fraction(activation * draw(st.integers(0, 3)), 4)} for level in levels
        ]
        backward = {"backward": draw(times)} if fused else {"backward_input": draw(times), "backward_weight": draw(times)}
        return {
            "name": name,
            "count": count,
            "forward": draw(times),
            "activation": activation,
            "weights": draw(st.sampled_from((0, 1))),
            "recompute": more,
            **backward,
        }

    fused = draw(st.booleans())
    both = draw(st.sampled_from(((), ("full",), ("full",), ("selective", "full"), ("selective",))))
    decoders = [group(f"decoder {k}", draw(st.integers(1, 3)), both) for k in range(draw(st.integers(1, 2)))]
    mtp = [group("mtp", draw(st.integers(1, 2)), draw(st.sampled_from(((), ("full",)))))] if draw(st.integers(0, 3)) == 0 else []
    return Layers([group("embedding", 1, ()), *decoders, *mtp, group("head", 1, ())])


@st.composite
def asked(draw: st.DrawFn) -> tuple[Pipeline, str]:
    """A pipeline of layers for a runtime with an order of its own."""
    own = draw(layers())
    runtime = draw(st.sampled_from(tuple(ORDERS)))
    devices = draw(st.integers(1, 3))
    chunks = 2 if runtime == "megatron-interleaved" else 1
    if devices * chunks > len(own):
        devices = 1
    microbatches = devices * draw(st.integers(1, 2)) if chunks > 1 else draw(st.integers(1, 4))
    limit = draw(st.sampled_from((None, 5, 8, 12)))
    pipeline = Pipeline(
        devices,
        microbatches,
        "loop" if chunks > 1 else "linear",
        chunks,
        layers=own,
        costs=Costs(optimizer=draw(st.sampled_from((None, None, 1, tuple(range(devices)))))),
        links=Links(draw(st.sampled_from((0, 1))), draw(st.sampled_from((0, 0, 1)))),
        memory=Memory(static=draw(st.sampled_from((0, 1))), limit=limit),
        recompute=draw(st.sampled_from(("choose", "choose", "none"))) if own.levels else "none",
    )
    return pipeline, runtime


def ways(pipeline: Pipeline, counts: tuple[int, ...]) -> list[Any]:
    """What Megatron can recompute on a cut: nothing, the first n layers of each stage, all, or all at another level."""
    own = pipeline.layers
    assert own is not None
    if pipeline.recompute == "none":
        return ["none"]
    letters = [own.groups[g].name[0] for g in own.group_of]
    stage_of = [s for s, count in enumerate(counts) for _ in range(count)]
    found: list[Any] = ["none"]
    for level in ("full", "selective"):
        if any(own.groups[g].level(level) is None for g, letter in zip(own.group_of, letters, strict=True) if letter == "d"):
            continue
        for n in range(1, len(own) + 1) if level == "full" else [len(own)]:
            for kinds in ("d", "dm") if n == len(own) and level == "full" else ["d"]:
                tables: list[dict[str, dict[str, int]]] = [{} for _ in counts]
                taken = [0] * len(counts)
                for place, g in enumerate(own.group_of):
                    group = own.groups[g]
                    stage = stage_of[place]
                    if letters[place] in kinds and group.level(level) is not None and taken[stage] < n:
                        taken[stage] += 1
                        row = tables[stage].setdefault(group.name, {level: 0})
                        row[level] += 1
                found.append(tables)
    return found


def allowed(pipeline: Pipeline, counts: tuple[int, ...]) -> bool:
    """Megatron has its layers of multi-token prediction on one stage, the last of its device."""
    own = pipeline.layers
    assert own is not None
    stage_of = [s for s, count in enumerate(counts) for _ in range(count)]
    stages = {stage_of[place] for place, g in enumerate(own.group_of) if own.groups[g].name == "mtp"}
    return len(stages) < 2 and all(stage >= (pipeline.chunks - 1) * pipeline.devices for stage in stages)


def best(pipeline: Pipeline, runtime: str, objective: Objective) -> Fraction | None:
    """The best over every cut and every way to recompute, each with the order of the runtime; ``None``: nothing fits."""
    values = []
    for counts in filter(lambda counts: allowed(pipeline, counts), cuts(pipeline)):
        for way in ways(pipeline, counts):
            try:
                own = pipeline.changed(partition=counts, recompute=way)
            except PipelineError:
                continue
            result = solve_closed(own, objective, words=find(ORDERS[runtime]).words(own))
            assert result.reason in ("optimal", "infeasible")
            if result.ticks.value is not None:
                values.append(Fraction(result.ticks.value, own.ticks.per_unit))
    return min(values, default=None)


def found(pipeline: Pipeline, runtime: str, objective: Objective) -> list[Result]:
    """What the search finds for each kind of ways to recompute."""
    settings, words = Settings(seconds=60, workers=1), find(ORDERS[runtime]).words
    branches = [FixedOrder(pipeline, objective, settings, words, policy) for policy in policies_of(pipeline, runtime)]
    return [branch.go_on(Clock(60), math.inf, None) for branch in branches]


def agrees(case: tuple[Pipeline, str], objective: Objective) -> None:
    pipeline, runtime = case
    values, expected = [], best(pipeline, runtime, objective)
    for result in found(pipeline, runtime, objective):
        assert result.reason in ("optimal", "infeasible")
        if result.schedule is not None:
            assert result.pipeline.layers == pipeline.layers
            assert result.schedule.order == find(ORDERS[runtime]).order(result.pipeline)
            values.append(Fraction(result.ticks.value or 0, result.ticks.per_unit))
    assert min(values, default=None) == expected


@thorough
@settings(max_examples=40)
@given(asked())
def test_the_answer_is_the_best_of_all(case: tuple[Pipeline, str]) -> None:
    agrees(case, "makespan")


@drawn(5, 60, asked())
def test_the_least_device_span_is_the_best_of_all(case: tuple[Pipeline, str]) -> None:
    agrees(case, "span")
