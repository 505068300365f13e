"""Latency and occupancy from messages of several sizes."""

import numpy as np
import pytest
from hypothesis import strategies as st

from ppopt.files.link_fit import fit, fits, said_of
from ppopt.files.model import model_of_text
from ppopt.files.profile import combine, model_text
from ppopt.files.recorded import ProfileError, Recorded
from ppopt.op import Kind
from tests.support.tiers import drawn


def test_a_line_is_recovered() -> None:
    found = fit({1000: [0.0030], 2000: [0.0040], 4000: [0.0060]})
    assert (found.latency, found.per_byte, found.sizes) == (pytest.approx(0.002), pytest.approx(1e-6), (1000, 2000, 4000))
    assert found.residual == pytest.approx(0, abs=1e-12)


def test_medians_of_each_size_count_and_the_residual_is_the_largest() -> None:
    found = fit({1000: [0.003, 0.003, 9.0], 2000: [0.004, 0.0, 0.0041], 4000: [0.006]})
    assert found.residual == pytest.approx(0, abs=1e-9)
    bent = fit({1: [1.0], 2: [3.0], 3: [2.0]})  # 1.0 + 0.5 x; the middle is off by 1 of 3
    assert (bent.latency, bent.per_byte, bent.residual) == (pytest.approx(1), pytest.approx(0.5), pytest.approx(0.5))


@drawn(20, 400, st.dictionaries(st.integers(1, 10**6), st.floats(1e-6, 1.0), min_size=2, max_size=6))
def test_the_line_is_numpys_where_that_is_no_negative_time(times: dict[int, float]) -> None:
    found = fit({size: [time] for size, time in times.items()})
    slope, begin = np.polyfit(list(times), list(times.values()), 1)
    if slope >= 0 and begin >= 0:
        assert (found.latency, found.per_byte) == (pytest.approx(begin, abs=1e-8), pytest.approx(slope, rel=1e-5, abs=1e-12))
    assert found.latency >= 0
    assert found.per_byte >= 0


def test_one_size_is_latency_and_larger_messages_that_are_faster_take_no_longer() -> None:
    assert (fit({64: [1.0, 2.0, 9.0]}).latency, fit({64: [1.0]}).per_byte) == (2, 0)
    assert (fit({1: [4.0], 2: [2.0]}).latency, fit({1: [4.0], 2: [2.0]}).per_byte) == (3, 0)
    steep = fit({1: [1.0], 2: [4.0]})  # the line would begin at -2; the best one from 0 on is 9/5
    assert (steep.latency, steep.per_byte) == (0, pytest.approx(1.8))


def test_how_good_the_lines_are_is_said() -> None:
    assert said_of(fits({(0, 1): {1: [1.0], 2: [3.0], 3: [2.0]}})).endswith("3 sizes (1 to 3 bytes), off by at most 50.0 %")
    assert said_of(fits({(0, 1): {1: [1.0], 2: [3.0]}})).endswith("2 sizes (1 to 2 bytes), which goes through both")


def ranks(messages: dict[int, list[float]], output: dict[int, float]) -> list[Recorded]:
    """Two ranks of a loop with two stages each."""
    times = {kind: [0.01, 0.02, 0.03] for kind in (Kind.F, Kind.B)}
    files = []
    for rank in (0, 1):
        of = {(stage, kind): samples for stage in (rank, rank + 2) for kind, samples in times.items()}
        files.append(Recorded(f"{rank}", rank, 3, of, ranks=2, output={stage: output[stage] for stage in (rank, rank + 2)}))
    files[0].links[0, 1] = messages
    return files


def test_the_model_file_has_latency_and_the_occupancy_of_the_largest_message() -> None:
    """Stages 0 and 2 send 1000 and 3000 bytes from device 0 to 1, stage 1 sends 2000 back; gradients are as large."""
    messages = {1000: [0.003], 2000: [0.004], 4000: [0.006]}
    text = model_text(combine(ranks(messages, {0: 1000, 1: 2000, 2: 3000, 3: 9000})), "")
    links = model_of_text(text, "text").pipeline.links
    assert links.latency == ((0, 2), (2, 0))
    assert links.occupancy == ((0, 3), (3, 0))
    assert "a line through messages of 3 sizes (1000 to 4000 bytes), off by at most 0.0 %" in text


def test_messages_of_one_size_say_nothing_of_occupancy() -> None:
    text = model_text(combine(ranks({1000: [0.003]}, dict.fromkeys(range(4), 1000.0))), "")
    assert "occupancy" not in text
    assert model_of_text(text, "text").pipeline.links.latency == ((0, 3), (3, 0))


def test_how_far_samples_are_apart_is_said() -> None:
    """Of 10, 20 and 30 ms the middle half is from 15 to 25."""
    text = model_text(combine(ranks({}, dict.fromkeys(range(4), 1.0))), "")
    assert (
        "# Half of the samples lie within: F -25.0 to +25.0 %, B -25.0 to +25.0 % of their median, in the widest stage." in text
    )


def test_a_stage_that_ran_in_pairs_alone_is_refused() -> None:
    files = ranks({}, dict.fromkeys(range(4), 1.0))
    del files[1].times[3, Kind.F]
    files[1].pairs[3] = [0.03]
    with pytest.raises(ProfileError, match="stage 3 never ran F, but in overlapped pairs"):
        model_text(combine(files), "")
