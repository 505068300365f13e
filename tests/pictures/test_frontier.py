"""The picture of a frontier."""

import itertools
from typing import Any

from matplotlib.figure import Figure

from ppopt.pictures.frontier import frontier as draw
from ppopt.pipeline import Pipeline
from ppopt.study.frontier import Frontier, frontier, scale_of


def values(line: Frontier) -> dict[Any, Any]:
    return {float(point.scale): point.result.value or 0 for point in line.points}


def test_the_picture() -> None:
    lines = [frontier(pipeline, seconds=5) for pipeline in (Pipeline(2, 4), Pipeline(2, 4, "wave", 2))]
    picture = Figure(figsize=(9, 6))
    ax = picture.subplots()
    assert draw(lines, ax) is ax
    labels = ax.get_legend_handles_labels()[1]
    assert labels[:2] == ["best, linear", "best, wave, 2 chunks"]
    numbers = [label.split()[0] for label in labels[2:]]
    assert numbers == [text.get_text() for text in ax.texts]
    for line, staircase in zip(lines, [each for each in ax.get_lines() if "best" in str(each.get_label())], strict=True):
        assert staircase.get_ydata().tolist() == list(values(line).values())
    boxes = [text.get_window_extent() for text in ax.texts]
    for a, b in itertools.combinations(boxes, 2):
        assert not (min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1)
    assert scale_of(lines[0].named[0].schedule, lines[0].shares) > 0  # type: ignore[arg-type]
