"""What StageTimer measures in a real run, and the model file that comes of it."""

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import run_in_torch

from ppopt.files.profile import combine, durations, model_text
from ppopt.files.recorded import read_recorded
from ppopt.files.torch_csv import lines_of
from ppopt.files.torch_export import actions_of
from ppopt.named import find
from ppopt.op import Kind
from ppopt.pipeline import Pipeline

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")]
SLEEP = {0: 0.03, 1: 0.002, 2: 0.012, 3: 0.004}
"""Seconds that the forward of each stage sleeps at least."""


def sleepy(stage: int) -> Any:
    import torch

    block = run_in_torch.transformer_block(stage)

    class Sleepy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = block

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(SLEEP[stage])
            result: torch.Tensor = self.block(x)
            return result

    return Sleepy()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of a run with split backwards (zb-v on two ranks, four stages) and of one with fused ones."""
    whole = tmp_path_factory.mktemp("records")
    for name in ("zb-v", "hanayo"):
        place = whole / name
        place.mkdir()
        path = place / "schedule.csv"
        path.write_text("".join(lines_of(actions_of(find(name).schedule(Pipeline(2, 4))))))
        (outcome,) = run_in_torch.run_group([run_in_torch.job_of(str(path))], sleepy, steps=4, record=str(place))
        assert outcome.agrees  # the stopwatch changes no gradient
    return whole


def test_every_operation_of_all_steps_but_the_first_is_measured(folder: Path) -> None:
    recorded = [read_recorded(str(folder / "zb-v" / f"timing-{rank}.json")) for rank in (0, 1)]
    profile = combine(recorded)
    assert profile.held == ((0, 3), (1, 2))
    assert {family: len(samples) for family, samples in profile.times.items()} == {
        (stage, kind): 12 for stage in range(4) for kind in (Kind.F, Kind.I, Kind.W)
    }


def test_forwards_take_as_long_as_they_sleep_and_hold_no_waiting(folder: Path) -> None:
    profile = combine([read_recorded(str(path)) for path in sorted(folder.glob("*/timing-*.json"))])
    forward = durations(profile)[0]["forward"]
    assert all(seconds >= SLEEP[stage] for stage, seconds in enumerate(forward))
    assert sorted(range(4), key=forward.__getitem__) == sorted(range(4), key=SLEEP.__getitem__)
    assert max(forward[1:]) < SLEEP[0]  # stage 1 waits for stage 0 in every step


def test_the_model_file_holds_what_was_measured(folder: Path) -> None:
    text = model_text(combine([read_recorded(str(path)) for path in sorted(folder.glob("*/timing-*.json"))]), "sleepy")
    for key in ("forward", "backward_input", "backward_weight", "backward"):
        assert any(line.startswith(f"{key} = ") and line.endswith("# measured") for line in text.splitlines())
    assert "not measured" not in text


def test_bytes_are_those_of_what_autograd_keeps(folder: Path) -> None:
    recorded = read_recorded(str(folder / "zb-v" / "timing-1.json"))
    elements = run_in_torch.SAMPLES * run_in_torch.TOKENS * run_in_torch.WIDTH
    for stage in (1, 2):  # at least: the inputs of two norms and of seven products, and the output
        assert recorded.activation[stage] >= 8 * 8 * elements
        assert recorded.activation[stage] <= 8 * 40 * elements


def test_a_schedule_of_another_kind_is_refused() -> None:
    from ppopt.files.torch_timing import StageTimer

    with pytest.raises(TypeError, match="is tested with PyTorch"):
        StageTimer(object())
