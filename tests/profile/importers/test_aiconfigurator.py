"""Import through a stand-in for aiconfigurator-core: tables, statuses, and every refusal."""

import json
import logging
import sys
from itertools import pairwise

import pytest
from fake_aiconfigurator import CONFIG, take_out_modules, write_version

from trmodel.errors import InputError, UsageError
from trmodel.profile import load_profile
from trmodel.profile.importers import import_aiconfigurator, parse_model, profile_text

SMALL = dict(batches=(1, 2, 4), contexts=(512, 1024), new_tokens=(1, 64), context_tokens=1024)


def decode(batch, context):
    return round(2 + 0.1 * batch + 0.0001 * batch * context, 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Qwen/Qwen3-32B:tp2", ("Qwen/Qwen3-32B", 2)),
        ("Qwen/Qwen3-32B:4", ("Qwen/Qwen3-32B", 4)),
        ("Qwen/Qwen3-0.6B", ("Qwen/Qwen3-0.6B", 1)),
        ("./folder", ("./folder", 1)),
    ],
)
def test_models_are_written_with_their_gpus(text, expected):
    assert parse_model(text) == expected


@pytest.mark.parametrize("text", ["", ":tp2", "a:", "a:tp", "a:tp0", "a:2x", "a:tp2:tp3", "a:²"])
def test_other_writings_of_a_model_are_refused(text):
    with pytest.raises(UsageError, match=r"^model: expected NAME or NAME:tp2, got "):
        parse_model(text)


def test_tables_are_what_the_package_estimates(fake_package, fake_tables):
    profile = import_aiconfigurator("gpu_a", ["Acme/One", ("Acme/Two", 2)], **SMALL)
    one, two = profile.models
    assert (one.name, one.tensor_parallel, one.gpus) == ("One", 1, (0,))
    assert (two.name, two.tensor_parallel, two.gpus) == ("Two", 2, (0, 1))
    assert one.decode.batch == (1, 2, 4)
    assert one.decode.context_tokens == (512, 1024)
    assert one.decode.latency_ms == tuple(
        tuple(decode(b, s) for b in (1, 2, 4)) for s in (512, 1024)
    )
    # A prefill of few tokens is cheaper here than a decode step with as much to read.
    assert one.extend.context_tokens == 1024
    assert one.extend.latency_ms == (
        tuple(decode(b, 1025) for b in (1, 2, 4)),
        (decode(1, 1088), decode(2, 1088), round(1 + 0.01 * 4 * 64, 3)),
    )
    assert {status for row in one.extend.status for status in row} == {"extrapolated"}
    assert "All 6 entries extrapolated" in one.extend.provenance.note
    assert "; 5 that came out below a decode step" in one.extend.provenance.note


def test_memory_is_of_the_whole_model_and_counts_tied_embeddings_once(fake_package):
    profile = import_aiconfigurator("gpu_a", ["Acme/Two:tp2"], **SMALL, memory_fraction=0.9)
    (model,) = profile.models
    assert model.memory.weight_bytes == 1_500_000_000 - 100_000 * 1024 * 2
    assert model.memory.kv_bytes_per_token == 1000
    assert profile.hardware.gpu_memory_bytes == 80_000_000_000
    assert profile.hardware.reserved_bytes == 8_000_000_000
    assert profile.hardware.gpus == 2


def test_provenance_names_the_package_the_licence_and_the_data(fake_package, fake_tables):
    profile = import_aiconfigurator("gpu_b", ["Acme/One"], version="next", **SMALL)
    for part in (profile.models[0].decode, profile.models[0].extend, profile.models[0].memory):
        assert part.provenance.method == "derived"
        assert part.provenance.source == (
            "derived with aiconfigurator-core 0.12.0 (NVIDIA CORPORATION & AFFILIATES, "
            "Apache-2.0), system gpu_b, SGLang 0.5.16 data"
        )
    assert profile.software == {"sglang": "0.5.16", "aiconfigurator-core": "0.12.0"}
    assert profile.hardware.gpu == "Acme GPU A"
    assert profile.obtained == "derived"


def test_entries_say_whether_they_rest_on_measured_points(fake_package, fake_tables):
    profile = import_aiconfigurator(
        "gpu_a", ["Acme/One"],
        batches=(1, 2, 3, 4, 8), contexts=(256, 512, 600, 1024, 2048), new_tokens=(1,),
        context_tokens=512,
    )  # fmt: skip
    m, i, x = "measured", "interpolated", "extrapolated"
    table = profile.models[0].decode
    assert table.status == (
        (x, x, x, x, x),  # shorter than any measured context
        (m, m, x, x, x),  # between 2 and 4, and at 4, attention reaches beyond 512
        (i, i, x, x, x),
        (m, m, x, x, x),
        (x, x, x, x, x),  # attention is averaged to 1.1 of the context
    )
    assert "Of 25 entries 4 measured, 2 interpolated, 19 extrapolated" in table.provenance.note
    assert "Matrix shapes extrapolated in every entry: logits." in table.provenance.note


