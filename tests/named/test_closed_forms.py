# ruff: noqa: N803 - sizes and costs have the papers' letters
"""The closed forms of the named schedules, under the conditions that they hold under.

T_F, T_I, T_W, T_B = T_I + T_W are costs of one operation of one stage, equal on all devices; there is no latency.
Idle time is makespan - work.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from ppopt.named import Restriction, find
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Schedule
from tests.support.tiers import drawn, thorough


def for_all(*strategies: st.SearchStrategy[Any], examples: int = 40) -> Callable[[Callable[..., object]], Callable[[int], None]]:
    """Hypothesis' ``given``, two fifths of the examples in a quick run."""
    return drawn(2 * examples // 5, examples, *strategies)


class Times(NamedTuple):
    F: int
    I: int  # noqa: E741
    W: int

    @property
    def B(self) -> int:  # noqa: N802
        return self.I + self.W


UNIT = Times(1, 1, 1)


devices_ = st.integers(1, 7)


chunks_ = st.integers(1, 4)


times_ = st.builds(Times, *3 * [st.integers(1, 6)])


def schedule(
    name: str,
    devices: int,
    microbatches: int,
    t: Times = UNIT,
    chunks: int = 1,
    overlap: Any = None,
    latency: Any = 0,
    **params: Any,
) -> Schedule:
    """A named schedule with costs per operation; a chunk's activation is 1."""
    definition = find(name)
    costs = Costs(
        forward=t.F * chunks,
        backward_input=t.I * chunks,
        backward_weight=t.W * chunks,
        overlap=None if overlap is None else Fraction(overlap) * chunks,
    )
    pipeline = Pipeline(devices, microbatches, costs=costs, links=Links(latency), memory=Memory(activation=chunks))
    return definition.schedule(pipeline, chunks, **params)


def makespan(s: Schedule) -> Any:
    return s.pipeline.time(s.makespan)


def idle(s: Schedule) -> Any:
    assert len(set(s.work)) == 1
    return s.pipeline.time(s.makespan - s.work[0])


def span_idle(s: Schedule) -> Any:
    return s.pipeline.time(s.device_span - max(s.work))


def peaks(s: Schedule) -> list[Any]:
    return [s.pipeline.amount(peak) for peak in s.peak_memory]


@for_all(devices_, st.integers(1, 16), times_)
def test_gpipe(D: int, M: int, t: Times) -> None:
    s = schedule("gpipe", D, M, t)
    assert makespan(s) == (M + D - 1) * (t.F + t.B)
    assert peaks(s) == [M] * D


@for_all(devices_, st.integers(1, 16), times_)
def test_1f1b(D: int, M: int, t: Times) -> None:
    s = schedule("1f1b", D, M, t)
    assert makespan(s) == (M + D - 1) * (t.F + t.B)
    assert peaks(s) == [min(M, D - d) for d in range(D)]


@for_all(devices_, st.integers(1, 16), times_)
def test_1f1b_overlap(D: int, M: int, t: Times) -> None:
    s = schedule("1f1b-overlap", D, M, t)
    assert makespan(s) == (M + D - 1) * (t.F + t.B)
    assert peaks(s) == [min(M, 2 * (D - d)) for d in range(D)]


@for_all(devices_, st.integers(1, 16), times_)
def test_pipedream(D: int, M: int, t: Times) -> None:
    s = schedule("pipedream", D, M, t)
    assert makespan(s) == (M + D - 1) * (t.F + t.B)
    assert peaks(s) == [min(M, 2 * (D - d) - 1) for d in range(D)]


@for_all(devices_, st.integers(1, 6), st.integers(1, 4), times_)
def test_seq1f1b(D: int, sequences: int, k: int, t: Times) -> None:
    s = schedule("seq1f1b", D, sequences * k, t, pieces=k)
    assert peaks(s) == [min(sequences * k, D - d - 1 + k) for d in range(D)]
    rows = s.order.texts()
    assert rows[0][0] == "0F0"
    assert [op for op in rows[-1] if "B" in op] == [f"{D - 1}B{m * k + q}" for m in range(sequences) for q in reversed(range(k))]
    if k == 1:
        assert s.order == schedule("1f1b", D, sequences, t).order


def test_latency_reverses_ranks() -> None:
    figures = {"gpipe": 39, "1f1b": 49, "zb-h1": 41, "zb-h2": 30}
    for name, value in figures.items():
        assert makespan(schedule(name, 4, 8, latency=1)) == value
    costs = Times(100, 100, 100)
    assert makespan(schedule("gpipe", 4, 8, costs, latency=16)) == 3396
    assert makespan(schedule("1f1b", 4, 8, costs, latency=16)) == 3556


@for_all(st.integers(2, 6), st.integers(2, 4), st.sampled_from(["D", "D+1", "2D"]), st.integers(1, 3), st.data(), times_)
def test_interleaved(D: int, v: int, group: str, groups: int, data: st.DataObject, t: Times) -> None:
    N = {"D": D, "D+1": D + 1, "2D": 2 * D}[group]
    remainder = data.draw(st.sampled_from([0, *range(D, N)]))
    M = groups * N + remainder
    s = schedule("interleaved-1f1b", D, M, t, v, group_size=N)
    assert makespan(s) == (v * M + D - 1) * (t.F + t.B)
    assert peaks(s) == [min(v * M, (v - 1) * N + 2 * (D - 1 - d) + 1) for d in range(D)]


def runs(name: str, *sizes: Any, **params: Any) -> bool:
    try:
        schedule(name, *sizes, **params)
    except Restriction as restriction:
        message = str(restriction)
    else:
        return True
    assert message.startswith(f"{name}: ")
    assert "deadlocks" in message
    return False


@pytest.mark.parametrize("D", range(2, 9))
def test_interleaved_outside_its_restriction(D: int) -> None:
    """Accepted where the order has no cycle, else the error."""
    for r in range(1, D):
        assert runs("interleaved-1f1b", D, 2 * D + r, UNIT, 2) == (r == 1 or r >= D - 2)
        assert runs("interleaved-1f1b-overlap", D, 2 * D + r, UNIT, 2) == (r in (1, D - 1))
        assert runs("interleaved-1f1b-overlap", D, 2 * D + r, UNIT, 3) == (r == D - 1)
        assert runs("interleaved-1f1b", D, r, UNIT, 2)  # M < N = D: nearly all is warm-up
    if D >= 4:
        assert not runs("interleaved-1f1b", D, 2 * D + 1, UNIT, 3)
    for N in range(1, D - 1):
        assert not runs("interleaved-1f1b", D, 4 * N * D, UNIT, 2, group_size=N)
    assert runs("interleaved-1f1b", D, 4 * (D - 1), UNIT, 2, group_size=max(1, D - 1))


def test_interleaved_figures() -> None:
    assert makespan(schedule("interleaved-1f1b", 4, 10, chunks=2, group_size=4)) == 79
    assert makespan(schedule("interleaved-1f1b", 4, 8, chunks=2, latency=1, group_size=4)) == 71
    assert makespan(schedule("interleaved-1f1b", 4, 8, chunks=2, latency=1, group_size=8)) == 63
    assert peaks(schedule("interleaved-1f1b", 4, 8)) == [7, 5, 3, 1]


@for_all(st.integers(2, 5), st.integers(2, 4), st.integers(1, 3), times_)
def test_interleaved_overlap(D: int, v: int, groups: int, t: Times) -> None:
    M = groups * D
    s = schedule("interleaved-1f1b-overlap", D, M, t, v)
    assert makespan(s) == (v * M + D - 1) * (t.F + t.B)
    assert peaks(s) == [min(v * M, (v - 1) * D + 2 * (D - 1 - d) + 2) for d in range(D)]


@for_all(st.integers(2, 4), st.integers(2, 3), st.integers(2, 3), st.fractions(2, 3, max_denominator=4))
def test_a_shorter_pair_shortens_the_steady_part_only(D: int, v: int, groups: int, pair: Fraction) -> None:
    M = groups * D
    s = schedule("interleaved-1f1b-overlap", D, M, UNIT, v, overlap=pair)
    assert makespan(s) == pytest.approx(float((D - 1) * 3 + (D * (v - 1) + 1) * 3 + (M * v - D * (v - 1) - 1) * pair))


@for_all(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), times_, st.fractions(0, 1, max_denominator=4))
def test_overlap_takes_what_pp_emulation_says(D: int, v: int, groups: int, t: Times, hidden: Fraction) -> None:
    """Its form of the times of a chunk, where a pair hides a part of its shorter half; with one chunk it is 1F1B's."""
    M = groups * D
    pair = t.F + t.B - hidden * min(t.F, t.B)
    name = "interleaved-1f1b-overlap" if v > 1 else "1f1b-overlap"
    s = schedule(name, D, M, t, v, overlap=pair)
    form = (D - 1 + D * (v - 1) + 1) * (t.F + t.B) + (M * v - D * (v - 1) - 1) * pair
    assert s.pipeline.time(s.makespan) == pytest.approx(float(form))
    assert float(D / Fraction(s.speed_up).limit_denominator(10**6)) == pytest.approx(float(form / (M * v * (t.F + t.B))))


