"""The whole page as text. Bokeh is imported when the first page is made."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from ppopt.pictures.page.facts import colours, facts_of
from ppopt.pictures.page.payload import columns_of, packed
from ppopt.pictures.page.table import summary
from ppopt.pictures.shown import Shown, Undrawable
from ppopt.text import number, percent

SCRIPTS = ("data.js", "detail.js", "page.js")


class NoPage(Undrawable):
    """A page is wanted, and what draws it is not installed."""


class _Template(string.Template):
    """``@name@``, which neither the scripts nor the style have."""

    delimiter = "@"
    pattern = r"@(?:(?P<named>[a-z]+)@|(?P<escaped>(?!))|(?P<braced>(?!))|(?P<invalid>(?!)))"  # type: ignore[assignment]


def page(
    several: Sequence[Shown],
    *,
    memory: bool = False,
    width: float | None = None,
    part: tuple[float, float] | None = None,
    title: str | None = None,
) -> str:
    """One HTML file with a chart for each schedule, all on one time axis: it works without a network.

    ``memory``: with what each device holds. ``width`` is the most that it is wide, in inches. ``part`` is the time that is
    seen first, by default all.

    Raises:
        ValueError: there is no schedule.
        NoPage: Bokeh is not installed.
    """
    if not several:
        raise ValueError("a page needs at least one schedule")
    check_installed()
    from bokeh.document import Document
    from bokeh.embed.util import standalone_docs_json_and_render_items

    from ppopt.pictures.page.figures import Figures

    last = max(each.end for each in several) or 1.0
    view = (0.0, 1.02 * last) if part is None else part
    figures = Figures(several, view, memory)
    whole = Document()
    for _, plot in figures.plots:
        whole.add_root(plot)
    docs, items = standalone_docs_json_and_render_items([plot for _, plot in figures.plots])
    roots = {plot.id: place for place, plot in figures.plots}
    placed = [{**item.to_json(), "roots": roots} for item in items]
    charts, bars, texts = [], [], []
    for k, each in enumerate(several):
        columns = columns_of(each.schedule)
        text, doubles = packed(columns)
        facts = facts_of(each, columns, doubles)
        charts.append(facts)
        bars.append(f'<script id="bars-{k}" type="application/octet-stream">{text}</script>')
        texts.append(_section(k, facts, memory))
    known = {"charts": charts, "memory": memory, "colours": colours(), "begin": 0.0, "end": last}
    return _Template(_read("page.html")).substitute(
        version=escape(_version()),
        title=escape(title or _heading([each.title for each in several])),
        answer=escape(answer(several)),
        style=_read("page.css"),
        width="" if width is None else f' style="--width: {width:g}in"',
        summary=summary(several),
        charts="\n".join(texts),
        licence=escape(_licence()),
        facts=inside(known),
        figures=inside({"docs": docs, "items": placed}),
        bars="\n".join(bars),
        bokeh=_bokeh(),
        script="\n".join(map(_read, SCRIPTS)),
    )


def check_installed(what: str = "a page (.html)") -> None:
    """Raise where there is nothing that draws pages; ``what`` needs it.

    Raises:
        NoPage: Bokeh is not installed.
    """
    try:
        import bokeh  # noqa: F401
    except ImportError:
        raise NoPage(f"{what} needs Bokeh: pip install 'ppopt-pipeline[page]'") from None


def answer(several: Sequence[Shown]) -> str:
    """What is shown, in a sentence."""
    first = several[0]
    proved = [each for each in several if each.proof is not None]
    if not proved:
        several_, them = ("schedules", "them") if len(several) > 1 else ("schedule", "it")
        return f"{len(several)} {several_}; no lower bound is known of {them}."
    best = proved[0]
    assert best.proof is not None, "chosen so"
    unit = f" {first.schedule.pipeline.units.time}" if first.schedule.pipeline.units.time else ""
    value = f"{best.title}: {best.proof.objective} {number(best.value)}{unit}"
    if best.proof.reason == "optimal":
        return f"{value}, the optimum {best.proof.scope}, proved by {best.proof.proved_by}."
    return f"{value}; lower bound {best.proof.scope} {number(best.proof.lower_bound)}{unit}, gap {percent(best.gap or 0.0)}."


def _heading(titles: Sequence[str]) -> str:
    """The first titles."""
    return ", ".join(titles[:3]) + (f" and {len(titles) - 3} more" if len(titles) > 3 else "")


def inside(tree: Any) -> str:
    """JSON that can stand in a script element."""
    return json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(
        {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}
    )


def _section(k: int, facts: dict[str, Any], memory: bool) -> str:
    """A chart and what stands around it."""
    parts = [_panel("gantt", k, facts["summary"])]
    if memory:
        unit = f" ({facts['memory']['unit']})" if facts["memory"]["unit"] else ""
        held = f"memory{unit}; on the right the peak of each device" + (" and its limit" if facts["memory"]["limit"] else "")
        words = f"Memory of {facts['title']}, device by device, over time."
        parts += [f'<p class="held">{escape(held)}</p>', _panel("memory", k, words)]
    head = f'<h2>{escape(facts["title"])}</h2>\n<p class="figures">{escape(facts["figures"])}</p>'
    return f'<section class="schedule" aria-label="{escape(facts["title"])}">\n{head}\n' + "\n".join(parts) + "\n</section>"


def _panel(kind: str, k: int, words: str) -> str:
    label = f'role="group" tabindex="0" aria-label="{escape(words)} Keys: question mark."'
    return f'<div class="chart" id="{kind}-{k}" {label}></div>\n<canvas class="printed" id="{kind}-printed-{k}"></canvas>'


def _read(name: str) -> str:
    return resources.files("ppopt.pictures.page").joinpath(name).read_text(encoding="utf-8").strip()


def _bokeh() -> str:
    """The script of Bokeh, without what the page does not use."""
    from bokeh.util.paths import bokehjs_path

    text = (bokehjs_path() / "js" / "bokeh.min.js").read_text(encoding="utf-8")
    return re.sub(r"^//# sourceMappingURL=.*$", "", text, flags=re.MULTILINE).replace("</script", "<\\/script")


def _licence() -> str:
    """The licence of that script."""
    import bokeh

    return (Path(bokeh.__file__).parent / "LICENSE.txt").read_text(encoding="utf-8").strip()


def _version() -> str:
    from ppopt import __version__

    return __version__
