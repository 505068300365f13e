"""Whatever is left open is settled alike in Python, in a file and on the command line; it is the best of all choices."""

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ppopt as pp
from ppopt.files import Model, model_dict, read_model
from ppopt.pipeline import PipelineError
from ppopt.search import Settings, solve_closed
from tests.support.command import run
from tests.support.open_choices import subsets
from tests.support.tiers import thorough


def random_open(rng: random.Random) -> pp.Pipeline:
    """A small pipeline that leaves something open."""
    while True:
        devices = rng.randint(1, 3)
        costs = pp.Costs(
            forward=some(rng, devices, (1, 2, 0.5)),
            backward_input=some(rng, devices, (1, 2)),
            backward_weight=some(rng, devices, (0, 1, 1.5)),
            recompute=some(rng, devices, (0, 1, 2)),
        )
        memory = pp.Memory(
            activation=some(rng, devices, (1, 2)),
            retained=some(rng, devices, (0, 0.5, 1)),
            recompute_saved=some(rng, devices, (0.5, 1)),
            limit=rng.choice((None, 1.5, 2, 3, 4)),
        )
        choose = rng.random() < 0.5
        placement = rng.choice(("any", "any", "loop", "wave", "linear"))
        chunks: Any = rng.choice((None, 2, [1, 2], [2] if devices * 2 > 4 and choose else [2, 3]))
        microbatches: Any = rng.choice((2, 3, [1, 3], [2, 4]))
        try:
            pipeline = pp.Pipeline(
                devices,
                microbatches,
                placement,
                [2] if placement == "linear" and isinstance(chunks, int) else chunks,
                costs=costs,
                memory=memory,
                links=pp.Links(rng.choice((0, 1))),
                recompute="choose" if choose else "none",
            )
        except PipelineError:
            continue
        if pipeline.open and (not choose or max(place.stages for place in settled(pipeline)) <= 4):
            return pipeline


def some(rng: random.Random, devices: int, values: tuple[float, ...]) -> Any:
    return [rng.choice(values) for _ in range(devices)]


def settled(pipeline: pp.Pipeline) -> tuple[pp.Pipeline, ...]:
    one = pipeline.changed(microbatches=counts(pipeline)[0])
    return one.placements()


def counts(pipeline: pp.Pipeline) -> tuple[int, ...]:
    return pipeline.microbatches if isinstance(pipeline.microbatches, tuple) else (pipeline.microbatches,)


def by_enumeration(pipeline: pp.Pipeline) -> Fraction:
    """The best over everything that is open, each closed pipeline solved alone."""
    values = []
    for place in pipeline.placements():
        for stages in subsets(place.stages) if place.recompute == "choose" else [place.recompute]:
            try:
                closed = place.resolved(stages)
            except PipelineError:
                continue
            result = solve_closed(closed, settings=Settings(seconds=30, workers=1))
            assert result.reason == "optimal"
            assert result.scope is None
            assert result.ticks.value is not None
            values.append(Fraction(result.ticks.value, result.ticks.per_unit))
    return min(values)


open_pipelines = st.randoms(use_true_random=False).map(random_open)


def holds_everywhere(pipeline: pp.Pipeline, folder: Path) -> None:
    """The same optimum through command, file and Python, and it is the best of all closed pipelines."""
    result = pp.solve(pipeline, workers=1)
    expected = [by_enumeration(pipeline.changed(microbatches=count)) for count in counts(pipeline)]
    points = result.points or (result,)
    assert [Fraction(point.ticks.value or 0, point.ticks.per_unit) for point in points] == expected
    for point in points:
        assert point.reason == "optimal"
        assert point.lower_bound == point.value
        assert point.pipeline.open == ()
        assert pp.check(point) == []
        open_ = {key for key in pipeline.open if key != "pipeline.microbatches"}
        assert (point.scope is not None) == bool(open_)
    tree = model_dict(Model(pipeline))
    source = folder / "model.json"
    source.write_text(toml_text(tree))
    values = [point.value for point in points]
    assert read_model(str(source)).pipeline == pipeline
    assert values_of(run("solve", source, "--workers", "1", "--json").stdout) == values
    closed = {key: value for key, value in tree["pipeline"].items() if key not in ("placement", "chunks", "recompute")}
    closed["microbatches"] = 1
    source.write_text(toml_text({**tree, "pipeline": closed}))
    assert values_of(run("solve", source, *flags_of(pipeline), "--workers", "1", "--json").stdout) == values


def values_of(text: str) -> list[Any]:
    tree = json.loads(text)
    return [point["result"]["value"] for point in tree.get("points", [tree])]


def flags_of(pipeline: pp.Pipeline) -> list[str]:
    chunks = ",".join(map(str, pipeline.chunks)) if isinstance(pipeline.chunks, tuple) else str(pipeline.chunks)
    flags = ["-m", ",".join(map(str, counts(pipeline))), "--placement", pipeline.placement, "-v", chunks]
    flags = flags[:-2] if pipeline.placement == "linear" else flags
    return [*flags, "--recompute", str(pipeline.recompute)]


def toml_text(tree: Any) -> str:
    """A tree of tables as TOML; what JSON and TOML write alike."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in tree.items() if not isinstance(value, dict)]
    for table, entries in tree.items():
        if isinstance(entries, dict):
            lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in entries.items())]
    return "\n".join(lines) + "\n"


def closed(pipeline: pp.Pipeline) -> int:
    """How many closed pipelines there are."""
    choices = [2**place.stages if place.recompute == "choose" else 1 for place in settled(pipeline)]
    return len(counts(pipeline)) * sum(choices)


@pytest.mark.parametrize(
    ("examples", "most"), [(1, 3), pytest.param(6, 10, marks=thorough), pytest.param(58, 100, marks=pytest.mark.slow)]
)
def test_the_same_optimum_everywhere(examples: int, most: int, tmp_path: Path) -> None:
    @settings(max_examples=examples)
    @given(open_pipelines.filter(lambda pipeline: closed(pipeline) <= most))
    def on(pipeline: pp.Pipeline) -> None:
        holds_everywhere(pipeline, tmp_path)

    on()


def test_the_random_pipelines_leave_all_kinds_open() -> None:
    found: list[tuple[str, ...]] = []

    @settings(max_examples=58)
    @given(open_pipelines)
    def on(pipeline: pp.Pipeline) -> None:
        found.append(pipeline.open)

    on()
    assert {key for keys in found for key in keys} == {
        f"pipeline.{key}" for key in ("placement", "chunks", "recompute", "microbatches")
    }
    assert any(len(keys) == 4 for keys in found)