@for_all(devices_, st.integers(1, 14), st.integers(1, 4), st.sampled_from(["ascending", "descending"]), times_)
def test_looped_bfs(D: int, M: int, v: int, direction: str, t: Times) -> None:
    s = schedule("looped-bfs", D, M, t, v, backward_microbatches=direction)
    assert makespan(s) == (v * max(M, D) + min(M, D) - 1) * (t.F + t.B)
    assert peaks(s) == [v * M] * D


@for_all(st.integers(2, 5), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_looped_bfs_in_rounds(D: int, k: int, each: int, v: int) -> None:
    s = schedule("looped-bfs", D, k * each, UNIT, v, rounds=k)
    assert peaks(s) == [v * each] * D
    if (D, k * each, v, k) == (4, 16, 2, 2):
        assert makespan(s) == 114
    first = s.order.texts()[0][: v * each]
    assert first == [f"{c * D}F{j * k}" for c in range(v) for j in range(each)]


def test_looped_bfs_rounds_take_longer() -> None:
    assert makespan(schedule("looped-bfs", 4, 16, chunks=2, rounds=2)) == 114
    assert makespan(schedule("looped-bfs", 4, 16, chunks=2)) == 105


@for_all(st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), times_)
def test_interleaved_zb(D: int, v: int, groups: int, t: Times) -> None:
    s = schedule("interleaved-zb", D, groups * D, t, v)
    assert idle(s) == (D - 1) * max(t.F, t.I, t.F + t.I - t.W)
    assert peaks(s) == [v * D] * D


