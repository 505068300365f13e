"""The form in a real browser, with its server beside it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import launched
from tests.support.hard import HARD

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a server, which a signal ends."""
    process = subprocess.Popen([sys.executable, "-m", "ppopt", "serve"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().split()[0]
    process.terminate()
    assert process.wait(60) == 0
    process.stdout.close()


@pytest.fixture
def tab(browser: Browser, address: str) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True)
    context.set_default_timeout(300_000)
    tab = context.new_page()
    wrong: list[str] = []
    asked: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(address)
    tab.wait_for_selector("body[data-ready]")
    yield tab
    assert not wrong
    assert all(url.startswith((address, "data:")) for url in asked), asked
    context.close()


def titles(tab: Tab) -> list[str]:
    """Of the charts in the frame."""
    frame = tab.frame_locator("#frame")
    frame.locator("body[data-ready]").wait_for(state="attached")
    return frame.locator("h2").all_inner_texts()


def test_restrictions_are_messages_beside_the_charts(tab: Tab) -> None:
    tab.locator("#field-pipeline-microbatches").fill("6")
    tab.locator("#compare").click()
    tab.locator("#frame").wait_for()
    assert set(titles(tab)) == {"1f1b", "interleaved-1f1b", "zb-h1", "zb-v"}
    assert "dualpipe: " in tab.locator("#messages").inner_text()
    with tab.expect_download() as download:
        tab.locator("#download").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert '"title":"zb-v"' in text


def test_bad_input_is_said_at_its_field(tab: Tab) -> None:
    tab.locator("#field-costs-forward").fill("1, 2")
    tab.locator("#compare").click()
    field = tab.locator("#field-costs-forward[aria-invalid=true]")
    field.wait_for()
    assert "a list of 4" in field.locator("xpath=../output").inner_text()
    field.fill("1, 2, 1, 1")
    tab.locator("#compare").click()
    tab.locator("#frame").wait_for()
    assert tab.locator("[aria-invalid]").count() == 0


def test_stop_keeps_the_best(tab: Tab) -> None:
    for key, text in HARD.items():
        field = tab.locator(f"#field-{key.replace('__', '-')}")
        if field.evaluate("(element) => element.tagName") == "SELECT":
            field.select_option(text)
        else:
            field.fill(text)
    tab.locator("#seconds").fill("600")
    tab.locator("#solve").click()
    tab.locator("#progress", has_text="gap").wait_for()
    assert tab.locator("#solve").is_disabled()
    tab.locator("#stop").click()
    tab.locator("#frame").wait_for()
    assert titles(tab)[0].startswith("answer: best found, gap ")
    assert "interrupted" in (tab.locator("#output").text_content() or "")


def test_a_model_file_goes_in_and_out(tab: Tab, tmp_path: Path) -> None:
    given = tmp_path / "model.toml"
    given.write_text(
        'name = "mine"\n[pipeline]\ndevices = 2\nmicrobatches = 4\n[[layers]]\nname = "a"\ncount = 4\nforward = 1\nbackward = 2\n'
    )
    tab.locator("#load").set_input_files(given)
    tab.locator("#layers tbody tr").wait_for()
    assert tab.locator("#field-name").input_value() == "mine"
    with tab.expect_download() as download:
        tab.locator("#save").click()
    assert "count = 4" in Path(download.value.path()).read_text()


def test_the_whole_form_can_be_used_without_a_mouse(tab: Tab) -> None:
    reached = set()
    tab.locator("#tab-model").focus()
    for _ in range(70):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("() => document.activeElement.id"))
    assert {"field-pipeline-devices", "field-memory-limit", "save", "objective", "seconds", "compare", "solve"} <= reached
    unnamed = tab.evaluate("""() => [...document.querySelectorAll('button, input, select, textarea')].filter(
        (element) => !(element.getAttribute('aria-label') || element.textContent.trim() || element.labels?.length)).length""")
    assert unnamed == 0
