"""The page in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ppopt as pp
from ppopt.files import Model, document, json_text
from ppopt.named import find
from ppopt.op import HOPS, Kind
from ppopt.pictures.palette import SENDS, rgb, shades
from ppopt.pictures.plot import plot
from ppopt.pipeline import Links, Memory, Pipeline
from ppopt.schedule import Schedule
from tests.support.browser import Opened, colour_at, colours, launched, opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

pytestmark = pytest.mark.browser
SMALL = Pipeline(4, 8, memory=Memory(static=1, limit=6))


def wanted(kind: Kind, count: int = 1, which: int = 0) -> tuple[int, ...]:
    """The colour of a box."""
    return tuple(round(255 * float(part)) for part in shades(kind, count)[which])


def near(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) <= 3


def named(name: str, pipeline: Pipeline = SMALL) -> Schedule:
    return find(name).schedule(pipeline)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})
    context.set_default_timeout(120_000)
    yield context
    context.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """1F1B and DualPipe (with pairs, on two routes), with memory; and a result with its bound."""
    folder = tmp_path_factory.mktemp("pages")
    result = pp.solve(Pipeline(2, 4, name="best"), seconds=60)
    path = folder / "small.html"
    plot([named("zb-h1"), named("dualpipe"), result], str(path), memory=True, labels=["first", "second"])
    return f"file://{path}"


@pytest.fixture
def page(context: BrowserContext, small: str) -> Iterator[Opened]:
    with opened(context, small) as page:
        yield page


def test_boxes_have_the_colours_of_pictures_and_pairs_are_two_halves(page: Opened, tmp_path: Path) -> None:
    schedule = named("dualpipe")
    device, place = next(
        (device, place) for device in range(4) for place, op in enumerate(schedule.order.texts()[device]) if op.startswith("(")
    )
    start, end = (int(times[device][place]) for times in (schedule.start, schedule.end))
    pair = schedule.order.ops(device)[place]
    at = start + 0.06 * (end - start)
    first, second = (colour_at(page.tab, page.at("gantt-1", at, device + off), tmp_path / "a.png") for off in (-0.3, 0.3))
    rank = {half.stage: k for k, half in enumerate(sorted((pair.forward, pair.backward), key=lambda op: op.stage))}  # type: ignore[union-attr]
    assert any(near(first, wanted(Kind.F, 2, k)) for k in rank.values())
    assert any(near(second, wanted(Kind.B, 2, k)) for k in rank.values())
    assert near(colour_at(page.tab, page.at("gantt-0", 0.1, -0.3), tmp_path / "a.png"), wanted(Kind.F))


def test_all_charts_move_together(page: Opened) -> None:
    before = page.range
    page.tab.mouse.move(*page.at("gantt-1", 10, 1))
    page.tab.mouse.wheel(0, -300)
    page.settled()
    wheeled = page.range
    assert wheeled[1] - wheeled[0] < before[1] - before[0]
    x, y = page.at("memory-0", sum(wheeled) / 2, 1)
    page.tab.mouse.move(x, y)
    page.tab.mouse.down()
    page.tab.mouse.move(x - 150, y, steps=3)
    page.tab.mouse.up()
    page.settled()
    dragged = page.range
    assert dragged[0] > wheeled[0]
    assert dragged[1] - dragged[0] == pytest.approx(wheeled[1] - wheeled[0])
    page.tab.locator("#gantt-2").focus()
    page.pressed("ArrowLeft")
    assert page.range[0] < dragged[0]
    ranges = {page.model(f"{kind}-figure-{k}", "x_range.id") for kind in ("gantt", "memory") for k in range(3)}
    assert len(ranges) == 1


def test_nothing_is_asked_of_a_network(page: Opened, small: str) -> None:
    assert page.asked == [small]
    with pytest.raises(Exception, match=r"Failed to fetch|Content Security Policy|violates"):
        page.tab.evaluate("() => fetch('http://127.0.0.1:9/')")
    page.wrong.clear()  # the browser says on its console that it refused


def test_what_an_operation_waited_for_is_said(page: Opened) -> None:
    texts = named("zb-h1").order.texts()
    assert texts[1][0] == "1F0"
    first = page.tip("gantt-0", 1.5, 1)
    assert first.splitlines()[0].startswith("1F0: F forward")
    assert "stage 1, microbatch 0, device 1" in first
    assert "1 to 2, takes 1" in first
    assert "waited for data of 0F0, there at 1" in first
    assert "waited for the device, until 0F0 ended" in page.tip("gantt-0", 1.5, 0)
    idle = page.tip("gantt-0", 0.5, 3)
    assert "idle 0 to 3, 3 long" in idle
    assert "then 3F0, which waited for data of 2F0" in idle
    assert "device 0 holds 2" in page.tip("memory-0", 0.5, 0)


def test_a_click_shows_the_path_of_a_microbatch_and_keys_go_along_it(page: Opened, tmp_path: Path) -> None:
    def pale() -> tuple[bool, bool]:
        """Whether another microbatch is pale in the first chart, and in the second."""
        return tuple(  # type: ignore[return-value]
            not near(colour_at(page.tab, page.at(chart, time, row - 0.3), tmp_path / "b.png"), wanted(Kind.F, count))
            for chart, time, row, count in (("gantt-0", 1.1, 0, 1), ("gantt-1", 0.1, 0, 2))
        )

    assert pale() == (False, False)
    page.tab.mouse.click(*page.at("gantt-0", 2.5, 0))
    page.settled()
    assert pale() == (True, True)
    assert page.tab.locator("#microbatch").input_value() == "2"
    assert page.tab.locator("#said").inner_text().startswith("0F2")
    page.pressed("]")
    assert page.tab.locator("#said").inner_text().startswith("1F2")
    page.pressed("[")
    assert page.tab.locator("#said").inner_text().startswith("0F2")
    page.tab.mouse.click(*page.at("gantt-0", 2.5, 0))
    page.settled()
    assert pale() == (False, False)
    page.tab.mouse.click(*page.at("gantt-0", 2.5, 0))
    page.pressed("Escape")
    assert pale() == (False, False)


def test_a_time_is_measured_between_edges(page: Opened) -> None:
    start, end = page.at("gantt-0", 1.03, 1), page.at("gantt-0", 3.97, 1)
    before = page.range
    page.tab.keyboard.down("Shift")
    page.tab.mouse.move(*start)
    page.tab.mouse.down()
    page.tab.mouse.move(*end, steps=4)
    page.tab.mouse.up()
    page.tab.keyboard.up("Shift")
    page.settled()
    assert page.tab.locator("#said").inner_text() == "1 to 4: 3"
    assert (page.model("gantt-ruler-1", "left"), page.model("gantt-ruler-1", "right")) == (1, 4)
    assert page.range == before
    page.pressed("Escape")
    assert not page.model("gantt-ruler-0", "visible")


def test_colours_follow_the_choice(page: Opened, tmp_path: Path) -> None:
    before = colour_at(page.tab, page.at("gantt-0", 0.1, -0.3), tmp_path / "c.png")
    legend = page.tab.locator("#legend").inner_text()
    page.tab.locator("#by").select_option("microbatch")
    page.settled()
    assert colour_at(page.tab, page.at("gantt-0", 0.1, -0.3), tmp_path / "c.png") != before
    assert "microbatch 0 to 7" in page.tab.locator("#legend").inner_text() != legend
    page.tab.locator("#by").select_option("stage")
    assert "stage 0 to 3" in page.tab.locator("#legend").inner_text()


def test_memory_reaches_the_peak_and_shows_the_limit(page: Opened) -> None:
    schedule = named("zb-h1")
    tops, top = page.column("memory-steps-0", "top"), 6
    for device in range(4):
        highest = min(at for at in tops if device - 0.5 <= at < device + 0.5)
        assert (device + 0.4 - highest) / 0.8 * top == pytest.approx(schedule.peak_memory[device])
    assert page.column("memory-limits-0", "y") == pytest.approx([device + 0.4 - 0.8 for device in range(4)])
    assert page.column("memory-always-0", "top") == pytest.approx([device + 0.4 - 0.8 / 6 for device in range(4)])


def test_lines_at_the_bound_and_the_end(page: Opened) -> None:
    result = pp.solve(Pipeline(2, 4), seconds=60)
    assert page.model("gantt-bound-2", "location") == result.lower_bound
    assert page.model("gantt-end-2", "location") == result.makespan
    assert page.tab.evaluate("() => Bokeh.documents[0].get_model_by_name('gantt-bound-0')") is None
    assert page.model("gantt-end-0", "location") == pp.compare(SMALL)["zb-h1"].makespan
    page.tab.locator("#path").check()
    page.settled()
    assert "it takes 27" in page.tab.locator("#said").inner_text()


def test_the_address_keeps_what_is_seen(page: Opened, small: str) -> None:
    page.pressed("+", "+")
    page.tab.locator("#by").select_option("stage")
    page.tab.locator("#microbatch").fill("3")
    page.tab.wait_for_timeout(400)
    seen, address = page.range, page.tab.url
    assert re.search(r"#t=[\d.]+~[\d.]+&by=stage&m=3$", address)
    page.tab.goto("about:blank")
    page.tab.goto(address)
    page.tab.wait_for_selector("body[data-ready]")
    assert page.range == pytest.approx(seen, rel=1e-6)
    assert page.tab.locator("#by").input_value() == "stage"
    page.tab.goto("about:blank")
    page.tab.goto(f"{small}#t=2-5&by=microbatch")
    page.tab.wait_for_selector("body[data-ready]")
    assert page.range == (2, 5)


def test_keys_and_controls(page: Opened) -> None:
    whole = page.range
    page.pressed("KeyW", "KeyD")
    assert page.range[1] - page.range[0] < whole[1] - whole[0]
    page.pressed("0")
    assert page.range == pytest.approx(whole)
    page.pressed("?")
    assert page.tab.locator("#keys").is_visible()
    page.pressed("Escape")
    assert not page.tab.locator("#keys").is_visible()
    reached = set()
    page.tab.locator("#by").focus()
    for _ in range(40):
        page.tab.keyboard.press("Tab")
        reached.add(page.tab.evaluate("() => document.activeElement.id"))
    assert {"microbatch", "path", "in", "out", "whole", "help", "gantt-0", "memory-0", "gantt-2"} <= reached
    unnamed = page.tab.evaluate("""() => [...document.querySelectorAll('main button, main input, main select, .chart')].filter(
        (element) => !(element.getAttribute('aria-label') || element.textContent.trim() || element.labels?.length)).length""")
    assert unnamed == 0
    assert "it takes 27" in page.tab.locator("#gantt-0").get_attribute("aria-label")


def test_the_table_has_the_figures(page: Opened) -> None:
    rows = page.tab.locator("#summary tbody tr")
    row = pp.compare(SMALL)["zb-h1"]
    assert f"{row.makespan}" in rows.nth(0).inner_text()
    assert "it has 4 microbatches" in page.tab.locator("#summary").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_be_read(browser: Browser, small: str, scheme: str, tmp_path: Path) -> None:
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    with opened(context, small) as page:
        ground = colour_at(page.tab, (3, 3), tmp_path / "d.png")
        assert (sum(ground) > 600) == (scheme == "light")
        label = page.model("gantt-figure-0", "left[0].major_label_text_color")
        light, dark = sorted((sum(ground) / 765, float(rgb(label).mean())), reverse=True)
        assert light - dark > 0.4
        seen = colours(page.tab.locator("#gantt-0"), tmp_path / "e.png")
        assert all(any(near(colour, wanted(kind)) for colour in seen) for kind in (Kind.F, Kind.I, Kind.W))
    context.close()


def test_print_is_light_without_tools_and_splits_no_chart(browser: Browser, small: str, tmp_path: Path) -> None:
    context = browser.new_context(offline=True, viewport={"width": 1000, "height": 800}, color_scheme="dark")
    with opened(context, small) as page:
        page.tab.pdf(path=tmp_path / "page.pdf", prefer_css_page_size=True)
        assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
        page.tab.evaluate("() => dispatchEvent(new Event('beforeprint'))")
        page.tab.emulate_media(media="print")
        assert not page.tab.locator("#tools").is_visible()
        assert not page.tab.locator("#gantt-0").is_visible()
        picture = page.tab.locator("#gantt-printed-0")
        assert picture.is_visible()
        assert picture.evaluate("(element) => getComputedStyle(element).breakInside") == "avoid"
        seen = colours(picture, tmp_path / "f.png")
        assert max(seen, key=sum) == (255, 255, 255)
        assert any(near(colour, wanted(Kind.W)) for colour in seen)
        assert any(near(colour, (0xF2, 0xF2, 0xF2)) for colour in seen)  # idle, as in pictures
        page.tab.evaluate("() => dispatchEvent(new Event('afterprint'))")
    context.close()


@pytest.mark.parametrize("width", [390, 1500])
def test_charts_are_as_wide_as_the_window(browser: Browser, small: str, width: int) -> None:
    context = browser.new_context(offline=True, viewport={"width": width, "height": 800})
    with opened(context, small) as page:
        assert page.tab.evaluate("() => document.documentElement.scrollWidth") <= width
        frames = [page.model(f"{kind}-figure-{k}", "inner_width") for kind in ("gantt", "memory") for k in range(3)]
        assert len(set(frames)) == 1
        assert frames[0] > 0.4 * width
    context.close()


def test_links_have_rows_of_their_own(context: BrowserContext, tmp_path: Path) -> None:
    pipeline = Pipeline(4, 4, links=Links(1, 2))
    path = tmp_path / "links.html"
    plot(named("zb-h1", pipeline), str(path))
    with opened(context, f"file://{path}") as page:
        assert page.model("gantt-figure-0", "left[0].ticker.ticks.length") == 4 + len(pipeline.lines)
        colours_ = page.column("gantt-boxes-0", "colour")
        assert {SENDS[send] for send in HOPS} <= set(colours_)
        assert len(colours_) == 4 * 12 + 2 * 3 * 4
        assert "link 0→1" in page.tip("gantt-0", 1.5, 4.5)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Pages of about 10^3 and 10^5 bars."""
    folder = tmp_path_factory.mktemp("large")
    for name, microbatches in (("1k", 40), ("100k", 4200)):
        plot(named("zb-h1", Pipeline(8, microbatches, memory=Memory(limit=8))), str(folder / f"{name}.html"), memory=True)
    return f"file://{folder / '1k.html'}", f"file://{folder / '100k.html'}"


