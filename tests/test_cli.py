"""The command line: what goes where, exit codes, overrides, and that it starts quickly."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from ppopt.cli import COMMANDS, main
from ppopt.files import model_dict, read_model
from ppopt.files.torch_csv import rows_of_text
from ppopt.named import NAMED
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order

MODELS = Path(__file__).parents[1] / "models"


def run(*args: str, stdin: str | None = None, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(arg) for arg in args], input=stdin)
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code == code, result.output
    return result


def read(*args: str, **more: Any) -> Any:
    return json.loads(run(*args, "--json", **more).stdout)


# --- the program -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.short_help == COMMANDS[name]
    help_text = run(name, "--help").stdout
    assert f"\n    ppopt {name}" in help_text
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts} has no help"


def test_help_lists_every_command_and_the_exit_codes() -> None:
    shown = run("--help").stdout
    assert all(f"  {name} " in shown and line in shown for name, line in COMMANDS.items())
    assert "130  interrupted" in shown


def test_version_names_the_solvers() -> None:
    shown = run("--version").stdout
    assert shown.startswith("ppopt ")
    assert "ortools " in shown


def test_the_program_is_a_module_too() -> None:
    result = subprocess.run([sys.executable, "-m", "ppopt", "compair"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert "did you mean compare?" in result.stderr


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m ppopt order gpipe -d 16 -m 4000 | head -c 10"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("0F0,0F1,0F", "")


def test_termination_is_an_interruption(tmp_path: Path) -> None:
    """SIGTERM ends a command as Ctrl-C does, with exit code 130 and no traceback."""
    fifo = tmp_path / "model.toml"
    os.mkfifo(fifo)
    process = subprocess.Popen([sys.executable, "-m", "ppopt", "compare", str(fifo)], stderr=subprocess.PIPE, text=True)
    with open(fifo, "w"):  # opens once the program reads: its handler is in place
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr.strip()) == (130, "interrupted")


# --- compare -----------------------------------------------------------------------------------------------------


def rows(*args: str) -> dict[tuple[str, int], dict[str, Any]]:
    tree = read("compare", *args)
    assert tree["result"] is tree["schedule"] is tree["metrics"] is None
    return {(row["schedule"], row["chunks"]): row for row in tree["named"]}


def test_compare_gives_the_figures_of_the_literature() -> None:
    found = rows("-d", "4", "-m", "8")
    makespans = {("gpipe", 1): 33, ("1f1b", 1): 33, ("interleaved-1f1b", 2): 28.5, ("hanayo", 2): 32.5, ("zb-h1", 1): 27}
    assert {key: found[key]["makespan"] for key in makespans} == makespans
    assert [max(found[key]["peak_memory"]) for key in makespans] == [8, 4, 5.5, 4, 4]


def test_compare_with_latency() -> None:
    found = rows("-d", "4", "-m", "8", "--set", "costs.forward=100", "--set", "costs.backward=200", "--set", "links.latency=16")
    assert (found["gpipe", 1]["makespan"], found["1f1b", 1]["makespan"]) == (3396, 3556)


def test_compare_dualpipe() -> None:
    assert rows("-d", "8", "-m", "20", "--set", "costs.overlap=3")["dualpipe", 1]["makespan"] == 66


def test_compare_shows_each_number_of_chunks() -> None:
    found = rows("-d", "4", "-m", "8", "--chunks", "2,4")
    assert {("interleaved-1f1b", 2), ("interleaved-1f1b", 4), ("hanayo", 4)} <= found.keys()
    assert found["interleaved-1f1b", 4]["makespan"] == 26.25
    assert ("1f1b", 1) in found
    assert {key[1] for key in rows("-d", "4", "-m", "8", "-v", "4") if key[0] == "hanayo"} == {4}


def test_compare_lists_what_does_not_apply_with_the_reason() -> None:
    shown = run("compare", "-d", "3", "-m", "5").stdout
    assert "Not applicable:" in shown
    assert "  dualpipe: devices must be even, got 3\n" in shown
    fused = run("compare", "-d", "4", "-m", "8", "--set", "costs.backward=2").stdout
    assert "  zb-h1: needs backward_input and backward_weight; the costs give backward alone\n" in fused


def test_compare_marks_the_schedule_of_the_model_and_what_exceeds_the_limit() -> None:
    shown = run("compare", str(MODELS / "gpt-1.5b.toml")).stdout
    assert "1f1b *" in shown
    assert "makespan [ms]" in shown
    (gpipe,) = [line for line in shown.splitlines() if line.startswith("gpipe ")]
    assert "over the limit" in gpipe


def test_fractions_that_no_double_has_are_shown_all_the_same() -> None:
    assert rows("-d", "3", "-m", "6", "--chunks", "3")["interleaved-1f1b", 3]["makespan"] == pytest.approx(18 + 2)


# --- where the model comes from ----------------------------------------------------------------------------------


def pipeline_of(*args: str, **more: Any) -> dict[str, Any]:
    model: dict[str, Any] = read("compare", *args, **more)["model"]
    return model


def test_flags_beat_set_and_set_beats_the_file() -> None:
    path = str(MODELS / "zb-h1.toml")
    assert pipeline_of(path)["pipeline"]["microbatches"] == 8
    assert pipeline_of(path, "--set", "pipeline.microbatches=9")["pipeline"]["microbatches"] == 9
    assert pipeline_of(path, "--set", "pipeline.microbatches=9", "-m", "10")["pipeline"]["microbatches"] == 10
    assert pipeline_of(path, "-m", "10", "--set", "pipeline.microbatches=9")["pipeline"]["microbatches"] == 10


def test_a_limit_is_a_number_a_list_or_none() -> None:
    path = str(MODELS / "zb-h1.toml")
    assert pipeline_of(path, "--memory-limit", "5")["memory"]["limit"] == 5
    assert pipeline_of(path, "--memory-limit", "3,4,4,2.5")["memory"]["limit"] == [3, 4, 4, 2.5]
    assert "limit" not in pipeline_of(path, "--memory-limit", "none")["memory"]


def test_a_model_may_come_from_standard_input() -> None:
    text = (MODELS / "gpt-1.5b.toml").read_text()
    assert pipeline_of("-", stdin=text) == pipeline_of(str(MODELS / "gpt-1.5b.toml"))


def test_placement_and_a_bare_word() -> None:
    assert pipeline_of("-d", "4", "-m", "8", "--placement", "wave")["pipeline"]["placement"] == "wave"
    assert pipeline_of("-d", "4", "-m", "8", "--set", "pipeline.placement=loop")["pipeline"]["placement"] == "loop"
    assert pipeline_of("-d", "4", "-m", "8", "--set", "name=mine")["name"] == "mine"


def test_another_placement_leaves_out_the_schedule_of_the_file_and_says_so() -> None:
    result = run("compare", str(MODELS / "gpt-1.5b.toml"), "--placement", "loop", "--set", "pipeline.chunks=2", "--json")
    pipeline = json.loads(result.stdout)["model"]["pipeline"]
    assert (pipeline["placement"], pipeline["chunks"]) == ("loop", 2)
    assert "schedule" not in pipeline
    assert result.stderr.startswith("Note: the model's own schedule is left out.")


# --- order -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMED)
def test_an_order_is_csv_that_reads_back(name: str) -> None:
    result = run("order", name, "-d", "4", "-m", "8")
    expected = NAMED[name].schedule(Pipeline(4, 8))
    rows = rows_of_text(result.stdout, "stdout")
    assert Order.of(expected.pipeline, rows) == expected.order  # type: ignore[arg-type]
    assert ("two routes" in result.stderr) == (len(expected.pipeline.routes) == 2)


def test_order_as_json_has_the_times_and_no_result() -> None:
    tree = read("order", "interleaved", "-d", "4", "-m", "8")
    assert tree["result"] is None
    assert tree["metrics"]["makespan"] == 28.5
    assert (tree["model"]["pipeline"]["schedule"], tree["model"]["pipeline"]["chunks"]) == ("interleaved-1f1b", 2)


def test_order_takes_parameters_from_the_model_and_the_command_line() -> None:
    path = str(MODELS / "interleaved-1f1b.toml")
    assert read("order", "interleaved-1f1b", path)["model"]["pipeline"]["schedule_params"] == {"group_size": 4}
    tree = read("order", "interleaved-1f1b", path, "--param", "group_size=8", "--memory-limit", "none")
    assert tree["model"]["pipeline"]["schedule_params"] == {"group_size": 8}
    assert max(tree["metrics"]["peak_memory"]) == 7.5


def test_order_over_the_memory_limit_is_printed_with_a_warning() -> None:
    result = run("order", "gpipe", "-d", "2", "-m", "3", "--memory-limit", "2")
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr == ("Warning: gpipe exceeds the memory limit: device 0 holds 3 of 2, device 1 holds 3 of 2\n")


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.toml")), ids=lambda path: path.stem)
def test_models_say_what_their_schedule_takes(path: Path) -> None:
    """A model that stands for a schedule has room for it, and a comment that gives its makespan and peak."""
    model = read_model(str(path))
    name, limit = model.schedule, model_dict(model)["memory"]["limit"]
    assert name is not None
    metrics = read("order", name, str(path))["metrics"]
    assert max(metrics["peak_memory"]) == limit
    if path.stem == name:
        comment = " ".join(line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("#"))
        assert f"Makespan {metrics['makespan']} at a peak of {limit} activations" in comment


# --- check -------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "zb-h1.json"
    path.write_text(run("order", "zb-h1", str(MODELS / "zb-h1.toml"), "--json").stdout)
    return path


def violations(*args: str, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("check", *args, "--json", code=1, **more).stdout)["violations"]
    for violation in found:
        assert violation.keys() == {"rule", "device", "op", "time", "message"}
    return found


@pytest.mark.parametrize("name", NAMED)
def test_orders_and_results_of_the_library_check_out(name: str) -> None:
    order = run("order", name, "-d", "4", "-m", "8").stdout
    assert read("check", "-", stdin=order) == {"violations": []}
    result = run("order", name, "-d", "4", "-m", "8", "--json").stdout
    assert run("check", "-", stdin=result).stdout == "-: no violation\n"


def test_check_holds_a_result_to_another_model(recorded: Path) -> None:
    run("check", str(recorded))
    assert {v["rule"] for v in violations(str(recorded), "--memory-limit", "3")} == {"memory"}
    assert {v["rule"] for v in violations(str(recorded), str(MODELS / "zb-h1.toml"), "--memory-limit", "3,4,4,4")} == {"memory"}
    assert "duration" in {v["rule"] for v in violations(str(recorded), "--set", "costs.forward=2")}


def edited(path: Path, edit: Any) -> str:
    tree = json.loads(path.read_text())
    edit(tree)
    return json.dumps(tree)


def shift_the_last_op(tree: Any) -> None:
    tree["schedule"]["start"][0][-1] += 1
    tree["schedule"]["end"][0][-1] += 1


def swap_two_ops(tree: Any) -> None:
    row = tree["schedule"]["order"][3]
    row[0], row[1] = row[1], row[0]


EDITS = {
    "a figure": (lambda tree: tree["metrics"].update(makespan=26), "metric"),
    "a ratio": (lambda tree: tree["metrics"].update(overhead=0.1), "metric"),
    "a peak": (lambda tree: tree["metrics"]["peak_memory"].__setitem__(2, 3), "metric"),
    "a later start": (shift_the_last_op, "late"),
    "another order": (swap_two_ops, "data"),
    "an op away": (lambda tree: [rows[1].pop() for rows in tree["schedule"].values()], "missing"),
    "an op renamed": (lambda tree: tree["schedule"]["order"][2].__setitem__(0, "2F99"), "unknown"),
    "a bound above the value": (lambda tree: tree.update(result=outcome(lower_bound=28)), "bound"),
    "an optimum that is none": (lambda tree: tree.update(result=outcome(lower_bound=26)), "bound"),
    "a value": (lambda tree: tree.update(result=outcome(value=26, lower_bound=26)), "metric"),
}


def outcome(**changes: Any) -> dict[str, Any]:
    known = {"reason": "optimal", "limit": None, "objective": "makespan", "value": 27, "lower_bound": 27, "gap": 0.0}
    return {**known, "proved_by": "x", "seconds": 0.1, "seed": 0, "versions": {}, **changes}


@pytest.mark.parametrize("name", EDITS)
def test_check_finds_what_was_edited(recorded: Path, name: str) -> None:
    edit, rule = EDITS[name]
    assert rule in {v["rule"] for v in violations("-", stdin=edited(recorded, edit))}


ORDERS = {
    "deadlock": ("0F0,0B0\n1B0,1F0\n", "data"),
    "missing": ("0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n", "missing"),
    "twice": ("0F0,0B0,0F0\n1F0,1B0\n", "twice"),
    "elsewhere": ("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1\n".replace("0B2", "0B2,1B2"), "device"),
    "both backwards": ("0F0,0B0,0I0,0W0\n", "both-backwards"),
    "a weight gradient alone": ("0F0,0W0\n", "w-without-i"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_check_finds_what_is_wrong_with_an_order(name: str) -> None:
    order, rule = ORDERS[name]
    assert rule in {v["rule"] for v in violations("-", stdin=order)}


def test_an_order_with_a_mistake_and_a_deadlock_is_checked_to_the_end() -> None:
    found = violations("-", stdin="0F0,0B0,0F1\n1B0,1F0,1F1,1B1\n")
    assert {"missing", "data"} <= {v["rule"] for v in found}


def test_check_prints_violations_for_people(recorded: Path) -> None:
    shown = run("check", "-", stdin="0F0,0B0\n1B0,1F0\n", code=1).stdout
    assert shown == "data: the order deadlocks: 1B0 waits for 1F0 waits for 1B0\n1 violation\n"


def test_check_infers_two_routes() -> None:
    order = run("order", "dualpipe", "-d", "4", "-m", "8").stdout
    broken = order.replace("0F0,0F1", "0F1,0F0", 1)
    assert broken != order
    assert read("check", "-", stdin=broken) == {"violations": []}  # the microbatches are alike
    assert "device" in {
        v["rule"]
        for v in violations("-", stdin=order.replace("0F0,", "", 1).replace("\n", ",0F0\n", 2).replace(",0F0\n", "\n", 1))
    }


def test_check_needs_a_schedule_and_a_file(tmp_path: Path) -> None:
    comparison = run("compare", "-d", "2", "-m", "2", "--json").stdout
    assert run("check", "-", stdin=comparison, code=2).stderr == "Error: <stdin>: schedule: there is none to check\n"
    assert "row 0, column 1: expected an action" in run("check", "-", stdin="0F0,hello\n", code=2).stderr
    assert "empty" in run("check", "-", stdin="", code=2).stderr
    assert "not a JSON file" in run("check", "-", stdin="{", code=2).stderr
    assert "cannot be read: No such file" in run("check", str(tmp_path / "none.csv"), code=2).stderr


# --- schedules ---------------------------------------------------------------------------------------------------


def test_schedules_lists_all_with_their_aliases() -> None:
    shown = run("schedules").stdout
    assert all(name in shown for name in NAMED)
    listed = {entry["name"]: entry for entry in read("schedules")["schedules"]}
    assert list(listed) == list(NAMED)
    assert "zb1p" in listed["zb-h1"]["aliases"]


@pytest.mark.parametrize("name", NAMED)
def test_each_schedule_is_explained_with_a_picture(name: str) -> None:
    shown = run("schedules", name).stdout
    assert shown.startswith(f"{name}: ")
    assert NAMED[name].source in shown
    assert "device 0:" in shown


def test_an_alias_is_explained_under_the_schedules_name() -> None:
    assert run("schedules", "zb1p").stdout.startswith("zb-h1: ")


@pytest.mark.parametrize("columns", [80, 100])
def test_schedules_says_all_within_the_columns(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = run("schedules").stdout
    assert max(map(len, shown.splitlines())) <= columns
    words = " ".join(shown.split())
    for d in NAMED.values():
        needs = "" if d.needs == "-" else f"; needs {d.needs}"
        also = f" also called {', '.join(d.aliases)}" if d.aliases else ""
        backward = "I, W" if d.split else "B"
        entry = f"{d.name} {d.placement}; backward {backward}{needs}{also} peak {d.peak}; idle {d.idle or '-'} source {d.source}"
        assert entry in words


# --- which schedule a name means -----------------------------------------------------------------------------------


def test_what_a_name_is_read_as_is_said_wherever_one_is_read(tmp_path: Path) -> None:
    note = "Note: zb1p is read as zb-h1, as PP-Emulation has it; the automatic scheduler with room for D activations is zb-1p.\n"
    assert run("order", "zb1p", "-d", "2", "-m", "4").stderr == note
    assert run("schedules", "zb1p").stderr == note
    assert run("solve", "-d", "2", "-m", "4", "--order", "zb1p", "--workers", "1", "--json").stderr.startswith(note)
    path = tmp_path / "model.toml"
    path.write_text('[pipeline]\ndevices = 2\nmicrobatches = 4\nschedule = "zb1p"\n')
    assert run("compare", str(path)).stderr == note
    assert run("order", "zb1p", str(path)).stderr == note  # once
    assert run("compare", "-d", "2", "-m", "4", "--set", "pipeline.schedule=zb1p").stderr == note
    assert run("order", "zb-1p", "-d", "2", "-m", "4").stderr.startswith("Note: zb-1p is the automatic scheduler")
    assert run("order", "interleaved", "-d", "2", "-m", "4").stderr == "Note: interleaved is read as interleaved-1f1b.\n"
    assert run("order", "zb-h1", "-d", "2", "-m", "4").stderr == ""


def test_one_device_is_singular() -> None:
    assert run("compare", "-d", "1", "-m", "1").stdout.startswith("1 device, 1 microbatch, linear")
    assert run("compare", "-d", "2", "-m", "1").stdout.startswith("2 devices, 1 microbatch, linear")
