"""Curves of studies."""

import numpy as np
import pytest
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


@pytest.mark.parametrize(
    ("x", "scale"), [([1, 2, 4], "log"), ([1, 4, 16, 64], "log"), ([1, 2, 3], "linear"), ([0, 1, 2], "linear")]
)
def test_the_x_axis_is_logarithmic_where_values_are_multiples_of_each_other(x: list[float], scale: str) -> None:
    ax = curves(x, {"a": [1.0] * len(x)}, Figure().subplots(), xlabel="x")
    assert ax.get_xscale() == scale
    assert ax.get_xticks().tolist() == x
