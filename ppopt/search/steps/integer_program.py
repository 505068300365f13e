"""The integer program."""

from __future__ import annotations

from typing import Any

from ppopt import ilp
from ppopt.search.run import Run
from ppopt.search.step import Kind, Needs, Step


class IntegerProgram(Step):
    """Minimise by the ILP, from the best schedule and from the bound."""

    name = "ILP: minimise"
    kind = Kind.DECIDE
    copies = True
    needs = Needs.INTEREST

    def applies(self, run: Run) -> str | None:
        """Where times have few enough digits for the engines."""
        problem, incumbent = run.problem, run.incumbent
        upper = problem.longest if incumbent.best is None else incumbent.value
        few = max(upper, problem.ended_by(upper)) <= ilp.MOST
        return None if few else f"times of more than {ilp.MOST} ticks are not exact to its engines; give them with fewer digits"

    def run(self, run: Run, seconds: float, *, engine: str = "cbc", **options: Any) -> str:
        """Until an engine has solved it or the time is over."""
        problem, incumbent = run.problem, run.incumbent
        run.versions |= {"pulp": ilp.VERSION} | ({} if engine == "cbc" else {engine: ilp.version_of(engine)})
        upper = problem.longest if incumbent.best is None else incumbent.value
        found = ilp.solve(
            problem.pipeline,
            problem.all_words,
            objective=problem.objective,
            lower=incumbent.lower,
            upper=upper,
            horizon=problem.ended_by(upper),
            limits=run.limits(seconds),
            hint=incumbent.best,
            engine=engine,
        )
        by = "" if engine == "cbc" else f"{engine} {ilp.version_of(engine)}, "
        argument = f"{ilp.NAME} ({by}PuLP {ilp.VERSION})"
        if incumbent.best is None and found.lower_bound > upper:
            incumbent.refute(argument, found.lower_bound)
            return "there is no schedule"
        if found.schedule is not None:
            incumbent.offer(found.schedule, ilp.NAME)
        if found.lower_bound > incumbent.lower:
            incumbent.prove(found.lower_bound, argument)
        return incumbent.text_with_bound
