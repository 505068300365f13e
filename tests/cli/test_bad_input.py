"""Bad flags and files on the command line: exit code 2, one line that names the place, no traceback."""

from pathlib import Path

import pytest

from tests.support.command import refused
from tests.support.places import MODELS

GOOD = MODELS / "zb-h1.toml"

FLAGS = {
    "no model": (["compare"], "missing: -d/--devices, -m/--microbatches"),
    "no microbatches": (["compare", "-d", "4"], "missing: -m/--microbatches"),
    "no such file": (["compare", "nowhere.toml"], "nowhere.toml: cannot be read: No such file or directory"),
    "a folder": (["compare", "/"], "/: cannot be read: Is a directory"),
    "devices 0": (["compare", "-d", "0", "-m", "8"], "-d 0: pipeline.devices: expected a whole number >= 1, got 0"),
    "devices a word": (["compare", "-d", "four", "-m", "8"], "'four' is not a valid integer"),
    "devices huge": (["compare", "-d", "1000000000", "-m", "8"], "-d 1000000000: pipeline.devices: at most 1024 are supported"),
    "microbatches negative": (["compare", "-d", "4", "-m", "-1"], "expected a whole number >= 1"),
    "chunks 0": (["compare", "-d", "4", "-m", "8", "-v", "0"], "-v"),
    "chunks a word": (["compare", "-d", "4", "-m", "8", "--chunks", "2,x"], "expected a whole number >= 1"),
    "placement": (["compare", "-d", "4", "-m", "8", "--placement", "zigzag"], "'zigzag' is not one of"),
    "limit negative": (["compare", "-d", "4", "-m", "8", "--memory-limit", "-1"], "expected a number >= 0"),
    "limit nan": (["compare", "-d", "4", "-m", "8", "--memory-limit", "nan"], "got 'nan'"),
    "limit infinite": (["compare", "-d", "4", "-m", "8", "--memory-limit", "inf"], "got 'inf'"),
    "limit a word": (["compare", "-d", "4", "-m", "8", "--memory-limit", "4,much"], "got 'much'"),
    "limit with its unit": (["compare", "-d", "4", "-m", "8", "--memory-limit", "80 GB"], "write 80 (units.memory is a label)"),
    "amount with its unit": (
        ["compare", "-d", "4", "-m", "8", "--set", 'memory.limit="80GB"'],
        "memory.limit: expected a number >= 0, got '80GB'; write 80 (units.memory is a label)",
    ),
    "time with its unit": (
        ["compare", "-d", "2", "-m", "8", "--set", 'costs.forward=[1, "8.5ms"]'],
        "costs.forward[1]: expected a number >= 0, got '8.5ms'; write 8.5 (units.time is a label)",
    ),
    "amount of layers with its unit": (
        ["compare", str(MODELS / "llama-3-70b.toml"), "--set", 'layers=[{name="a", forward=1, backward=2, weights=".5GiB"}]'],
        "layers[0].weights: expected a number >= 0, got '.5GiB'; write .5 (units.memory is a label)",
    ),
    "limit too short": (["compare", "-d", "4", "-m", "8", "--memory-limit", "4,4"], "--memory-limit: memory.limit: expected one"),
    "limit too small": (["compare", "-d", "4", "-m", "8", "--memory-limit", "0.5"], "memory.limit: device 0 needs at least 1"),
    "set without value": (["compare", str(GOOD), "--set", "costs.forward"], "--set costs.forward: expected KEY=VALUE"),
    "set without key": (["compare", str(GOOD), "--set", "=4"], "--set =4: expected KEY=VALUE"),
    "set unknown key": (
        ["compare", str(GOOD), "--set", "costs.forwrad=2"],
        "--set costs.forwrad=2: costs.forwrad: unknown key; did you mean costs.forward?",
    ),
    "set negative": (
        ["compare", str(GOOD), "--set", "costs.forward=-2"],
        "--set costs.forward=-2: costs.forward: expected a number",
    ),
    "set not TOML": (["compare", str(GOOD), "--set", "costs.forward=[1,"], "the value is neither TOML nor a bare word"),
    "set a word for a number": (["compare", str(GOOD), "--set", "costs.forward=fast"], "expected a number >= 0, got 'fast'"),
    "set two lines": (["compare", str(GOOD), "--set", "costs.forward=1\ny=2"], "expected a single value"),
    "set below a number": (["compare", str(GOOD), "--set", "costs.forward.x=1"], "costs.forward: is not a table"),
    "set a list too short": (
        ["compare", str(GOOD), "--set", "costs.forward=[1,2]"],
        "costs.forward: expected one number or a list of 4",
    ),
    "set infinite": (["compare", str(GOOD), "--set", "links.latency=inf"], "links.latency: expected a finite number"),
    "set an unknown table": (["compare", str(GOOD), "--set", "cost.forward=1"], "cost: unknown key; did you mean costs?"),
    "set a schedule that nobody knows": (
        ["compare", str(GOOD), "--set", "pipeline.schedule=zbh2x"],
        "pipeline.schedule: there is no",
    ),
    "the schedule no longer exists": (["compare", str(GOOD), "-m", "3"], "microbatches must be >= devices (4), got 3"),
    "unknown command": (["compair"], "there is no command 'compair'; did you mean compare?"),
    "unknown option": (["compare", "--job", "3"], "No such option"),
    "unknown schedule": (["order", "zb-h11", "-d", "4", "-m", "8"], "there is no schedule 'zb-h11'; did you mean zb-h"),
    "schedule that cannot be": (["order", "dualpipe", "-d", "4", "-m", "7"], "dualpipe: microbatches must be even, got 7"),
    "schedule that deadlocks": (["order", "interleaved", "-d", "6", "-m", "8"], "interleaved-1f1b"),
    "order at two numbers of chunks": (["order", "hanayo", "-d", "4", "-m", "8", "-v", "2,4"], "a single number of chunks"),
    "chunks where there are none": (["order", "1f1b", "-d", "4", "-m", "8", "-v", "2"], "1f1b: chunks must be 1"),
    "parameter unknown": (["order", "1f1b", "-d", "4", "-m", "8", "--param", "x=1"], "1f1b: unknown parameter 'x'"),
    "parameter named as an argument": (
        ["order", "1f1b", "-d", "4", "-m", "8", "--param", "chunks=1"],
        "unknown parameter 'chunks'",
    ),
    "parameter without value": (["order", "1f1b", "-d", "4", "-m", "8", "--param", "x"], "--param x: expected KEY=VALUE"),
    "parameter out of range": (
        ["order", "interleaved-1f1b", "-d", "4", "-m", "8", "--param", "group_size=0"],
        "group_size must be a whole number >= 1, got 0",
    ),
    "no worker": (["solve", str(GOOD), "--workers", "0"], "'--workers'"),
    "time limit negative": (["solve", str(GOOD), "--time-limit", "-1"], "expected a finite number > 0, got '-1'"),
    "time limit zero": (["solve", str(GOOD), "--time-limit", "0"], "expected a finite number > 0, got '0'"),
    "time limit infinite": (["solve", str(GOOD), "--time-limit", "inf"], "expected a finite number > 0, got 'inf'"),
    "time limit nan": (["solve", str(GOOD), "--time-limit", "nan"], "expected a finite number > 0, got 'nan'"),
    "gap negative": (["solve", str(GOOD), "--gap", "-0.1"], "expected a finite number >= 0 and <= 1, got '-0.1'"),
    "gap in percent": (["solve", str(GOOD), "--gap", "5"], "expected a finite number >= 0 and <= 1, got '5'"),
    "seed negative": (["solve", str(GOOD), "--seed", "-1"], "'--seed'"),
    "objective unknown": (["solve", str(GOOD), "--objective", "bubble"], "'bubble' is not one of"),
    "solver unknown": (["solve", str(GOOD), "--solver", "gurobi"], "'gurobi' is not one of"),
    "two workers, deterministic": (
        ["solve", str(GOOD), "--deterministic", "--workers", "2"],
        "a deterministic search has one worker",
    ),
    "free without order": (["solve", str(GOOD), "--free", "W"], "--free and --param need --order NAME"),
    "free no kind": (["solve", str(GOOD), "--order", "zb-h1", "--free", "X"], "expected kinds of F, B, I, W"),
    "order unknown": (["solve", str(GOOD), "--order", "zbh"], "there is no schedule 'zbh'"),
    "order elsewhere": (
        ["solve", str(GOOD), "--placement", "linear", "--order", "hanayo"],
        "--order hanayo runs on its own placement",
    ),
    "picture nowhere": (["frontier", str(GOOD), "--plot", "/nowhere/at/all.png"], "there is no folder '/nowhere/at'"),
    "too many threads": (["solve", str(GOOD), "--workers", "99999999999"], "is not in the range 1<=x<=1024"),
    "output nowhere": (["solve", str(GOOD), "-o", "/nowhere/at/all.json"], "there is no folder '/nowhere/at'"),
    "output a folder": (["solve", str(GOOD), "-o", "/"], "is a directory"),
    "linear with chunks": (
        ["solve", "-d", "4", "-m", "8", "-v", "2"],
        "-v 2: pipeline.chunks: the linear placement has one chunk",
    ),
    "explain nobody": (["schedules", "gpip"], "there is no schedule 'gpip'; did you mean gpipe"),
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_bad_flag_is_named(name: str) -> None:
    args, expected = FLAGS[name]
    stderr = refused(*args)
    assert expected in stderr


TWO_ROUTES = b"""
pipeline = {devices = 2, microbatches = 4, placement = "bidirectional", recompute = "choose"}
costs = {per = "device", forward = [1, 2], backward_input = [1, 2], backward_weight = 1, recompute = 1}
memory = {limit = 3, recompute_saved = 0.5}
"""


@pytest.mark.parametrize("command", ["solve", "frontier"])
@pytest.mark.parametrize(
    ("settings", "place"), [([], "<stdin>"), (["--set", "costs.forward=[1,3]"], "--set costs.forward=[1,3]")]
)
def test_what_a_search_cannot_take_is_named_with_its_place(command: str, settings: list[str], place: str) -> None:
    """The model is sound by itself: that both routes need equal costs is found out when what recomputes is looked for."""
    stderr = refused(command, "-", *settings, stdin=TWO_ROUTES)
    assert stderr.startswith(f"Error: {place}: costs.forward: the routes have different values for a stage")


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(b'name = "x"\n# caf\xe9\n')
    stderr = refused("compare", str(path))
    assert stderr == f"Error: {path}: is not UTF-8 text (line 2)\n"
    assert refused("compare", "-", stdin=b"\xff") == "Error: <stdin>: is not UTF-8 text (line 1)\n"


def test_standard_input_is_named() -> None:
    assert (
        refused("compare", "-", stdin=b"devices = 1") == "Error: <stdin>: devices: unknown key; did you mean pipeline.devices?\n"
    )


def test_a_study_of_too_many_digits_is_refused() -> None:
    stderr = refused("sweep", "-", "-o", "all.db", stdin=b"format = " + b"9" * 5000)
    assert "<stdin>: not a TOML file: Exceeds the limit" in stderr
