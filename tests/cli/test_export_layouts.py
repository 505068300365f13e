"""``ppopt export`` of schedules with layers: the options of other runtimes, which read them as the same cut."""

import json
import shlex
import tomllib
from typing import Any

import pytest

from ppopt import layouts
from ppopt.files.layout_export import RUNTIMES
from ppopt.files.torch_check import violations
from ppopt.files.torch_csv import rows_of_text
from tests.support.command import QUICK, refused, run
from tests.support.layered_files import ordered, text

RECIPE = "Et*2|(t*2|)*34,t*3|(t*2|)*3,tL"
"""Llama-3-70B on 8 devices as it is published: 5 stages on each."""


def export(target: str, result: str, *words: object) -> tuple[str, str]:
    done = run("export", "-", "--to", target, *words, stdin=result)
    return done.stdout, done.stderr


def megatron(result: str) -> dict[str, str]:
    """Megatron's flags with their values."""
    found: dict[str, str] = {}
    words = shlex.split(export("megatron", result)[0])
    for flag, value in zip(words, [*words[1:], "--"], strict=True):
        if flag.startswith("--"):
            found[flag] = "" if value.startswith("--") else value
    return found


# --- the cut is read back ----------------------------------------------------------------------------------------


def test_the_recipe_of_an_82_layer_model() -> None:
    flags = megatron(ordered("interleaved-1f1b", "--partition", RECIPE, decoder=80, devices=8, microbatches=8))
    assert flags == {
        "--pipeline-model-parallel-size": "8",
        "--num-layers": "80",
        "--pipeline-model-parallel-layout": "E(tt|)*35t*3|(tt|)*3tL",
        "--microbatch-group-size-per-virtual-pipeline-stage": "8",
    }
    read = layouts.read("megatron", {"pp": 8, "num_layers": 80, "layout": flags["--pipeline-model-parallel-layout"]})
    assert read == layouts.read("megatron", {"pp": 8, "num_layers": 80, "layout": RECIPE.replace(",", "")})
    assert read.layout.layers == (*[2] * 35, 3, 2, 2, 2, 1)
    assert not read.warnings


CUTS = ["Et*6|L", "Ettt|tttL", "Ett|t||tttL", "Et|t|t|t|t|tL", "Etttt|ttL", "E|tttttt||L"]


@pytest.mark.parametrize("cut", CUTS)
def test_written_options_are_read_back_as_the_same_cut(cut: str) -> None:
    schedule = "1f1b" if cut.count("|") == 1 else "interleaved-1f1b"
    result = ordered(schedule, "--partition", cut)
    expected = [stage.count("t") for stage in layouts.written(cut)]
    flags = megatron(result)
    given: dict[str, Any] = {"pp": int(flags["--pipeline-model-parallel-size"]), "num_layers": int(flags["--num-layers"])}
    names = {"--pipeline-model-parallel-layout": "layout"}
    names |= {"--decoder-first-pipeline-num-layers": "first", "--decoder-last-pipeline-num-layers": "last"}
    names |= {"--num-virtual-stages-per-pipeline-rank": "virtual_stages"}
    for flag, name in names.items():
        if flag in flags:
            given[name] = flags[flag] if name == "layout" else int(flags[flag])
    assert [*layouts.read("megatron", given).layout.layers] == expected
    table = tomllib.loads(export("torchtitan", result)[0])["parallelism"]
    read = layouts.read(
        "torchtitan",
        {
            "pp": table["pipeline_parallel_degree"],
            "num_layers": 6,
            "schedule": table["pipeline_parallel_schedule"],
            "module_fqns_per_model_part": table["module_fqns_per_model_part"],
        },
    )
    assert [*read.layout.layers] == expected
    assert not read.warnings
    again = run("compare", "-", "--partition", json.dumps(table["module_fqns_per_model_part"]), "--json", stdin=text())
    counts = json.loads(result)["model"]["pipeline"]["partition"]
    assert json.loads(again.stdout)["model"]["pipeline"]["partition"] == counts


def test_older_flags_where_they_say_it() -> None:
    assert megatron(ordered("1f1b", "--partition", "Ettt|tttL")) == {"--pipeline-model-parallel-size": "2", "--num-layers": "6"}
    flags = megatron(ordered("1f1b", "--partition", "Ett|ttttL"))
    assert flags["--decoder-first-pipeline-num-layers"] == "2"
    assert "--pipeline-model-parallel-layout" not in flags


