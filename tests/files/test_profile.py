"""Model files from timing records and profiler traces."""

import gzip
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from ppopt.files.model import model_of_text, setting
from ppopt.files.profile import Profile, combine, model_text
from ppopt.files.recorded import ProfileError, read_recorded
from ppopt.op import Kind
from tests.support.places import DATA

Record = dict[str, Any]

Write = Callable[..., str]


def record(rank: int, stages: dict[int, dict[str, list[list[float]]]], ranks: int = 2, **more: Any) -> Record:
    of_stages = [{"stage": s, "activation_bytes": 2**20 * (s + 1), "output_bytes": 64, "seconds": k} for s, k in stages.items()]
    links = [{"from": 0, "to": 1, "bytes": 64, "seconds": [0.001, 0.002, 0.009]}] if rank == 0 and ranks == 2 else []
    return {"ppopt_timing": 1, "rank": rank, "ranks": ranks, "microbatches": 3, "stages": of_stages, "links": links} | more


def steps(*seconds: float) -> list[list[float]]:
    """Three steps; the first is slow and is to be left out."""
    return [[9.0] * len(seconds), list(seconds), list(seconds)]


SPLIT = {
    0: {"F": steps(0.01, 0.02, 0.03), "I": steps(1e-5), "W": steps(0.05)},
    1: {"F": steps(0.04), "I": steps(0.03), "W": steps(0.02)},
}

FUSED = {0: {"F": steps(0.02), "B": steps(0.04)}, 1: {"F": steps(0.04), "B": steps(0.045)}}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(tree: Any, name: str = "record.json", pack: bool = False) -> str:
        path = tmp_path / name
        data = (tree if isinstance(tree, str) else json.dumps(tree)).encode()
        path.write_bytes(gzip.compress(data) if pack else data)
        return str(path)

    return written


def profiled(write: Write, *records: Record) -> Profile:
    return combine([read_recorded(write(tree, f"{i}.json")) for i, tree in enumerate(records)])


def test_medians_without_the_first_step_stage_0_as_pytorch_runs_it(write: Write) -> None:
    profile = profiled(write, record(0, {0: SPLIT[0]}), record(1, {1: SPLIT[1]}))
    pipeline = model_of_text(model_text(profile, "two"), "text").pipeline
    assert (pipeline.devices, pipeline.microbatches, pipeline.placement, pipeline.units.time) == (2, 3, "linear", "ms")
    costs = pipeline.costs
    assert [list(map(float, values)) for values in (costs.forward, costs.backward_input, costs.backward_weight)] == [  # type: ignore[arg-type]
        [20, 40],
        [0, 30],
        [50.01, 20],
    ]
    assert costs.backward is None
    assert pipeline.memory.activation == (1, 2)
    assert pipeline.links.latency == ((0, 2), (2, 0))


def test_two_runs_together_give_both_backwards(write: Write) -> None:
    ranks = [record(rank, {rank: kinds[rank]}) for kinds in (SPLIT, FUSED) for rank in (0, 1)]
    costs = model_of_text(model_text(profiled(write, *ranks), ""), "text").pipeline.costs
    assert costs.backward == (40, 45)
    assert costs.backward_weight == (40, 20)


def test_a_fused_run_alone_gives_a_fused_pipeline(write: Write) -> None:
    costs = model_of_text(model_text(profiled(write, *(record(r, {r: FUSED[r]}) for r in (0, 1))), ""), "text").pipeline.costs
    assert (costs.backward, costs.backward_input) == ((40, 45), None)


def test_a_stage_without_b_gets_the_sum_and_the_file_says_so(write: Write) -> None:
    both = {0: FUSED[0], 1: {**SPLIT[1], "B": steps(0.04)}, 2: SPLIT[1]}
    text = model_text(profiled(write, record(0, {0: both[0], 2: both[2]}), record(1, {1: both[1]})), "")
    assert "# B of stage 2 was not run: the sum of its I and W." in text
    costs = model_of_text(text, "text").pipeline.costs
    assert costs.backward == (40, 40, 50)


