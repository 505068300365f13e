"""``import ppopt as pp``: the face of the package, in the user's units; whatever is left open is solved alike everywhere."""

import itertools
import json
import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import ppopt as pp
from ppopt.cli import main
from ppopt.files import Model, json_text, model_dict, read_model, result_dict
from ppopt.pipeline import PipelineError
from ppopt.search import Scope

TEN_LINES = """
import ppopt as pp

costs = pp.Costs(forward=18.5, backward_input=18.1, backward_weight=9.3)
memory = pp.Memory(retained=0.366, limit=3)
pipeline = pp.Pipeline(devices=4, microbatches=8, costs=costs, links=pp.Links(latency=0.6), memory=memory)
table = pp.compare(pipeline)
result = pp.solve(pipeline, seconds=60)
print(table, result, sep="\\n")
assert pp.check(result) == []
pp.plot([result, table["v-half"]], "best.svg")
"""


def gpt(**changes: Any) -> pp.Pipeline:
    costs = pp.Costs(forward=18.5, backward_input=18.1, backward_weight=9.3)  # type: ignore[arg-type]
    memory = pp.Memory(retained=0.366, limit=3)  # type: ignore[arg-type]
    return pp.Pipeline(4, 8, costs=costs, links=pp.Links(latency=0.6), memory=memory).changed(**changes)  # type: ignore[arg-type]


def run(*args: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(args))
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


# --- importing ---------------------------------------------------------------------------------------------------