@for_all(st.integers(1, 8), st.integers(1, 3), times_)
def test_hanayo(D: int, waves: int, t: Times) -> None:
    s = schedule("hanayo", D, D, t, 2 * waves)
    assert makespan(s) == 2 * waves * D * (t.F + t.B) + 2 * (D - 1) * max(t.F, t.B)
    assert peaks(s) == [2 * waves * D - (D - 1 - d) for d in range(D)]


@for_all(st.integers(1, 5), st.integers(1, 2), st.integers(1, 4), times_)
def test_hanayo_in_groups(D: int, waves: int, groups: int, t: Times) -> None:
    s = schedule("hanayo", D, groups * D, t, 2 * waves, variant="groups")
    assert max(peaks(s)) <= 2 * waves * D
    assert makespan(s) >= 2 * waves * groups * D * (t.F + t.B) + (D - 1) * t.F


def test_hanayo_figures() -> None:
    assert makespan(schedule("hanayo", 4, 8, chunks=2)) == 65
    assert makespan(schedule("hanayo", 8, 8, chunks=2, latency=1)) == 116
    assert makespan(schedule("hanayo", 8, 8, chunks=2, latency=1, variant="groups")) == 112


@for_all(devices_, st.integers(0, 8), times_, st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(366, 1000)]))
def test_zb_h1(D: int, more: int, t: Times, r: Fraction) -> None:
    M = D + more
    s = schedule("zb-h1", D, M, t)
    assert idle(s) == (D - 1) * max(t.F, t.I, t.F + t.I - t.W)
    if min(t.F, t.I) >= t.W:
        assert span_idle(s) == (D - 1) * (t.F + t.I - t.W)
    assert peaks(s) == [D] * D
    partly = find("zb-h1").schedule(s.pipeline.changed(memory=Memory(retained=r)))
    assert peaks(partly) == pytest.approx([float((D - d) + r * d) for d in range(D)])