def test_matrix_shapes_that_were_not_measured_spoil_the_status(fake_package, fake_tables):
    fake_tables["gemm_perf"].loc[2, "n"] = 6145
    table = import_aiconfigurator("gpu_a", ["Acme/One"], **SMALL).models[0].decode
    assert table.status[0][:2] == ("interpolated", "interpolated")
    assert "Matrix shapes interpolated in every entry: gate and up." in table.provenance.note
    fake_tables["gemm_perf"].loc[[2, 4], "n"] = 6000
    table = import_aiconfigurator("gpu_a", ["Acme/One"], **SMALL).models[0].decode
    assert {status for row in table.status for status in row} == {"extrapolated"}


def forget_tables(tables):
    tables.clear()


def two_kernels(tables):
    tables["generation_attention_perf"].loc[0, "kernel_source"] = "other"


def two_gpus(tables):
    tables["gemm_perf"].loc[0, "device"] = "Acme GPU B"


@pytest.mark.parametrize("break_tables", [forget_tables, two_kernels, two_gpus])
def test_tables_that_cannot_be_understood_claim_nothing(fake_package, fake_tables, break_tables):
    break_tables(fake_tables)
    profile = import_aiconfigurator("gpu_a", ["Acme/One"], **SMALL)
    table = profile.models[0].decode
    assert {status for row in table.status for status in row} == {"interpolated"}
    assert "Which entries are measured could not be read" in table.provenance.note
    assert profile.hardware.gpu == "gpu_a"


def test_only_the_kernel_in_use_counts_where_several_were_measured(fake_package, fake_tables):
    attention = fake_tables["generation_attention_perf"]
    attention["kernel_source"] = "triton"
    attention.loc[attention["batch_size"] == 1, "kernel_source"] = "fa3"
    table = import_aiconfigurator("gpu_b", ["Acme/One"], **SMALL).models[0].decode
    assert table.status[0] == ("measured", "extrapolated", "extrapolated")


def test_other_architectures_have_no_known_points(fake_package, fake_tables, tmp_path):
    for change in ({"architectures": ["MixtureOfExperts"]}, {"quantization_config": {"a": 1}}):
        (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
        table = import_aiconfigurator("gpu_a", [str(tmp_path)], **SMALL).models[0].decode
        assert "could not be read" in table.provenance.note


def test_a_profile_goes_through_its_file(fake_package, tmp_path):
    profile = import_aiconfigurator("gpu_a", ["Acme/One"], name="mine", **SMALL)
    path = tmp_path / "mine.json"
    path.write_text(profile_text(profile))
    assert load_profile(path).profile == profile
    assert '        "latency_ms": [\n          [2.' in path.read_text()


def test_a_model_can_be_a_folder_or_one_the_package_lacks(fake_package, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"text_config": CONFIG, "vision": 1}))
    profile = import_aiconfigurator("gpu_a", [f"{folder}/", "Qwen/Qwen3-4B"], **SMALL)
    assert profile.model_names == ["mine", "Qwen3-4B"]
    (path, *_), (other, *_) = sys.modules["aiconfigurator_core.sdk"].CALLS
    assert path == f"{folder}/"
    assert other.endswith("/Qwen--Qwen3-4B")  # a folder: the name would be looked up on the network


def test_the_package_is_silenced_for_the_import_only(fake_package, caplog):
    log = logging.getLogger("aiconfigurator_core")
    level = log.level
    import_aiconfigurator("gpu_a", ["Acme/One"], **SMALL)
    assert not caplog.records
    assert log.level == level


