"""Files of runs of other runtimes: Megatron's event times, dumps of Primus; what is broken is refused by file and key."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppopt.files.model import model_of_text
from ppopt.files.profile import combine, model_text
from ppopt.files.recorded import Clock, ProfileError, read_files, read_recorded
from ppopt.op import Kind, Pair
from tests.support.runs import SPLIT, Tree, event_times, planned, primus, times_of, written

EXAMPLE = {
    **{"forward-0-start": 0.21, "forward-0-end": 4.18, "forward-1-start": 4.20, "forward-1-end": 8.17},
    **{"backward-0-start": 16.62, "backward-0-end": 24.71, "backward-1-start": 28.74, "backward-1-end": 36.81},
    "total-execution-time": 37.20,
}
"""Device 0 of two, two microbatches."""
NAME = "event_times_PP2_VPP1_TPxCPxDP_rank_0_pp_rank_0_rank_0.json"


def test_event_times_of_one_rank(tmp_path: Path) -> None:
    (path,) = written(tmp_path, [(NAME, EXAMPLE)])
    found = read_recorded(path)
    assert (found.rank, found.device, found.route, found.microbatches, found.clock) == (0, 0, (0, 1), 2, Clock.BARRIER)
    assert found.times[0, Kind.F] == pytest.approx([0.00397, 0.00397])
    assert found.times[0, Kind.B] == pytest.approx([0.00809, 0.00807])
    assert [str(ran.op) for ran in found.steps[1]] == ["0F0", "0F1", "0B0", "0B1"]


@pytest.mark.parametrize("chunks", [1, 2])
def test_event_times_have_the_times_of_the_schedule(chunks: int, tmp_path: Path) -> None:
    schedule = planned("1f1b" if chunks == 1 else "interleaved-1f1b", 2, 4, chunks=chunks)
    for file, row in zip(read_files(written(tmp_path, event_times(schedule))), times_of(schedule), strict=True):
        assert [ran.op for ran in file.steps[1]] == [op for op, _, _ in row]
        assert [ran.begin for ran in file.steps[1]] == pytest.approx([(begin + 0.21) / 1000 for _, begin, _ in row])


@pytest.mark.parametrize(("name", "placement"), [("zb-v", "wave"), ("interleaved-zb", "loop"), ("zb-h1", "loop")])
def test_a_dump_has_the_operations_of_the_schedule(name: str, placement: str, tmp_path: Path) -> None:
    schedule = planned(name, 2, 4, SPLIT)
    paths = written(tmp_path, primus(schedule, (0, 1), scales=(1, 2, 3)))
    for file, row in zip(read_files(paths, placement=placement), times_of(schedule), strict=True):
        assert [ran.op for ran in file.steps[2]] == [op for op, _, _ in row]
        assert (file.clock, sorted(file.steps)) == (Clock.OWN, [1, 2, 3])
        assert len(file.times[row[0][0].stage, Kind.F]) == 2 * 4  # type: ignore[union-attr]  # without the first step


def test_pairs_of_a_dump_are_one_operation(tmp_path: Path) -> None:
    """DualPipe's V has them; a model file says how long they are."""
    schedule = planned("dualpipe-v", 2, 4, SPLIT)
    files = read_files(written(tmp_path, primus(schedule, (0, 0))), 0, placement="wave")
    assert [[ran.op for ran in file.steps[1]] for file in files] == [[op for op, _, _ in row] for row in times_of(schedule)]
    assert any(isinstance(ran.op, Pair) for file in files for ran in file.steps[1])
    costs = model_of_text(model_text(combine(files), ""), "text").pipeline.costs
    assert set(map(float, costs.overlap)) == {6}  # type: ignore[arg-type]  # a chunk has half of 4 + 8


@pytest.mark.parametrize("group_size", [None, 4])
def test_without_names_the_operations_are_those_of_megatrons_order(group_size: int | None, tmp_path: Path) -> None:
    from ppopt.named import find

    params = {} if group_size is None else {"group_size": group_size}
    pipeline = planned("interleaved-1f1b", 2, 4).pipeline
    schedule = find("interleaved-1f1b").schedule(pipeline, 2, **params)
    files = read_files(written(tmp_path, primus(schedule, (0, 1), named=False)), 0, group_size=group_size)
    assert [[ran.op for ran in file.steps[1]] for file in files] == [[op for op, _, _ in row] for row in times_of(schedule)]


