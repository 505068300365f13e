"""The layers of a real run: blocks that a training script names, as PyTorch's profiler sees them."""

import time
from importlib.util import find_spec
from typing import Any

import pytest
import run_in_torch

from ppopt.files.model import model_of_text
from ppopt.files.profile import Profile, combine, durations, model_text
from ppopt.files.profiled_layers import named_layers
from ppopt.files.recorded import read_recorded
from ppopt.op import Kind
from tests.support.torch_steps import job_of, loaded, run_both, traced_steps

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")]
STAGES = (("tok_embeddings", "layers.0", "layers.1"), ("layers.2", "output"))
SLEEP = {"layers.0": 0.02, "layers.1": 0.02, "layers.2": 0.02, "output": 0.05}
"""Seconds that the forward of a block sleeps at least."""
BACKWARD = 0.03
"""Seconds that the backward of ``output`` sleeps; hooks give it its name."""
STEPS, MICROBATCHES = 3, 2


def stage_of(stage: int) -> Any:
    """Blocks with names as a training script gives them; those of the last stage name their backwards as well."""
    import torch
    from torch.profiler import record_function

    class Backward(torch.autograd.Function):
        """Nothing in the forward; its backward opens or closes the range of a block."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, name: str, ranges: dict[str, Any], begins: bool) -> torch.Tensor:
            ctx.name, ctx.ranges, ctx.begins = name, ranges, begins
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
            if ctx.begins:
                ctx.ranges[ctx.name] = record_function(ctx.name)
                ctx.ranges[ctx.name].__enter__()
                time.sleep(BACKWARD * (ctx.name == "output"))
            else:
                ctx.ranges.pop(ctx.name).__exit__(None, None, None)
            return gradient.clone(), None, None, None

    class Stage(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList([run_in_torch.transformer_block(10 * stage + i) for i in range(len(STAGES[stage]))])
            self.ranges: dict[str, Any] = {}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for name, block in zip(STAGES[stage], self.blocks, strict=True):
                if stage == 1:
                    x = Backward.apply(x, name, self.ranges, False)
                with record_function(name):
                    time.sleep(SLEEP.get(name, 0.0))
                    x = block(x)
                if stage == 1:
                    x = Backward.apply(x, name, self.ranges, True)
            return x

    return Stage()


def traced(rank: int, job: run_in_torch.Job, folder: str) -> None:
    """Some steps of one rank under the profiler."""
    traced_steps(loaded(job, rank, stage_of), rank, job, STEPS, folder)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    folder = tmp_path_factory.mktemp("traces")
    run_both(traced, job_of("1f1b", MICROBATCHES, folder), str(folder))
    return combine([read_recorded(str(trace)) for trace in sorted(folder.glob("trace-*.json"))])


def test_blocks_are_those_of_the_script_in_data_flow_order(measured: Profile) -> None:
    assert measured.blocks == dict(enumerate(STAGES))
    assert {len(rows) for rows in measured.parts.values()} == {(STEPS - 1) * MICROBATCHES}


def test_every_layer_takes_at_least_as_long_as_it_sleeps(measured: Profile) -> None:
    """In the forward, by name in the backward of the last stage, and all layers together as long as their stage."""
    layers = named_layers(measured, "each")
    found = {group.name: group.times for group in layers.groups}
    assert list(found) == [name for names in STAGES for name in names]
    for stage, names in enumerate(STAGES):
        for row in measured.parts[stage, Kind.F]:
            assert all(seconds >= SLEEP.get(name, 0.0) for name, seconds in zip(names, row[1:-1], strict=True))
        for key, values in durations(measured)[0].items():
            assert sum(found[name][key] for name in names) == pytest.approx(values[stage])
    assert found["output"]["backward"] >= BACKWARD
    assert found["layers.2"]["backward"] < found["output"]["backward"]
    assert any("; B by its own ranges" in note for note in layers.notes)


def test_the_file_is_solved_over_all_cuts(measured: Profile) -> None:
    from ppopt.search import solve

    text = model_text(measured, "blocks", (), named_layers(measured, "names"))
    model = model_of_text(text.replace("partition = [3, 2]", 'partition = "best"'), "text")
    result = solve(model, seconds=60, workers=1)
    assert result.reason == "optimal"
    assert sum(result.pipeline.counts) == 5
