"""What follows from a schedule, as result files and stores have it; times and memory in the model's units."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, TypeAlias

from ppopt.pipeline import DataParallel, plain
from ppopt.schedule import Schedule
from ppopt.timing import exposed_traffic
from ppopt.timing.usage import devices_of, links_of
from ppopt.timing.weights import device_figures

Tree: TypeAlias = dict[str, Any]


def metrics_dict(schedule: Schedule) -> Tree:
    """``metrics``: the figures of a schedule, without those of each device and link (:func:`usage_dict`)."""
    pipeline = schedule.pipeline
    traffic, rate = pipeline.data_parallel != DataParallel(), schedule.throughput
    return {
        **({"exposed_traffic": pipeline.time(exposed_traffic(schedule))} if traffic else {}),
        "makespan": pipeline.time(schedule.makespan),
        "device_span": pipeline.time(schedule.device_span),
        "bubble_ratio": schedule.bubble_ratio,
        "span_bubble_ratio": schedule.span_bubble_ratio,
        "summed_span_bubble_ratio": schedule.summed_span_bubble_ratio,
        "overhead": schedule.overhead,
        "efficiency": schedule.efficiency,
        "speed_up": schedule.speed_up,
        **({} if rate is None else {"throughput": {"value": rate[0], "unit": rate[1]}}),
        "work": [pipeline.time(work) for work in schedule.work],
        "peak_memory": [pipeline.amount(peak) for peak in schedule.peak_memory],
    }


def usage_dict(schedule: Schedule, weights: bool = False) -> Tree:
    """``metrics.devices`` and, where transfers hold links, ``metrics.links``: where the time of each goes.

    ``weights``: with what each device does with weights and activations (:func:`weights_dicts`).
    """
    pipeline = schedule.pipeline
    more = weights_dicts(schedule) if weights else [{}] * pipeline.devices
    time, makespan = pipeline.time, schedule.makespan
    devices = [
        {
            "work": time(use.work),
            "idle": {str(cause): time(ticks) for cause, ticks in use.idle.items()},
            "idle_by_phase": {phase: time(ticks) for phase, ticks in use.by_phase.items()},
            "utilisation": use.work / makespan if makespan else 0.0,
            "sent": use.sent,
            "received": use.received,
            "peak_memory": pipeline.amount(peak),
            **beside,
        }
        for use, peak, beside in zip(devices_of(schedule), schedule.peak_memory, more, strict=True)
    ]
    links = [
        {
            "link": [list(pair) for pair in use.pairs],
            "transfers": use.transfers,
            "busy": time(use.busy),
            "busy_share": use.busy / makespan if makespan else 0.0,
        }
        for use in links_of(schedule)
    ]
    return {"devices": devices, **({"links": links} if links else {})}


def weights_dicts(schedule: Schedule) -> list[Tree]:
    """Per device: stages and weights that it keeps, how often and how much it fetches, what it sends, its peak of activations."""
    return [
        {name: plain(value) if isinstance(value, Fraction) else value for name, value in figures._asdict().items()}
        for figures in device_figures(schedule)
    ]
