"""What commands print at 80, 100 and 160 columns and piped, whole: in tests/data/snapshots.

``PPOPT_SNAPSHOTS=write pytest tests/cli/test_snapshots.py -m "thorough or not thorough"`` writes them anew; look at them then.
"""

import importlib
import os
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ppopt.search import Result
from ppopt.study.frontier import Frontier
from tests.support.command import run
from tests.support.places import ROOT
from tests.support.tiers import thorough

SNAPSHOTS = ROOT / "tests" / "data" / "snapshots"
WIDTHS = (80, 100, 160, None)
"""``None``: no terminal, and COLUMNS is not set."""
MODELS = "{root}/models"
TRACES = "{root}/tests/data/torch_trace_0.json {root}/tests/data/torch_trace_1.json"
RUN = " ".join(f"{MODELS}/runs/event_times_PP4_VPP1_TPxCPxDP_rank_0_pp_rank_{d}_rank_{d}.json" for d in range(4))
STUDY = """
[model.pipeline]
devices = 2
[model.memory]
limit = 2
[vary]
pipeline.microbatches = [2, 4]
pipeline.placement = ["linear", "loop"]
[run]
schedules = ["1f1b", "seq1f1b"]
"""
QUICK = {
    "compare": 'compare -d 3 -m 6 --memory-limit 3 --set costs.forward=1.0314 --set units={time="ms",samples_per_microbatch=4}',
    "show": "show zb-v -d 3 -m 6 --memory-limit 3 --set links.latency=0.2",
    "show-links": "show chimera -d 2 -m 4 --set links.occupancy=0.5 --memory-limit 1",
    "solve": "solve -d 2 -m 4 --memory-limit 2 --workers 1",
    "check": "check {root}/tests/data/torch_interleaved_zb.csv",
    "layout": "layout Et*2|(t*3|)*2,tmL --runtime megatron -d 2 --layers 9 --option mtp=1",
    "order": "order 1f1b -d 2 -m 3",
}
"""Name of the snapshot -> command line, its words split at spaces."""
THOROUGH = {
    "compare-recompute": "compare -d 3 -m 6 --recompute all --set costs.recompute=0.5 --set memory.recompute_saved=0.5",
    "solve-placements": "solve -d 2 -m 4 --memory-limit 2 --placement any --workers 1 --explain",
    "solve-microbatches": "solve -d 2 -m 2,4 --memory-limit 2 --workers 1",
    "frontier": "frontier -d 2 -m 4 --limits 1,2 --workers 1",
    "results": "results study.db",
    "schedules": "schedules chimera",
    "estimate": f"estimate {MODELS}/configs/gpt-2.json --set transformer.sequence=1024 --set cluster.gpu=h100-sxm",
    "plan": f"plan {MODELS}/plans/llama-3-70b.toml --set cluster.gpus=8 --workers 1",
    "export": "export cut.json --to megatron",
    "profile": f"profile {TRACES} -o model.toml",
    "measured": f"measured {TRACES}",
    "measured-plan": f"measured {RUN} --against plan.json --top 3",
}


ONCE = {
    "compare": ("ppopt.cli.compare", "compare_named"),
    "solve": ("ppopt.search", "solve"),
    "frontier": ("ppopt.study.frontier", "frontier"),
    "plan": ("ppopt.study.planning", "plan"),
}
"""What takes time in a command: it is done once for all widths."""
SECONDS = 0.25
"""All that is done took that long."""


def still(found: Any) -> Any:
    """What was found, without what differs from run to run."""
    if isinstance(found, Result):
        steps = tuple(step._replace(seconds=SECONDS) for step in found.steps)
        placements, points = (tuple(map(still, each)) for each in (found.placements, found.points))
        return replace(found, seconds=SECONDS, steps=steps, placements=placements, points=points)
    if isinstance(found, Frontier):
        return replace(found, points=tuple(replace(point, result=still(point.result)) for point in found.points))
    return found


def printed(words: str, width: int | None, folder: Path, known: dict[str, Any]) -> str:
    """What a command prints in ``folder``."""
    given = [word.replace("{root}", str(ROOT)) for word in words.split()]
    if given[0] in ("solve", "frontier", "plan"):
        given += ["--progress", "none"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("COLUMNS", raising=False)
        if width is not None:
            patch.setenv("COLUMNS", str(width))
        if given[0] in ONCE:
            module, name = ONCE[given[0]]
            real = getattr(importlib.import_module(module), name)

            def once(*args: Any, **more: Any) -> Any:
                if "found" not in known:
                    known["found"] = still(real(*args, **more))
                return known["found"]

            patch.setattr(importlib.import_module(module), name, once)
        result = run(*given, code=CODES.get(given[0], 0))
    text = re.sub(r"\(\d+\.\d s\)", "(… s)", result.stdout) if given[0] == "plan" else result.stdout
    return text.replace(str(ROOT), "…")


CODES = {"plan": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the files that the command lines name."""
    path = tmp_path_factory.mktemp("snapshots")
    (path / "study.toml").write_text(STUDY)
    layers = "".join(
        f'[[layers]]\nname = "{name}"\ncount = {count}\nforward = 1\nbackward_input = 1\nbackward_weight = 1\n'
        for name, count in (("embedding", 1), ("decoder", 6), ("head", 1))
    )
    (path / "cut.toml").write_text("[pipeline]\ndevices = 2\nmicrobatches = 4\n" + layers)
    return path


def compared(name: str, words: str, folder: Path) -> None:
    known: dict[str, Any] = {}
    shown = {width: printed(words, width, folder, known) for width in WIDTHS}
    for width, text in shown.items():
        for line in text.splitlines() if width is not None else ():
            assert len(line) <= width or name in ("order", "check"), f"{name} at {width} columns: {line}"
    text = f"$ ppopt {words.replace('{root}', '…')}\n"
    text += "".join(f"\n== {width or 'piped'}\n{part}" for width, part in shown.items())
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("PPOPT_SNAPSHOTS") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", QUICK)
def test_quick_commands_print_what_they_printed(name: str, folder: Path) -> None:
    compared(name, QUICK[name], folder)


@thorough
@pytest.mark.parametrize("name", THOROUGH)
def test_commands_print_what_they_printed(name: str, folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        if name == "results":
            run("sweep", "study.toml", "--workers", "1")
            with closing(sqlite3.connect("study.db")) as store:
                store.execute("UPDATE results SET seconds = ?", (SECONDS,))
                store.commit()
        if name == "measured-plan":
            Path("plan.json").write_text(run("order", "1f1b", ROOT / "models" / "runs" / "llama-3-8b.toml", "--json").stdout)
        if name == "export":
            Path("cut.json").write_text(run("order", "zb-h1", "cut.toml", "--partition", "Et*2|t*4L", "--json").stdout)
    compared(name, THOROUGH[name], folder)


def test_every_command_that_prints_for_people_has_a_snapshot() -> None:
    from ppopt.cli import COMMANDS

    shown = {words.split()[0] for words in (*QUICK.values(), *THOROUGH.values())}
    assert set(COMMANDS) - shown <= {"plot", "serve", "sweep"}  # which write files, or speak on standard error
