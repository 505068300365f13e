"""A gallery: the pictures that the field's projects show of their schedules, one file each.

Sizes and times are those of PP-Emulation's README (a forward 1, a backward 2 per stage, a pair 3) and of parallelsim's
notebook (6 stages, 12 microbatches); V-Half, V-Min, Chimera and ZB-H2 are added, and one run of 1024 microbatches.

    python scripts/gallery.py --docs

makes all pictures of README.md and of the pages in docs anew, as small png files in docs/pictures. The first one shows the
optimum of the model file that README.md has as its example; the frontier takes a minute, the studies some minutes. The picture
of the interactive page needs Playwright, and a Chromium on the path or in PPOPT_BROWSER.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import chunks
import latency
import microbatches
import weak_scaling
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import ppopt as pp
from ppopt.files import model_of_text
from ppopt.named import find
from ppopt.pictures.figure import figure, save
from ppopt.pictures.frontier import frontier as draw_frontier
from ppopt.pictures.gantt import gantt, legend_handles
from ppopt.pictures.measured import picture_of
from ppopt.pictures.timeaxis import time_axis
from ppopt.pipeline import Costs, Pipeline
from ppopt.runs import beside, read_run
from ppopt.schedule import Schedule
from ppopt.study.frontier import frontier

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "pictures"
COLOURS = 96
"""Of a small png."""
STAGE = Costs(per="stage", forward=1, backward_input=1, backward_weight=1, overlap=3)
PICTURES: dict[str, tuple[str, int, int, int | None]] = {
    "1f1b": ("1f1b", 4, 8, None),
    "interleaved": ("interleaved-1f1b", 4, 8, 2),
    "zb1p": ("zb-h1", 4, 8, None),
    "dualpipe": ("dualpipe", 8, 20, None),
    "1f1b-overlap": ("1f1b-overlap", 4, 8, None),
    "interleaved-overlap": ("interleaved-1f1b-overlap", 4, 8, 2),
    "gpipe-6-stages": ("gpipe", 6, 12, None),
    "dualpipe-v": ("dualpipe-v", 4, 10, None),
    "hanayo": ("hanayo", 8, 8, 2),
    "chimera": ("chimera", 8, 8, None),
    "zb-h2": ("zb-h2", 4, 8, None),
    "zb-v": ("zb-v", 4, 8, None),
    "v-half": ("v-half", 4, 8, None),
    "v-min": ("v-min", 4, 8, None),
    "1f1b-32-devices": ("1f1b", 32, 64, None),
    "zb-h1-1024-microbatches": ("zb-h1", 8, 1024, None),
}
"""File -> schedule, devices, microbatches, chunks."""
STUDIES: dict[str, tuple[Callable[[Sequence[str]], None], list[str], str]] = {
    "study-weak-scaling": (weak_scaling.main, [], "weak_scaling-latency-4.png"),
    "study-latency": (latency.main, ["--devices", "8"], "latency-8-devices.png"),
    "study-microbatches": (microbatches.main, ["--devices", "8"], "microbatches-8-devices.png"),
    "study-chunks": (chunks.main, ["--devices", "8"], "chunks-8-devices.png"),
}
"""File -> the study that draws it, its options, and what the study calls it."""


def schedule(name: str) -> Schedule:
    """The schedule of a picture."""
    known, devices, microbatches, chunks = PICTURES[name]
    definition = find(known)
    placed = definition.place(Pipeline(devices, microbatches), chunks)
    return definition.schedule(placed.changed(costs=STAGE), placed.chunks)


def example() -> str:
    """The model file in README.md."""
    found = re.search(r"^```toml\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None, "README.md has no model file"
    return found[1]


def optimum() -> tuple[Figure, dict[str, str]]:
    """1F1B, ZB-H1 and the optimum of README's example, one below the other on one time axis; and what the file is to keep.

    Raises:
        AssertionError: the optimum is not proved within two minutes.
    """
    text = example()
    result = pp.solve(model_of_text(text, "README.md"), seconds=120)
    assert result.reason == "optimal", "the picture needs a proof"
    titles = {"1f1b": "1F1B", "zb-h1": "ZB-H1 (zero bubble)"}
    rows = [(title, result.named[name].schedule) for name, title in titles.items()]
    pipeline = result.pipeline
    best = f"optimum of all placements, proved ({pipeline.placement}, {pipeline.chunks} chunks per device)"
    schedules = [*rows, (best, result.schedule)]
    axis = time_axis([schedule for _, schedule in schedules])
    picture = Figure(figsize=(9, 5.2), layout="constrained")
    for ax, (title, schedule) in zip(picture.subplots(len(schedules), sharex=True), schedules, strict=True):
        gantt(schedule, ax, axis)
        figures = f"makespan {schedule.pipeline.time(schedule.makespan):g}, bubble ratio {schedule.bubble_ratio:.1%}"
        ax.set_title(f"{title}: {figures}", loc="left", size=10, weight="bold")
        ax.label_outer()
    handles, labels = legend_handles([schedule for _, schedule in schedules])
    look = {"loc": "outside lower center", "ncols": len(labels), "frameon": False, "fontsize": 8.5, "columnspacing": 1.2}
    picture.legend(handles, labels, handler_map={tuple: HandlerTuple(ndivide=None, pad=0)}, **look)
    makespans = ", ".join(f"{schedule.pipeline.time(schedule.makespan):g}" for _, schedule in schedules)
    return picture, {"Source": text, "Title": makespans}


def memory_frontier() -> Figure:
    """What memory buys: the best makespan at each limit, of three placements of a measured GPT on four devices."""
    pipeline = pp.read_model(str(ROOT / "models" / "gpt-1.5b.toml")).pipeline.changed(devices=4, microbatches=8)
    places = (pipeline, pipeline.placed("loop", 2), pipeline.placed("wave", 2))
    settings = pp.Settings(seconds=5)
    picture = Figure(figsize=(9, 5), layout="constrained")
    ax = draw_frontier([frontier(place, points=8, settings=settings) for place in places], picture.subplots())
    handles, labels = ax.get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
    return picture


def save_studies() -> None:
    """The pictures of studies."""
    for name, (draw, options, drawn) in STUDIES.items():
        with tempfile.TemporaryDirectory() as folder:
            draw([*options, "--workers", "1", "-o", folder])
            save_study(Path(folder) / drawn, name)


def save_study(path: Path, name: str) -> None:
    """A study's picture as one of the pages."""
    with Image.open(path) as picture:
        picture.thumbnail((1500, 1500))
        _save(picture, DOCS / f"{name}.png", {})


