"""Memory over time."""

import numpy as np
from matplotlib.figure import Figure

from ppopt.named import find
from ppopt.pictures.memory import held_over_time, memory
from ppopt.pipeline import Memory, Pipeline, Units


def test_memory_rises_with_forwards_and_never_passes_the_peak() -> None:
    pipeline = Pipeline(4, 8, memory=Memory(activation=1.5, retained=0.5, static=2, limit=20))
    schedule = find("zb-h1").schedule(pipeline)
    for device in range(4):
        times, held = held_over_time(schedule, device)
        assert held.max() == schedule.peak_memory[device]
        assert held[-1] == pipeline.amounts.static[device]
        assert (np.diff(times) >= 0).all()


def test_memory_shows_limits_and_peaks() -> None:
    schedule = find("1f1b").schedule(Pipeline(4, 1024, memory=Memory(limit=(4, 3, 3, 3)), units=Units(memory="GiB")))
    picture = Figure(figsize=(10, 4))
    ax = memory(schedule, picture.subplots())
    picture.canvas.draw()
    texts = [text.get_text() for text in ax.texts]
    assert [text for text in texts if "of" in text] == ["4 of 4 GiB", "3 of 3 GiB", "2 of 3 GiB", "1 of 3 GiB"]
