"""A layout of another runtime as the partition of a model's layers, in files and on the command line."""

import json
from typing import Any

import pytest

from ppopt.files import ModelError
from ppopt.files.model import model_of_text
from tests.support.command import read, refused, run
from tests.support.layered_files import text

RECIPE = "Et*2|(t*2|)*34,t*3|(t*2|)*3,tL"
"""Llama-3-70B on 8 devices as it is published: 5 stages on each."""
NAMES = [["tok_embeddings", "layers.0", "layers.1"], ["layers.2"], [], ["layers.3", "layers.4", "layers.5", "norm", "output"]]


def pipeline(*words: object, **model: Any) -> dict[str, Any]:
    """The pipeline that a command gives results for."""
    found: dict[str, Any] = read("compare", "-", *words, stdin=text(**{"microbatches": 2, **model}))["model"]["pipeline"]
    return found


def test_the_recipe_of_an_82_layer_model() -> None:
    found = model_of_text(text(80, 8, 16, partition=RECIPE), "file").pipeline
    assert (found.placement, found.chunks) == ("loop", 5)
    assert found.counts == (3, *[2] * 34, 3, 2, 2, 2, 2)


@pytest.mark.parametrize("placement", [None, "loop", "any"])
def test_placement_and_chunks_follow(placement: str | None) -> None:
    given = {} if placement is None else {"placement": placement}
    expected = {"placement": "loop", "chunks": 2, "partition": [3, 1, 0, 4]}
    for words, more in ((("--partition", "Ett|t||tttL"), {}), ((), {"partition": "Ett|t||tttL"})):
        found = pipeline(*words, **given, **more)
        assert {key: found[key] for key in expected} == expected


def test_one_stage_on_each_device_is_linear() -> None:
    assert pipeline("--partition", "Et*4|ttL")["placement"] == "linear"
    assert pipeline("--partition", "Et*4|ttL", chunks=[2, 4], placement="any")["placement"] == "linear"
    assert pipeline("--partition", "Et*4|ttL", placement="linear")["chunks"] == 1


def test_a_layout_on_the_command_line_beats_the_chunks_of_the_file() -> None:
    assert pipeline("--partition", "Ett|t||tttL", chunks=3, placement="loop")["chunks"] == 2
    assert pipeline("--partition", "Ett|t||tttL", "-v", 2, chunks=3, placement="loop")["chunks"] == 2
    assert pipeline("--partition", "Ett|t||tttL", "--placement", "any")["placement"] == "loop"
    assert pipeline(partition="Ett|t||tttL", chunks=[2, 4])["chunks"] == 2


def test_lists_of_names() -> None:
    expected = [3, 1, 0, 4]
    assert pipeline("--partition", json.dumps(NAMES))["partition"] == expected
    assert pipeline(partition=NAMES)["partition"] == expected
    wave = pipeline(partition=NAMES, placement="wave")
    assert (wave["placement"], wave["partition"]) == ("wave", expected)
    automodel = [
        ["model.embed_tokens", *(f"model.layers.{i}" for i in range(3)), "model.rotary_emb"],
        [*(f"model.layers.{i}" for i in range(3, 6)), "model.norm", "lm_head", "model.rotary_emb"],
    ]
    assert pipeline(partition=automodel)["partition"] == [4, 4]
    megatron = [["embedding", *["decoder"] * 4], ["decoder", "decoder", "loss"]]
    assert pipeline(partition=megatron)["partition"] == [5, 3]


def test_how_good_a_layout_is() -> None:
    """Beside it the best cut, which is that of the same model left open; without, where it is not asked for."""
    words, model = ("solve", "-", "--workers", 1, "--partition"), text(4, microbatches=2)
    result = read(*words, "Et|t*3L", stdin=model)["result"]
    best = read(*words, "best", "--placement", "linear", stdin=model)["result"]
    assert result["partition"] == [2, 4]
    assert result["best_cut"]["partition"] == best["partition"]
    assert result["best_cut"]["value"] == result["best_cut"]["lower_bound"] == best["value"] < result["value"]
    shown = run(*words, "Et|t*3L", stdin=model).stdout
    assert f"this cut: {result['value']}; best cut: {best['value']} (lower bound {best['value']}): " in shown
    assert "% more than the best cut" in shown
    assert "best_cut" not in read(*words, "Et|t*3L", "--no-best-cut", stdin=model)["result"]
    assert '"best" looks for the best cut anyway' in refused(*words, "best", "--best-cut", stdin=model)


