"""What a device exchanges between its passes: weights that it gathers before them, gradients that it scatters behind them."""

from __future__ import annotations

from collections.abc import Iterator

from ppopt.checker.memory import in_time
from ppopt.checker.records import Entry, Run
from ppopt.op import Kind


def exchanges(run: Run, device: int) -> Iterator[tuple[Entry, Entry, int, str]]:
    """``(before, after, lag, what)``: the last record of a pass, the first of the next, and what is done for how long between.

    A pass is what the device runs of one stage before it runs another one, in one direction: forwards; backwards, which need the
    weights; what makes gradients of weights.
    """
    if not run.facts.per_pass:
        return
    for kinds, what in (
        ((Kind.F,), "weights of the forward pass are gathered"),
        ((Kind.B, Kind.I), "weights of the backward pass are gathered"),
        ((Kind.B, *range(Kind.W, run.last_kind + 1)), "gradients of the pass are scattered"),
    ):
        last: tuple[Entry, int, int] | None = None
        for entry in in_time(run, device):
            for key in entry.keys:
                family, microbatch = divmod(key, run.pipeline.microbatches)
                kind, stage = divmod(family, run.pipeline.stages)
                if kind not in kinds:
                    continue
                route = run.pipeline.route_of_microbatch[microbatch]
                if last is not None and last[2] != stage:
                    scattered = run.facts.scattered[last[1]][last[2]]
                    lag = scattered if Kind.W in kinds else run.facts.gather[route][stage]
                    if lag:
                        yield last[0], entry, lag, what
                last = entry, route, stage
