"""Colours: the field's blue forwards and green backwards, told apart by colour-blind readers in every shade.

The four colours were chosen so that any two of them, in any two shades, are at least 18 apart in CIE Lab under normal
vision and under protanopia, deuteranopia and tritanopia (Machado et al. 2009), and 18 from the idle grey.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ppopt.op import Kind, Send

RGB = npt.NDArray[np.float64]

KINDS: dict[Kind, str] = {Kind.F: "#4062d7", Kind.B: "#5fc27e", Kind.I: "#f7bd31", Kind.W: "#771776"}
"""The colour of each kind, for the first stage that a device holds."""
MEANING: dict[Kind, str] = {
    Kind.F: "F  forward",
    Kind.B: "B  backward",
    Kind.I: "I  input gradient",
    Kind.W: "W  weight gradient",
}
SENDS: dict[Send, str] = {
    Send.SEND_F: "#bcc3cd",
    Send.SEND_B: "#596273",
    Send.OFFLOAD: "#d9c2a6",
    Send.RELOAD: "#8a6d4b",
}
"""Transfers that hold a link: greys, on rows of their own; copies to the host and back: browns, on rows of their own."""
CARRIED: dict[Send, str] = {
    Send.SEND_F: "activation on a link",
    Send.SEND_B: "gradient on a link",
    Send.OFFLOAD: "copy to the host",
    Send.RELOAD: "copy from the host",
}
IDLE = "#f2f2f2"
MARGIN = "#9aa3ad"
"""What a device does before its first operation and after its last one: grey, hatched."""
LIMIT = "#b3261e"
STATIC = "#555555"
LIGHTEST = 0.4
"""How much white the last stage of a device gets."""
SERIES = ("#4062d7", "#d2691e", "#2a9d63", "#771776", "#c2185b", "#0f9bb5", "#7a8b99", "#a98600")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def rgb(colour: str) -> RGB:
    """``#rrggbb`` as three numbers from 0 to 1."""
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def hexadecimal(colour: RGB) -> str:
    """Three numbers from 0 to 1 as ``#rrggbb``."""
    return "#" + "".join(f"{round(float(part) * 255):02x}" for part in colour[:3])


def shades(kind: Kind, count: int) -> RGB:
    """``[shade, 3]``: the kind's colour for each of ``count`` stages of a device, getting lighter."""
    white = np.linspace(0, LIGHTEST, count)[:, None]
    return np.asarray(rgb(KINDS[kind]) * (1 - white) + white)


def ink(background: RGB) -> str:
    """Black or white, whichever is easier to read on this colour."""
    linear = np.where(background <= 0.04045, background / 12.92, ((background + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ np.array([0.2126, 0.7152, 0.0722]))
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"
