"""``ppopt show``: one schedule in the terminal, and where the time of its devices and links goes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ppopt.cli.options import Given, json_option, model_options, parameters_option
from ppopt.cli.order import named_schedule
from ppopt.files.text import source_of

if TYPE_CHECKING:
    from ppopt.files.exported import Shown
    from ppopt.schedule import Schedule
    from ppopt.text import Table
    from ppopt.timing import DeviceUse

LEGEND = (
    "start: before its first operation; data: nothing that it has left has its inputs; link: what its next operation misses is "
    "on its way; memory: what could run does not fit; order: something else is first in its order; end: after its last operation"
)


@click.command(short_help="One schedule: its chart, and where the time of each device goes.")
@click.argument("what", metavar="FILE|SCHEDULE")
@model_options(own_chunks=True)
@parameters_option
@json_option
def show(what: str, given: Given, params: dict[str, Any], as_json: bool) -> None:
    """Show the schedule in FILE, a result (JSON) or an order (CSV in PyTorch's notation), or the named SCHEDULE on MODEL.

    Below the chart is where the makespan of each device goes: work, and idle time by phase and by cause; then the links that
    transfers hold. A result is shown with its recorded times; with MODEL or options that change its model, as early as can be.
    A name of a schedule goes before a file of that name (./NAME is the file).

    \b
    Examples:
      ppopt show zb-v -d 4 -m 8
      ppopt show best.json
      ppopt show 1f1b models/gpt-1.5b.toml --json
      ppopt order zb-h1 -d 4 -m 8 | ppopt show - --memory-limit 4
    """
    shown = _shown(what, given, params)
    if as_json:
        from ppopt.files import document, json_text

        tree = document(shown.model, schedule=shown.schedule)
        click.echo(json_text({**tree, "result": shown.outcome}), nl=False)
        return
    click.echo(report(shown))


def _shown(what: str, given: Given, params: dict[str, Any]) -> Shown:
    """The schedule of a file, or a named one.

    Raises:
        UsageError: options do not go with it, or there is neither.
    """
    from ppopt.files.exported import Shown, shown_in
    from ppopt.named import UnknownSchedule, find

    if os.sep not in what and what != "-":
        try:
            find(what)
        except UnknownSchedule as error:
            if not os.path.exists(what):
                raise click.UsageError(f"there is no file {what!r}, and {error}") from None
        else:
            model, schedule = named_schedule(what, given, params)
            return Shown(model, schedule, None)
    if params or given.chunks:
        raise click.UsageError(f"{'--param' if params else '--chunks'} belongs to a named schedule, and {what} is a file")
    if what.endswith(".toml"):
        return _of_model(what, given)
    return shown_in(what, given.read() if given.path is not None else None, lambda inside: given.change(inside, source_of(what)))


def _of_model(path: str, given: Given) -> Shown:
    """The order or the named schedule of a model file.

    Raises:
        UsageError: it has neither.
    """
    from ppopt.files.exported import Shown

    if given.path is not None:
        raise click.UsageError(f"{path} is a model file already; got {given.path} too")
    own = replace(given, path=path)
    model = own.read()
    if model.own_rows and (row := model.own_rows[0]).schedule is not None:
        return Shown(replace(model, pipeline=row.schedule.pipeline), row.schedule, None)
    if model.schedule is None:
        raise click.UsageError(f"{path} is a model file without a schedule; name one: ppopt show 1f1b {path}")
    named, schedule = named_schedule(model.schedule, own, {})
    return Shown(named, schedule, None)


def report(shown: Shown) -> str:
    """What is printed for people."""
    from ppopt.cli.render import PICTURE, TALL, picture, width
    from ppopt.cli.render import shown as table_text
    from ppopt.named.registry import shows_maps
    from ppopt.text import heading, wrapped

    schedule = shown.schedule
    name = f"{shown.model.schedule}: " if shown.model.schedule and not schedule.pipeline.name else ""
    lines = [name + heading(schedule.pipeline), *_figures(shown)]
    parts = ["\n".join(wrapped(line, width()) for line in lines)]
    if schedule.pipeline.devices <= TALL:
        parts.append(picture(schedule)[0])
    maps = shows_maps(schedule.pipeline, () if shown.model.schedule is None else (shown.model.schedule,))
    parts += [table_text(table) for table in tables(schedule, maps)]
    parts[-1 - maps - bool(schedule.pipeline.lines)] += "\n" + wrapped(LEGEND, width() or PICTURE)
    return "\n\n".join(parts)


def _figures(shown: Shown) -> list[str]:
    """What the file says of the answer, the makespan and the like, and the critical path."""
    from ppopt.search.summary import cut_lines, figure_lines
    from ppopt.text import number
    from ppopt.timing import Waited

    schedule, outcome = shown.schedule, shown.outcome
    pipeline, lines = schedule.pipeline, []
    unit = f" {pipeline.units.time}".rstrip()
    if outcome is not None and outcome["value"] is not None:
        proof = f" by {outcome['proved_by']}" if outcome["proved_by"] else ""
        optimal = outcome["reason"] == "optimal"
        bound = "optimal, proved" if optimal else f"lower bound {number(outcome['lower_bound'])}{unit}"
        lines.append(f"{outcome['objective']} {number(outcome['value'])}{unit}: {bound}{proof}")
    lines += [*figure_lines(schedule), *cut_lines(pipeline)]
    path = Waited(schedule).path
    devices = [step for step in path if step.machine < pipeline.devices]
    work = sum(step.end - step.start for step in devices)
    count, on = len(devices), len({step.machine for step in devices})
    what = f"{count} operation{'s' * (count > 1)} on {on} device{'s' * (on > 1)}"
    rest = number(pipeline.time(schedule.makespan - work))
    lines.append(f"critical path: {what} take {number(pipeline.time(work))}{unit}; {rest}{unit} between and around them")
    return lines


def tables(schedule: Schedule, maps: bool = False) -> list[Table]:
    """The devices, their idle time by cause, and the links; ``maps``: and what they do with weights."""
    from ppopt.text import figure, new_table, percent, unit
    from ppopt.timing import devices_of, links_of

    pipeline = schedule.pipeline
    time, span = pipeline.time, schedule.makespan
    used = devices_of(schedule)
    phases = list(map(str, used[0].by_phase))
    figures = ["utilisation", unit("work", pipeline.units.time), "idle", *phases, "sent", "received"]
    ranks = {"received": 4, "sent": 3} | {str(phase): 2 for phase in phases}
    devices = new_table("Devices", ["device"], [*figures, unit("peak memory", pipeline.units.memory)], ranks=ranks)
    causes = list(used[0].idle)
    idle = new_table(f"Idle time by cause{_in(pipeline.units.time)}", ["device"], ["idle", *causes])
    for device, (use, peak) in enumerate(zip(used, _peaks(schedule), strict=True)):
        share = percent(use.work / span) if span else ""
        numbers = [use.work, span - use.work, *use.by_phase.values()]
        devices.add_row(str(device), share, *(figure(time(n)) for n in numbers), str(use.sent), str(use.received), peak)
        idle.add_row(str(device), figure(time(span - use.work)), *(figure(time(n)) for n in use.idle.values()))
    idle.add_row("all", *(figure(time(n)) for n in _sums(used, span)))
    found = [devices, idle, *([weights_table(schedule)] if maps else [])]
    links = new_table("Links that transfers hold", ["link"], ["transfers", unit("busy", pipeline.units.time), "busy share"])
    for link in links_of(schedule):
        pairs = ", ".join(f"{a} to {b}" for a, b in link.pairs)
        links.add_row(pairs, str(link.transfers), figure(time(link.busy)), percent(link.busy / span) if span else "")
    return [*found, links] if links.rows else found


def weights_table(schedule: Schedule) -> Table:
    """What each device keeps of weights, fetches, sends and holds."""
    from ppopt.pipeline import plain
    from ppopt.text import figure, new_table, unit
    from ppopt.timing.weights import device_figures

    units = schedule.pipeline.units
    heads = ["stages stored", unit("weights stored", units.memory), "weight fetches", unit("weights fetched", units.memory)]
    heads += [unit("fetch time", units.time), "activations sent", "peak activations"]
    table = new_table("Weights and activations", ["device"], heads, ranks={"weights stored": 2, "weights fetched": 2})
    for device, of in enumerate(device_figures(schedule)):
        table.add_row(str(device), *(figure(plain(value)) for value in of[:7]))
    return table


def _in(label: str) -> str:
    return f" [{label}]" if label else ""


def _sums(used: Sequence[DeviceUse], span: int) -> list[int]:
    causes = used[0].idle
    return [sum(span - use.work for use in used), *(sum(use.idle[cause] for use in used) for cause in causes)]


def _peaks(schedule: Schedule) -> list[str]:
    """The peak of each device, with a mark where it exceeds the limit."""
    from ppopt.text import figure

    amounts, amount = schedule.pipeline.amounts, schedule.pipeline.amount
    if amounts.limit is None:
        return [figure(amount(peak)) for peak in schedule.peak_memory]
    pairs = zip(schedule.peak_memory, amounts.limit.tolist(), strict=True)
    return [f"{figure(amount(peak))} {'!' if peak > limit else ' '}" for peak, limit in pairs]
