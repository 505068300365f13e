"""Times of the interactive page in a real browser, for schedules of about 10^3, 10^5 and 2 * 10^5 bars.

    python scripts/page_times.py

It needs Playwright and a Chromium on the path (or PPOPT_BROWSER). Of each size it says how long the page takes to be written,
how large it is, how long it takes to its first picture, and the median and 95 % of the frames while it is moved (at all of the
time, and where single boxes are seen) and zoomed from all to a hundredth. The pages take turns, so that what else runs slows down
all of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import ppopt as pp
from ppopt.named import find

SIZES = {"10^3": 44, "10^5": 4167, "2*10^5": 8334}
"""Microbatches of ZB-H1 on 8 devices."""
FRAMES = """async ([from, length, zoom]) => {
  const range = Bokeh.documents[0].get_model_by_name('time'), frame = () => new Promise((done) => requestAnimationFrame(done));
  const times = [];
  range.setv({start: from, end: from + length});
  await frame(); await frame();
  for (let k = 0, wide = length; k < 30; k++) {
    const begun = performance.now();
    wide *= zoom;
    const start = zoom === 1 ? range.start + length / 200 : from;
    range.setv({start, end: start + wide});
    await frame();
    times.push(performance.now() - begun);
  }
  return times;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each page takes its turn (3)")
    parser.add_argument("-o", "--output", type=Path, help="folder in which the pages are kept (default: none)")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        kept = options.output or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        pages, found = {}, {}
        for name, microbatches in SIZES.items():
            schedule = find("zb-h1").schedule(pp.Pipeline(8, microbatches, memory=pp.Memory(limit=8)))
            path = kept / f"page-{schedule.order.index.microbatches}.html"
            begun = time.perf_counter()
            pp.plot(schedule, str(path))
            pages[name] = path
            found[name] = {
                "bars": sum(map(len, schedule.order.rows)),
                "seconds": time.perf_counter() - begun,
                "end": schedule.makespan,
            }
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        where = os.environ.get("PPOPT_BROWSER") or shutil.which("chromium")
        browser = driver.chromium.launch(executable_path=where, args=["--disable-background-networking", *root])
        print(f"Chromium {browser.version}, 1200 x 900, median (95 %) of frames in ms, least and most of {options.rounds} rounds")
        figures: dict[str, dict[str, list[float]]] = {name: {} for name in SIZES}
        for _ in range(options.rounds):
            for name, path in pages.items():
                for key, value in _measured(browser, path, float(found[name]["end"])).items():
                    figures[name].setdefault(key, []).append(value)
        browser.close()
        for name, path in pages.items():
            size = path.stat().st_size / 1e6
            print(f"{name}: {found[name]['bars']} bars, {size:.2f} MB, checked and written in {found[name]['seconds']:.1f} s")
            for key, values in figures[name].items():
                print(f"  {key:28} {min(values):7.1f} to {max(values):7.1f}")


def _measured(browser: object, path: Path, end: float) -> dict[str, float]:
    """First picture (s), and frames (ms): their median and the time within which 95 % are."""
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})  # type: ignore[attr-defined]
    tab = context.new_page()
    tab.set_default_timeout(120_000)
    begun = time.perf_counter()
    tab.goto(f"file://{path}")
    tab.wait_for_selector("body[data-ready]")
    found = {"first picture, s": time.perf_counter() - begun}
    moves = {
        "pan, all": (0.0, end, 1.0),
        "pan, single boxes": (end / 3, min(end, 40.0), 1.0),
        "zoom, all to 1 %": (0.0, end, 0.01 ** (1 / 30)),
    }
    for name, arguments in moves.items():
        times = sorted(tab.evaluate(FRAMES, list(arguments)))
        found[f"{name}, ms"] = statistics.median(times)
        found[f"{name}, 95 %, ms"] = times[int(0.95 * len(times))]
    heap = tab.evaluate("() => performance.memory ? performance.memory.usedJSHeapSize / 1e6 : 0")
    found["heap, MB"] = heap
    context.close()
    return found


if __name__ == "__main__":
    main()
