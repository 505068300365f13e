"""Parts of a pipeline in Python that are not what they have to be."""

from typing import Any

import pytest

from ppopt.pipeline import Layers, Pipeline, PipelineError

LAYER = {"name": "layer", "count": 4, "forward": 1, "backward": 2}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"costs": {"forward": 1}}, "costs: expected Costs(...), got {'forward': 1}"),
    ({"costs": None}, "costs: expected Costs(...), got None"),
    ({"links": 3}, "links: expected Links(...), got 3"),
    ({"memory": 4}, "memory: expected Memory(...), got 4"),
    ({"data_parallel": {}}, "data_parallel: expected DataParallel(...), got {}"),
    ({"layers": [LAYER]}, "layers: expected Layers(...), got [{'name'"),
    ({"mix": "choose"}, "pipeline.mix: expected Mix(...), got 'choose'"),
    ({"offload": {}}, "offload: expected Offload(...), got {}"),
    ({"chunks": 10**6, "placement": "loop"}, "pipeline.chunks: at most"),
]


@pytest.mark.parametrize(("parts", "problem"), BAD, ids=lambda value: value.split(":")[0] if isinstance(value, str) else "")
def test_another_class_is_refused_by_key(parts: dict[str, Any], problem: str) -> None:
    with pytest.raises(PipelineError) as caught:
        Pipeline(2, 4, **parts)
    assert str(caught.value).startswith(problem)


def test_none_is_possible_where_nothing_is_meant() -> None:
    assert Pipeline(2, 4, layers=None, offload=None) == Pipeline(2, 4)
    assert Pipeline(2, 4, layers=Layers([LAYER])).stages == 2