def test_only_pytorch_runs_all_of_the_first_backward_at_once(tmp_path: Path) -> None:
    paths = written(tmp_path, primus(planned("zb-h1", 2, 4, SPLIT), (0, 1)))
    costs = model_of_text(model_text(combine(read_files(paths, 0)), ""), "text").pipeline.costs
    assert (costs.backward_input, costs.backward_weight) == ((5, 5), (3, 3))


# --- broken files ------------------------------------------------------------------------------------------------


def without(key: str) -> Callable[[Tree], object]:
    return lambda tree: tree.pop(key)


def having(key: str, value: Any) -> Callable[[Tree], object]:
    return lambda tree: tree.update({key: value})


EVENT_TIMES: dict[str, tuple[Callable[[Tree], object], str]] = {
    "no end": (without("backward-1-end"), "backward-1-end: missing; there is backward-1-start"),
    "no start": (without("forward-0-start"), "forward-0-start: missing; there is forward-0-end"),
    "a hole": (lambda tree: (tree.pop("forward-0-start"), tree.pop("forward-0-end"))[0], "forward-0-start: missing; there are 2"),
    "a misspelt key": (having("foward-0-start", 1.0), "foward-0-start: unknown; with VPP1 expected keys such as forward-0-start"),
    "a chunk": (having("forward-0-0-start", 1.0), "forward-0-0-start: unknown"),
    "no number": (having("forward-1-start", "4.2"), "forward-1-start: expected a finite number >= 0, got '4.2'"),
    "not finite": (having("forward-1-start", float("nan")), "forward-1-start: expected a finite number >= 0, got nan"),
    "negative": (having("forward-0-start", -0.1), "forward-0-start: expected a finite number >= 0, got -0.1"),
    "ends first": (having("backward-0-end", 16.0), "backward-0-end: expected a time from 16.62 on, got 16.0"),
    "no total": (having("total-execution-time", None), "total-execution-time: expected a finite number"),
    "nothing": (
        lambda tree: [tree.pop(key) for key in list(tree) if "-0-" in key or "-1-" in key],
        "forward-0-start: missing; no operation was run",
    ),
}


@pytest.mark.parametrize(("change", "message"), EVENT_TIMES.values(), ids=EVENT_TIMES.keys())
def test_broken_event_times_are_refused_by_key(change: Callable[[Tree], object], message: str, tmp_path: Path) -> None:
    (path,) = written(tmp_path, [(NAME, dict(EXAMPLE))], change)
    with pytest.raises(ProfileError) as error:
        read_recorded(path)
    assert str(error.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("times.json", "event times have their ranks in the name of the file"),
        (NAME.replace("pp_rank_0", "pp_rank_2"), "in the name of the file expected a pp_rank below PP2"),
        (NAME.replace("VPP1", "VPP2"), "forward-0-start: unknown; with VPP2 expected keys such as forward-1-0-start"),
    ],
)
def test_event_times_with_another_name_are_refused(name: str, message: str, tmp_path: Path) -> None:
    (path,) = written(tmp_path, [(name, EXAMPLE)])
    with pytest.raises(ProfileError, match=message):
        read_recorded(path)


def deep(*keys: Any, value: Any) -> Callable[[Tree], object]:
    def change(tree: Tree) -> None:
        *path, last = keys
        for key in path:
            tree = tree[key]
        tree[last] = value

    return change