def test_a_wave_and_its_names() -> None:
    result = ordered("zb-v", "--partition", "2,1,2,3", "--placement", "wave")
    table = tomllib.loads(export("torchtitan", result, "--names", "layer=blocks.{i},head=out")[0])["parallelism"]
    assert table["pipeline_parallel_schedule"] == "ZBVZeroBubble"
    assert table["module_fqns_per_model_part"] == [
        ["tok_embeddings", "blocks.0"],
        ["blocks.1"],
        ["blocks.2", "blocks.3"],
        ["blocks.4", "blocks.5", "norm", "out"],
    ]
    automodel = tomllib.loads(export("torchtitan", result, "--names", "automodel")[0])["parallelism"]
    assert automodel["module_fqns_per_model_part"][1] == ["model.layers.1", "model.rotary_emb"]
    found = json.loads(export("colossalai", result)[0])
    assert (found["pp_style"], found["num_layers_per_stage"]) == ("zbv", [1, 1, 2, 2])


def test_multi_token_prediction() -> None:
    result = ordered("1f1b", "--partition", "Ettt|ttmL", decoder=5, mtp=1)
    assert megatron(result)["--mtp-num-layers"] == "1"
    assert "TorchTitan: it has no multi-token prediction" in refused("export", "-", "--to", "torchtitan", stdin=result)


def test_the_lists_of_others() -> None:
    result = ordered("1f1b", "--partition", "Et|t*5L", "--set", "pipeline.recompute=[{}, {decoder = {full = 2}}]")
    assert json.loads(export("colossalai", result)[0]) == {
        "pp_size": 2,
        "pp_style": "1f1b",
        "num_model_chunks": 1,
        "num_layers_per_stage": [1, 5],
        "num_microbatches": 4,
        "num_ckpt_layers_per_stage": [0, 2],
    }
    assert json.loads(export("mindformers", result)[0]) == {"offset": [-2, 2], "recompute": [0, 2]}
    assert json.loads(export("galvatron", result)[0]) == {
        "pp_deg": 2,
        "pp_division": "1,5",
        "chunks": 4,
        "pipeline_type": "pipedream_flush",
        "checkpoint": "0,1,1,0,0,0",
    }
    even = ordered("1f1b", "--partition", "4,4")
    assert json.loads(export("deepspeed", even)[0])["partition_method"] == "uniform"


# --- what recomputes ---------------------------------------------------------------------------------------------


def recomputing(value: str, *words: object) -> str:
    return ordered("1f1b", "--partition", "Ett|ttttL", "--set", f"pipeline.recompute={value}", *words)


def test_megatron_recomputes_by_one_number() -> None:
    flags = megatron(recomputing("full"))
    assert flags["--recompute-method"] == "uniform"
    flags = megatron(recomputing("[{decoder = {full = 2}}, {decoder = {full = 3}}]"))
    assert (flags["--recompute-method"], flags["--recompute-num-layers"]) == ("block", "3")
    assert megatron(recomputing("selective"))["--recompute-modules"] == "core_attn"


def test_torchtitan_has_one_policy() -> None:
    for value, mode in (("full", "full"), ("selective", "selective"), ("none", "none")):
        table = tomllib.loads(export("torchtitan", recomputing(value))[0])
        assert table["activation_checkpoint"]["mode"] == mode


SOME = "[{decoder = {full = 1}}, {decoder = {full = 3}}]"
MIXED = "[{decoder = {full = 1, selective = 1}}, {}]"


@pytest.mark.parametrize(
    ("target", "value", "message"),
    [
        ("megatron", SOME, "Megatron: one number n holds for all stages, each recomputes its first n layers; got 1 of 2, 3 of 4"),
        ("megatron", MIXED, "full and selective cannot be mixed"),
        ("torchtitan", SOME, "TorchTitan: one way to recompute holds for all layers; here 1, 3 layers of the stages do"),
        ("deepspeed", "selective", "DeepSpeed: whole modules recompute there"),
        ("colossalai", MIXED, "ColossalAI: layers recompute wholly there"),
        ("galvatron", MIXED, "Galvatron: layers recompute wholly there"),
    ],
    ids=range(6),
)
def test_what_a_runtime_does_not_recompute(target: str, value: str, message: str) -> None:
    assert message in refused("export", "-", "--to", target, stdin=recomputing(value))


def test_layers_that_no_runtime_recomputes() -> None:
    model = text(partition="Ettt|tttL", recompute="full").replace('name = "full"', 'name = "attention"')
    model = model.replace('recompute = "full"', 'recompute = "attention"')
    result = run("order", "1f1b", "-", "--json", stdin=model).stdout
    assert "levels named full and selective, not for 'attention'" in refused("export", "-", "--to", "megatron", stdin=result)
    model = text(partition="Ettt|tttL", recompute="full") + 'recompute = [{ name = "full", time = 1, saved = 0 }]\n'
    result = run("order", "1f1b", "-", "--json", stdin=model).stdout
    assert "stage 1: embedding and head never recompute there" in refused("export", "-", "--to", "galvatron", stdin=result)


