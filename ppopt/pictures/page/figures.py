"""The charts of a page as Bokeh's models: axes, ranges, tools, and empty glyphs that the page's script fills.

The script finds them by their names: ``gantt-boxes-0`` are the boxes of the first chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.models import (
    BasicTickFormatter,
    BoxAnnotation,
    BoxZoomTool,
    ColumnDataSource,
    FixedTicker,
    Glyph,
    GlyphRenderer,
    ImageRGBA,
    Label,
    LinearAxis,
    PanTool,
    Plot,
    Quad,
    Range1d,
    ResetTool,
    SaveTool,
    Segment,
    Span,
    Text,
    WheelZoomTool,
)

from ppopt.op import Kind
from ppopt.pictures.layout import APART, BAR, HELD, height_of, label_of
from ppopt.pictures.links import names_of
from ppopt.pictures.page.facts import ALWAYS, MOST
from ppopt.pictures.palette import KINDS, LIMIT, MARGIN
from ppopt.pictures.shown import Shown
from ppopt.pipeline import Pipeline

AXIS, BORDER = 46, 8
"""Room for the time axis, and above the rows, in pixels."""
TOOLS = 48
"""Room for the tools at the right, and what stands between them and the rows, in pixels."""
LETTER = 6
"""Mean width of a letter at the axes, in pixels."""


class Figures:
    """The charts of several schedules on one time axis, ``(begin, end)`` in the user's unit; with ``memory`` two for each."""

    def __init__(self, several: Sequence[Shown], view: tuple[float, float], memory: bool) -> None:
        self._time = Range1d(*view, name="time")
        longest = max(len(name) for each in several for name in (*names_of(each.schedule.pipeline), "1000"))
        self._left = 42 + LETTER * longest
        peaks = [len(text) for each in several for text in peaks_of(each)] if memory else []
        self._right = TOOLS + LETTER * max(peaks, default=0)
        self._far = view[0] - 1000 * (view[1] - view[0]), view[1] + 1000 * (view[1] - view[0])
        self.plots: list[tuple[str, Plot]] = []
        """Each with the id of the element that it is to be in."""
        for k, each in enumerate(several):
            self.plots.append((f"gantt-{k}", self._gantt(each, k)))
            if memory:
                self.plots.append((f"memory-{k}", self._memory(each, k)))

    def _plot(self, name: str, rows: float, ticks: dict[float, str], label: str, height: int, unit: str) -> Plot:
        """An empty chart of so many rows, the first one at the top."""
        plot = Plot(
            x_range=self._time,
            y_range=Range1d(rows - 0.5, -0.5),
            name=name,
            sizing_mode="stretch_width",
            height=height + AXIS + BORDER,
            min_width=240,
            min_border_left=self._left,
            min_border_right=self._right,
            min_border_top=BORDER,
            min_border_bottom=AXIS,
            border_fill_color=None,
            outline_line_color=None,
            lod_threshold=None,
            output_backend="canvas",
            toolbar_location="right",
        )
        tools = [PanTool(dimensions="width"), WheelZoomTool(dimensions="width"), BoxZoomTool(dimensions="width")]
        plot.add_tools(*tools, ResetTool(), SaveTool(filename=name))
        plot.toolbar.active_drag, plot.toolbar.active_scroll = tools[0], tools[1]
        plot.toolbar.logo, plot.toolbar.autohide = None, True
        formatter = BasicTickFormatter(use_scientific=False)
        plot.add_layout(LinearAxis(axis_label=f"time ({unit})" if unit else "time", formatter=formatter), "below")
        plot.add_layout(self._rows(ticks, label), "left")
        return plot

    @staticmethod
    def _rows(ticks: dict[float, str], label: str) -> LinearAxis:
        return LinearAxis(
            ticker=FixedTicker(ticks=list(ticks)),
            major_label_overrides=ticks,
            axis_label=label or None,
            major_tick_line_alpha=0,
            minor_tick_line_alpha=0,
            axis_line_alpha=0,
        )

    def _gantt(self, each: Shown, k: int) -> Plot:
        schedule, pipeline = each.schedule, each.schedule.pipeline
        links, per_unit = names_of(pipeline), pipeline.ticks.per_unit
        height = pixels_of(pipeline)
        step = step_of(height_of(pipeline), height)
        ticks: dict[float, str] = {float(device): str(device) for device in range(0, pipeline.devices, step)}
        ticks |= {pipeline.devices + APART + link: links[link] for link in range(0, len(links), step)}
        label = label_of(links)
        plot = self._plot(f"gantt-figure-{k}", height_of(pipeline), ticks, label, height, pipeline.units.time)
        named = _Named(plot, "gantt", k)
        if links:
            edges: dict[str, Any] = {"top": pipeline.devices - 0.5 + APART, "bottom": pipeline.devices - 0.5}
            plot.add_layout(BoxAnnotation(name=f"gantt-gap-{k}", level="underlay", fill_alpha=1, line_color=None, **edges))
        device, since, until = np.array(schedule.margins, dtype=np.float64).reshape(-1, 3).T
        margins = since / per_unit, until / per_unit, device - BAR / 2, device + BAR / 2
        hatch = {"hatch_pattern": "/", "hatch_color": MARGIN, "hatch_scale": 8, "line_color": MARGIN, "line_width": 0.6}
        named.quads("margins", *margins, fill_color=None, **hatch)
        named.image("bands")
        boxes = ColumnDataSource({name: [] for name in ("left", "right", "top", "bottom", "colour", "edge")})
        look: dict[str, Any] = {"fill_color": "colour", "line_color": "#ffffffa0", "line_alpha": "edge", "line_width": 0.8}
        named.add("boxes", boxes, Quad(left="left", right="right", top="top", bottom="bottom", **look))
        numbers = ColumnDataSource({name: [] for name in ("x", "y", "text", "colour", "size")})
        font: dict[str, Any] = {"text_font": value("system-ui, sans-serif"), "text_font_size": "size", "text_color": "colour"}
        named.add("numbers", numbers, Text(x="x", y="y", text="text", text_align="center", text_baseline="middle", **font))
        named.quads("focus", fill_color=None, line_color="black", line_width=2.5)
        end = float(pipeline.time(schedule.begin + schedule.makespan))
        plot.add_layout(Span(name=f"gantt-end-{k}", location=end, dimension="height", line_width=1.5))
        if each.proof is not None and each.proof.objective == "makespan":
            bound = float(pipeline.time(schedule.begin)) + float(each.proof.lower_bound)
            look = {"line_color": LIMIT, "line_dash": "dashed", "line_width": 1.5}
            plot.add_layout(Span(name=f"gantt-bound-{k}", location=bound, dimension="height", **look))
        plot.add_layout(BoxAnnotation(name=f"gantt-ruler-{k}", left=0, right=0, visible=False, fill_alpha=0.12, line_width=1))
        plot.add_layout(Label(name=f"gantt-length-{k}", x=0, y=0, y_units="screen", text="", visible=False, text_align="center"))
        return plot

    def _memory(self, each: Shown, k: int) -> Plot:
        pipeline = each.schedule.pipeline
        amounts, devices = pipeline.amounts, pipeline.devices
        height = round(pixels_of(pipeline) * devices / height_of(pipeline))
        step = step_of(devices, height)
        ticks = {float(device): str(device) for device in range(0, devices, step)}
        plot = self._plot(f"memory-figure-{k}", devices, ticks, "device", height, pipeline.units.time)
        peaks = peaks_of(each)
        plot.add_layout(self._rows({at: peaks[int(at)] for at in ticks}, ""), "right")
        named = _Named(plot, "memory", k)
        top = max(*each.schedule.peak_memory, *([] if amounts.limit is None else amounts.limit.tolist()), 1)
        base = np.arange(devices) + HELD / 2
        far = [self._far[0]] * devices, [self._far[1]] * devices
        named.image("bands")
        named.quads("steps", fill_color=KINDS[Kind.F], fill_alpha=0.55)
        named.quads("always", *far, base - HELD * amounts.static / top, base, fill_color=ALWAYS)
        named.lines("bases", far, base, line_width=0.5, line_color=ALWAYS)
        limits = base[:0] if amounts.limit is None else base - HELD * amounts.limit / top
        named.lines("limits", (far[0][: len(limits)], far[1][: len(limits)]), limits, line_dash="dashed", line_color=MOST)
        return plot


