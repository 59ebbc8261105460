"""A server with real models, worked out without loading any: what each engine is told."""

import json
import os
import stat

import pytest

from trmodel.errors import InfeasibleError, InputError, UsageError
from trmodel.profile import load_profile
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.engines.sglang import planning, vocabulary
from trmodel.runtime.engines.sglang.folder import ModelFolder
from trmodel.runtime.plan import base_profile, first_vectors, make_plan, make_remote_spec

SHAPE = {
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
    "max_position_embeddings": 2048,
    "dtype": "bfloat16",
    "vocab_size": 8,
}
TOKENIZER = {"added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}
MIB = 2**20


@pytest.fixture
def folders(tmp_path):
    """Folders of two models with one small vocabulary."""
    for name, mib in (("small", 1), ("large", 9)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(SHAPE))
        (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        with open(folder / "model.safetensors", "wb") as file:
            file.truncate(mib * MIB)
    return tmp_path


def settings(folders, **more):
    return ServerConfig.model_validate(
        {
            "engine": "sglang",
            "models": {name: {"path": str(folders / name)} for name in ("small", "large")},
            "sglang": {"device": "cpu"},
            "thresholds": "eager",
            **more,
        }
    )


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """A machine with two GPUs, by its nvidia-smi, which writes down how often it is asked."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    asked = tmp_path / "asked"
    tool.write_text(
        f'#!/bin/sh\necho "$@" >> {asked}\n'
        "echo '0, GPU-aa11, NVIDIA A100, 100'\necho '1, GPU-aa22, NVIDIA H100, 300'\n"
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return asked


def test_a_folder_tells_its_sizes(folders):
    folder = ModelFolder(str(folders / "large"))
    assert folder.weight_bytes("auto") == 9 * MIB
    assert folder.weight_bytes("float32") == 18 * MIB
    assert folder.max_context == 2048
    assert folder.kv_bytes_per_token("auto") == 2 * 4 * 2 * 64 * 2
    assert folder.kv_bytes_per_token("float32") == 2 * folder.kv_bytes_per_token("bfloat16")


def test_a_folder_that_is_none_is_told(tmp_path):
    with pytest.raises(InputError, match=r"no config\.json"):
        _ = ModelFolder(str(tmp_path)).max_context
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="max_position_embeddings must be a whole number"):
        _ = ModelFolder(str(tmp_path)).max_context


def test_engines_are_told_in_the_order_of_the_routing(folders):
    plan = make_plan(settings(folders, max_live=6, sglang={"device": "cpu", "dtype": "float32"}))
    assert plan.names == ("small", "large")
    small, large = (spec.engine for spec in plan.specs)
    assert small["path"].endswith("small")
    assert large["path"].endswith("large")
    assert small["kind"] == "sglang"
    assert small["requests"] == 6
    assert small["vocabulary"] == large["vocabulary"] == 2
    assert small["max_context"] == plan.config.max_context == 2048
    assert small["kv_tokens"] == plan.config.kv_tokens == 6 * 2048


def test_models_of_one_gpu_share_its_memory(folders, gpus):
    config = settings(folders, sglang={"device": "cuda", "workspace_fraction": 0.1})
    plan = make_plan(config)
    per_token = 2 * ModelFolder(str(folders / "small")).kv_bytes_per_token("auto")
    assert plan.config.kv_tokens == (100 * MIB - int(0.1 * 100 * MIB) - 10 * MIB) // per_token
    assert {spec.engine["kv_tokens"] for spec in plan.specs} == {plan.config.kv_tokens}


@pytest.mark.parametrize("of_model", [False, True])
def test_caches_beyond_the_machine_and_below_a_request_are_refused(folders, of_model):
    def planned(tokens):
        models = {name: {"path": str(folders / name)} for name in ("small", "large")}
        if of_model:
            models["large"]["kv_tokens"] = tokens
            return make_plan(settings(folders, models=models))
        return make_plan(settings(folders, kv_tokens=tokens))

    with pytest.raises(InfeasibleError, match=r"^kv_tokens: the models' caches take .* GiB, the"):
        planned(10**12)
    with pytest.raises(InfeasibleError, match=r"^there is no room for a request: 1 tokens, .*kv_t"):
        planned(1)
    assert planned(2).config.max_context == 2


def test_more_tokens_than_a_gpu_has_room_for_are_refused(folders, gpus):
    config = settings(folders, sglang={"device": "cuda"})
    room = make_plan(config).config.kv_tokens
    assert make_plan(config.model_copy(update={"kv_tokens": room})).config.kv_tokens == room
    with pytest.raises(InfeasibleError, match=f"{room + 1} do not fit; .* room for {room}$"):
        make_plan(config.model_copy(update={"kv_tokens": room + 1}))


def test_models_on_gpus_of_their_own_hold_what_the_tighter_one_has_room_for(folders, gpus):
    models = {
        "small": {"path": str(folders / "small")},
        "large": {"path": str(folders / "large"), "gpu": 1},
    }
    plan = make_plan(settings(folders, models=models, sglang={"device": "cuda"}))
    per_token = ModelFolder(str(folders / "large")).kv_bytes_per_token("auto")
    assert plan.config.kv_tokens == (100 * MIB - int(0.12 * 100 * MIB) - 9 * MIB) // per_token
    assert [spec.engine["gpu"] for spec in plan.specs] == [0, 1]


@pytest.mark.parametrize("visible", ["1", "GPU-aa22", "1,-1,0", "1 , 0", "1,"])
def test_gpu_0_is_the_first_that_cuda_shows(folders, gpus, monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    plan = make_plan(settings(folders, sglang={"device": "cuda"}))
    assert plan.loaded.profile.hardware.gpu == "NVIDIA H100"
    assert plan.loaded.profile.hardware.gpu_memory_bytes == 300 * MIB
    assert gpus.read_text().count("--query-gpu") == 1


@pytest.mark.parametrize(
    ("visible", "problem"),
    [
        ("", "1 GPUs are named, the machine has 0 visible to this process"),
        ("-1", "the machine has 0 visible"),
        ("2", "CUDA_VISIBLE_DEVICES: 2 is no GPU that nvidia-smi lists"),
        ("GPU-aa", "GPU-aa fits several GPUs"),
        ("0,GPU-aa11", "names a GPU twice"),
    ],
)
def test_gpus_that_cuda_does_not_show_are_told(folders, gpus, monkeypatch, visible, problem):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(InputError, match=problem):
        make_plan(settings(folders, sglang={"device": "cuda"}))


def test_weights_that_do_not_fit_are_told(folders, gpus):
    config = settings(folders, sglang={"device": "cuda", "workspace_fraction": 0.95})
    with pytest.raises(InfeasibleError, match="GPU 0"):
        make_plan(config)


def test_a_gpu_that_is_not_there_is_told(folders, gpus):
    models = {name: {"path": str(folders / name), "gpu": 2} for name in ("small", "large")}
    with pytest.raises(InputError, match="3 GPUs are named, the machine has 2"):
        make_plan(settings(folders, models=models, sglang={"device": "cuda"}))


def test_a_machine_without_gpus_is_told(folders, monkeypatch):
    monkeypatch.setenv("PATH", str(folders))
    with pytest.raises(InputError, match="device: cpu"):
        make_plan(settings(folders, sglang={"device": "cuda"}))


def test_before_a_profile_is_measured_there_is_nothing_to_tune_by(folders):
    with pytest.raises(InputError, match="profile measure"):
        make_plan(settings(folders, thresholds="tune"))
    assert first_vectors(settings(folders)) == ((1, 1),)


def test_a_profile_must_have_the_models(folders):
    config = settings(folders, profile="a100-paper")
    with pytest.raises(InputError, match="has no model small, large"):
        base_profile(config)


def test_a_measured_profile_is_what_thresholds_are_tuned_by(folders, tmp_path):
    measured = planning.machine_profile(settings(folders))
    path = tmp_path / "measured.json"
    path.write_text(measured.model_dump_json(by_alias=True))
    plan = make_plan(settings(folders, profile=str(path), thresholds="tune", max_live=3))
    assert len(plan.vectors) == 3
    assert plan.loaded.profile.name == load_profile(str(path)).profile.name


def test_models_are_listed_in_the_order_of_the_routing(folders, tmp_path):
    path = tmp_path / "measured.json"
    path.write_text(planning.machine_profile(settings(folders)).model_dump_json(by_alias=True))
    turned = {name: {"path": str(folders / name)} for name in ("large", "small")}
    with pytest.raises(InputError, match="small, large, in this order"):
        make_plan(settings(folders, models=turned, profile=str(path)))


def test_cores_that_are_not_there_are_told(folders):
    here = min(os.sched_getaffinity(0))
    models = {
        name: {"path": str(folders / name), "cores": [here, 10**6]} for name in ("small", "large")
    }
    with pytest.raises(InputError, match=r"models\.small\.cores: there is no 1000000"):
        make_plan(settings(folders, models=models))


def test_each_machine_has_the_cores_of_its_own_models(folders):
    models = {name: {"path": str(folders / name)} for name in ("small", "large")}
    models["large"]["cores"] = [min(os.sched_getaffinity(0)), 10**6]
    addresses = {name: f"ipc://{folders}/{name}.s" for name in models}
    transport = {"models": addresses, "front": f"ipc://{folders}/front", "remote": ["large"]}
    config = settings(folders, models=models, transport=transport)
    assert make_plan(config).names == ("small", "large")
    with pytest.raises(InputError, match=r"models\.large\.cores: there is no 1000000"):
        make_remote_spec(config, "large")


def test_no_request_is_longer_than_the_smallest_cache(folders):
    models = {name: {"path": str(folders / name)} for name in ("small", "large")}
    models["large"]["kv_tokens"] = 100
    assert make_plan(settings(folders, models=models)).config.max_context == 100


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "max_context: 2048 tokens, not 32768: small attends to no more"),
        ({"kv_tokens": 300}, "300 tokens, not 32768: the models' caches hold no more"),
        ({"max_context": 2048}, None),
    ],
)
def test_who_limits_the_context_is_said(folders, caplog, more, said):
    make_plan(settings(folders, **more))
    assert [said is not None and said in message for message in caplog.messages] == [True] * (
        said is not None
    )


def test_one_model_needs_no_routing(folders):
    models = {"small": {"path": str(folders / "small")}}
    plan = make_plan(settings(folders, models=models))
    assert plan.specs[0].transition_probability == ((1.0,),)
    assert plan.specs[0].committed_tokens == ((1.0,),)
    path = folders / "measured.json"
    path.write_text(plan.loaded.profile.model_dump_json(by_alias=True))
    tuned = settings(folders, models=models, profile=str(path), thresholds="tune", max_live=3)
    assert make_plan(tuned).vectors == ((1,), (1,), (1,))


def test_more_models_than_presets_know_need_a_routing(folders, gpus):
    names = ["a", "b", "c", "d"]
    config = settings(
        folders,
        models={name: {"path": str(folders / "small")} for name in names},
        sglang={"device": "cuda"},
    )
    with pytest.raises(InputError, match=r"no default for 4 models; .* between a, b, c, d"):
        make_plan(config)
    routing = planning._everywhere(tuple(names)).model_dump(by_alias=True, exclude_none=True)
    (folders / "routing.json").write_text(json.dumps(routing))
    given = config.model_copy(update={"routing": str(folders / "routing.json")})
    assert make_plan(given).names == tuple(names)


def test_what_has_no_effect_is_told(folders):
    models = {name: {"path": str(folders / name)} for name in ("small", "large")}
    models["large"]["gpu"] = 1
    with pytest.raises(InputError, match=r"models\.large\.gpu: there is none with device: cpu"):
        make_plan(settings(folders, models=models))
    with pytest.raises(InputError, match=r"sglang\.cuda_graphs: is for GPUs"):
        make_plan(settings(folders, sglang={"device": "cpu", "cuda_graphs": True}))
    with pytest.raises(InputError, match="sglang: has no effect with the replay engine"):
        make_plan(ServerConfig.model_validate({"sglang": {"device": "cpu"}}))


def test_a_vocabulary_is_read_once(folders, monkeypatch):
    read = []
    monkeypatch.setattr(
        vocabulary,
        "read_vocabulary",
        lambda path, own=vocabulary.read_vocabulary: (read.append(path), own(path))[1],
    )
    plan = make_plan(settings(folders))
    assert len(read) == 2
    assert plan.real.vocabulary.size == 2


def test_what_the_adapter_depends_on_cannot_be_changed(folders):
    config = settings(folders, sglang={"device": "cpu", "arguments": {"page_size": 16}})
    with pytest.raises(InputError, match="page_size cannot be changed"):
        make_plan(config)


def test_a_folder_without_weights_is_refused(folders):
    (folders / "small" / "model.safetensors").unlink()
    with pytest.raises(InputError, match="has no weights"):
        make_plan(settings(folders))


def test_models_are_for_the_sglang_engine_alone(folders):
    with pytest.raises(InputError, match="models: are those of the profile"):
        make_plan(settings(folders).model_copy(update={"engine": "replay"}))
    with pytest.raises(InputError, match="the sglang engine needs them"):
        make_plan(settings(folders).model_copy(update={"models": {}}))


def test_phases_need_a_policy_that_knows_them(folders):
    with pytest.raises(UsageError, match="name a policy that does"):
        make_plan(settings(folders, routing="glimprouter"))