def test_ten_lines_in_an_empty_folder(tmp_path: Path) -> None:
    shown = subprocess.run([sys.executable, "-c", TEN_LINES], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "makespan 531.9: optimal, proved by" in shown
    assert (tmp_path / "best.svg").read_text().startswith("<?xml")


def test_importing_loads_nothing() -> None:
    code = "import sys, ppopt; sys.exit(str([m for m in sys.modules if m.split('.')[0] in heavy or m.startswith('ppopt.')]))"
    heavy = "heavy = {'ortools', 'pulp', 'matplotlib', 'numpy', 'pydantic', 'rich', 'click', 'torch'}; "
    result = subprocess.run([sys.executable, "-c", heavy + code], capture_output=True, text=True, check=False)
    assert result.stderr.strip() == "[]"


def test_everything_on_the_face_is_there() -> None:
    for name in pp.__all__:
        assert getattr(pp, name) is not None
    assert set(pp.__all__) <= set(dir(pp))
    with pytest.raises(AttributeError, match="nothing"):
        _ = pp.nothing  # type: ignore[attr-defined]
    assert pp.named.compare is pp.compare


# --- units -------------------------------------------------------------------------------------------------------


def test_results_are_in_the_users_units() -> None:
    result = pp.solve(gpt(), workers=1)
    assert (result.value, result.makespan, result.lower_bound) == (531.9, 531.9, 531.9)
    assert result.ticks == (10, 5319, 5319, 5319, 5319)
    assert result.device_span == 531.9
    assert result.schedule is not None
    assert result.schedule.makespan == 5319
    assert result.peak_memory is not None
    assert max(result.peak_memory) <= 3
    written = json.loads(json_text(result_dict(result)))
    for key in ("value", "lower_bound", "gap"):
        assert written["result"][key] == getattr(result, key)
    for key in ("makespan", "device_span", "bubble_ratio", "span_bubble_ratio", "work", "peak_memory"):
        found = getattr(result, key)
        assert written["metrics"][key] == (list(found) if isinstance(found, tuple) else found)


def test_a_result_prints_as_its_summary() -> None:
    shown = str(pp.solve(gpt(), workers=1)).splitlines()
    assert shown[0] == "4 devices, 8 microbatches, linear"
    assert shown[1].startswith("makespan 531.9: optimal, proved by ")
    several = str(pp.solve(pp.Pipeline(2, 4, "any", chunks=[2, 4, 8]), workers=1))
    assert len(shown) <= 10
    assert len(several.splitlines()) <= 10
    assert "None of these placements has anything better" in several


def test_what_a_prompt_shows_is_a_line() -> None:
    result = pp.solve(pp.Pipeline(2, list(range(2, 24, 2))), workers=1)
    assert len(str(result).splitlines()) == 10
    assert str(result).endswith("… and 5 more: each is one of result.points")
    assert repr(result).startswith("<Result: 2 devices, 22 microbatches, linear; makespan 67: optimal")
    table = pp.compare(pp.Pipeline(4, 6, units=pp.Units(time="ms"), memory=pp.Memory(limit=3)))
    assert repr(table) == f"<Table: {len(table)} rows for 4 devices, 6 microbatches, linear>"
    assert str(table["1f1b"]) == (
        "1f1b on linear: makespan 27 ms, device span 27 ms, bubble ratio 33.3 %, peak memory 4, over the limit"
    )
    assert repr(table["dualpipe"]) == f"<Row: {table['dualpipe'].excluded}>"


def test_a_table_has_rows_by_name() -> None:
    table = pp.compare(pp.Pipeline(4, 8, memory=pp.Memory(limit=4)), chunks=[2, 4])
    assert table["1f1b"].makespan == 33
    assert table["interleaved"] is table["interleaved-1f1b"]
    assert [row.chunks for row in table.rows_of("hanayo")] == [2, 4]
    assert (table["hanayo"].chunks, table["hanayo"].makespan) == (4, 28.25)  # the fastest that fits
    assert table[0].name == "gpipe"
    assert len(list(table)) == len(table)
    with pytest.raises(KeyError, match="did you mean zb-h2 or zb-h1"):
        _ = table["zb-h"]
    excluded = pp.compare(pp.Pipeline(4, 6))["dualpipe"]
    assert (excluded.makespan, excluded.work, excluded.within_memory) == (None, None, None)
    assert excluded.excluded is not None
    lines = str(table).splitlines()
    assert lines[0].split() == ["schedule", "placement", "chunks", "makespan", "device", "span", "bubble", "ratio", "span",
                                "bubble", "ratio", "peak", "memory", "memory"]  # fmt: skip
    assert lines[2].split()[0] == "interleaved-zb"


def test_check_and_plot_take_what_there_is(tmp_path: Path) -> None:
    pipeline = pp.Pipeline(2, 4, memory=pp.Memory(limit=2))
    result, table = pp.solve(pipeline, workers=1), pp.compare(pipeline)
    assert pp.check(result) == pp.check(table["1f1b"]) == []
    assert result.schedule is not None
    assert pp.check(result.schedule) == []
    assert {violation.rule for violation in pp.check(table["gpipe"])} == {"memory"}
    assert pp.check(table["gpipe"], pp.Pipeline(2, 4)) == []
    path = str(tmp_path / "best.json")
    pp.save(result, path)
    assert pp.check(path) == []
    pp.plot(result, str(tmp_path / "one.svg"))
    pp.plot([result, table["1f1b"], result.schedule, path], str(tmp_path / "all.svg"), memory=True)
    drawn = (tmp_path / "all.svg").read_text()
    assert all(title in drawn for title in ("optimal", "1f1b", "schedule", "best"))
    with pytest.raises(ValueError, match="there is no schedule to draw"):
        pp.plot(pp.compare(pp.Pipeline(4, 6))["dualpipe"], str(tmp_path / "none.svg"))
    with pytest.raises(ValueError, match="ends in"):
        pp.plot(result, "picture.gif")


def path_of(folder: Path, text: str) -> str:
    (folder / "model.toml").write_text(text)
    return str(folder / "model.toml")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seconds": float("inf")}, "seconds: expected a finite number > 0, got inf"),
        ({"seconds": -1}, "seconds: expected a finite number > 0, got -1"),
        ({"gap": 1.5}, "gap: expected a fraction"),
        ({"workers": 0}, "workers: expected a whole number"),
        ({"seed": -1}, "seed: expected a whole number"),
        ({"solver": "gurobi"}, "solver: expected one of auto, cp-sat, ilp, got 'gurobi'"),
        ({"deterministic": True, "workers": 2}, "a deterministic search has one worker"),
    ],
)
def test_wrong_settings_say_what_is_wrong(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pp.solve(pp.Pipeline(1, 1), **settings)
    with pytest.raises(ValueError, match=message):
        pp.Settings(**settings)


def test_settings_are_an_object_and_keywords_change_it() -> None:
    found = pp.solve(pp.Pipeline(2, 2), pp.Settings(seconds=5, workers=1, seed=3), seed=4)
    assert found.seed == 4


# --- what is open ------------------------------------------------------------------------------------------------


def test_a_scope_says_what_was_open() -> None:
    pipeline = pp.Pipeline(2, 2, "any", [2, 4], costs=pp.Costs(recompute=1), memory=pp.Memory(recompute_saved=1))  # type: ignore[arg-type]
    result = pp.solve(pipeline.changed(recompute="choose"), workers=1)
    assert result.scope == Scope(("linear", "loop", "wave"), (1, 2, 4), "choose")
    assert result.pipeline.open == ()
    assert [(each.pipeline.placement, each.pipeline.chunks) for each in result.placements] == [
        ("linear", 1), ("loop", 2), ("loop", 4), ("wave", 2), ("wave", 4)]  # fmt: skip
    assert result.reason == "optimal"
    assert result.lower_bound == result.value == min(each.lower_bound for each in result.placements)
    outcome = result_dict(result)["result"]
    assert outcome["scope"] == {"placements": ["linear", "loop", "wave"], "chunks": [1, 2, 4], "recompute": "choose"}
    assert [each["value"] for each in outcome["placements"]] == [each.value for each in result.placements]


def test_linear_ignores_a_list_of_chunks() -> None:
    pipeline = pp.Pipeline(2, 4, chunks=[2, 4])
    result = pp.solve(pipeline, workers=1)
    assert result.scope == Scope(("linear",), (1,), "none")
    assert {row.chunks for row in result.named if row.name == "hanayo"} == {2, 4}
    assert {row.chunks for row in pp.compare(pipeline) if row.name == "hanayo"} == {2, 4}


def test_an_own_order_is_for_one_of_the_choices(tmp_path: Path) -> None:
    """An order on a V, for one of two numbers of microbatches, in a file that leaves both open."""
    order = pp.named.find("zb-v").schedule(pp.Pipeline(2, 4)).order.texts()
    model = read_model(
        path_of(tmp_path, f'[pipeline]\ndevices = 2\nmicrobatches = [3, 4]\nplacement = "any"\norder = {json.dumps(order)}\n')
    )
    result = pp.solve(model, workers=1)
    rows = [[row.placement for row in point.named if row.name == "own order"] for point in result.points]
    assert rows == [[], ["wave"]]
    assert result.value == 12.5


def test_chunks_are_two_where_a_placement_takes_several() -> None:
    found = {place: pp.Pipeline(2, 4, place).chunks for place in ("linear", "loop", "wave", "bidirectional", "any")}
    assert found == {"linear": 1, "loop": 2, "wave": 2, "bidirectional": 1, "any": (2,)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"placement": "any", "costs": pp.Costs(per="stage")}, 'costs.per: "stage" belongs to one placement'),
        ({"placement": "any", "recompute": [0]}, "pipeline.recompute: a list of stages belongs to one placement"),
        ({"placement": "loop", "chunks": []}, "pipeline.chunks: expected a whole number >= 1 or a list of them"),
        ({"placement": "any", "chunks": [2, 0]}, r"pipeline.chunks\[1\]: expected a whole number >= 1, got 0"),
        ({"placement": "any", "chunks": 5000}, "pipeline.chunks: at most 4096"),
        ({"routes": [[0, 1, 1, 0]], "chunks": [2, 4]}, "pipeline.chunks: routes that are written out"),
        ({"placement": "any", "memory": pp.Memory(limit=0.5)}, "memory.limit: device 0 needs at least 1"),  # type: ignore[arg-type]
        ({"microbatches": [4, "x"]}, r"pipeline.microbatches\[1\]: expected a whole number >= 1, got 'x'"),
        ({"microbatches": [1, 2], "route_of_microbatch": [0]}, "pipeline.route_of_microbatch: belongs to one number"),
    ],
)
def test_open_choices_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        pp.Pipeline(**{"devices": 2, "microbatches": 4, **fields})