@for_all(devices_, st.integers(0, 8), times_, st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(366, 1000)]))
def test_zb_h2(D: int, more: int, t: Times, r: Fraction) -> None:
    M = 2 * D - 1 + more
    s = schedule("zb-h2", D, M, t)
    assert idle(s) == (D - 1) * max(t.F, t.I - t.F, t.F + t.I - 2 * t.W)
    assert span_idle(s) == (D - 1) * max(0, t.I - t.F, t.F + t.I - 2 * t.W)
    assert peaks(s) == [2 * D - 1] * D
    partly = find("zb-h2").schedule(s.pipeline.changed(memory=Memory(retained=r)))
    assert peaks(partly) == pytest.approx([float(2 * (D - d) - 1 + 2 * r * d) for d in range(D)])


def test_twice_the_memory_shortens_the_span_only() -> None:
    one, two = schedule("zb-h1", 4, 8), schedule("zb-h2", 4, 8)
    assert (one.makespan, two.makespan, one.device_span, two.device_span) == (27, 27, 27, 24)


@for_all(devices_, st.integers(0, 6), times_)
def test_the_heuristic_variant_keeps_the_order_of_f_and_i_and_the_peak(D: int, more: int, t: Times) -> None:
    M = 2 * D - 1 + more
    rule, free = schedule("zb-h2", D, M, t), schedule("zb-h2", D, M, t, variant="heuristic")
    assert max(peaks(free)) <= 2 * D - 1
    without = [[[op for op in row if "W" not in op] for row in s.order.texts()] for s in (rule, free)]
    assert without[0] == without[1]
    if t.F == t.I == t.W:
        assert free.makespan <= rule.makespan


@for_all(devices_, st.integers(1, 8))
def test_zb_1p_at_unit_costs_is_zb_h1(D: int, more: int) -> None:
    assert schedule("zb-1p", D, D + more).order == schedule("zb-h1", D, D + more).order


@for_all(devices_, st.integers(1, 16), times_, st.integers(1, 9), st.sampled_from([0, 1, 7]))
def test_the_automatic_scheduler_keeps_its_limit(D: int, M: int, t: Times, limit: int, latency: int) -> None:
    s = schedule("zb-1p", D, M, t, latency=latency, limit=limit)
    assert max(peaks(s)) <= limit
    assert max(peaks(schedule("zb-1p", D, M, t, latency=latency))) <= D
    assert max(peaks(schedule("zb-2p", D, M, t, latency=latency))) <= 2 * D


@for_all(devices_, st.integers(0, 6), st.integers(1, 6), st.data(), st.sampled_from(["chunk0-first", "chunk1-first"]))
def test_zb_v(D: int, more: int, F: int, data: st.DataObject, tail: str) -> None:
    W = data.draw(st.integers(1, F))
    s = schedule("zb-v", D, 2 * D - 1 + more, Times(F, F, W), 2, tail=tail)
    assert span_idle(s) == 2 * (D - 1) * (F - W)
    assert idle(s) == (D - 1) * max(F, 2 * (F - W))
    assert peaks(s) == [2 * D] * D


