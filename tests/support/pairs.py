"""DualPipe's own setting."""

from fractions import Fraction

from ppopt.pipeline import Costs, Memory, Pipeline


def setting(devices: int, overlap: Fraction) -> Pipeline:
    """Two directions, the memory that DualPipe needs."""
    return Pipeline(devices, 2 * devices, "bidirectional", costs=Costs(overlap=overlap), memory=Memory(limit=devices + 1))