@pytest.mark.parametrize("flags", [["--placement", "any"], ["--placement", "loop", "-v", "2,3"], ["-m", "4,8"]])
def test_other_commands_refuse_what_is_open(flags: list[str], tmp_path: Path) -> None:
    order = tmp_path / "order.csv"
    order.write_text(run("order", "1f1b", "-d", "2", "-m", "4"))
    model = path_of(tmp_path, "[pipeline]\ndevices = 2\nmicrobatches = 4\n")
    for command in (
        ["order", "1f1b", model],
        ["check", str(order), model],
        ["export", str(order), model, "--to", "torch-csv"],
        ["plot", str(order), "--model", model, "-o", str(tmp_path / "x.svg")],
    ):
        error = run(*command, *flags, code=2)
        assert "is left open, which only solve settles" in error or "expected a single number of chunks" in error


def test_the_named_order_settles_the_placement_that_is_open() -> None:
    pipeline = pp.Pipeline(2, 4, "any", [2, 4])
    result = pp.solve(pipeline, order="interleaved-1f1b", workers=1)
    assert [each.pipeline.chunks for each in result.placements] == [2, 4]
    assert {each.pipeline.placement for each in result.placements} == {"loop"}
    assert result.order == pp.Binding("interleaved-1f1b")


def test_an_order_with_recompute_open_is_the_best_of_all_choices() -> None:
    costs, memory = pp.Costs(recompute=(1, 2, 1)), pp.Memory(recompute_saved=0.5, limit=2)  # type: ignore[arg-type]
    pipeline = pp.Pipeline(3, 4, costs=costs, memory=memory, recompute="choose")
    found = pp.solve(pipeline, order="1f1b", workers=1)
    values = [pp.solve(pipeline.resolved(stages), order="1f1b", workers=1).value for stages in subsets(3)]
    assert found.reason == "optimal"
    assert found.value == min(value for value in values if value is not None)
    assert found.pipeline.recompute == (0,)