def drawn(page: Opened) -> tuple[int, int]:
    """Boxes, and the columns of the image, whichever is seen."""
    if page.model("gantt-boxes-0", "visible"):
        return len(page.column("gantt-boxes-0", "left")), 0
    return 0, page.tab.evaluate("() => Bokeh.documents[0].get_model_by_name('gantt-bands-0').data_source.data.image[0].shape[1]")


def test_what_is_drawn_is_bounded_and_nothing_is_lost(context: BrowserContext, large: tuple[str, str], tmp_path: Path) -> None:
    schedule = named("zb-h1", Pipeline(8, 4200))
    with opened(context, large[1]) as page:
        for start, end in ((0, schedule.makespan), (0, 3000), (5000, 5400), (6000, 6060), (6000, 6020)):
            page.tab.evaluate("([a, b]) => Bokeh.documents[0].get_model_by_name('time').setv({start: a, end: b})", [start, end])
            page.settled()
            boxes, columns = drawn(page)
            assert boxes <= 2500
            assert columns <= page.model("gantt-figure-0", "inner_width")
            assert bool(boxes) != bool(columns)
            seen = colours(page.tab.locator("#gantt-0"), tmp_path / "g.png")
            if end - start > 1000 or boxes:
                assert all(any(near(colour, wanted(kind)) for colour in seen) for kind in (Kind.F, Kind.I, Kind.W))
            i = next(k for k, begin in enumerate(schedule.start[3].tolist()) if begin > (start + end) / 2)
            place = (int(schedule.start[3][i]) + int(schedule.end[3][i])) / 2
            assert page.tip("gantt-0", place, 3).startswith(f"{schedule.order.texts()[3][i]}:")
        numbers = page.column("gantt-numbers-0", "text")
        wide = [b - a for a, b in zip(page.column("gantt-boxes-0", "left"), page.column("gantt-boxes-0", "right"), strict=True)]
        assert len(numbers) >= len(wide) - 2 * 8  # but for those that are cut at the edges