def test_the_first_layers_of_a_stage_recompute_or_none() -> None:
    moe = '[[layers]]\nname = "moe"\nforward = 1\nbackward = 3\nrecompute = [{ name = "full", time = 1, saved = 0 }]\n'
    moe = moe.replace("backward = 3", "backward_input = 1\nbackward_weight = 1")
    model = text(2, partition=[3, 2], recompute="none").replace('[[layers]]\nname = "head"', f'{moe}[[layers]]\nname = "head"')
    model = model.replace("partition = [3, 2]", "partition = [4, 1]").replace(
        'recompute = "none"', "recompute = [{moe={full=1}}, {}]"
    )
    result = run("order", "1f1b", "-", "--json", stdin=model).stdout
    assert "stage 0: the layers that recompute have to be the first" in refused("export", "-", "--to", "galvatron", stdin=result)


# --- whose order -------------------------------------------------------------------------------------------------


def test_another_order_is_said_with_its_time() -> None:
    result = ordered("zb-h1", "--partition", "Ett|ttttL", "--set", "units.time=ms")
    own = json.loads(ordered("1f1b", "--partition", "Ett|ttttL"))["metrics"]["makespan"]
    planned = json.loads(result)["metrics"]["makespan"]
    told = f"runs its own order (1f1b), not this one: makespan {own:g} ms on this cut, not {planned:g} ms"
    for target in ("megatron", "torchtitan", "colossalai", "mindformers", "galvatron"):
        assert told in export(target, result)[1]


def test_the_runtimes_own_order_is_known() -> None:
    result = ordered("interleaved-1f1b", "--partition", "Ett|t|t|ttL", "--param", "group_size=3", microbatches=6)
    assert megatron(result)["--microbatch-group-size-per-virtual-pipeline-stage"] == "3"
    assert "Megatron runs this very order (interleaved-1f1b, group size 3)" in export("megatron", result)[1]
    gpipe = ordered("gpipe", "--partition", "Ett|ttttL")
    assert json.loads(export("galvatron", gpipe)[0])["pipeline_type"] == "gpipe"
    assert "runs its own order" in export("megatron", gpipe)[1]


def test_a_group_size_that_megatron_takes() -> None:
    """Two devices and more; five microbatches in groups of two would leave one."""
    flags = megatron(ordered("looped-bfs", "--partition", "Ett|t|t|ttL", microbatches=5))
    assert flags["--microbatch-group-size-per-virtual-pipeline-stage"] == "5"
    few = ordered("looped-bfs", "--partition", "Ett|t|t|ttL", microbatches=1)
    assert "as many microbatches as devices (2)" in refused("export", "-", "--to", "megatron", stdin=few)


# --- what is refused, and what is told ---------------------------------------------------------------------------


@pytest.mark.parametrize("target", RUNTIMES)
def test_results_without_layers_are_refused(target: str) -> None:
    for result in (run("order", "1f1b", "-d", 2, "-m", 2, "--json").stdout, run("order", "1f1b", "-d", 2, "-m", 2).stdout):
        assert "a layout says where layers are, and this model has none" in refused("export", "-", "--to", target, stdin=result)


def test_placements_that_runtimes_do_not_have() -> None:
    wave = ordered("zb-v", "--partition", "2,1,2,3", "--placement", "wave")
    for target in ("megatron", "mindformers"):
        assert "stages are dealt in a loop only, not as a wave" in refused("export", "-", "--to", target, stdin=wave)
    both = ordered("dualpipe", "--partition", "4,4", "--placement", "bidirectional")
    told = "stages are dealt in a loop (or a V), and this is the placement bidirectional"
    assert told in refused("export", "-", "--to", "torchtitan", stdin=both)
    several = ordered("interleaved-1f1b", "--partition", "Ett|t||tttL")
    for target in ("deepspeed", "galvatron"):
        assert "it has one stage on each device, not 2" in refused("export", "-", "--to", target, stdin=several)
    assert "takes no list of stages" in refused("export", "-", "--to", "deepspeed", stdin=ordered("1f1b", "--partition", "3,5"))


def test_names_are_checked() -> None:
    result = ordered("1f1b", "--partition", "4,4")
    for value in ("layer", "layer=x", "hed=x", "layer=a.{i},layer=b.{i}", "norm="):
        assert "Invalid value for '--names'" in refused("export", "-", "--to", "torchtitan", "--names", value, stdin=result)
    assert "it needs --to torchtitan" in refused("export", "-", "--to", "megatron", "--names", "automodel", stdin=result)