def test_multi_token_prediction() -> None:
    found = model_of_text(text(5, mtp=1, partition="Ettt|ttmL"), "file").pipeline
    assert found.counts == (4, 4)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"partition": "Ett|ttL"}, "the layout has 4, the model 6 (the first layer is the embedding"),
    ({"partition": RECIPE}, "40 stages, 5 on each of 8 devices; pipeline.chunks is 3"),
    ({"partition": "Ettt|t|tt|L"}, "for which the placement is loop; pipeline.placement is wave"),
    ({"partition": "Ettt|t|tt|L", "placement": "linear"}, "for which the placement is loop; pipeline.placement is linear"),
    ({"partition": "Ettt|tttL", "placement": "bidirectional"}, "the placement is linear or loop; pipeline.placement is bidirect"),
    ({"partition": "Ettt|tttL", "routes": [[1, 0]]}, "the placement is linear or loop; the routes are others"),
    (
        {"partition": "|Ettt|tt|tL"},
        "expected the embedding (E) on stage 0, where Megatron builds it; the layout has it on stage 1",
    ),
    ({"partition": "Ettt|tt|tL|"}, "expected the head (L) on stage 3, where Megatron builds it; the layout has it on stage 2"),
    ({"partition": "Ettt|tt|tL"}, "3 stages cannot be dealt equally to 2 devices"),
    ({"partition": "Ettx|tttL"}, "'x' is no layer"),
    ({"partition": "Ettt|tttmL"}, "multi-token prediction (m): the layout has 1, the model 0"),
    ({"partition": [["tok_embeddings"], ["layers.0", "norm", "lm_head"]]}, "names 1 decoder layers, the model has 6"),
    ({"partition": [["tok_embeddings"], ["layers.x"]]}, "pipeline.partition[1]: expected tok_embeddings, layers.0"),
    ({"partition": [["tok_embeddings"], 3]}, "pipeline.partition[1]: expected a list of names"),
    ({"partition": [[], ["embedding", "lm_head"]]}, "expected the embedding on stage 0, once; the list has it on stage 1"),
    ({"partition": [["embedding"], []]}, "Megatron's layout: the head with the loss (L) has to come last, got E"),
    ({"partition": [["tok_embeddings"], ["layers.0"]]}, "expected the head on stage 1, once; the list has it on no stage"),
    ({"partition": [["tok_embeddings"], [], ["lm_head"]]}, "the list has 3 stages, which cannot be dealt equally to 2 devices"),
    (
        {"partition": [[*NAMES[0], "layers.5"], [*NAMES[1], "layers.3", "layers.4", "lm_head"]]},
        "layers.5 is where layers.2 should",
    ),
    ({"partition": "evne"}, "expected one of even, balanced, best, the number of layers of each stage, or"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    model = {"decoder": 80, "devices": 8, "chunks": 3} if given["partition"] == RECIPE else {}
    if "is wave" in message:
        model = {"placement": "wave"}
    with pytest.raises(ModelError) as raised:
        model_of_text(text(**{**model, **given}), "file")
    assert str(raised.value).startswith("file: pipeline.partition")
    assert message in str(raised.value)


def test_flags_are_named() -> None:
    assert "Error: --partition: pipeline.partition: as Megatron's" in refused("compare", "-", "--partition", "E|L", stdin=text())
    both = ("solve", "-", "--partition", "Ett|t||tttL", "-v", 4)
    assert "--partition: pipeline.partition: the layout has 4 stages, 2 on each of 2" in refused(*both, stdin=text())
    assert "there are no layers to cut" in refused("compare", "-d", 2, "-m", 2, "--partition", "EttL")
    for value in ("evne", "[[", "3,x"):
        assert "expected even, balanced, best, the layers of each stage" in refused("compare", "-", "--partition", value)


def test_without_decoder_layers() -> None:
    model = '[pipeline]\ndevices = 1\nmicrobatches = 1\npartition = "{}"\n'
    model += '[[layers]]\nname = "a"\ncount = {}\nforward = 1\nbackward = 1\n'
    for count, message in ((1, "the model has 1 layer"), (2, "the model has none")):
        with pytest.raises(ModelError, match=message):
            model_of_text(model.format("EL", count), "file")


def test_the_files_own_schedule_goes_where_the_layout_is_elsewhere() -> None:
    """As with any other placement that flags give."""
    model = text(schedule="interleaved-1f1b", placement="any", chunks=2, microbatches=5)
    assert pipeline_of_text(model)["placement"] == "linear"


def pipeline_of_text(model: str) -> dict[str, Any]:
    found: dict[str, Any] = read("compare", "-", "--partition", "Ettt|tttL", stdin=model)["model"]["pipeline"]
    return found