def test_bands_show_the_shares_of_what_runs(context: BrowserContext, large: tuple[str, str]) -> None:
    """Each column of the image has as much of a colour as the kind has of its time."""
    schedule = named("zb-h1", Pipeline(8, 4200))
    with opened(context, large[1]) as page:
        page.tab.evaluate("() => Bokeh.documents[0].get_model_by_name('time').setv({start: 0, end: 9000})")
        page.settled()
        image = page.tab.evaluate("""() => {
          const data = Bokeh.documents[0].get_model_by_name('gantt-bands-0').data_source.data, image = data.image[0];
          return {x: data.x[0], dw: data.dw[0], lines: image.shape[0], columns: image.shape[1], pixels: [...image]};
        }""")
        lines, columns = image["lines"], image["columns"]
        step, height, row = image["dw"] / columns, lines // 8, 5
        inside = height - 2 * round(0.07 * height)
        for column in (1, columns // 3, columns - 3):
            a, b = image["x"] + step * column, image["x"] + step * (column + 1)
            shares = dict.fromkeys(Kind, 0.0)
            for op, start, end in zip(schedule.order.ops(row), schedule.start[row], schedule.end[row], strict=True):
                shares[op.kind] += max(0.0, min(int(end), b) - max(int(start), a)) / step  # type: ignore[union-attr,index]
            pixels = [image["pixels"][line * columns + column] for line in range(row * height, (row + 1) * height)]
            for kind, share in shares.items():
                red, green, blue = wanted(kind)
                count = pixels.count((255 << 24 | blue << 16 | green << 8 | red) & 0xFFFFFFFF)
                assert count / inside == pytest.approx(share, abs=1.5 / inside), (column, kind)


PAN = """async () => {
  const range = Bokeh.documents[0].get_model_by_name('time'), length = range.end - range.start, times = [];
  range.setv({start: range.start + 0.3 * length, end: range.start + 0.5 * length});
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  for (let k = 0; k < 24; k++) {
    const begun = performance.now();
    range.setv({start: range.start + length / 400, end: range.end + length / 400});
    await frame();
    await frame();
    times.push(performance.now() - begun);
  }
  return times.sort((a, b) => a - b)[12];
}"""


def test_panning_takes_no_longer_with_a_hundred_times_as_many_bars(context: BrowserContext, large: tuple[str, str]) -> None:
    """A ratio within one run, each of the two in turn."""
    with opened(context, large[0]) as few, opened(context, large[1]) as many:
        ratios = []
        for _ in range(3):
            few.tab.bring_to_front()
            first = few.tab.evaluate(PAN)
            many.tab.bring_to_front()
            ratios.append(many.tab.evaluate(PAN) / first)
        assert min(ratios) <= 4


def test_names_cannot_break_the_page(context: BrowserContext, tmp_path: Path) -> None:
    name = "</script><script>alert(1)</script>&amp;<b>"
    pipeline = Pipeline(2, 2, name=name)
    tree = document(Model(pipeline, "1f1b"), schedule=find("1f1b").schedule(pipeline))
    (tmp_path / "odd.json").write_text(json_text(tree))
    plot(str(tmp_path / "odd.json"), str(tmp_path / "odd.html"), memory=True)
    with opened(context, f"file://{tmp_path / 'odd.html'}") as page:
        assert page.tab.locator("h2").first.inner_text() == f"{name}: 1f1b"
