"""Schedules of the user's own: registered, and brought by other packages as entry points, in every command."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ppopt.checker import violations
from ppopt.constraints import Family, Precede, chain
from ppopt.named import (
    NAMED,
    Definition,
    Parameter,
    Restriction,
    alternating,
    compare,
    filled_greedily,
    find,
    fused,
    register,
    registry,
)
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.search import solve
from ppopt.study.plan import study_of
from ppopt.study.sweep import sweep
from ppopt.study.table import rows_of
from tests.support.places import ROOT
from tests.support.shown import SHOWN
from tests.support.tiers import thorough

MODULE = '''
"""1F1B with some more forwards of warm-up; and a schedule that leaves the order of the kinds open."""
from ppopt.constraints import Family, chain
from ppopt.named import Definition, Parameter, alternating, filled_greedily, fused
from ppopt.op import Kind


def eager(pipeline, params):
    for d in range(pipeline.devices):
        yield from fused([d])
        warmup = pipeline.devices - 1 - d + params.get("more", 1)
        yield from alternating(Family(d, Kind.F), Family(d, Kind.B), warmup, pipeline.microbatches)


def in_order(pipeline, params):
    for d in range(pipeline.devices):
        yield from fused([d])
        yield from (chain(Family(d, Kind.F)), chain(Family(d, Kind.B)))


def definitions():
    yield Definition(
        "eager-1f1b", "1F1B with more warm-up", "a note", "linear", eager, aliases=("eager",),
        parameters=(Parameter("more", "forwards more than 1F1B", "1"),),
    )
    yield Definition("in-order", "each kind in its order", "a note", "linear", in_order, fill=filled_greedily)


WRONG = [Definition("In Order", "a name that cannot be", "a note", "linear", in_order), 7]
'''

ENTRIES = {
    "good": "[ppopt.schedules]\nmine = mysched:definitions\n",
    "bad": (
        "[ppopt.schedules]\n"
        "mine = mysched:definitions\nagain = mysched:definitions\n"
        "none = mysched:NOTHING\ngone = nosuchmodule:X\nwrong = mysched:WRONG\n"
    ),
}


@pytest.fixture
def install(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Install a package beside the others, as pip would; the environment in which it is."""

    def installed(entries: str) -> dict[str, str]:
        site = tmp_path / "site"
        info = site / "mysched-0.1.dist-info"
        info.mkdir(parents=True)
        (site / "mysched.py").write_text(MODULE)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mysched\nVersion: 0.1\n")
        (info / "entry_points.txt").write_text(entries)
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}

    return installed


