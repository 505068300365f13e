"""Colours that every reader tells apart."""

import itertools

import numpy as np
import pytest

from ppopt.op import Kind
from ppopt.pictures.palette import IDLE, ink, rgb, shades

VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def seen(colour: np.ndarray, vision: str) -> np.ndarray:
    """CIE Lab of a colour as seen with a colour-vision deficiency (Machado et al. 2009, severity 1)."""
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.asarray(VISION[vision]) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    xyz = xyz / np.array([0.9505, 1, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("count", [1, 2, 8])
def test_kinds_are_told_apart_in_every_shade_by_every_reader(vision: str, count: int) -> None:
    for a, b in itertools.combinations(Kind, 2):
        for x, y in itertools.product(shades(a, count), shades(b, count)):
            assert np.linalg.norm(seen(x, vision) - seen(y, vision)) > 17
    for kind in Kind:
        for x in shades(kind, count):
            assert np.linalg.norm(seen(x, vision) - seen(rgb(IDLE), vision)) > 17


def test_numbers_contrast_with_their_bars() -> None:
    for kind in Kind:
        for shade in shades(kind, 4):
            linear = np.where(shade <= 0.04045, shade / 12.92, ((shade + 0.055) / 1.055) ** 2.4)
            luminance = float(linear @ [0.2126, 0.7152, 0.0722])
            contrast = 1.05 / (luminance + 0.05) if ink(shade) == "white" else (luminance + 0.05) / 0.05
            assert contrast >= 4.5
