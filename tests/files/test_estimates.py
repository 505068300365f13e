"""Files that estimates are made of, and the model files that they become."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ppopt.files import ModelError, model_dict, model_of, model_of_text, read_model, setting
from ppopt.files.estimate_text import model_text
from ppopt.files.estimates import read_source
from ppopt.files.measured import read_measured
from tests.support.places import MODELS
from tests.support.transformers import config

TRAINING = MODELS / "training" / "llama-3-70b.toml"
NUMBER = re.compile(r"^\w+ = -?[\d.\[{]")


def text(*settings: str, path: Path = TRAINING) -> str:
    source = read_source(str(path), [setting(each) for each in settings])
    return model_text(source, source.asked())


def test_every_number_says_where_it_is_from() -> None:
    for line in text("parallel.data=4", "training.recompute=full").splitlines():
        if NUMBER.match(line) and not line.startswith("format"):
            assert re.search(r"  # (?:formula|given|default|preset|llama-3-70b.json|parallel|transformer|cluster)", line), line
    assert "preset h100-sxm: 9.89e+14 FLOP/s" in text()
    assert "fitted to layers measured alone" in text()
    assert "efficiency = 0.6  # given: --set cluster.efficiency=0.6" in text("cluster.efficiency=0.6")


def test_what_is_written_is_what_was_estimated() -> None:
    source = read_source(str(TRAINING))
    asked = source.asked()
    pipeline = model_of_text(model_text(source, asked), "text").pipeline
    found = asked.estimate()
    assert pipeline.layers == found.to_layers()
    assert pipeline.links == found.to_links()
    assert (pipeline.devices, pipeline.microbatches, pipeline.units.time, pipeline.units.memory) == (8, 32, "ms", "GB")
    assert pipeline.memory.limit == 80
    assert float(pipeline.memory.static) == pytest.approx(6.4)  # type: ignore[arg-type]
    assert len(pipeline.layers or ()) == 82
    seconds = sum(group.count * group.seconds.optimizer for group in found.layers if group.seconds is not None)
    assert pipeline.layers is not None
    assert float(sum(group.count * group.optimizer for group in pipeline.layers.groups)) == pytest.approx(
        1000 * seconds, rel=5e-2
    )
    assert all(group.reduce_scatter > group.all_gather > 0 for group in pipeline.layers.groups)


def test_the_tables_stay_in_the_model() -> None:
    model = model_of_text(text(), "text")
    tree = model_dict(model)
    assert tree["transformer"]["layers"] == 80
    assert tree["transformer"]["sequence"] == 8192
    assert tree["training"]["global_batch"] == 128
    assert tree["parallel"] | {"tensor": 4, "pipeline": 8, "data": 4, "zero": 1} == tree["parallel"]
    assert tree["cluster"] == {"gpu": "h100-sxm", "gpus_per_node": 8, "reserve": 0.08, "gpus": 128}
    json.dumps(tree)
    again = model_of(tree, "again")
    assert again == model
    assert again.pipeline.origin == model.pipeline.origin
    assert again.pipeline.cut().origin == model.pipeline.origin
    assert "origin" not in tree


def test_recomputing_and_what_it_needs() -> None:
    none, full = (tomllib.loads(text(f"training.recompute={word}")) for word in ("none", "full"))
    assert full["pipeline"]["recompute"] == "full"
    decoder = full["layers"][1]
    kept = decoder["activation"] - decoder["recompute"][1]["saved"]
    assert full["memory"]["static"] - none["memory"]["static"] == pytest.approx(decoder["activation"] - kept, abs=1e-3)
    assert decoder["retained"] > kept


def test_a_bare_config_takes_the_rest_from_outside(tmp_path: Path) -> None:
    given = ["transformer.sequence=1024", "training.global_batch=8", "cluster.gpu=a100-80", "parallel.pipeline=2"]
    path = MODELS / "configs" / "gpt-2.json"
    pipeline = model_of_text(text(*given, path=path), "text").pipeline
    assert (pipeline.name, pipeline.devices, pipeline.microbatches, len(pipeline.layers or ())) == ("gpt-2", 2, 8, 14)


def test_a_config_lies_beside_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "mine.json").write_text(json.dumps(config("gpt-2")))
    (tmp_path / "deep" / "mine.toml").write_text('[transformer]\nconfig = "mine.json"\n')
    assert read_source(str(tmp_path / "deep" / "mine.toml")).asked().transformer.layers == 12


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[transformer]\nlayer = 4\n", "transformer.layer: unknown key; did you mean transformer.layers?"),
        ("[transformer]\nlayers = 4\n", "transformer.hidden: missing; expected a whole number"),
        ("[transformr]\nlayers = 4\n", "transformr: unknown key; expected one of format, name, transformer"),
        ("transformer = 4\n", r"transformer: expected a table \[transformer\], got 4"),
        ('[transformer]\nconfig = "none.json"\n', "none.json: cannot be read"),
        ("[training]\nmicrobatch = [1, 2]\n", r"training.microbatch: expected one value"),
        ("format = 2\n", "format: expected 1"),
        ("name = 2\n", "name: expected a text"),
        ('{"model_type": "rwkv"}', "model_type: 'rwkv' is not known; known are deepseek_v2"),
        ('{"model_type": "llama"}', "num_hidden_layers: missing"),
        ("{", "not a JSON file"),
        ("a b", "not a TOML file"),
    ],
)
def test_what_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "given.toml"
    path.write_text(content)
    with pytest.raises(ModelError, match=message) as caught:
        read_source(str(path)).asked()
    assert str(caught.value).startswith(str(tmp_path))


def test_what_a_plan_may_choose_among_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "given.toml"
    path.write_text(GPT + "[search]\ntensor = [1, 2]\n")
    source = read_source(str(path))
    assert source.tables["search"] == {"tensor": [1, 2]}
    assert source.asked().parallel.tensor == 1


def test_errors_name_the_flag() -> None:
    source = read_source(str(TRAINING), [setting("parallel.context=3"), setting("cluster.gpus=96")])
    with pytest.raises(ModelError, match=r"--set parallel.context=3: parallel.context: 3 does not divide"):
        model_text(source, source.asked())


@pytest.mark.parametrize(
    ("without", "key"),
    [
        ("global_batch = 128", "training.global_batch"),
        ('gpu = "h100-sxm"', "cluster.gpu"),
        ("sequence = 8192", "transformer.sequence"),
    ],
)
def test_a_model_file_needs_a_batch_a_gpu_and_a_sequence(without: str, key: str, tmp_path: Path) -> None:
    config_path = f'config = "{MODELS / "configs" / "llama-3-70b.json"}"'
    content = TRAINING.read_text().replace(without, "").replace('config = "../configs/llama-3-70b.json"', config_path)
    (tmp_path / "given.toml").write_text(content)
    source = read_source(str(tmp_path / "given.toml"))
    with pytest.raises(ModelError, match=f"{key}: missing"):
        model_text(source, source.asked())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[transformer]\nconfig = "x.json"\n', "transformer.config: a model file has the sizes written out"),
        ("[training]\nmicrobatc = 1\n", "training.microbatc: unknown key; did you mean training.microbatch?"),
        ("[transformer]\nlayers = 3\nhidden = 8\n", "transformer.heads: missing"),
    ],
)
def test_tables_of_a_model_file_are_checked(content: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        model_of_text(f"[pipeline]\ndevices = 2\nmicrobatches = 2\n{content}", "text")


# --- measured times ---

GPT = """
[transformer]
layers = 4
hidden = 256
heads = 4
ffn = 1024
vocabulary = 1000
sequence = 128
[cluster]
gpu = "a100-80"
"""


def measured(tmp_path: Path, content: str, name: str = "times.csv") -> list[Any]:
    (tmp_path / "sizes.toml").write_text(GPT)
    (tmp_path / name).write_text(content)
    return read_measured(str(tmp_path / name), read_source(str(tmp_path / "sizes.toml")))


def test_a_table_of_measured_times(tmp_path: Path) -> None:
    table = "label,count,forward,backward,transformer.hidden,training.attention\na,2,3,6.5,512,unfused\n,,1.5,,,\n"
    first, second = measured(tmp_path, table)
    assert (first.label, first.count, first.layer) == ("a", 2, "decoder")
    assert first.seconds == pytest.approx({"F": 0.003, "B": 0.0065})
    assert (first.asked.transformer.hidden, first.asked.training.attention) == (512, "unfused")
    assert (second.label, second.count, second.asked.transformer.hidden) == ("line 3", 1, 256)
    assert second.seconds == {"F": 0.0015}


def test_a_model_of_measured_layers(tmp_path: Path) -> None:
    layers = [("a", 1, 3.0), ("b", 3, 2.0), ("c", 1, 4.0), ("d", 1, 5.0)]
    tables = "".join(
        f'[[layers]]\nname = "{name}"\ncount = {count}\nforward = {time}\nbackward_input = {time}\nbackward_weight = 0\n'
        for name, count, time in layers
    )
    head = "[pipeline]\ndevices = 2\nmicrobatches = 2\n"
    rows = measured(tmp_path, head + tables, "measured.toml")
    assert [(row.layer, row.label, row.count, row.seconds["F"]) for row in rows] == [
        ("embedding", "a", 1, 0.003),
        ("decoder", "b", 3, 0.006),
        ("decoder", "c", 1, 0.004),
        ("head", "d", 1, 0.005),
    ]
    assert all(set(row.seconds) == {"F", "I"} for row in rows)  # a W that takes nothing says nothing
    inner = measured(tmp_path, head + tables.partition('[[layers]]\nname = "c"')[0] + '[units]\ntime = "s"\n', "measured.toml")
    assert [(row.layer, row.label, row.count, row.seconds["F"]) for row in inner] == [("decoder", "b", 2, 4.0)]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("forward,backwards\n1,2\n", "a.csv", "backwards: unknown column"),
        ("forward\n", "a.csv", "expected a first line of names and a line for each run"),
        ("forward,label\n,x\n", "a.csv", "line 2: no time; expected one of forward"),
        ("forward\n-1\n", "a.csv", "line 2: forward: expected a number > 0, got '-1'"),
        ("forward,training.microbatch\n1,0\n", "a.csv", "line 2: training.microbatch: expected a whole number"),
        ("forward,training.microbatc\n1,1\n", "a.csv", "line 2: training.microbatc: unknown key"),
        ("[pipeline]\ndevices = 1\nmicrobatches = 1\n", "a.toml", "layers: missing; a fit needs the times of layers"),
        (
            '[pipeline]\ndevices = 1\nmicrobatches = 1\n[[layers]]\nname = "x"\nforward = 1\nbackward = 1\n',
            "a.toml",
            "layers: expected 6 layers, or the 4 decoder layers, got 1",
        ),
    ],
)
def test_measured_times_that_are_refused(content: str, name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        measured(tmp_path, content, name)


def test_a_result_keeps_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    path.write_text(text())
    assert read_model(str(path)).pipeline.origin["transformer"]["hidden"] == 8192