class _Named:
    """Adds glyphs to a plot, under names that the script knows."""

    def __init__(self, plot: Plot, kind: str, k: int) -> None:
        self.plot, self.kind, self.k = plot, kind, k

    def add(self, name: str, source: ColumnDataSource, glyph: Glyph) -> GlyphRenderer[Any]:
        """A renderer called ``kind-name-k``."""
        renderer = self.plot.add_glyph(source, glyph)
        renderer.name = f"{self.kind}-{name}-{self.k}"
        return renderer

    def quads(self, name: str, left: Any = (), right: Any = (), top: Any = (), bottom: Any = (), **look: Any) -> None:
        """Boxes; those of a glyph look alike."""
        source = ColumnDataSource({"left": left, "right": right, "top": top, "bottom": bottom})
        self.add(name, source, Quad(left="left", right="right", top="top", bottom="bottom", **{"line_color": None, **look}))

    def lines(self, name: str, ends: tuple[list[float], list[float]], at: Any, **look: Any) -> None:
        """Level lines."""
        source = ColumnDataSource({"x0": ends[0], "x1": ends[1], "y": at})
        self.add(name, source, Segment(x0="x0", x1="x1", y0="y", y1="y", **look))

    def image(self, name: str) -> None:
        """An image of one transparent pixel. As the rows run downwards, its first line is at the top."""
        pixel = np.zeros((1, 1), dtype=np.uint32)
        source = ColumnDataSource({"image": [pixel], "x": [0], "y": [0], "dw": [1], "dh": [1]})
        glyph = ImageRGBA(image="image", x="x", y="y", dw="dw", dh="dh")
        self.add(name, source, glyph).visible = False


def pixels_of(pipeline: Pipeline) -> int:
    """How high the rows of a chart are together: comfortable for a few devices, as little as can be seen for many."""
    rows = height_of(pipeline)
    each = 30 if rows <= 10 else 22 if rows <= 20 else 16
    return round(max(min(rows * each, 900), 2 * rows))


def step_of(rows: float, pixels: float) -> int:
    """Every how-manieth row has its name."""
    step = 1
    while pixels * step < 12 * rows:
        step *= 2
    return step


def peaks_of(each: Shown) -> list[str]:
    """Per device the most that it holds, of how much."""
    pipeline = each.schedule.pipeline
    limit = pipeline.amounts.limit
    return [
        f"{pipeline.amount(peak):.4g}" + ("" if limit is None else f" of {pipeline.amount(int(limit[device])):.4g}")
        for device, peak in enumerate(each.schedule.peak_memory)
    ]
