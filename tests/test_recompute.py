"""Stages that recompute: as if it were written in the costs; which stages should, against every choice; the checker's reading."""

import dataclasses
import functools
import itertools
import json
import random
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from ppopt.checker import Rule, violations, violations_of
from ppopt.cli import main
from ppopt.files import Model, model_dict, model_of, read_model, setting
from ppopt.files.model import model_of_text
from ppopt.named import NAMED, Restriction, compare, find
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Memory, Pipeline, PipelineError
from ppopt.schedule import Schedule
from ppopt.search import Result, solve
from ppopt.search.recomputing import relaxed
from ppopt.study.plan import study_of
from ppopt.study.sweep import run_instance

MODEL = str(Path(__file__).parents[1] / "models" / "gpt-1.5b-recompute.toml")

COSTS = Costs(forward=(2, 3, 2, 4), backward_input=(3, 2, 2, 1), backward_weight=1, recompute=(1, 2, 0, 1.5))
MEMORY = Memory(activation=(4, 3, 2, 1), retained=(2, 2, 0, 1), recompute_saved=(3, 0, 1, 0.5), limit=9, static=1)
HALF = Fraction(1, 2)


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(args))
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result.exit_code, result.stdout, result.stderr


# --- durations and amounts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("latency", [0, 3])
def test_named_schedules_are_those_of_a_pipeline_with_the_costs_written_out(latency: int) -> None:
    pipeline = Pipeline(4, 8, costs=COSTS, memory=MEMORY, links=Links(latency), recompute="all")
    by_hand = Pipeline(
        4,
        8,
        costs=Costs(forward=(2, 3, 2, 4), backward_input=(4, 4, 2, 2.5), backward_weight=1),
        memory=Memory(activation=(1, 3, 1, 0.5), retained=(1, 2, 0, 0.5), limit=9, static=1),
        links=Links(latency),
    )
    rows, others = compare(pipeline, (2, 4)), compare(by_hand, (2, 4))
    assert {row.name for row in rows if row.schedule is not None} >= {*NAMED} - {"chimera", "interleaved-zb"}
    for row, other in zip(rows, others, strict=True):
        assert (row.name, row.placement, row.chunks, row.excluded) == (other.name, other.placement, other.chunks, other.excluded)
        if row.schedule is not None and other.schedule is not None:
            assert row.schedule.order.texts() == other.schedule.order.texts()
            assert row.schedule.pipeline.time(row.schedule.makespan) == other.schedule.pipeline.time(other.schedule.makespan)
            assert list(map(row.schedule.pipeline.amount, row.schedule.peak_memory)) == list(
                map(other.schedule.pipeline.amount, other.schedule.peak_memory)
            )


def test_a_fused_backward_takes_longer_too() -> None:
    costs = Costs(forward=2, backward_input=2, backward_weight=2, backward=3, recompute=2)
    ticks = Pipeline(2, 3, costs=costs, memory=Memory(recompute_saved=1), recompute=[1]).ticks
    assert ticks.duration[0, Kind.B].tolist() == [3, 5]
    assert ticks.duration[0, Kind.I].tolist() == [2, 4]
    assert ticks.duration[0, Kind.W].tolist() == [2, 2]
    alone = Pipeline(2, 3, costs=Costs(backward=3, recompute=2), memory=Memory(recompute_saved=1), recompute="all").ticks
    assert alone.duration[0, Kind.B].tolist() == [5, 5]
    assert (alone.duration[0, Kind.I] == -1).all()


def test_a_chunk_recomputes_its_part() -> None:
    costs = Costs(forward=2, backward_input=4, backward_weight=2, recompute=(2, 6))
    memory = Memory(activation=2, retained=2, recompute_saved=(1, 2))
    pipeline = Pipeline(2, 4, placement="wave", chunks=2, costs=costs, memory=memory, recompute=[0, 1, 2])
    assert pipeline.ticks.duration[0, Kind.I].tolist() == [3, 5, 5, 2]
    amounts = pipeline.amounts
    assert (amounts.activation / amounts.per_unit).tolist() == [[0.5, 0, 0, 1]]
    assert (amounts.retained / amounts.per_unit).tolist() == [[0.5, 0, 0, 1]]