@for_all(devices_, st.integers(1, 12), times_, st.sampled_from([0, 2]))
def test_zb_v_adapted_keeps_the_peak_and_is_no_longer_than_the_pinned_order(D: int, M: int, t: Times, latency: int) -> None:
    adapted = schedule("zb-v", D, M, t, 2, latency=latency, variant="adapted")
    assert max(peaks(adapted)) <= 2 * D
    assert adapted.device_span <= schedule("zb-v", D, M, t, 2, latency=latency).device_span


@pytest.mark.parametrize("D", [2, 3, 4, 5, *(pytest.param(D, marks=thorough) for D in (6, 7, 8))])
def test_v_half_at_unit_costs(D: int) -> None:
    for M in (2 * D, 2 * D + 1, 4 * D):
        s = schedule("v-half", D, M, chunks=2)
        assert idle(s) == (1 if D == 2 else 3 * D - 7 if D % 2 == 0 else 3 * D - 4)
        assert max(peaks(s)) == D + 2 - D % 2


@pytest.mark.parametrize(
    ("D", "form"), [(2, 3), (3, 5), (4, 11), *(pytest.param(*of, marks=thorough) for of in ((5, 15), (6, 17), (8, 27)))]
)
def test_v_min_at_unit_costs(D: int, form: int) -> None:
    for M in (2 * D, 2 * D + 1, 4 * D):
        s = schedule("v-min", D, M, chunks=2)
        assert idle(s) == form
        assert max(peaks(s)) == 2 * ((D + 4) // 3)


@for_all(st.integers(1, 6), st.integers(1, 12), times_, st.sampled_from([0, 3]), examples=20)
def test_v_half_and_v_min_keep_their_peaks(D: int, M: int, t: Times, latency: int) -> None:
    half, least = (schedule(name, D, M, t, 2, latency=latency) for name in ("v-half", "v-min"))
    assert max(peaks(half)) <= D + 2 - D % 2
    assert max(peaks(least)) <= 2 * ((D + 4) // 3)


@for_all(st.sampled_from([2, 4, 6, 8]), st.integers(1, 4), times_)
def test_chimera(D: int, units: int, t: Times) -> None:
    s = schedule("chimera", D, units * D, t)
    assert idle(s) == (D - 2) * max(t.F, t.B) + (units - 1) * (D - 2) * abs(t.B - t.F)
    assert peaks(s) == [D // 2 + 1 + min(d, D - 1 - d) for d in range(D)]


@for_all(st.sampled_from([2, 4, 6]), st.integers(1, 3), times_)
def test_bitpipe(D: int, units: int, t: Times) -> None:
    s = schedule("bitpipe", D, units * D, t, 2)
    assert idle(s) == (D - 2) * max(t.F, t.B) + (units - 1) * (D - 2) * abs(t.B - t.F)
    assert peaks(s) == [D + D // 2 + 1 + min(d, D - 1 - d) for d in range(D)]
    rows = s.order.texts()
    for d, row in enumerate(rows):  # the warm-up: forwards before the first pair of a forward and a backward
        first = next(i for i, op in enumerate(row) if "B" in op)
        assert first == D + D // 2 + min(d, D - 1 - d) + 1


@for_all(st.sampled_from([2, 4, 6]), st.integers(1, 3), times_)
def test_a_greedy_merge_keeps_each_direction(D: int, units: int, t: Times) -> None:
    rule, greedy = schedule("chimera", D, units * D, t), schedule("chimera", D, units * D, t, merge="greedy")
    half = units * D // 2
    for row, other in zip(rule.order.texts(), greedy.order.texts(), strict=True):
        for down in (True, False):
            mine = [[op for op in r if (int(op.split("F")[-1].split("B")[-1]) < half) == down] for r in (row, other)]
            assert mine[0] == mine[1]


@for_all(st.sampled_from([2, 4, 6]), st.integers(0, 4), st.integers(1, 6), st.data())
def test_dualpipe(D: int, more: int, F: int, data: st.DataObject) -> None:
    M = 2 * D + 2 * more
    I = data.draw(st.integers(1, F))  # noqa: E741
    W = data.draw(st.integers(1, I))
    s = schedule("dualpipe", D, M, Times(F, I, W))
    assert idle(s) == (D // 2 - 1) * (2 * F + I - W)
    assert peaks(s) == [D + 1] * D
    W = data.draw(st.integers(1, 8))
    assert idle(schedule("dualpipe", D, M, Times(F, F, W))) == (D // 2 - 1) * max(3 * F - W, 2 * F)


@for_all(st.integers(1, 5), st.integers(0, 5), st.integers(1, 6), st.data())
def test_dualpipe_v(D: int, more: int, F: int, data: st.DataObject) -> None:
    M = 2 * D + more
    I = data.draw(st.integers(1, F))  # noqa: E741
    W = data.draw(st.integers(1, I))
    s = schedule("dualpipe-v", D, M, Times(F, I, W), 2)
    assert idle(s) == (D - 1) * (2 * F + I - W)
    assert peaks(s) == [2 * D + 1] * D


@for_all(st.sampled_from([4, 6]), st.integers(0, 3), st.sampled_from([Fraction(2), Fraction(5, 2)]))
def test_with_a_shorter_pair_the_middle_devices_idle_as_the_readme_says(D: int, more: int, pair: Fraction) -> None:
    """(D/2-1)(T_O + T_B - 3 T_W)."""
    s = schedule("dualpipe", D, 2 * D + 2 * more, overlap=pair)
    assert s.pipeline.time(s.makespan - min(s.work)) == (D // 2 - 1) * (pair + 2 - 3)
    assert s.work[D // 2] == min(s.work)


@for_all(st.integers(1, 5), st.integers(0, 5), st.integers(1, 6), st.sampled_from([0, Fraction(1, 2), 1]), st.data())
def test_dualpipe_v_takes_what_pp_emulation_says(D: int, more: int, F: int, saved: Fraction, data: st.DataObject) -> None:
    """Its form, asserted there against its emulation, of the times of a chunk; ``saved`` is what a pair hides."""
    M = 2 * D + more
    I = data.draw(st.integers(1, F))  # noqa: E741
    W = data.draw(st.integers(1, I))
    pair = F + I + W - saved
    form = (D - 1) * F + 2 * D * F + (2 * (M - D) - 1) * pair + (D - 1) * pair + (2 * D - 1) * I + W + 2 * (I + W) + F
    assert makespan(schedule("dualpipe-v", D, M, Times(F, I, W), 2, overlap=pair)) == form


@for_all(st.integers(1, 4), st.integers(0, 4))
def test_dualpipe_v_is_half_of_dualpipe(D: int, more: int) -> None:
    """Device d of dualpipe-v(D, M) is device d of dualpipe(2D, 2M), operation for operation, routes dropped."""
    M = 2 * D + more
    single = schedule("dualpipe-v", D, M, chunks=2).order.texts()
    double = schedule("dualpipe", 2 * D, 2 * M).order.texts()
    for d in range(D):
        folded = [re.sub(r"([FBIW])(\d+)", lambda op: f"{op[1]}{int(op[2]) % M}", text) for text in double[d]]
        assert folded == single[d]


def test_dualpipe_figures() -> None:
    assert makespan(schedule("dualpipe", 8, 20, overlap=3)) == 66
    assert makespan(schedule("dualpipe-v", 4, 8, chunks=2)) == 54


@for_all(st.sampled_from(["gpipe", "1f1b", "zb-h1"]), st.integers(1, 5), st.integers(5, 9))
def test_nothing_depends_on_the_scale_of_costs(name: str, D: int, M: int) -> None:
    assume(M >= D)
    small, large = schedule(name, D, M, Times(1, 2, 3)), schedule(name, D, M, Times(1000, 2000, 3000))
    assert large.makespan == 1000 * small.makespan
