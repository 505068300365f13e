"""Weak scaling: total time and bubble ratio for D = 2 .. 32 devices with M = 2D microbatches, T_C = 0, 4, 16."""

from __future__ import annotations

from collections.abc import Sequence

import studies


def study(devices: Sequence[int] = studies.DEVICES) -> studies.Tree:
    return studies.scaling("weak_scaling", lambda d: 2 * d, devices)


def main(argv: Sequence[str] | None = None) -> None:
    options = studies.arguments(__doc__ or "", argv)
    results = studies.run(study(studies.devices_of(options)), options)
    studies.draw_scaling(results, "weak_scaling", "Weak scaling, M = 2D", options.output, linear=True)


if __name__ == "__main__":
    main()
