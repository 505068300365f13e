"""A step of a run: which one, of which ranks, on one clock."""

import json
from pathlib import Path
from typing import Any

import pytest

from ppopt.files.recorded import Clock, ProfileError
from ppopt.runs import read_run
from tests.support.places import DATA
from tests.support.runs import SPLIT, event_times, planned, primus, times_of, written

TRACES = [str(DATA / f"torch_trace_{rank}.json") for rank in (0, 1)]


def test_times_are_those_of_the_schedule_from_its_first_operation_on(tmp_path: Path) -> None:
    schedule = planned("1f1b")
    run = read_run(written(tmp_path, event_times(schedule)))
    assert (run.step, run.held, run.warnings, run.clocks.offsets) == (1, ((0,), (1,), (2,), (3,)), (), (0, 0, 0, 0))
    for row, times in zip(run.rows, times_of(schedule), strict=True):
        assert [str(ran.op) for ran in row] == [str(op) for op, _, _ in times]
        assert [1000 * ran.end for ran in row] == pytest.approx([end for _, _, end in times])


def test_ranks_without_a_common_clock_are_put_on_one(tmp_path: Path) -> None:
    """Latencies are the same both ways, so what is in the middle is right."""
    schedule = planned("zb-v", costs=SPLIT)
    run = read_run(written(tmp_path, primus(schedule, (0, 1.5, 3, 4.25), scales=(0.9, 1, 1.3))), placement="wave")
    assert (run.step, run.clocks.fitted) == (2, True)
    assert run.clocks.offsets == pytest.approx((0, 0.0015, 0.003, 0.00425))
    for row, times in zip(run.rows, times_of(schedule), strict=True):
        assert [1000 * ran.begin for ran in row] == pytest.approx([begin for _, begin, _ in times])


def test_chunks_on_another_placement_than_they_were_are_found_out(tmp_path: Path) -> None:
    paths = written(tmp_path, primus(planned("zb-v", costs=SPLIT), (0, 0, 0, 0)))
    assert read_run(paths, placement="wave").clocks.early == 0
    assert read_run(paths).clocks.early > 0.002


def test_the_step_is_the_one_of_median_length_without_the_first(tmp_path: Path) -> None:
    paths = written(tmp_path, primus(planned("1f1b", 2, 4), (0, 0), scales=(3, 1.2, 1, 1.1, 5)))
    run = read_run(paths)
    assert run.step == 4  # of 1, 1.1, 1.2 and 5 the lower one in the middle
    assert list(run.lengths) == [1, 2, 3, 4, 5]
    assert read_run(paths, step=5).step == 5
    assert read_run(paths, skip=4).step == 5
    with pytest.raises(ProfileError, match=r"pp_rank_0\.json: there is no step 6 in all files; expected one of 1, 2, 3, 4, 5"):
        read_run(paths, step=6)


def test_of_several_ranks_that_are_one_device_the_first_is_shown(tmp_path: Path) -> None:
    files = event_times(planned("1f1b", 2, 4))
    others = [(name.replace("DP_rank_0", "DP_rank_1"), dict.fromkeys(tree, 1.0)) for name, tree in files]
    run = read_run(written(tmp_path, [*others, *files]))
    assert all("DP_rank_0" in source for source in run.sources)
    assert run.warnings == ("several ranks are one device; the first of each is shown, 2 files left out",)


def test_a_device_that_no_file_is_of_is_said_and_its_row_is_empty(tmp_path: Path) -> None:
    paths = written(tmp_path, event_times(planned("1f1b")))
    run = read_run([paths[0], paths[2], paths[3]])
    assert [bool(row) for row in run.rows] == [True, False, True, True]
    assert run.warnings == ("device 1 of 4 is in no file",)