@pytest.mark.parametrize(
    ("held", "placement"),
    [
        ([[0], [1]], "linear"),
        ([[0, 2], [1, 3]], "loop"),
        ([[0, 3], [1, 2]], "wave"),
        ([[1], [0]], "routes"),
        ([[0, 1], [2]], "routes"),
    ],
)
def test_the_placement_is_that_of_the_run(write: Write, held: list[list[int]], placement: str) -> None:
    ranks = [record(rank, dict.fromkeys(stages, SPLIT[1])) for rank, stages in enumerate(held)]
    pipeline = model_of_text(model_text(profiled(write, *reversed(ranks)), ""), "text").pipeline
    assert pipeline.placement == placement
    assert [[s for s, d in enumerate(pipeline.routes[0]) if d == rank] for rank in range(2)] == held


def test_one_rank_and_one_stage_are_a_pipeline(write: Write) -> None:
    pipeline = model_of_text(model_text(profiled(write, record(0, {0: FUSED[0]}, ranks=1)), ""), "text").pipeline
    assert (pipeline.devices, pipeline.stages) == (1, 1)


def test_replicas_of_a_rank_are_one_device(write: Write) -> None:
    ranks = [record(rank, {rank // 2: SPLIT[rank // 2]}, ranks=4, links=[]) for rank in range(4)]
    profile = profiled(write, *ranks)
    assert profile.held == ((0,), (1,))
    assert len(profile.times[0, Kind.F]) == 12


def test_the_file_says_which_numbers_were_measured_given_and_assumed(write: Write) -> None:
    profile = combine([read_recorded(str(DATA / f"torch_trace_{rank}.json")) for rank in (0, 1)])
    changes = [setting("links.latency=0.25"), setting("memory.limit=3")]
    lines = model_text(profile, "", changes).splitlines()
    assert any(line.startswith("forward = ") and line.endswith("# measured") for line in lines)
    assert "latency = 0.25  # given: --set links.latency=0.25" in lines
    assert "limit = 3  # given: --set memory.limit=3" in lines
    assert "activation = 1  # not measured: assumed; set it" in lines


def test_a_real_trace_of_the_cpu() -> None:
    """What PyTorch's profiler wrote; the expected numbers are made from the events by hand below."""
    recorded = read_recorded(str(DATA / "torch_trace_1.json"))
    assert (recorded.rank, recorded.microbatches, recorded.stages) == (1, 4, {1})
    events = [json.loads(line.rstrip(",\n")) for line in (DATA / "torch_trace_1.json").read_text().splitlines()[1:-1]]
    forwards = []
    for place, event in enumerate(events):
        if event["name"].startswith("PP:1F"):
            forwards.append(event["ts"] + event["dur"] - events[place + 1]["ts"])  # from its first operation on
    assert len(forwards) == 16
    assert sorted(recorded.times[1, Kind.F]) == pytest.approx(sorted(seconds / 1e6 for seconds in forwards[4:]))
    whole = [event["dur"] for event in events if event["name"].startswith("PP:1F")][4:]
    assert median(recorded.times[1, Kind.F]) < median(whole) / 1e6


def event(name: str, ts: float, dur: float, category: str = "user_annotation", tid: int = 1) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": category, "ts": ts, "dur": dur, "tid": tid, "pid": 1}


def test_waiting_at_the_beginning_of_a_range_does_not_count(write: Write) -> None:
    trace = [
        *(event("PP:1F0", t, 100) for t in (0, 1000)),
        *(event("aten::add", t + 90, 5, "cpu_op") for t in (0, 1000)),
        event("aten::mul", 1001, 5, "cpu_op", tid=2),  # another thread's
        event("PP:1B0", 2000, 50),
        event("PP:1B0", 3000, 50),
        event("aten::add", 3020, 5, "cpu_op"),
        event("PP:1SEND_B0", 3050, 7),
        event("PP:(0F1;1B0)OVERLAP_F_B", 3060, 7),
        {"ph": "M", "name": "PP:9F9"},
    ]
    recorded = read_recorded(write({"traceEvents": trace}))
    assert recorded.times == {(1, Kind.F): pytest.approx([1e-5]), (1, Kind.B): pytest.approx([3e-5])}
    assert recorded.rank is None


def launched(number: int, at: float, begin: float, duration: float, thread: int = 1, stream: int = 7) -> list[dict[str, Any]]:
    """A kernel, and the call that launched it."""
    call = event("cudaLaunchKernel", at, 2, "cuda_runtime", thread)
    kernel = event("gemm", begin, duration, "kernel", stream)
    return [each | {"args": {"correlation": number}} for each in (call, kernel)]


def test_what_an_operation_launched_counts_where_a_trace_has_a_gpu(write: Write) -> None:
    """From the begin of its first kernel to the end of its last one, whichever thread launched them, on the stream that computes;
    an operation that launched nothing takes no time."""
    trace = [
        *(event("PP:1F0", t, 50) for t in (0, 10000)),
        *(event("PP:1I0", t + 60, 50) for t in (0, 10000)),
        *(event("PP:0W0", t + 120, 5) for t in (0, 10000)),
        *(event("PP:1F0", t + 900, 9, "gpu_user_annotation", tid=7) for t in (0, 10000)),
        *(event("aten::add", t, 40, "cpu_op") for t in (1, 10001)),
        *launched(1, 5, 900, 10),
        *launched(2, 10005, 10900, 10),
        *launched(3, 10040, 10950, 30),
        *launched(4, 10070, 11000, 100, thread=2),
        *launched(5, 10080, 11200, 100, thread=2),
        *launched(6, 10015, 10020, 5000, stream=20),  # a message, which waits for long
        *launched(7, 10015, 10521, 500, stream=20)[1:],  # its launch is not in the trace
        *launched(8, 65, 1000, 1),
    ]
    recorded = read_recorded(write({"traceEvents": trace}, pack=True))
    assert recorded.times == {
        (1, Kind.F): pytest.approx([8e-5]),
        (1, Kind.I): pytest.approx([3e-4]),
        (0, Kind.W): [0.0],
    }
    assert [(str(ran.op), ran.begin, ran.end) for ran in recorded.steps[2]] == [
        ("1F0", pytest.approx(0.0109), pytest.approx(0.01098)),
        ("1I0", pytest.approx(0.011), pytest.approx(0.0113)),
        ("0W0", pytest.approx(0.0113), pytest.approx(0.0113)),
    ]


def test_a_real_trace_of_a_gpu() -> None:
    """An H200, zb-v on one rank, beside what StageTimer measured in the same run; a layer alone took 4.0 ms for F, 4.7 for I, 2.9
    for W. In stage 0 PyTorch runs the whole backward as W."""
    recorded = read_recorded(str(DATA / "torch_gpu_trace.json.gz"), 0, "layer .*")
    timer = {"0F": 4.181, "0I": 0.001, "0W": 8.462, "1F": 12.765, "1I": 15.068, "1W": 11.460}
    found = {f"{stage}{kind.name}": 1e3 * median(times) for (stage, kind), times in recorded.times.items()}
    assert found == pytest.approx(timer, rel=0.05, abs=0.002)
    assert dict(recorded.blocks) == {0: ("layer 0",), 1: ("layer 1", "layer 2", "layer 3")}
    for stage, layers in enumerate((1, 3)):
        for before, *parts, after in recorded.parts[stage, Kind.F]:
            assert before + after < 1e-4
            assert parts == pytest.approx([sum(parts) / layers] * layers, rel=0.15)
    ran = recorded.steps[1]
    assert all(a.end <= b.begin for a, b in pairwise(ran))


UNREADABLE: dict[str, tuple[Any, str]] = {
    "no JSON": ("PP:0F0", "not a JSON file"),
    "a list": ([], "neither a timing record"),
    "something else": ({"a": 1}, "neither a timing record"),
    "another version": (record(0, {0: FUSED[0]}) | {"ppopt_timing": 2}, "expected a timing record of version 1, got 2"),
    "one step": (record(0, {0: {"F": [[1.0]], "B": [[1.0]]}}), "no stage ran after the first 1 step"),
    "not a time": (record(0, {0: {"F": steps(0.1, -1.0)}}), "not as expected"),
    "not a number": (record(0, {0: {"F": [[1.0], [None]]}}), "not as expected"),
    "another kind": (record(0, {0: {"X": steps(1.0)}}), "not as expected"),
    "no stages": ({"ppopt_timing": 1}, "not as expected"),
    "a trace of something else": ({"traceEvents": [event("forward", 0, 1)]}, "no ranges named PP:"),
    "a trace without operations": ({"traceEvents": [event("PP:0F0", 0, 1)] * 2}, "no operations"),
    "an event without time": ({"traceEvents": [{"ph": "X", "name": "PP:0F0", "cat": "user_annotation"}]}, "not as expected"),
}


@pytest.mark.parametrize(("tree", "message"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_is_no_record_is_refused_by_name(tree: Any, message: str, write: Write) -> None:
    with pytest.raises(ProfileError, match=message) as error:
        read_recorded(write(tree, "file.json"))
    assert "file.json: " in str(error.value)


def test_a_broken_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": []}')[:-6])
    with pytest.raises(ProfileError, match="cannot be read"):
        read_recorded(str(path))


INCOMPLETE: dict[str, tuple[list[Record], str]] = {
    "a stage in no file": ([record(0, {0: SPLIT[0]}), record(1, {2: SPLIT[1]})], "stage 1 of 0..2 is in no file"),
    "a stage on two ranks": ([record(0, {0: SPLIT[0], 1: SPLIT[1]}), record(1, {1: SPLIT[1]})], "stage 1 is in"),
    "two runs": ([record(0, {0: SPLIT[0]}), record(1, {1: SPLIT[1]}, microbatches=4)], "has 3 microbatches"),
    "no forward": ([record(0, {0: {"B": steps(1.0)}})], "stage 0 never ran F"),
    "no backward": ([record(0, {0: {"F": steps(1.0)}})], "stage 0 never ran W"),
    "I and W of some": ([record(0, {0: SPLIT[0]}), record(1, {1: FUSED[1], 2: SPLIT[1]})], "stage 1 never ran I"),
    "no B of some": ([record(0, {0: FUSED[0]}), record(1, {1: {"F": steps(1.0)}})], "stage 1 never ran B"),
}


@pytest.mark.parametrize(("records", "message"), INCOMPLETE.values(), ids=INCOMPLETE.keys())
def test_what_is_missing_is_said(records: list[Record], message: str, write: Write) -> None:
    with pytest.raises(ProfileError, match=message):
        model_text(profiled(write, *records), "")


def test_times_of_nothing_at_all_are_a_model(write: Write) -> None:
    nothing = {0: {"F": steps(0.0), "B": steps(0.0)}}
    assert model_of_text(model_text(profiled(write, record(0, nothing, ranks=1)), ""), "text").pipeline.costs.forward == (0,)


@pytest.mark.parametrize("scale", [1e-7, 1e-4, 1.0, 300.0])
def test_four_digits_are_kept_whatever_the_scale(scale: float, write: Write) -> None:
    seconds = {0: {"F": steps(1.23456789 * scale), "B": steps(2.0 * scale)}}
    forward = model_of_text(model_text(profiled(write, record(0, seconds, ranks=1)), ""), "text").pipeline.costs.forward
    assert float(forward[0]) == pytest.approx(1234.6 * scale, rel=1e-3)  # type: ignore[index]