@pytest.mark.parametrize("place", [("linear", 1), ("loop", 2), ("wave", 2), ("bidirectional", 1)])
@pytest.mark.parametrize("recompute", ["none", "all", [1], [0, 1]])
def test_written_out_is_the_same(place: tuple[str, int], recompute: str | list[int]) -> None:
    costs = Costs(forward=2, backward_input=3, backward_weight=1, recompute=2)
    memory = Memory(activation=3, retained=2, recompute_saved=2)
    pipeline = Pipeline(3, 4, *place, costs=costs, memory=memory, recompute=recompute)  # type: ignore[arg-type]
    written = pipeline.written_out()
    assert (written.recompute, written.costs.recompute, written.memory.recompute_saved) == ("none", None, None)
    for a, b in ((pipeline, written), (pipeline.resolved(recompute), pipeline.per_stage())):  # type: ignore[arg-type]
        assert (a.ticks.duration * b.ticks.per_unit == b.ticks.duration * a.ticks.per_unit).all()
        assert (a.amounts.activation * b.amounts.per_unit == b.amounts.activation * a.amounts.per_unit).all()
        assert (a.amounts.retained * b.amounts.per_unit == b.amounts.retained * a.amounts.per_unit).all()


def test_on_another_placement_a_device_works_as_much() -> None:
    linear = Pipeline(4, 8, costs=COSTS, memory=MEMORY, recompute=[0, 3])
    wave = linear.placed("wave", 2)
    assert (wave.work / wave.ticks.per_unit).tolist() == (linear.work / linear.ticks.per_unit).tolist()
    everywhere = Pipeline(4, 8, costs=COSTS, memory=MEMORY, recompute="all").per_stage().placed("loop", 2)
    assert everywhere.recompute == "all"
    assert everywhere.costs.recompute == (1, 2, 0, Fraction(3, 2))


def test_the_words_for_none_and_all_and_the_order_of_a_list_make_no_difference() -> None:
    def given(recompute: object) -> Pipeline:
        return Pipeline(3, 4, costs=Costs(recompute=1), memory=Memory(recompute_saved=1), recompute=recompute)  # type: ignore[arg-type]

    assert given([]) == given("none")
    assert given([2, 0, 1]) == given("all")
    assert given([2, 0]) == given((0, 2)) != given([0, 1])
    for pipeline in (given([2, 0]), given("all"), given("choose")):
        assert model_of(model_dict(Model(pipeline)), "again").pipeline == pipeline


def test_routes_with_different_costs_cannot_choose_by_stage() -> None:
    costs = Costs(forward=1, recompute=(1, 2))
    uneven = Pipeline(2, 4, "bidirectional", costs=costs, memory=Memory(recompute_saved=1), recompute="choose")
    with pytest.raises(PipelineError, match=r"costs\.recompute: the routes have different values"):
        solve(uneven, seconds=1)
    assert uneven.resolved([0]).ticks.duration[:, Kind.I].tolist() == [[2, 1], [3, 1]]


# --- left open ---------------------------------------------------------------------------------------------------


def test_what_is_left_open_cannot_be_timed() -> None:
    pipeline = Pipeline(4, 8, costs=COSTS, memory=MEMORY, recompute="choose")
    with pytest.raises(PipelineError, match=r'pipeline.recompute: "choose" leaves open'):
        _ = pipeline.ticks
    with pytest.raises(Restriction, match=r'1f1b: pipeline.recompute = "choose" leaves open'):
        find("1f1b").schedule(pipeline)
    code, stdout, stderr = run("order", "1f1b", MODEL, "--set", "pipeline.recompute=choose")
    assert (code, stdout) == (2, "")
    assert "pipeline.recompute" in stderr


