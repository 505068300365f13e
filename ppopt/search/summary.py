"""A result in words: what was found, how good it is, and what else there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ppopt.layouts.runnable import NAMES
from ppopt.named import Row
from ppopt.named.row import figures
from ppopt.op import Kind, Pair
from ppopt.pipeline import OPEN, DataParallel, Level, Pipeline, in_words
from ppopt.pipeline.cutting import levels_of
from ppopt.text import Table, figure, heading, new_table, number, percent, place, rendered, unit
from ppopt.timing import exposed_traffic

if TYPE_CHECKING:
    from ppopt.schedule import Schedule
    from ppopt.search.result import Result
    from ppopt.search.second_opinion import Opinion

LINES = 10
"""Most lines of :func:`summary`."""
_LIMITS = {"time": "stopped at the time limit", "gap": "stopped at the gap", "interrupted": "interrupted"}


def summary(result: Result) -> str:
    """What ``print(result)`` shows, in at most ten lines."""
    if result.points:
        lines = rendered(points_table(result)).splitlines()
        hidden = f"… and {len(lines) - LINES + 1} more: each is one of result.points"
        return "\n".join(lines if len(lines) <= LINES else [*lines[: LINES - 1], hidden])
    lines = [title(result), *answer(result), *scope_lines(result), *remarks(result)]
    return "\n".join(lines[:LINES])


def title(result: Result) -> str:
    """The pipeline of the answer, and what bound."""
    if result.runtime is not None:
        bound = f"; on {result.runtime.name}"
    else:
        bound = f"; with the constraints of {result.order.schedule}" if result.order is not None else ""
    return heading(result.pipeline) + bound


def answer(result: Result) -> list[str]:
    """Value, bound and proof in a few lines."""
    pipeline, schedule, value, gap = result.pipeline, result.schedule, result.value, result.gap
    unit_ = f" {pipeline.units.time}" if pipeline.units.time else ""
    stopped = f"; {_LIMITS[result.limit]}" if result.limit is not None else ""
    seconds = f"{result.seconds:.1f} s{stopped}"
    bound = f"{number(result.lower_bound)}{unit_}"
    if schedule is None or value is None or gap is None:
        if result.reason == "infeasible":
            proof = f", proved by {result.proved_by}" if result.proved_by else ""
            where = f" and what {result.runtime.name} can run" if result.runtime is not None else ""
            return [f"infeasible: no schedule satisfies the model{where}{proof} ({seconds})", *best_cut_lines(result)]
        return [f"no schedule found; every schedule takes at least {bound} ({seconds})", *best_cut_lines(result)]
    found = f"{result.objective} {number(value)}{unit_}"
    if result.reason == "optimal":
        lines = [f"{found}: optimal, proved by {result.proved_by} ({seconds})"]
    else:
        proof = f" by {result.proved_by}" if result.proved_by else ""
        lines = [f"{found}; lower bound {bound}{proof}, gap {percent(gap)} ({seconds})"]
        lines += idle_gap_lines(result)
    lines += [*figure_lines(schedule), *turn_lines(schedule)]
    return lines + cut_lines(pipeline) + best_cut_lines(result)


def figure_lines(schedule: Schedule) -> list[str]:
    """Makespan, spans, ratios, throughput, exposed traffic and the peak of memory in a few lines."""
    pipeline = schedule.pipeline
    unit_ = f" {pipeline.units.time}" if pipeline.units.time else ""
    makespan, span, bubble, span_bubble, peak = figures(schedule)
    lines = [f"makespan {makespan}{unit_}, device span {span}{unit_}, bubble ratio {bubble}, span bubble ratio {span_bubble}"]
    lines += rate_lines(schedule)
    if pipeline.data_parallel != DataParallel():
        exposed = number(pipeline.time(exposed_traffic(schedule)))
        lines.append(f"all-gather and reduce-scatter make the makespan {exposed}{unit_} longer")
    memory = f" {pipeline.units.memory}" if pipeline.units.memory else ""
    lines.append(f"peak memory {peak}{memory}")
    return lines


def turn_lines(schedule: Schedule) -> list[str]:
    """In which order microbatches that differ enter the first stage, where that was open; of each way through the devices."""
    pipeline = schedule.pipeline
    if not pipeline.mix.differs or pipeline.mix.microbatch_order != OPEN:
        return []
    lines = []
    for way in pipeline.ways:
        entered = [
            (int(start), op.microbatch)
            for op, start in zip(schedule.order.ops(way[0]), schedule.start[way[0]].tolist(), strict=True)
            for op in (op.forward if isinstance(op, Pair) else op,)
            if op.kind == Kind.F and op.stage == 0 and pipeline.routes[pipeline.route_of_microbatch[op.microbatch]] == way
        ]
        shown = ", ".join(str(microbatch) for _, microbatch in sorted(entered, key=lambda each: each[0]))
        lines.append(f"order of microbatches {shown}")
    return lines


def rate_lines(schedule: Schedule) -> list[str]:
    """The efficiency where work is repeated, and the throughput where it is known, in a line."""
    parts = []
    if schedule.repeated:
        parts.append(f"efficiency {percent(schedule.efficiency)} (without the work that is repeated)")
    if schedule.throughput is not None:
        parts.append(f"throughput {figure(schedule.throughput[0])} {schedule.throughput[1]}")
    return [", ".join(parts)] if parts else []


def idle_gap_lines(result: Result) -> list[str]:
    """How much of the idle time might be avoidable, in a line; nothing where the bound is less than the work."""
    schedule, idle, value = result.schedule, result.idle_gap, result.ticks.value
    if schedule is None or idle is None or value is None or not 0 < idle <= 1:
        return []
    time, unit_ = result.pipeline.time, result.pipeline.units.time
    avoidable, all_ = number(time(value - result.ticks.lower_bound)), number(time(value - max(schedule.work)))
    units = f" {unit_}" if unit_ else ""
    return [f"the busiest device is idle for {all_}{units}; at most {avoidable}{units} of that ({percent(idle)}) can be avoided"]


def cut_lines(pipeline: Pipeline) -> list[str]:
    """How the layers are cut into stages, and how many of each stage recompute at which level."""
    if pipeline.layers is None:
        return []
    lines = [f"layers of each stage: {', '.join(map(str, pipeline.counts))}"]
    chosen = recomputing(pipeline)
    if chosen != "none":
        lines.append(f"layers of each stage that recompute: {chosen}")
    return lines


def best_cut_lines(result: Result) -> list[str]:
    """How much more the cut takes than the best one, where that was looked for."""
    best = result.best_cut
    if best is None:
        return []
    unit_ = f" {result.pipeline.units.time}" if result.pipeline.units.time else ""
    bound = f"lower bound {number(best.lower_bound)}{unit_}"
    own = f"this cut: {'no schedule' if result.value is None else number(result.value) + unit_}"
    if best.value is None:
        known = "no cut has a schedule" if best.reason == "infeasible" else f"no schedule found ({bound})"
        return [f"{own}; best cut: {known}"]
    line = f"{own}; best cut: {number(best.value)}{unit_} ({bound})"
    if result.value is not None and best.value:
        line += f": {more_than_best(result.value, best.value)}"
    if best.pipeline.counts == result.pipeline.counts:
        return [line]
    return [line, f"layers of each stage of the best cut: {', '.join(map(str, best.pipeline.counts))}"]


def more_than_best(value: float, best: float) -> str:
    """How much more a cut takes than the best one that was found; less only where it has a stage without layers."""
    if value == best:
        return "no cut that takes less was found"
    more = value / best - 1
    return f"{percent(abs(more))} {'more' if more > 0 else 'less'} than the best cut"


def recomputing(pipeline: Pipeline) -> str:
    """What recomputes: stages, or how many layers of each stage at which level; ``none``: nothing does."""
    if pipeline.layers is None:
        return in_words(sorted(pipeline.recomputing)) or "none"
    chosen = [", ".join(f"{n} {name}" for name, n in _by_level(stage).items()) or "none" for stage in levels_of(pipeline)]
    return "none" if set(chosen) == {"none"} else "; ".join(chosen)


def _by_level(stage: Sequence[tuple[int, Level, int]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for _, level, n in stage:
        counts[level.name] += n
    return counts


def scope_lines(result: Result) -> list[str]:
    """What the bound holds over, where several placements were left open."""
    if len(result.placements) < 2:
        return []
    if result.pipeline.uneven:
        return [
            *_over_placements(result),
            "The costs are uneven: a device is taken to have the same work on each of these placements.",
        ]
    return _over_placements(result)


def _over_placements(result: Result) -> list[str]:
    if result.reason == "optimal":
        return [f"None of these placements has anything better than {place(result.pipeline)}."]
    return [f"One of these placements may have something better; all take at least {number(result.lower_bound)}."]


def runtime_lines(result: Result) -> list[str]:
    """What the restriction to a runtime costs, in a line; nothing where there is none."""
    if result.runtime is None or result.runtime.unrestricted is None:
        return []
    name, (value, bound) = NAMES[result.runtime.name], result.runtime.unrestricted
    if value is None:
        return [f"Without the restriction to what {name} runs every schedule takes at least {number(bound)}."]
    known = f"{number(value)}, " + (f"lower bound {number(bound)}" if bound < value else "the optimum")
    if result.value is None:
        return [f"Without the restriction to what {name} runs the best that is known takes {known}."]
    more = f"{percent(result.value / value - 1)} more than" if result.value > value else "as good as"
    return [f"{name}: {more} the best that is known without the restriction ({known})."]


def remarks(result: Result) -> list[str]:
    """What the named schedule that the model stands for costs against the answer, and rows of another placement that beat it."""
    value = result.value
    lines = runtime_lines(result)
    if value is None:
        return lines
    fitting = sorted((row for row in result.named if row.within_memory), key=lambda row: _objective(result, row))
    for row in fitting:
        if result.named.marks(row):
            time = _objective(result, row)
            equal = "equals" if time == value else f"takes {percent(time / value - 1) if value else number(time)} more than"
            lines.append(f"{row.label} {equal} {answer_name(result)}.")
    solved = [placed.pipeline for placed in result.placements] or [result.pipeline]
    routes, scope = {each.places for each in solved}, _solved(result)
    for row in fitting:
        time = _objective(result, row)
        if time < value and row.schedule is not None and row.schedule.pipeline.places not in routes:
            lines.append(
                f"{row.label} ({number(time)}) is faster, on another placement: {place(row)}; "
                f"the answer and its bound are for {scope}."
            )
    return lines


def _objective(result: Result, row: Row) -> float:
    time = row.makespan if result.objective == "makespan" else row.device_span
    assert time is not None, "rows that apply have one"
    return time


def placements_table(result: Result) -> Table:
    """What each placement has reached and what is proved of it."""
    units = result.pipeline.units
    heads = [unit(result.objective, units.time), unit("lower bound", units.time), "seconds"]
    table = new_table("Placements", ["placement", "chunks"], heads, ["proof"], ranks={"seconds": 2})
    for placed in result.placements:
        proof = placed.proved_by or "" if placed.reason == "optimal" else placed.reason
        if placed.reason == "feasible" and placed.limit is None:
            proof = "cannot beat the best"
        value = "" if placed.value is None else figure(placed.value)
        figures_ = [value, figure(placed.lower_bound), f"{placed.seconds:.1f}"]
        table.add_row(placed.pipeline.placement, str(placed.pipeline.chunks), *figures_, proof)
    return table


def points_table(result: Result) -> Table:
    """The results for several numbers of microbatches."""
    cut = any(point.best_cut is not None for point in result.points)
    rates = [None if point.schedule is None else point.schedule.throughput for point in result.points]
    rate = next((f"throughput [{each[1]}]" for each in rates if each is not None), None)
    units = result.pipeline.units
    columns = [unit(result.objective, units.time), unit("lower bound", units.time), "gap", *["best cut"] * cut]
    columns += ["bubble ratio", "span bubble ratio", *([] if rate is None else [rate])]
    left = ["microbatches"] + ["placement", "chunks"] * (result.scope is not None)
    ranks = {"span bubble ratio": 5, "seconds": 4, "chunks": 3, "placement": 2, "throughput": 2, "proof": 1}
    table = new_table("Microbatches", left, [*columns, "seconds"], ["proof"], ranks=ranks)
    for point in result.points:
        schedule = point.schedule
        value, gap, ratios = "", "", ["", ""]
        if schedule is not None and point.value is not None and point.gap is not None:
            value, gap = figure(point.value), percent(point.gap)
            ratios = [f"{schedule.bubble_ratio:.4f}", f"{schedule.span_bubble_ratio:.4f}"]
        shown = (
            [] if rate is None else ["" if schedule is None or schedule.throughput is None else figure(schedule.throughput[0])]
        )
        proof = point.proved_by or "" if point.reason == "optimal" else point.reason
        where = [point.pipeline.placement, str(point.pipeline.chunks)] * (result.scope is not None)
        best = [""] if point.best_cut is None or point.best_cut.value is None else [figure(point.best_cut.value)]
        figures_ = [value, figure(point.lower_bound), gap, *best * cut, *ratios, *shown, f"{point.seconds:.1f}"]
        table.add_row(str(point.pipeline.microbatches), *where, *figures_, proof)
    return table


def steps_table(result: Result) -> Table:
    """The steps of the search and their times."""
    table = new_table("Steps", ["step"], ["seconds"], ["outcome"])
    for step in result.steps:
        table.add_row(step.name, f"{step.seconds:.2f}", step.outcome)
    return table


def stopped(result: Result) -> str:
    """Why a search ended that has not begun everything."""
    return "Interrupted" if result.interrupted else "Stopped at the time limit"


def answer_name(result: Result) -> str:
    """What the answer is called beside other schedules; a schedule whose constraints bind is named."""
    name = "the optimum" if result.reason == "optimal" else "the best found"
    return name if result.order is None else f"{name} under {result.order.schedule}"


def answer_row(result: Result) -> Row | None:
    """The answer as a row beside the named schedules; ``None``: there is none."""
    schedule = result.schedule
    if schedule is None:
        return None
    return Row(answer_name(result), schedule.pipeline.placement, schedule.pipeline.chunks, schedule, None)


def best_line(result: Result) -> str:
    """The fastest named schedule of another placement, where it is faster than the answer; else empty."""
    if result.order is not None or result.runtime is not None:  # what binds is wanted
        return ""
    line = result.named.best_elsewhere(result.objective, result.value)
    return f"{line}; the answer below is for {_solved(result)}" if line else ""


def _solved(result: Result) -> str:
    """The placements that were solved."""
    return " and ".join(map(place, [placed.pipeline for placed in result.placements] or [result.pipeline]))


def opinion_lines(result: Result, opinion: Opinion) -> list[str]:
    """A second opinion in words, with what each route gave."""
    if opinion.confirmed is None and not opinion.trials:
        return ["Second opinion: interrupted."]
    time = result.pipeline.time
    claim = f"nothing below {time(opinion.bound):g}" if result.reason != "infeasible" else "no schedule at all"
    head = {
        True: f"confirmed by {opinion.route}: {claim} ({opinion.seconds:.1f} s).",
        False: f"REFUTED by {opinion.route}: {opinion.trials[-1].outcome if opinion.trials else ''}. Please report this.",
        None: f"not reached in the time: {claim} stays proved by {result.proved_by} alone.",
    }[opinion.confirmed]
    about = f" on the {_and(opinion.only)} of the answer alone" if opinion.only else ""
    tried = [f"  {trial.route}: {trial.outcome} ({trial.seconds:.1f} s)" for trial in opinion.trials]
    return [f"Second opinion{about}: {head}", *tried]


def _and(names: Sequence[str]) -> str:
    shown = {"recompute": "recomputing"}
    words = [shown.get(name, name) for name in names]
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + words[-1:])