def ppopt(environment: dict[str, str], folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ppopt", *arguments]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


COMMANDS = """
import json, sys
from click.testing import CliRunner
from ppopt.cli import main
for line in sys.stdin:
    done = CliRunner().invoke(main, json.loads(line))
    print(json.dumps([done.exit_code, done.stdout, done.stderr]), flush=True)
"""
"""Runs the commands of its standard input, each a list of arguments in a line."""


@thorough
def test_a_package_brings_a_schedule_to_every_command(install: Callable[[str], dict[str, str]], tmp_path: Path) -> None:
    """In one process, since each has to import everything anew."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMANDS],
        env=install(ENTRIES["good"]),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    class Done(NamedTuple):
        stdout: str

    def run(*arguments: str) -> Done:
        print(json.dumps(arguments), file=stdin, flush=True)
        code, output, errors = json.loads(stdout.readline())
        assert code == 0, errors
        return Done(output)

    with process:
        in_every_command(run, tmp_path)
        stdin.close()
    assert process.returncode == 0


def in_every_command(run: Callable[..., Any], tmp_path: Path) -> None:
    listed = json.loads(run("schedules", "--json").stdout)["schedules"]
    assert [entry["name"] for entry in listed] == [*NAMED, "eager-1f1b", "in-order"]
    assert [entry["package"] for entry in listed[-2:]] == ["mysched 0.1", "mysched 0.1"]
    assert "from mysched 0.1" in run("schedules").stdout
    shown = run("schedules", "eager").stdout
    assert shown.startswith("eager-1f1b: ")
    assert "mysched 0.1" in shown
    assert "device 0:" in shown

    rows = {row["schedule"]: row for row in json.loads(run("compare", "-d", "4", "-m", "8", "--json").stdout)["named"]}
    assert list(rows) == [*SHOWN, "eager-1f1b", "in-order"]
    assert rows["eager-1f1b"]["peak_memory"] == [5, 4, 3, 2]  # one more than 1F1B's on every device
    assert rows["in-order"]["makespan"] > 0

    order = run("order", "eager-1f1b", "-d", "4", "-m", "8").stdout
    (tmp_path / "x.csv").write_text(order)
    third = find("1f1b").order(Pipeline(4, 8)).texts()[2]
    assert order.splitlines()[3] == ",".join(third).replace("2F", "3F").replace("2B", "3B")  # the last device's warm-up is 1
    assert json.loads(run("check", "x.csv", "--json").stdout) == {"violations": []}

    run("solve", "-d", "4", "-m", "8", "--order", "eager-1f1b", "--param", "more=2", "-o", "r.json")
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["result"]["reason"] == "optimal"
    assert result["metrics"]["peak_memory"] == [6, 5, 4, 3]
    assert run("export", "r.json", "--to", "torch-csv").stdout.startswith("0F0,")
    run("plot", "r.json", "-o", "r.svg")
    assert (tmp_path / "r.svg").stat().st_size

    (tmp_path / "model.toml").write_text('[pipeline]\ndevices = 3\nmicrobatches = 4\nschedule = "eager"\n')
    tree = json.loads(run("solve", "model.toml", "--json").stdout)
    assert tree["model"]["pipeline"]["schedule"] == "eager-1f1b"

    lines = ['name = "s"', "[model.pipeline]", "microbatches = 6", "[vary]", '"pipeline.devices" = [2, 3]']
    (tmp_path / "s.toml").write_text("\n".join([*lines, "[run]", 'schedules = ["eager-1f1b"]\n']))
    (tmp_path / "all.toml").write_text("\n".join([*lines, "[run]", 'schedules = "all"\n']))
    for name in ("s", "all"):
        run("sweep", f"{name}.toml", "--store", f"{name}.db", "--workers", "1")
        found = run("results", f"{name}.db", "--csv").stdout
        mine = [line for line in found.splitlines() if "eager-1f1b" in line]
        assert len(mine) == 2
        assert all("done" in line for line in mine)


def test_entry_points_that_give_no_schedule_are_noted_and_the_others_are_there(
    install: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    done = ppopt(install(ENTRIES["bad"]), tmp_path, "order", "eager-1f1b", "-d", "2", "-m", "2")
    assert done.stdout == "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
    notes = done.stderr.splitlines()
    assert all(note.startswith("Note: no schedule from mysched 0.1, entry point ") for note in notes)
    expected = {
        "mine = mysched:definitions": "the name 'eager-1f1b' belongs to the schedule eager-1f1b",
        "gone = nosuchmodule:X": "ModuleNotFoundError: No module named 'nosuchmodule'",
        "none = mysched:NOTHING": "AttributeError",
        "wrong = mysched:WRONG": "a schedule cannot have the name 'In Order'",
    }
    assert len(notes) == 6  # two definitions each of `mine`, which comes second, and `wrong`
    for entry, problem in expected.items():
        assert any(entry in note and problem in note for note in notes), entry
    assert any("expected a ppopt.named.Definition, got 7" in note for note in notes)


def test_entry_points_are_loaded_late_once_and_with_a_warning(install: Callable[[str], dict[str, str]], tmp_path: Path) -> None:
    environment = install(ENTRIES["bad"])
    assert ppopt(environment, tmp_path, "--help").stderr == ""
    code = (
        "import sys, warnings\n"
        "import ppopt.named, ppopt.search\n"
        "assert 'mysched' not in sys.modules\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    assert 'in-order' in ppopt.named.NAMED and len(ppopt.named.NAMED) == len(list(ppopt.named.NAMED))\n"
        "assert 'mysched' in sys.modules\n"
        "assert len(caught) == 6 and {w.category for w in caught} == {ppopt.named.ScheduleWarning}\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    assert not registry.NAMED._registered
    yield
    registry.NAMED._registered.clear()


def defined(name: str = "mine", constrain: object = None, **more: object) -> Definition:
    def words(pipeline: Pipeline, params: object) -> object:
        for d in range(pipeline.devices):
            yield from fused([d])
            yield from alternating(Family(d, Kind.F), Family(d, Kind.B), pipeline.devices - d, pipeline.microbatches)

    given = {"summary": "s", "source": "here", "placement": "linear", **more}
    return Definition(name=name, constrain=constrain or words, **given)  # type: ignore[arg-type]


def test_a_registered_schedule_is_one_of_the_named_ones() -> None:
    mine = register(defined(aliases=("my_own",)))
    assert list(NAMED)[-1] == "mine"
    assert NAMED["mine"] is mine is find("My-Own")
    assert len(NAMED) == len(list(NAMED))
    row = compare(Pipeline(3, 5))[-1]
    assert row.name == "mine"
    assert row.schedule is not None
    assert not violations(row.schedule.pipeline, row.schedule)
    result = solve(Pipeline(3, 5), order="mine")
    assert result.value == row.schedule.makespan == result.lower_bound
    assert "mine" in {row.name for row in solve(Pipeline(2, 2)).named}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"name": "Mine"}, "cannot have the name 'Mine'"),
        ({"name": "my_own"}, "cannot have the name 'my_own'"),
        ({"name": ""}, "cannot have the name ''"),
        ({"name": "mine-"}, "cannot have the name 'mine-'"),
        ({"name": "1f1b"}, "the name '1f1b' belongs to the schedule 1f1b"),
        ({"name": "zbh1"}, "the name 'zbh1' belongs to the schedule zb-h1"),
        ({"aliases": ("DAPPLE",)}, "the name 'DAPPLE' belongs to the schedule 1f1b"),
        ({"aliases": "dapple"}, "expected a tuple of names as aliases"),
        ({"placement": "ring"}, "there is no placement 'ring'; expected one of linear, loop, wave, bidirectional, or routes"),
    ],
)
def test_what_cannot_be_registered_says_why(given: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("(", r"\(")):
        register(defined(**given))  # type: ignore[arg-type]
    assert "mine" not in NAMED


def test_nothing_is_registered_twice_and_nothing_but_definitions() -> None:
    register(defined())
    with pytest.raises(ValueError, match="belongs to the schedule mine"):
        register(defined())
    with pytest.raises(ValueError, match=r"expected a ppopt\.named\.Definition, got 'mine'"):
        register("mine")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        NAMED["x"] = defined("x")  # type: ignore[index]


def test_routes_of_ones_own() -> None:
    def down(devices: int) -> tuple[tuple[int, ...], ...]:
        return (tuple(reversed(range(devices))),)

    register(defined("upside-down", placement="down", routes=down))
    schedule = find("upside-down").schedule(Pipeline(3, 4))
    assert schedule.pipeline.routes == ((2, 1, 0),)
    assert schedule.makespan == find("1f1b").schedule(Pipeline(3, 4)).makespan


def test_an_open_order_without_a_rule_is_a_restriction_that_names_one() -> None:
    def some(pipeline: Pipeline, params: object) -> object:
        return [chain(Family(d, Kind.F)) for d in range(pipeline.devices)]  # backwards are in no chain at all

    register(defined("open", some))
    with pytest.raises(Restriction, match=r"^open: devices = 2, .* leave the order open.*fill=ppopt\.named\.filled_greedily"):
        find("open").order(Pipeline(2, 2))
    assert "filled_greedily" in (compare(Pipeline(2, 2))[-1].excluded or "")
    register(defined("filled", some, fill=filled_greedily))
    schedule = find("filled").schedule(Pipeline(2, 3))
    assert not violations(schedule.pipeline, schedule)


def test_a_definition_that_deadlocks_is_excluded() -> None:
    def backwards(pipeline: Pipeline, params: object) -> object:
        for d in range(pipeline.devices):
            yield from fused([d])
            forward, backward = Family(d, Kind.F), Family(d, Kind.B)
            yield from (chain(forward), chain(backward), Precede(backward, forward, shift=1 - pipeline.microbatches))

    register(defined("backwards", backwards))
    assert "waits for" in (compare(Pipeline(2, 2))[-1].excluded or "")


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda pipeline, params: [1 // 0], ZeroDivisionError, "division"),
        (lambda pipeline, params: [chain(Family(9, Kind.F))], ValueError, "there is no stage 9; stages are 0..1"),
        (lambda pipeline, params: ["0F0 before 0F1"], TypeError, "expected a word of ppopt.constraints, got '0F0 before 0F1'"),
        (lambda pipeline, params: [Precede(Family(0, Kind.F), "0B0")], TypeError, "expected a stream"),
        (lambda pipeline, params: [Precede(Family(0, Kind.F), Family(0, Kind.B), lag=-1)], ValueError, "lag: expected"),
    ],
)
def test_what_a_definition_raises_comes_through_with_its_name(wrong: object, error: type[Exception], text: str) -> None:
    register(defined("wrong", wrong))
    with pytest.raises(error, match=text) as raised:
        compare(Pipeline(2, 2))
    assert raised.value.__notes__ == ["raised by the schedule wrong"]


def test_parameters_of_ones_own() -> None:
    def words(pipeline: Pipeline, params: dict[str, int]) -> object:
        for d in range(pipeline.devices):
            yield from fused([d])
            yield from alternating(Family(d, Kind.F), Family(d, Kind.B), params.get("warmup", 1) - d, pipeline.microbatches)

    register(defined("warm", words, parameters=(Parameter("warmup", "forwards on the first device", "1"),)))
    assert find("warm").schedule(Pipeline(2, 6), warmup=3).peak_memory == (4, 3)
    with pytest.raises(Restriction, match="warmup must be a whole number >= 1"):
        find("warm").schedule(Pipeline(2, 6), warmup=0)


def test_workers_of_a_sweep_say_that_a_registered_schedule_is_not_theirs(tmp_path: Path) -> None:
    register(defined())
    study = study_of({"name": "s", "model": {"pipeline": {"devices": 2, "microbatches": 3}}, "run": {"schedules": ["mine"]}}, "s")
    state = sweep(study, str(tmp_path / "s.db"), workers=1)
    assert state.failed == 1
    from ppopt.study.store import Store

    with Store(str(tmp_path / "s.db")) as store:
        (row,) = rows_of(store.results())
    assert row["error"] == (
        "there is no schedule 'mine' in the worker process: what ppopt.named.register adds is there in its own process only; "
        "an entry point of ppopt.schedules is in all"
    )
