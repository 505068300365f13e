"""An estimate as tables: parameters, FLOPs, bytes and times of each kind of layer, and what they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ppopt.cli.render import width
from ppopt.files.estimates import Source
from ppopt.text import new_table, rendered
from ppopt.transformer import Asked, Cluster, Estimate, LayerEstimate
from ppopt.transformer.calibration import OPS as MEASURED
from ppopt.transformer.calibration import Calibration
from ppopt.transformer.cross_check import Count
from ppopt.transformer.records import record_of

OPS = ("F", "I", "W")


@dataclass(frozen=True)
class _Row:
    """A kind of layers: how it is called, how many there are, and one of them."""

    name: str
    count: int
    one: LayerEstimate


def report(source: Source, asked: Asked, *, explain: bool) -> str:
    """The estimate for people; ``explain`` adds what times and activations are made of, and what was assumed.

    Raises:
        EstimateError: the sizes cannot be cut as asked, or the cluster lacks a number.
    """
    known = asked.training is not None
    record = record_of(asked)
    parts = [_head(source, record)]
    if not known:
        table = new_table(None, ["layer"], ["count", "parameters", "state [GB]"])
        for layer in record["layers"]:
            cells = (str(layer["count"]), f"{layer['parameters']:,}", _figure(layer["state_bytes"] / 1e9))
            table.add_row(layer["name"], *cells)
        note = "FLOPs, bytes and times need a sequence: --set transformer.sequence=4096"
        return "\n".join([*parts, rendered(table, width()), note])
    estimate = asked.estimate()
    rows = list(_rows(estimate))
    parts.append(_sizes(estimate, rows))
    parts.append(_reached(estimate.cluster))
    if explain:
        if estimate.cluster is not None:
            parts += ["", "What times are made of, in ms", _times(rows), "", *_assumed(estimate, estimate.cluster)]
        if estimate.parallel.width > 1:
            parts += ["", "What goes to other GPUs, in GB: in F of a microbatch, and once a step", _traffic(estimate, rows)]
        parts += ["", "What is kept of a microbatch, in GB", _tensors(rows)]
    return "\n".join(parts)


def _head(source: Source, record: dict[str, object]) -> str:
    text = f"{source.name or source.origin}: {record['parameters']:,} parameters"
    if record["active_parameters"] != record["parameters"]:
        text += (
            f", {record['active_parameters']:,} active ({record['active_parameters_without_embedding']:,} without the embedding)"
        )
    if record["prediction_parameters"]:
        text += f", {record['prediction_parameters']:,} more for multi-token prediction"
    if record["flops_per_token"] is not None:
        text += (
            f"\n{record['flops_per_token']:.6g} FLOPs of the model per token, {record['boundary_bytes']:,} bytes between stages"
        )
    return text


def _rows(estimate: Estimate) -> Iterator[_Row]:
    """The layers by kind, those that come back in one row."""
    found: dict[tuple[str, bool, int | None], _Row] = {}
    for group in estimate.layers:
        key = (group.kind, group.experts, group.window)
        before = found.get(key)
        name = group.name if before is None else before.name
        found[key] = _Row(name, group.count + (before.count if before else 0), group)
    for row in found.values():
        several = row.count > row.one.count
        yield _Row(row.name.rpartition(" ")[0] if several else row.name, row.count, row.one)


def _sizes(estimate: Estimate, rows: Sequence[_Row]) -> str:
    timed = estimate.cluster is not None
    heads = ["count", "parameters", *(f"{op} [TFLOP]" for op in OPS), "kept [GB]", "selective", "full", "retained", "state"]
    ranks = {"parameters": 4, "selective": 6, "full": 6, "retained": 5, "state": 3, "kept": 2}
    ranks |= {f"{op} [TFLOP]": 7 if timed else 1 for op in OPS}
    table = new_table(None, ["layer"], heads + [f"{op} [ms]" for op in OPS if timed], ranks=ranks)
    for row in rows:
        one, flops, kept = row.one, row.one.flops, row.one.kept
        work = (flops.forward, flops.backward_input, flops.backward_weight)
        held = (kept.none, kept.selective, kept.full, kept.between, one.state)
        cells = [str(row.count), f"{one.parameters.total:,}", *(_figure(value / 1e12) for value in work)]
        cells += [_figure(value / 1e9) for value in held]
        if one.seconds is not None:
            seconds = (one.seconds.forward, one.seconds.backward_input, one.seconds.backward_weight)
            cells += [_figure(1000 * value) for value in seconds]
        table.add_row(row.name, *cells)
    return rendered(table, width())


def _reached(cluster: Cluster | None) -> str:
    """What of a GPU is reached, and how that is known."""
    if cluster is None:
        return "Times need a GPU: --set cluster.gpu=h100-sxm, or cluster.flops and the rest."
    gpu = cluster.gpu
    backward = "" if gpu.passes_backward is None else f" ({gpu.passes_backward:g} in I)"
    reached = f"efficiency {gpu.efficiency:g}, passes {gpu.passes:g}{backward}, link efficiency {gpu.link_efficiency:g}"
    return f"Times on {gpu.name or 'a GPU of its own'}: {reached}; {gpu.basis}."


def _times(rows: Sequence[_Row]) -> str:
    table = new_table(None, ["layer", "operation"], ["computing", "memory", "transfers", "in all"])
    for row in rows:
        assert row.one.seconds is not None
        for op, parts in zip(OPS, row.one.seconds.parts, strict=True):
            cells = (parts.compute, parts.memory, parts.transfers, parts.total)
            table.add_row(row.name if op == "F" else "", op, *(_figure(1000 * value) for value in cells))
        for level, more in (("selective", row.one.seconds.selective), ("full", row.one.seconds.full)):
            if more:
                table.add_row("", f"recompute {level}", "", "", "", _figure(1000 * more))
        step = {"all-gather": row.one.seconds.all_gather, "reduce-scatter": row.one.seconds.reduce_scatter}
        for name, seconds in {**step, "optimizer": row.one.seconds.optimizer}.items():
            if seconds:
                table.add_row("", f"{name}, once a step", "", "", "", _figure(1000 * seconds))
    return rendered(table, width())


def _traffic(estimate: Estimate, rows: Sequence[_Row]) -> str:
    sent = [estimate.traffic(row.one) for row in rows]
    names = [name for name in sent[0] if any(of[name] for of in sent)]
    table = new_table(None, ["layer"], names)
    for row, of in zip(rows, sent, strict=True):
        table.add_row(row.name, *(_figure(of[name] / 1e9) for name in names))
    return rendered(table, width())


def _assumed(estimate: Estimate, cluster: Cluster) -> list[str]:
    gpu = cluster.gpu
    backward = "" if gpu.passes_backward is None else f" in F and {gpu.passes_backward:g} in I"
    causal = {"half": "half of the scores are computed", "full": "all scores are computed"}[estimate.training.causal or "half"]
    return [
        f"computing: FLOPs / ({gpu.flops:.6g} x {gpu.efficiency:g}); memory: {gpu.passes:g}{backward} x what is kept / "
        f"{gpu.bandwidth or 0:g} GB/s; links reach {gpu.link_efficiency:g} of {gpu.intra or 0:g} GB/s in a node, "
        f"{gpu.network or 0:g} GB/s outside.",
        f"Peaks: {gpu.source or 'given'}.",
        f"Attention: {estimate.training.attention}, {causal}.",
    ]


def _tensors(rows: Sequence[_Row]) -> str:
    table = new_table(None, ["layer", "from F to the backward"], ["GB"])
    for row in rows:
        for i, (name, size) in enumerate(row.one.kept.held.items()):
            table.add_row(row.name if i == 0 else "", name, _figure(float(size) / 1e9))
    second = new_table(None, ["layer", "from I to W"], ["GB"])
    for row in rows:
        for i, (name, size) in enumerate(row.one.kept.retained.items()):
            second.add_row(row.name if i == 0 else "", name, _figure(float(size) / 1e9))
    return f"{rendered(table, width())}\n\n{rendered(second, width())}"


def _figure(value: float) -> str:
    """Four digits; zero as it is."""
    return "0" if not value else f"{value:.4g}"


def fit_report(found: Calibration) -> str:
    """The fitted settings as a table of the file, each time beside the estimate, and the errors by kind of operation."""
    table = new_table(None, ["row", "operation"], ["measured [ms]", "before [ms]", "fitted [ms]", "error"])
    for one in found.compared:
        cells = (_figure(1000 * value) for value in (one.measured, one.before, one.after))
        table.add_row(one.label, one.op, *cells, f"{100 * one.error:+.1f} %")
    lines = [rendered(table, width()), ""]
    for op in (None, *MEASURED):
        if op is None or any(one.op == op for one in found.compared):
            mean, largest = found.errors(op)
            lines.append(f"{op or 'all'}: mean error {100 * mean:.1f} %, largest {100 * largest:.1f} %")
    lines += ["", "[cluster]", *(f"{name} = {getattr(found.gpu, name):.4g}" for name in found.fitted)]
    return "\n".join([*lines, f'basis = "{found.gpu.basis}"'])


def cross_check_report(found: Sequence[Count]) -> str:
    """What the library counts and what is counted here, side by side."""
    table = new_table(None, ["count"], ["transformers", "here", "difference"])
    for one in found:
        table.add_row(
            one.what, f"{one.library:,}", f"{one.here:,}", f"{one.here - one.library:+,}" if one.here != one.library else "0"
        )
    return rendered(table, width())