def save_page() -> None:
    """The interactive page, as a browser shows it."""
    from playwright.sync_api import sync_playwright

    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    table = pp.compare(model_of_text(example(), "README.md").pipeline)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path, picture = Path(folder) / "page.html", Path(folder) / "page.png"
        pp.plot([table["zb-h1"], table["1f1b"]], str(path), memory=True)
        browser = driver.chromium.launch(executable_path=browser_path(), args=["--disable-background-networking", *root])
        tab = browser.new_context(offline=True, viewport={"width": 1100, "height": 760}).new_page()
        tab.goto(f"file://{path}")
        tab.wait_for_selector("body[data-ready]")
        tab.mouse.move(*_inside(tab))
        tab.screenshot(path=picture)
        browser.close()
        with Image.open(picture) as shown:
            _save(shown, DOCS / "page.png", {})


def _inside(tab: Any) -> tuple[float, float]:
    """A place in an operation of the first chart's second device."""
    box = tab.locator("#gantt-0").bounding_box()
    return box["x"] + 0.3 * box["width"], box["y"] + 8 + 1.5 * 30


def browser_path() -> str | None:
    """The browser that draws the page; ``None``: there is none."""
    return os.environ.get("PPOPT_BROWSER") or shutil.which("chromium")


def save_small(picture: Figure, path: Path, dpi: int = 150, texts: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write a png of few colours, on a white ground of its own; the file keeps the ``texts``."""
    buffer = io.BytesIO()
    picture.savefig(buffer, dpi=dpi, format="png", facecolor="white")
    _save(Image.open(buffer), path, texts)


def _save(picture: Image.Image, path: Path, texts: Mapping[str, str]) -> None:
    small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    kept = PngInfo()
    for key, text in texts.items():
        kept.add_text(key, text)
    small.save(path, optimize=True, pnginfo=kept)
    print(path)


def run_beside_its_plan() -> Figure:
    """The example of docs/runs.md."""
    folder = ROOT / "models" / "runs"
    plan = find("1f1b").schedule(pp.read_model(str(folder / "llama-3-8b.toml")).pipeline)
    found = beside(read_run(sorted(map(str, folder.glob("event_times_*.json")))), plan)
    return picture_of(found.measured, "eight layers of Llama 3 8B on each device: a run and its plan", found)


def make_docs() -> None:
    """All pictures of README and docs."""
    if browser_path() is None or importlib.util.find_spec("playwright") is None:
        raise SystemExit("gallery.py: the picture of the page needs Playwright, and Chromium on the path or in PPOPT_BROWSER")
    DOCS.mkdir(exist_ok=True)
    picture, texts = optimum()
    save_small(picture, DOCS / "optimum.png", dpi=200, texts=texts)
    for name in PICTURES:
        picture = figure([(name, schedule(name))])
        save_small(picture, DOCS / f"gallery-{name}.png", dpi=100 if picture.get_figwidth() > 15 else 150)
    rows = pp.compare(Pipeline(4, 8))
    held = [(name, rows[name].schedule) for name in ("1f1b", "v-half")]
    save_small(figure(held, memory=True), DOCS / "memory.png")
    links = pp.read_model(str(ROOT / "models" / "two-sites-v.toml"))
    best = pp.solve(links, seconds=60).schedule
    save_small(figure([("two sites with one line between them", best)]), DOCS / "links.png")
    save_small(memory_frontier(), DOCS / "frontier.png")
    save_small(run_beside_its_plan(), DOCS / "measured.png")
    save_studies()
    save_page()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("studies"), help="folder for the pictures (studies)")
    parser.add_argument("--suffix", default="png", choices=["png", "svg", "pdf"], help="of the files (png)")
    parser.add_argument("--memory", action="store_true", help="with the memory of each device over time")
    parser.add_argument("--quick", action="store_true", help="only the first four")
    parser.add_argument("--docs", action="store_true", help="the pictures of README.md and docs/gallery.md")
    args = parser.parse_args(argv)
    if args.docs:
        make_docs()
        return
    args.output.mkdir(parents=True, exist_ok=True)
    for name in list(PICTURES)[: 4 if args.quick else None]:
        path = args.output / f"gallery-{name}.{args.suffix}"
        save(figure([(name, schedule(name))], memory=args.memory), str(path))
        print(path)


if __name__ == "__main__":
    main()
