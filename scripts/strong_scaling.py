"""Strong scaling: total time and bubble ratio for D = 2 .. 32 devices with M = 32 microbatches, T_C = 0, 4, 16."""

from __future__ import annotations

from collections.abc import Sequence

import studies


def study(devices: Sequence[int] = studies.DEVICES) -> studies.Tree:
    return studies.scaling("strong_scaling", lambda d: 32, devices)


def main(argv: Sequence[str] | None = None) -> None:
    options = studies.arguments(__doc__ or "", argv)
    results = studies.run(study(studies.devices_of(options)), options)
    studies.draw_scaling(results, "strong_scaling", "Strong scaling, M = 32", options.output)


if __name__ == "__main__":
    main()
