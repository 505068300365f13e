"""``ppopt measured``, and the files of other runtimes in ``ppopt profile``."""

import json
from pathlib import Path

import pytest

from ppopt.files import Model, document, json_text
from tests.support.command import read, refused, run
from tests.support.places import DATA
from tests.support.runs import SPLIT, event_times, planned, primus, written

TRACES = [str(DATA / f"torch_trace_{rank}.json") for rank in (0, 1)]


@pytest.fixture
def plan(tmp_path: Path) -> str:
    schedule = planned("1f1b", 2, 4)
    (tmp_path / "plan.json").write_text(json_text(document(Model(schedule.pipeline), schedule=schedule)))
    return str(tmp_path / "plan.json")


def test_a_run_by_itself() -> None:
    shown = run("measured", *TRACES)
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("profiler traces of 2 ranks: 2 devices, 4 microbatches, linear; step 3 (3 others took 31.096 to")
    assert lines[1] == "clocks: from the rank's own begin; fitted to the messages, within 0.65344 ms: device 1 +2.903 ms"
    assert "Operations that began later" not in shown.stdout
    assert shown.stderr == ""


def test_a_run_beside_its_plan_in_words_json_and_a_picture(plan: str, tmp_path: Path) -> None:
    paths = written(tmp_path, event_times(planned("1f1b", 2, 4)))
    picture = tmp_path / "step.svg"
    shown = run("measured", *paths, "--against", plan, "-o", picture)
    assert "the step took 0 ms (+0.0 %)\n" in shown.stdout
    assert "0B3, ended as planned; on the path to it operations took 0, and 0 passed between them\n" in shown.stdout
    assert picture.read_text().startswith("<?xml")
    tree = read("measured", *paths, "--against", plan)
    assert tree["metrics"]["makespan"] == pytest.approx(tree["plan"]["makespan"]) == pytest.approx(60.8)
    assert tree["run"]["clocks"]["basis"] == "barrier"


def test_what_came_late_is_listed_by_what_was_added(plan: str, tmp_path: Path) -> None:
    files = event_times(planned("1f1b", 2, 4))
    for side in ("start", "end"):
        files[0][1][f"backward-3-{side}"] += 2.0
        files[0][1][f"backward-2-{side}"] += 0.1
    shown = run("measured", *written(tmp_path, files), "--against", plan, "--top", 1).stdout
    assert "Operations that began later than planned, the 1 of 2 at which most was added\n" in shown
    assert " ".join(shown.splitlines()[-1].split()) == "0B3 0 52.8 54.8 +2 0 1B3 on device 1, 0; then +2"
    assert "0B3, ended 2 ms later than planned; on the path to it operations took 0, and +2 passed between them\n" in shown


def test_an_order_is_a_plan_with_a_model(tmp_path: Path) -> None:
    paths = written(tmp_path, event_times(planned("1f1b", 2, 4)))
    (tmp_path / "order.csv").write_text(run("order", "1f1b", "-d", 2, "-m", 4).stdout)
    (tmp_path / "model.toml").write_text(
        "[pipeline]\ndevices = 2\nmicrobatches = 4\n[costs]\nforward = 4\nbackward = 8\n[links]\nlatency = 0.2\n"
    )
    given = ("measured", *paths, "--against", tmp_path / "order.csv")
    assert "units.time: expected a unit of time such as ms, got ''" in refused(*given)
    shown = run(*given, "--model", tmp_path / "model.toml", "--set", "units.time=s").stdout
    assert "makespan 0.0608 s" in shown
    assert "plan: makespan 60.8 s" in shown


def test_dumps_of_primus_with_the_command_line_saying_where_chunks_are(tmp_path: Path) -> None:
    paths = written(tmp_path, primus(planned("zb-v", 2, 4, SPLIT), (0, 1)))
    assert "4 microbatches, wave" in run("measured", *paths, "--placement", "wave").stdout
    assert "(are the stages where they were? --placement)" in run("measured", *paths).stdout
    model = tmp_path / "model.toml"
    profiled = run("profile", *paths, "--placement", "wave", "--skip", 0, "-o", model)
    assert profiled.stderr.startswith("Half of the samples lie within: F -0.0 to +0.0 %, I")
    assert "makespan" in run("order", "zb-v", model, "--json").stdout


def test_missing_ranks_are_said_and_stages_refused(tmp_path: Path) -> None:
    paths = written(tmp_path, event_times(planned("1f1b", 4, 8)))[:3]
    assert run("measured", *paths).stderr == "Note: device 3 of 4 is in no file.\n"
    assert refused("profile", *paths).endswith("Error: device 3, with stage 3, is in no file; give the files of all ranks\n")


def test_profile_warns_of_ranks_that_no_file_is_of(tmp_path: Path) -> None:
    record = {"ppopt_timing": 1, "rank": 0, "ranks": 3, "microbatches": 1, "links": []}
    stage = {"stage": 0, "seconds": {"F": [[1.0], [1.0]], "B": [[2.0], [2.0]]}}
    (tmp_path / "0.json").write_text(json.dumps(record | {"stages": [stage]}))
    shown = run("profile", tmp_path / "0.json")
    message = "Warning: ranks 1, 2 of 3 are in no file; if they hold other stages than these, those are missing.\n"
    assert shown.stderr.startswith(message)


REFUSED = {
    ("--step", "9"): "there is no step 9 in all files; expected one of 1, 2, 3, 4",
    ("-o", "x.gif"): "expected a name that ends in .png, .svg, .pdf, .html",
    ("--set", "units.time=ms"): "--model and --set are about the plan; give it with --against",
    ("--clocks", "best"): "'best' is not one of",
    ("--against", "nothing.json"): "nothing.json: cannot be read",
}


@pytest.mark.parametrize(("options", "message"), REFUSED.items(), ids=map(" ".join, REFUSED))
def test_what_cannot_be_done_is_said(options: tuple[str, ...], message: str) -> None:
    assert message in refused("measured", *TRACES, *options)