def subsets(stages: int) -> list[tuple[int, ...]]:
    return [chosen for size in range(stages + 1) for chosen in itertools.combinations(range(stages), size)]


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
            result = pp.solve(closed, workers=1, seconds=30)
            assert result.reason == "optimal"
            assert result.scope is None
            assert result.ticks.value is not None
            values.append(Fraction(result.ticks.value, result.ticks.per_unit))
    return min(values)


def holds_everywhere(seed: int, folder: Path) -> None:
    """The same optimum through command, file and Python, and it is the best of all closed pipelines."""
    pipeline = random_open(random.Random(seed))
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
    source = folder / f"{seed}.json"
    source.write_text(toml_text(tree))
    values = [point.value for point in points]
    assert read_model(str(source)).pipeline == pipeline
    assert values_of(run("solve", str(source), "--workers", "1", "--json")) == values
    closed = {key: value for key, value in tree["pipeline"].items() if key not in ("placement", "chunks", "recompute")}
    closed["microbatches"] = 1
    source.write_text(toml_text({**tree, "pipeline": closed}))
    assert values_of(run("solve", str(source), *flags_of(pipeline), "--workers", "1", "--json")) == values


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


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 6])
def test_the_same_optimum_everywhere(seed: int, tmp_path: Path) -> None:
    holds_everywhere(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(58))
def test_the_same_optimum_everywhere_for_many(seed: int, tmp_path: Path) -> None:
    holds_everywhere(seed, tmp_path)


def test_the_random_pipelines_leave_all_kinds_open() -> None:
    open_ = [random_open(random.Random(seed)).open for seed in range(58)]
    assert {key for keys in open_ for key in keys} == {
        f"pipeline.{key}" for key in ("placement", "chunks", "recompute", "microbatches")
    }
    assert any(len(keys) == 4 for keys in open_)
