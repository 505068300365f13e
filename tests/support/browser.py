"""A browser for tests: Debian's Chromium, driven by Playwright. Without one, tests are skipped; where CI is set, they fail."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator
    from playwright.sync_api import Page as Tab

FLAGS = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")
"""A browser that asks nothing of the network by itself."""
FRAME = """(name) => {
  const figure = Bokeh.documents[0].get_model_by_name(name), view = Bokeh.index.find_one(figure);
  const box = view.el.getBoundingClientRect(), frame = view.frame.bbox;
  return {left: box.left + frame.left, top: box.top + frame.top, width: frame.width, height: frame.height,
          start: figure.x_range.start, end: figure.x_range.end, high: figure.y_range.end, low: figure.y_range.start};
}"""


def need(condition: bool, what: str) -> None:
    """Skip the test without ``what`` on a developer's machine; fail where CI is set."""
    if not condition:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"there is no {what}")


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser."""
    path = os.environ.get("PPOPT_BROWSER") or shutil.which("chromium") or shutil.which("chromium-browser")
    need(path is not None, "Chromium (chromium on the path, or PPOPT_BROWSER)")
    need(importlib.util.find_spec("playwright") is not None, "playwright")
    need(importlib.util.find_spec("bokeh") is not None, "bokeh")
    from playwright.sync_api import sync_playwright

    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=[*FLAGS, *root])
        yield browser
        browser.close()


class Opened(NamedTuple):
    """A page that is open, what it has asked for, and what went wrong in it."""

    tab: Tab
    asked: list[str]
    wrong: list[str]

    def model(self, name: str, what: str) -> Any:
        """A property of one of Bokeh's models."""
        return self.tab.evaluate(f"(name) => Bokeh.documents[0].get_model_by_name(name).{what}", name)

    def column(self, renderer: str, name: str) -> list[Any]:
        """A column of a renderer's data."""
        found: list[Any] = self.tab.evaluate(
            "([renderer, name]) => [...Bokeh.documents[0].get_model_by_name(renderer).data_source.data[name]]", [renderer, name]
        )
        return found

    @property
    def range(self) -> tuple[float, float]:
        """The times that are seen."""
        return self.model("time", "start"), self.model("time", "end")

    def at(self, chart: str, time: float, row: float) -> tuple[float, float]:
        """Where a time and a row are in the window; the chart is brought into it."""
        kind, _, k = chart.partition("-")
        self.tab.locator(f"#{chart}").scroll_into_view_if_needed()
        frame = self.tab.evaluate(FRAME, f"{kind}-figure-{k}")
        x = frame["left"] + (time - frame["start"]) / (frame["end"] - frame["start"]) * frame["width"]
        y = frame["top"] + (row - frame["high"]) / (frame["low"] - frame["high"]) * frame["height"]
        return x, y

    def tip(self, chart: str, time: float, row: float) -> str:
        """What is said under the pointer."""
        self.tab.mouse.move(*self.at(chart, time, row))
        return self.tab.locator("#tip").inner_text()

    def settled(self) -> None:
        """Wait until what was asked for is drawn."""
        self.tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.tab.wait_for_timeout(60)

    def pressed(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.tab.keyboard.press(key)
        self.settled()


@contextmanager
def opened(context: BrowserContext, address: str) -> Iterator[Opened]:
    """A page; that nothing goes wrong in it is checked at the end."""
    tab = context.new_page()
    asked: list[str] = []
    wrong: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    tab.goto(address)
    tab.wait_for_selector("body[data-ready], body[data-error]")
    assert tab.locator("body[data-error]").count() == 0, tab.locator("#failed").inner_text()
    yield Opened(tab, asked, wrong)
    assert not wrong
    tab.close()


def colours(part: Locator, path: Path) -> set[tuple[int, int, int]]:
    """The colours of an element."""
    from PIL import Image

    part.screenshot(path=path)
    with Image.open(path) as image:
        found = image.convert("RGB").getcolors(10**7)
    assert found is not None
    return {colour for _, colour in found}


def colour_at(tab: Tab, place: tuple[float, float], path: Path) -> tuple[int, ...]:
    """The colour of a place in the window."""
    from PIL import Image

    tab.screenshot(path=path)
    with Image.open(path) as image:
        return tuple(image.convert("RGB").getpixel((round(place[0]), round(place[1]))))  # type: ignore[arg-type]