def test_a_layer_that_may_be_no_embedding_is_warned_of() -> None:
    model = '[pipeline]\ndevices = 2\nmicrobatches = 2\npartition = "even"\n'
    model += '[[layers]]\nname = "block"\ncount = 8\nforward = 1\nbackward = 2\n'
    told = export("megatron", run("order", "1f1b", "-", "--json", stdin=model).stdout)[1]
    assert "Warning: the first layer of the model, one of 8 'block', is written as the embedding" in told


def test_a_joint_answer_runs_in_pytorch_as_far_as_its_checks_go() -> None:
    """Partition and order decided together; the stages are uneven, because the head is dear."""
    done = run("solve", "-", "--json", *QUICK, stdin=text(partition="best", placement="loop", chunks=2)).stdout
    counts = json.loads(done)["result"]["partition"]
    assert len(set(counts)) > 1
    for target in ("torch-csv", "torch-csv-comms"):
        written, told = export(target, done)
        assert violations(rows_of_text(written, "stdout"), 4) == []
        assert told.splitlines()[0].startswith("layers of the stages: 0: embedding")
        assert told.splitlines()[1] == "layers that recompute: no layer"


def test_the_cut_and_what_recomputes_are_told() -> None:
    result = recomputing("[{}, {decoder = {full = 3, selective = 1}}]")
    assert export("torch-csv", result)[1].splitlines()[:2] == [
        "layers of the stages: 0: embedding, 2 decoder; 1: 4 decoder, head",
        "layers that recompute: 1: 1 decoder selective, 3 decoder full",
    ]


# --- what a launch needs -----------------------------------------------------------------------------------------

ORIGIN = {
    "transformer": {"layers": 6, "hidden": 512, "heads": 8, "ffn": 1408, "vocabulary": 4000, "sequence": 2048},
    "training": {"global_batch": 64, "microbatch": 2, "recompute": "none"},
    "parallel": {"tensor": 2, "context": 2, "pipeline": 2, "data": 4, "zero": 1},
    "cluster": {"gpu": "h100-sxm", "gpus": 32},
}


def launched(**changes: Any) -> str:
    """A result whose model keeps what its layers were estimated from."""
    tree = json.loads(ordered("1f1b", "--partition", "even", microbatches=8))
    origin = {name: {**table, **changes.get(name, {})} for name, table in ORIGIN.items()}
    return json.dumps({**tree, "model": {**tree["model"], **origin}})


def test_every_flag_of_a_launch_of_megatron() -> None:
    flags = megatron(launched())
    expected = {
        "--pipeline-model-parallel-size": "2",
        "--tensor-model-parallel-size": "2",
        "--sequence-parallel": "",
        "--context-parallel-size": "2",
        "--micro-batch-size": "2",
        "--global-batch-size": "64",
        "--seq-length": "2048",
        "--use-distributed-optimizer": "",
    }
    assert expected.items() <= flags.items()
    assert "start 32 processes; data-parallel size 4" in export("megatron", launched())[1]
    assert "--use-distributed-optimizer" not in megatron(launched(parallel={"zero": 0}))
    assert "ZeRO-3" in refused("export", "-", "--to", "megatron", stdin=launched(parallel={"zero": 3}))


def test_every_key_of_a_launch_of_torchtitan() -> None:
    text, notes = export("torchtitan", launched())
    tree = tomllib.loads(text)
    assert tree["training"] == {"local_batch_size": 16, "global_batch_size": 64, "seq_len": 2048}
    expected = {
        "tensor_parallel_degree": 2,
        "context_parallel_degree": 2,
        "pipeline_parallel_degree": 2,
        "data_parallel_shard_degree": 4,
        "data_parallel_replicate_degree": 1,
        "pipeline_parallel_microbatch_size": 2,
        "num_pp_microbatches": 8,
    }
    assert expected.items() <= tree["parallelism"].items()
    assert "start 32 processes" in notes
    replicated = tomllib.loads(export("torchtitan", launched(parallel={"zero": 0}))[0])
    assert replicated["parallelism"]["data_parallel_replicate_degree"] == 4


def test_experts_have_sizes_of_their_own() -> None:
    experts = {"transformer": {"experts": 8, "experts_per_token": 2, "expert_ffn": 512}}
    flags = megatron(launched(**experts, parallel={"expert": 4, "expert_tensor": 1}))
    assert flags["--expert-model-parallel-size"] == "4"
    assert flags["--expert-tensor-parallel-size"] == "1"
