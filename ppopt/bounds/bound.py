"""What a lower bound is."""

from __future__ import annotations

from dataclasses import dataclass

from ppopt.schedule import Schedule


@dataclass(frozen=True)
class Bound:
    """No schedule is shorter than ``value`` ticks.

    ``argument`` names the argument ("work", "one-machine", "memory", "window certificate", "state graph"), ``proof`` gives its
    figures in words. ``schedule``: one that comes with the argument, if any; often as short. ``exact``: more time would not give
    more by the same argument.
    """

    value: int
    argument: str
    proof: str = ""
    schedule: Schedule | None = None
    exact: bool = True


def check_objective(objective: str) -> None:
    """Raise ``ValueError`` unless ``objective`` is ``makespan`` or ``span``.

    Raises:
        ValueError: it is neither.
    """
    if objective not in ("makespan", "span"):
        raise ValueError(f'objective: expected "makespan" or "span", got {objective!r}')
