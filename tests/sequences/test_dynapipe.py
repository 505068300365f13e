"""DynaPipe's cut, held against all other cuts."""

import itertools

from ppopt import sequences


def test_dynapipe_cuts_no_worse_than_any_other_cut() -> None:
    times = [5, 4, 4, 2, 1, 1]
    for devices in (1, 2, 4):
        bags = sequences.dynapipe_cut(times, devices)

        def value(runs: list[list[int]], devices: int = devices) -> float:
            each = [max(times[i] for i in run) * len(run) for run in runs]
            return (devices - 1) * max(each) + sum(each)

        cuts = [(0, *some, 6) for n in range(6) for some in itertools.combinations(range(1, 6), n)]
        assert value(bags) == min(value([list(range(a, b)) for a, b in itertools.pairwise(cut)]) for cut in cuts)