def test_compare_shows_both_ends() -> None:
    pipeline = Pipeline(4, 8, costs=COSTS, memory=MEMORY, recompute="choose")
    rows = compare(pipeline)
    assert [row.recompute for row in rows] == ["none"] * (len(rows) // 2) + ["all"] * (len(rows) // 2)
    for row in rows:
        if row.schedule is not None:
            assert row.schedule.pipeline.recompute == row.recompute
    smaller = ["compare", MODEL, "-d", "4", "-m", "8", "--set", "pipeline.recompute=choose"]
    code, stdout, _ = run(*smaller, "--json")
    assert code == 0
    assert {row["recompute"] for row in json.loads(stdout)["named"]} == {"none", "all"}
    code, stdout, _ = run(*smaller)
    assert "1f1b + recompute *" in stdout
    assert "1f1b *" in stdout


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--order", "zb-1p"], "zb-1p: its constraints depend on which stages recompute"),
        (["--runtime", "torch"], 'pipeline.recompute: "choose" leaves open which stages recompute'),
        (["--verify"], "needs to know which stages recompute"),
    ],
)
def test_flags_that_need_to_know(flags: list[str], problem: str) -> None:
    code, _, stderr = run("solve", MODEL, "--recompute", "choose", *flags)
    assert code == 2
    assert problem in stderr


# --- the choice --------------------------------------------------------------------------------------------------


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


def by_enumeration(pipeline: Pipeline, objective: str) -> Fraction:
    """The best over all subsets of the stages, each solved to its optimum."""
    values = []
    for size in range(pipeline.stages + 1):
        for stages in itertools.combinations(range(pipeline.stages), size):
            try:
                each = pipeline.resolved(stages)
            except PipelineError:
                continue
            result = solve(each, objective=objective, workers=1, seconds=30)  # type: ignore[arg-type]
            assert result.reason == "optimal"
            assert result.value is not None
            values.append(Fraction(result.ticks.value, result.ticks.per_unit))
    return min(values)


SEEDS = range(10)


@functools.cache
def chosen(seed: int) -> tuple[Pipeline, Result]:
    pipeline = random_choice(random.Random(seed))
    return pipeline, solve(pipeline, objective="span" if seed % 4 == 3 else "makespan", workers=1, seconds=60)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_choice_is_the_best_of_all(seed: int) -> None:
    pipeline, result = chosen(seed)
    assert result.reason == "optimal"
    assert result.value is not None
    assert result.schedule is not None
    assert violations(result.pipeline, result.schedule) == []
    assert result.pipeline == pipeline.resolved(result.pipeline.recomputing)
    best = by_enumeration(pipeline, result.objective)
    assert Fraction(result.ticks.value, result.ticks.per_unit) == best
    assert result.lower_bound == result.value
    free = solve(relaxed(pipeline, frozenset(), frozenset()), objective=result.objective, workers=1, seconds=30)
    assert free.reason == "optimal"
    assert free.value is not None
    assert Fraction(free.ticks.value, free.ticks.per_unit) <= best


def test_the_random_pipelines_need_a_choice() -> None:
    """Some of them are best with some of their stages recomputing, some with none, and not all are settled at the root."""
    answers = [chosen(seed)[1] for seed in SEEDS]
    kinds = {r.pipeline.recompute if isinstance(r.pipeline.recompute, str) else "some" for r in answers}
    assert kinds >= {"none", "some"}
    assert max(len(r.steps) for r in answers) >= 3


def test_a_limit_that_only_recomputing_meets() -> None:
    memory = Memory(activation=2, recompute_saved=1, limit=1.5)
    pipeline = Pipeline(3, 4, costs=Costs(recompute=1), memory=memory, recompute="choose")
    with pytest.raises(PipelineError, match=r"memory\.limit"):
        pipeline.resolved("none")
    with pytest.raises(PipelineError, match=r"memory\.limit"):
        pipeline.resolved([0, 1])
    result = solve(pipeline, workers=1, seconds=30)
    assert result.reason == "optimal"
    assert result.pipeline.recompute == "all"
    assert result.value == solve(pipeline.resolved("all"), workers=1, seconds=30).value
    rows = compare(pipeline)
    assert all(row.excluded is not None and "memory.limit" in row.excluded for row in rows if row.recompute == "none")
    assert any(row.schedule is not None for row in rows if row.recompute == "all")


def test_without_a_limit_nothing_recomputes() -> None:
    pipeline = Pipeline(3, 6, costs=Costs(recompute=1), memory=Memory(recompute_saved=1), recompute="choose")
    result = solve(pipeline, workers=1, seconds=30)
    assert (result.reason, result.pipeline.recompute) == ("optimal", "none")
    assert len(result.steps) == 1
    assert result.proved_by is not None
    assert result.proved_by.endswith(", whichever stages recompute")