PRIMUS: dict[str, tuple[Callable[[Tree], object], str]] = {
    "not a list": (deep("1", "fwd_start", value=3), "1.fwd_start: expected a list, got 3"),
    "no list": (lambda tree: tree["1"].pop("bwd_end"), "1.bwd_end: missing"),
    "a short list": (lambda tree: tree["2"]["fwd_end"].pop(), "2.fwd_end: expected 4 entries, as 2.fwd_start has, got 3"),
    "a short list of names": (lambda tree: tree["1"]["wgrad_chunk"].pop(), "1.wgrad_chunk: expected 4 entries"),
    "null": (deep("1", "bwd_start", 2, value=None), "1.bwd_start[2]: expected a finite number >= 0, got None"),
    "ends first": (deep("1", "fwd_end", 0, value=-0.0), "1.fwd_end[0]: expected a time from"),
    "a microbatch too many": (deep("1", "fwd_minibatch", 3, value=4), "1.fwd_minibatch[3]: expected a whole number from 0 to 3"),
    "half a microbatch": (deep("1", "fwd_minibatch", 3, value=2.5), "1.fwd_minibatch[3]: expected a whole number"),
    "twice": (deep("1", "fwd_minibatch", 3, value=2), "1.fwd_minibatch[3]: microbatch 2 of chunk 0 is there twice"),
    "another chunk": (deep("1", "bwd_chunk", 0, value=1), "1.bwd_chunk[0]: expected a whole number from 0 to 0 (vp_size is 1)"),
    "no iteration": (deep("total", value=1.0), "total: expected the number of an iteration"),
    "names of weights alone missing": (deep("1", "wgrad_minibatch", value=[]), "1.wgrad_minibatch: missing; Megatron's own"),
}


@pytest.mark.parametrize(("change", "message"), PRIMUS.values(), ids=PRIMUS.keys())
def test_broken_dumps_are_refused_by_key(change: Callable[[Tree], object], message: str, tmp_path: Path) -> None:
    paths = written(tmp_path, primus(planned("zb-h1", 2, 4, SPLIT), (-1, 0), scales=(1, 2)), change)
    with pytest.raises(ProfileError) as error:
        read_files(paths)
    assert str(error.value).startswith(f"{paths[0]}: {message}")


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    *dumps, config = written(tmp_path, primus(planned("zb-h1", 2, 4, SPLIT), (0, 0)))
    event = written(tmp_path, event_times(planned("1f1b", 2, 4)))
    refused: list[tuple[list[str], dict[str, Any], str]] = [
        (dumps, {}, "pp_rank_0.json: the sizes of the run are in the config.json beside it"),
        ([config], {}, "config.json: gives the sizes of a run alone"),
        ([config, config], {}, "is a config.json, too"),
        ([*dumps, config], {"placement": "wave"}, "vp_size: --placement wave needs several chunks, got 1"),
        ([*event, config], {}, "config.json: is of dumps of Primus, and there are none among the files"),
        (event, {"placement": "wave"}, "--placement wave is about dumps of Primus, and there are none among the files"),
        (event, {"group_size": 4}, "--group-size 4 is about dumps of Primus"),
    ]
    for paths, more, message in refused:
        with pytest.raises(ProfileError, match=message):
            read_files(paths, **more)
    sizes = {"pp_size": 2, "vp_size": 1, "num_mbs": 4}
    for key, message in (("num_mbs", "config.json: num_mbs: missing"), ("vp_size", "config.json: vp_size: missing")):
        Path(config).write_text(json.dumps({name: size for name, size in sizes.items() if name != key}))
        with pytest.raises(ProfileError, match=message):
            read_files([*dumps, config])
    Path(config).write_text(json.dumps(sizes | {"pp_size": 0}))
    with pytest.raises(ProfileError, match="pp_size: expected a whole number >= 1, got 0"):
        read_files([*dumps, config])
    Path(config).write_text(json.dumps({"pp_size": 1, "vp_size": 1, "num_mbs": 4}))
    with pytest.raises(ProfileError, match=r"pp_rank_1\.json: is of rank 1, but pp_size is 1"):
        read_files([dumps[1], config])


def test_two_numbers_of_microbatches_are_two_runs(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = written(tmp_path, event_times(planned("1f1b", 2, 4)))
    other = written(tmp_path / "other", event_times(planned("1f1b", 2, 6)))
    with pytest.raises(ProfileError, match=r"has 4 microbatches, .* 6"):
        combine(read_files([one[0], other[1]]))
    with pytest.raises(ProfileError, match="device 1, with stage 1, is in no file; give the files of all ranks"):
        combine(read_files(one[:1]))
