"""``ppopt solve --verify``: whether another route comes to the same proof."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppopt.search import Result
    from ppopt.solvers.verify import Opinion


def ask(result: Result, search: dict[str, Any]) -> Opinion | None:
    """A second opinion on the bound of a result, in as much time as the first had; ``None``: interrupted."""
    from ppopt.search import verify

    limits = {name: search[name] for name in ("time_limit", "workers", "seed", "deterministic")}
    try:
        return verify(result, **limits)
    except KeyboardInterrupt:
        return None


def opinion_dict(result: Result, opinion: Opinion | None) -> dict[str, Any]:
    """As ``verification`` of the result JSON."""
    if opinion is None:
        return {"confirmed": None, "bound": None, "by": None, "seconds": None, "tried": []}
    return {
        "confirmed": opinion.confirmed,
        "bound": result.pipeline.time(opinion.bound),
        "by": opinion.route,
        "seconds": round(opinion.seconds, 3),
        "tried": [
            {"route": trial.route, "outcome": trial.outcome, "seconds": round(trial.seconds, 3)} for trial in opinion.trials
        ],
    }


def opinion_lines(result: Result, opinion: Opinion | None) -> list[str]:
    """In words, with what each route gave."""
    if opinion is None:
        return ["Second opinion: interrupted."]
    time = result.pipeline.time
    claim = f"nothing below {time(opinion.bound):g}" if result.reason != "infeasible" else "no schedule at all"
    head = {
        True: f"confirmed by {opinion.route}: {claim} ({opinion.seconds:.1f} s).",
        False: f"REFUTED by {opinion.route}: {opinion.trials[-1].outcome if opinion.trials else ''}. Please report this.",
        None: f"not reached in the time: {claim} stays proved by {result.proved_by} alone.",
    }[opinion.confirmed]
    tried = [f"  {trial.route}: {trial.outcome} ({trial.seconds:.1f} s)" for trial in opinion.trials]
    return [f"Second opinion: {head}", *tried]