def test_recomputing_for_nothing_is_as_good_as_more_memory() -> None:
    free = Pipeline(3, 6, costs=Costs(recompute=0), memory=Memory(recompute_saved=HALF, limit=1.5), recompute="choose")
    more = Pipeline(3, 6, memory=Memory(activation=HALF, limit=1.5))
    a, b = solve(free, workers=1, seconds=30), solve(more, workers=1, seconds=30)
    assert a.reason == b.reason == "optimal"
    assert a.value == b.value


@pytest.mark.parametrize("limit", [0.05, 2.0])
def test_with_the_time_up_the_bound_still_holds(limit: float) -> None:
    pipeline = read_model(MODEL, [setting("pipeline.recompute=choose")]).pipeline
    result = solve(pipeline, seconds=limit, workers=1)
    assert (result.reason, result.limit) == ("feasible", "time")
    assert result.value is not None
    assert result.schedule is not None
    known = find("1f1b").schedule(pipeline.resolved([0, 1, 2, 3]))
    assert known.within_memory
    lower = Fraction(result.ticks.lower_bound, result.ticks.per_unit)
    assert lower <= Fraction(known.makespan, known.pipeline.ticks.per_unit)
    assert lower <= Fraction(result.ticks.value, result.ticks.per_unit)


def test_a_gap_ends_the_search() -> None:
    pipeline = Pipeline(
        3, 5, costs=Costs(forward=2, recompute=(2, 1, 2)), memory=Memory(recompute_saved=HALF, limit=2), recompute="choose"
    )
    exact = solve(pipeline, workers=1, seconds=30)
    rough = solve(pipeline, workers=1, seconds=30, gap=0.5)
    assert exact.reason == "optimal"
    assert exact.value is not None
    assert rough.value is not None
    assert rough.value - rough.lower_bound <= rough.value / 2
    assert len(rough.steps) < len(exact.steps)
    assert rough.reason == "optimal" or rough.limit == "gap"
    assert rough.lower_bound <= exact.value


def test_deterministic_runs_are_equal() -> None:
    pipeline = random_choice(random.Random(5))
    a, b = (solve(pipeline, deterministic=True, workers=1, seconds=20, seed=3) for _ in range(2))
    assert a.schedule is not None
    assert b.schedule is not None
    assert a.schedule.order.texts() == b.schedule.order.texts()
    assert [step.name for step in a.steps] == [step.name for step in b.steps]


def test_the_answer_is_a_result_like_any_other(tmp_path: Path) -> None:
    model, output = tmp_path / "model.toml", tmp_path / "best.json"
    model.write_text(
        '[pipeline]\ndevices = 3\nmicrobatches = 5\nrecompute = "choose"\nschedule = "1f1b"\n'
        "[costs]\nforward = 2\nbackward_input = 2\nrecompute = [2, 1, 2]\n[memory]\nlimit = 2\nrecompute_saved = 0.5\n"
    )
    code, stdout, _ = run("solve", str(model), "--workers", "1", "--explain", "--json", "-o", str(output))
    assert code == 0
    tree = json.loads(stdout)
    assert tree["result"]["reason"] == "optimal"
    stages = tree["model"]["pipeline"]["recompute"]
    assert stages
    assert tree["result"]["value"] == tree["metrics"]["makespan"] == 37
    again = run("solve", str(model), "--workers", "1", "--set", f"pipeline.recompute={stages}", "--json")[1]
    assert json.loads(again)["result"]["value"] == 37
    assert tree["steps"][0]["name"] == "stages: all open"
    assert run("check", str(output))[1] == f"{output}: no violation\n"
    code, stdout, _ = run("solve", str(model), "--workers", "1")
    assert stdout.startswith("3 devices, 5 microbatches, linear, recompute in stage")
    assert "\nmakespan 37: optimal, proved by branch and bound over the stages that recompute" in stdout


# --- the checker -------------------------------------------------------------------------------------------------