def refusal(kind, *args, **options):
    with pytest.raises(kind) as caught:
        import_aiconfigurator(*args, **(SMALL | options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("system", "options", "words"),
    [
        ("gpu_c", {}, "system: aiconfigurator-core 0.12.0 has no sglang data for 'gpu_c'; there "
         "are gpu_a, gpu_b"),
        ("gpu_without_data", {}, "there are gpu_a, gpu_b"),
        ("gpu_a", {"backend": "vllm"}, "no vllm data for 'gpu_a'; there are gpu_b"),
        ("gpu_a", {"backend": "tgi"}, "backend: unknown 'tgi'; there are sglang, vllm, trtllm"),
        ("gpu_b", {"version": "0.4"}, "version: aiconfigurator-core 0.12.0 has no data of sglang "
         "0.4 for gpu_b; there are 0.5.14, 0.5.16"),
        ("gpu_a", {"batches": (2, 4)}, "batches: the first one must be 1, got 2"),
        ("gpu_a", {"batches": (1, 4, 4)}, "batches: must increase from at least 1"),
        ("gpu_a", {"batches": ()}, "batches: must increase"),
        ("gpu_a", {"contexts": (1, 2)}, "contexts: must increase from at least 2"),
        ("gpu_a", {"new_tokens": (0,)}, "new_tokens: must increase from at least 1"),
        ("gpu_a", {"context_tokens": 7}, "context_tokens: must be one of [512, 1024], got 7"),
        ("gpu_a", {"memory_fraction": 1.0}, "memory_fraction: must be between 0 and 1"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_with_what_there_is(fake_package, system, options, words):
    assert words in refusal(UsageError, system, ["Acme/One"], **options)


def test_no_models_are_refused(fake_package):
    for models in ([], [("Acme/One", 0)]):
        line = refusal(UsageError, "gpu_a", models)
        assert line == f"models: name at least one, each on at least one GPU, got {models}"


def test_unknown_models_are_named_with_those_there_are(fake_package):
    line = refusal(InputError, "gpu_a", ["Acme/Four"])
    assert line == (
        "model 'Acme/Four': aiconfigurator-core 0.12.0 has no configuration of it; give a folder "
        "with its config.json, or one of Acme/One, Acme/Two"
    )
    line = refusal(InputError, "gpu_a", ["One"])
    assert line.endswith("one of Acme/One, Acme/Two, Other/Three, Qwen/Qwen3-4B")
    with pytest.raises(InputError) as caught:
        import_aiconfigurator("gpu_a", ["a", "Acme/One", "b"], **SMALL)
    assert len(caught.value.problems) == 2


def test_what_the_package_refuses_is_one_line(fake_package, tmp_path):
    assert refusal(InputError, "gpu_a", ["Acme/One:tp3"]) == (
        "model 'Acme/One' with tensor parallel 3 on gpu_a: aiconfigurator-core refuses: num_heads "
        "16 should be divisible by tp_size 3"
    )
    engine = sys.modules["aiconfigurator_core.sdk"].EngineHandle
    engine.predict_decode_latency = lambda *_: float("nan")
    assert "estimates a step of nan ms" in refusal(InputError, "gpu_a", ["Acme/One"])
    (tmp_path / "config.json").write_text("[")
    assert "is not a model configuration" in refusal(InputError, "gpu_a", [str(tmp_path)])


def test_a_model_must_take_the_contexts_and_be_listed_once(fake_package):
    line = refusal(InputError, "gpu_a", ["Acme/One"], contexts=(512, 1024, 8192))
    assert line == "model 'Acme/One': takes 4096 tokens, 8192 are asked for"
    line = refusal(InputError, "gpu_a", ["Acme/One", "Acme/One:tp2"])
    assert "names must be distinct, got One, One" in line


def test_a_missing_or_other_package_says_what_to_install(fake_package, monkeypatch):
    install = "pip install 'trmodel[aiconfigurator]'"
    write_version(fake_package, "0.13.1")
    line = refusal(UsageError, "gpu_a", ["Acme/One"])
    assert line.startswith("aiconfigurator-core 0.13.1 is installed, 0.12 is needed: " + install)
    write_version(fake_package, "0.12.3")
    take_out_modules()
    (fake_package / "aiconfigurator_core" / "sdk" / "__init__.py").write_text("import nowhere")
    line = refusal(UsageError, "gpu_a", ["Acme/One"])
    assert line.startswith("aiconfigurator-core cannot be imported (No module named 'nowhere')")
    assert install in line

    def not_found(name):
        raise sys.modules["importlib.metadata"].PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", not_found)
    line = refusal(UsageError, "gpu_a", ["Acme/One"])
    assert line.startswith("aiconfigurator-core is not installed: " + install)


def test_small_dips_are_smoothed_and_told(fake_package):
    import_aiconfigurator("gpu_a", ["Acme/One"], **SMALL)
    engine = sys.modules["aiconfigurator_core.sdk"].EngineHandle
    engine.predict_decode_latency = lambda self, batch, isl, osl: {1: 3.0, 2: 2.95, 4: 2.0}[batch]
    table = import_aiconfigurator("gpu_a", ["Acme/One"], **SMALL).models[0].decode
    assert table.latency_ms[0] == (3.0, 2.95, 2.0)  # a large dip is no noise: it stays
    engine.predict_decode_latency = lambda self, batch, isl, osl: {1: 3.0, 2: 2.901, 4: 4.0}[batch]
    table = import_aiconfigurator("gpu_a", ["Acme/One"], **SMALL).models[0].decode
    for row in table.latency_ms:
        assert all(low <= high for low, high in pairwise(row))
        assert all(value == round(value, 3) for value in row)
    assert "2 dips with batch smoothed" in table.provenance.note


def test_the_usual_context_is_the_listed_one_closest_to_2048(fake_package):
    sizes = {"batches": (1, 2), "new_tokens": (1, 4)}
    for contexts, expected in (((512, 1024), 1024), ((512, 1800), 1800)):
        found = import_aiconfigurator("gpu_a", ["Acme/One"], contexts=contexts, **sizes)
        assert found.context_tokens == expected
