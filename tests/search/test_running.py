"""What a runtime has no way to do is refused before anything is searched."""

from typing import Any

import pytest

from ppopt.pipeline import Memory, Mix, Offload, Pipeline, PipelineError
from ppopt.search import solve
from tests.support.many import each

UNKNOWN: dict[str, dict[str, Any]] = {
    "pipeline.microbatch_costs: what megatron makes of": {"mix": Mix(microbatch_costs=[1, 2])},
    "pipeline.lengths: what megatron makes of": {"mix": Mix(lengths=[1, 2], length=1)},
    "pipeline.backward_routes: megatron runs the backward": {"routes": ((0, 1),), "backward_routes": ((1, 0),)},
    "memory.weights_on: megatron keeps the weights": {"memory": Memory(weights=1, weights_on=((1, 0),))},
    "offload: --runtime megatron has no way": {"offload": Offload(time=1)},
}


def test_what_megatron_has_no_way_to_do_is_named() -> None:
    def refused(message: str, changes: dict[str, Any]) -> None:
        with pytest.raises(PipelineError, match=f"^{message}"):
            solve(Pipeline(2, 2, **changes), runtime="megatron", seconds=5)

    each(((message, (message, changes)) for message, changes in UNKNOWN.items()), lambda case: refused(*case))
