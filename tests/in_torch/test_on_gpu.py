"""What StageTimer and the profiler measure on a GPU: against each other, and against the layers measured alone.

One rank holds both stages, so that one GPU is enough. Without a GPU nothing of this runs.
"""

import json
import statistics
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ppopt.files.profile import combine
from ppopt.files.profiled_layers import named_layers
from ppopt.files.recorded import read_files
from ppopt.files.torch_csv import lines_of
from ppopt.files.torch_export import actions_of
from ppopt.named import find
from ppopt.op import Kind
from ppopt.pipeline import Pipeline

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")]
HIDDEN, TOKENS, MICROBATCHES, STEPS = 4096, 4096, 4, 6
LAYERS = (1, 3)
"""Of the two stages."""


def layer() -> Any:
    import measure_layers

    from ppopt.transformer import Transformer

    sizes = Transformer(layers=1, hidden=HIDDEN, heads=HIDDEN // 128, vocabulary=1000, ffn=4 * HIDDEN)
    return measure_layers.decoder_of(sizes, TOKENS)


def stage(first: int, layers: int) -> Any:
    """Named layers, one after the other; the output is no view."""
    import torch

    class Stage(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(layer() for _ in range(layers))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for number, each in enumerate(self.layers, first):
                with torch.profiler.record_function(f"layer {number}"):
                    x = each(x)
            return x

    return Stage().to("cuda", torch.bfloat16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record, a profiler's trace and the times of one layer alone, all of zb-v on one rank."""
    import measure_layers
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    from ppopt.files.torch_timing import StageTimer

    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    place = tmp_path_factory.mktemp("gpu")
    (place / "schedule.csv").write_text("".join(lines_of(actions_of(find("zb-v").schedule(Pipeline(1, MICROBATCHES))))))
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method=f"file://{place}/meeting", rank=0, world_size=1)
    try:
        stages = [
            PipelineStage(stage(sum(LAYERS[:i]), layers), i, len(LAYERS), torch.device("cuda", 0))
            for i, layers in enumerate(LAYERS)
        ]
        loss = torch.nn.functional.mse_loss
        schedule = _PipelineScheduleRuntime(stages, MICROBATCHES, loss_fn=loss)
        schedule._load_csv(str(place / "schedule.csv"), format="compute_only")
        inputs, target = torch.randn(2, MICROBATCHES, TOKENS, HIDDEN, dtype=torch.bfloat16, device="cuda")
        timer = StageTimer(schedule)
        for _ in range(STEPS):
            schedule.step(inputs, target=target)
        torch.cuda.synchronize()
        timer.save(str(place / "timing-0.json"))
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profiler:
            for _ in range(3):
                schedule.step(inputs, target=target)
            torch.cuda.synchronize()
        profiler.export_chrome_trace(str(place / "trace-0.json"))
    finally:
        dist.destroy_process_group()
    alone = layer().to("cuda", torch.bfloat16)
    state = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16, device="cuda").requires_grad_()
    found = measure_layers.measured(alone, [state], "cuda", 20, 5, compiled=False)
    (place / "alone.json").write_text(json.dumps([found.forward, found.backward_input, found.backward_weight, found.kept]))
    return place


def medians(folder: Path, pattern: str) -> dict[tuple[int, Kind], float]:
    """Milliseconds by stage and kind."""
    profile = combine(read_files([str(path) for path in folder.glob(pattern)], 1, "layer .*"))
    return {(stage, kind): 1e3 * statistics.median(times) for (stage, kind), times in profile.times.items()}


def test_record_and_trace_agree(folder: Path) -> None:
    record, trace = medians(folder, "timing-*.json"), medians(folder, "trace-*.json")
    assert set(record) == set(trace) == {(stage, kind) for stage in (0, 1) for kind in (Kind.F, Kind.I, Kind.W)}
    for family, time in record.items():
        assert trace[family] == pytest.approx(time, rel=0.15, abs=0.01), family


def test_layers_take_what_one_takes_alone(folder: Path) -> None:
    """In stage 0 PyTorch runs the whole backward as W, without the gradient of the input."""
    forward, backward_input, backward_weight, kept = json.loads((folder / "alone.json").read_text())
    record = medians(folder, "timing-*.json")
    assert record[0, Kind.F] == pytest.approx(forward, rel=0.2)
    assert record[1, Kind.F] == pytest.approx(3 * forward, rel=0.2)
    assert record[0, Kind.W] == pytest.approx(backward_input + backward_weight, rel=0.25)
    assert record[1, Kind.I] + record[1, Kind.W] == pytest.approx(3 * (backward_input + backward_weight), rel=0.25)
    held = [stage["activation_bytes"] for stage in json.loads((folder / "timing-0.json").read_text())["stages"]]
    output = 2 * TOKENS * HIDDEN  # a stage keeps what it puts out, too
    assert held == [kept + output, 3 * kept + output]


def test_the_trace_has_the_layers_of_the_stages(folder: Path) -> None:
    profile = combine(read_files([str(folder / "trace-0.json")], 1, "layer .*"))
    assert profile.blocks == {0: ("layer 0",), 1: ("layer 1", "layer 2", "layer 3")}
    layers = named_layers(profile, "each")
    names, forward = zip(*((group.name, group.times["forward"]) for group in layers.groups), strict=True)
    assert names == ("layer 0", "layer 1", "layer 2", "layer 3", "after layer 3")  # the last is the loss
    assert forward[:4] == pytest.approx([statistics.mean(forward[:4])] * 4, rel=0.2)