def test_operations_that_are_missing_are_said(tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        del tree["backward-2-start"], tree["backward-2-end"]

    run = read_run(written(tmp_path, event_times(planned("1f1b", 2, 4)), change))
    assert run.warnings == ("step 1 lacks 1 operation: 0B2",)


def test_two_operations_at_once_are_refused_unless_it_is_rounding(tmp_path: Path) -> None:
    def later(end: float) -> Any:
        return lambda tree: tree.update({"forward-0-end": end})

    files = event_times(planned("1f1b", 2, 4))
    assert read_run(written(tmp_path, files, later(4.2105))).rows[0][1].begin == pytest.approx(0.0040005)
    with pytest.raises(ProfileError, match=r"device 0 ran two operations at once in step 1: 0F0 from 0\.21 to 6 ms and 0F1 from"):
        read_run(written(tmp_path, files, later(6.0)))


def test_real_traces_of_the_cpu() -> None:
    run = read_run(TRACES)
    assert (run.clocks.basis, run.step, len(run.lengths)) == (Clock.OWN, 3, 4)
    assert run.clocks.uncertain == pytest.approx(0.000653, abs=1e-6)
    ends = {str(ran.op): (ran.begin, ran.end) for row in run.rows for ran in row}
    assert min(begin for begin, _ in ends.values()) == 0
    for m in range(4):
        assert ends[f"1F{m}"][0] >= ends[f"0F{m}"][1]
        assert ends[f"0B{m}"][0] >= ends[f"1I{m}"][1]


def test_traces_on_clocks_of_hosts_are_taken_as_they_are(tmp_path: Path) -> None:
    """Rank 1's trace begins 2.903 ms later by its host's clock: what the messages say, too."""
    paths = []
    for rank, path in enumerate(TRACES):
        tree = json.loads(Path(path).read_text()) | {"baseTimeNanoseconds": 1_700_000_000_000_000_000 + 2_903_000 * rank}
        (tmp_path / f"{rank}.json").write_text(json.dumps(tree))
        paths.append(str(tmp_path / f"{rank}.json"))
    run = read_run(paths)
    assert (run.clocks.basis, run.clocks.fitted, run.clocks.offsets) == (Clock.HOST, False, (0, 0))
    begins = [ran.begin for ran in run.rows[1]]
    assert begins == pytest.approx([ran.begin for ran in read_run(TRACES).rows[1]], abs=1e-6)


def record(rank: int, **more: Any) -> dict[str, Any]:
    """A timing record of one stage: two steps with two microbatches."""
    seconds = {"F": [[0.001], [0.001, 0.001]], "B": [[0.002, 0.002], [0.002, 0.002]]}
    begins = {"F": [[0.001], [0.020, 0.021]], "B": [[0.004, 0.006], [0.024, 0.027]]}
    shifted = {kind: [[begin + 0.001 * rank for begin in step] for step in steps] for kind, steps in begins.items()}
    numbers = {"F": [[1], [0, 1]], "B": [[0, 1], [0, 1]]}
    stage = {"stage": rank, "seconds": seconds, "began": shifted, "microbatch": numbers} | more
    head = {"ppopt_timing": 1, "rank": rank, "ranks": 2, "microbatches": 2, "clock_ns": 10**18}
    return head | {"stages": [stage], "links": []}


def test_timing_records_say_when_operations_began(tmp_path: Path) -> None:
    run = read_run(written(tmp_path, [(f"{rank}.json", record(rank)) for rank in (0, 1)]))
    assert (run.step, run.clocks.basis) == (2, Clock.HOST)
    assert [[str(ran.op) for ran in row] for row in run.rows] == [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1F1", "1B0", "1B1"]]
    first = read_run([str(tmp_path / f"{rank}.json") for rank in (0, 1)], step=1)
    assert first.warnings == ("step 1 lacks 2 operations: 0F0, 1F0",)


def test_records_without_begins_are_refused(tmp_path: Path) -> None:
    old = record(0)
    del old["stages"][0]["began"]
    with pytest.raises(ProfileError, match=r"0\.json: does not say when operations began; record it again"):
        read_run(written(tmp_path, [("0.json", old)]))


def test_files_of_two_kinds_are_refused(tmp_path: Path) -> None:
    files = [("0.json", record(0)), event_times(planned("1f1b", 2, 2))[1]]
    with pytest.raises(ProfileError, match=r"0\.json is one of timing records, .* of event times; give the files of one run"):
        read_run(written(tmp_path, files))
