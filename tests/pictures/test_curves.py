"""Curves of studies."""

import numpy as np
from matplotlib.figure import Figure

from ppopt.pictures.curves import curves


def test_curves_leave_gaps_and_never_rely_on_colour() -> None:
    ax = Figure().subplots()
    curves([2, 4, 8], {"1f1b": [0.3, None, 0.1], "zb-h1": [0.2, 0.1, 0.05], "optimal": [0.1, 0.1, 0.0]}, ax, xlabel="devices")
    lines = ax.get_lines()
    assert [line.get_label() for line in lines] == ["1f1b", "zb-h1", "optimal"]
    assert np.isnan(lines[0].get_ydata()[1])
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines}) == 3
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2", "4", "8"]