def rules(pipeline: Pipeline, schedule: Schedule) -> set[Rule]:
    """What the checker finds where the records of a schedule are read with another pipeline."""
    time = schedule.pipeline.time
    rows = [
        [(op, time(start), time(end)) for op, start, end in zip(ops, starts, ends, strict=True)]
        for ops, starts, ends in zip(schedule.order.texts(), schedule.start, schedule.end, strict=True)
    ]
    return {violation.rule for violation in violations_of(pipeline, rows)}


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "interleaved-1f1b", "v-half", "dualpipe"])
def test_the_checker_reads_it_by_itself(name: str) -> None:
    free = dataclasses.replace(MEMORY, limit=None)
    pipeline = Pipeline(4, 8, costs=Costs(recompute=1.5), memory=free, recompute="all")
    schedule = find(name).schedule(pipeline)
    placed = schedule.pipeline
    assert rules(placed, schedule) == set()
    for fewer in ("none", range(1, placed.stages)):
        assert Rule.DURATION in rules(placed.resolved(fewer), schedule)
    plain = placed.resolved("none")
    assert Rule.DURATION in rules(placed, find(name).schedule(plain, plain.chunks))


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "gpipe"])
def test_the_checker_sees_what_is_held(name: str) -> None:
    """Recomputing that takes no time changes the memory alone: the peaks as limits are just enough, and too little without it."""
    costs = Costs(forward=2, backward_input=2, backward_weight=1, recompute=0)
    memory = Memory(activation=3, retained=2, recompute_saved=(2, 1, 1, 0.5))
    free = Pipeline(4, 8, costs=costs, memory=memory, recompute="all")
    schedule = find(name).schedule(free)
    peaks = tuple(Fraction(peak, free.amounts.per_unit) for peak in schedule.peak_memory)
    exact = free.changed(memory=dataclasses.replace(memory, limit=peaks))
    assert rules(exact, schedule) == set()
    for stage in range(4):
        without = [other for other in range(4) if other != stage]
        try:
            fewer = exact.resolved(without)
        except PipelineError:  # the limit is below one activation
            continue
        assert rules(fewer, schedule) == {Rule.MEMORY}


def test_the_checker_needs_a_choice() -> None:
    pipeline = Pipeline(4, 8, costs=COSTS, memory=MEMORY, recompute="choose")
    schedule = find("1f1b").schedule(pipeline.resolved("all"))
    with pytest.raises(PipelineError, match="which stages recompute"):
        rules(pipeline, schedule)


# --- beside the solver -------------------------------------------------------------------------------------------


def test_an_order_of_ones_own_is_shown_both_ways_and_begun_from() -> None:
    text = (
        '[pipeline]\ndevices = 2\nmicrobatches = 2\nrecompute = "choose"\n'
        'order = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]\n'
        "[costs]\nrecompute = 1\n[memory]\nrecompute_saved = 0.5\nlimit = 1\n"
    )
    model = model_of_text(text, "text")
    rows = model.own_rows
    assert [(row.recompute, row.label) for row in rows] == [("none", "own order"), ("all", "own order + recompute")]
    assert [row.schedule is not None and row.schedule.within_memory for row in rows] == [False, True]
    result = solve(model, workers=1, seconds=30)
    assert [row.label for row in result.named if row.name == "own order"] == ["own order + recompute 0"]
    assert result.reason == "optimal"


def test_a_sweep_takes_named_schedules_either_way_and_the_solver_with_the_choice() -> None:
    study = {
        "name": "recompute",
        "model": {
            "pipeline": {"devices": 2, "microbatches": 3, "recompute": "choose"},
            "costs": {"recompute": 1},
            "memory": {"recompute_saved": Fraction(1, 2), "limit": 1},
        },
        "vary": {"pipeline.recompute": ["none", "all", "choose"]},
        "run": {"schedules": ["1f1b"]},
        "solve": {"time_limit": 20},
    }
    outcomes = {}
    for instance in study_of(study, "study").instances:
        assert instance.pipeline is not None
        status, outcome, _ = run_instance(instance.pipeline, instance.task)
        outcomes[instance.changes[0][1], instance.task.schedule] = status, outcome
    assert {status for (_, name), (status, _) in outcomes.items() if name is None} == {"done"}
    assert [outcomes[way, "1f1b"][0] for way in ("none", "all", "choose")] == ["done", "done", "excluded"]
    values = {way: outcomes[way, None][1]["value"] for way in ("none", "all", "choose")}
    assert values["choose"] <= min(values["none"], values["all"])
    assert outcomes["choose", None][1]["recompute"] in ("none", "all", [0], [1])
