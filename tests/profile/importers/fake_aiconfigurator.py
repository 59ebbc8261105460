"""A stand-in for aiconfigurator-core: its facade and its files, with made-up numbers."""

import json
import sys

SDK = """
import logging

CALLS = []


class EngineHandle:
    @classmethod
    def compile(cls, path, system, backend, *, backend_version, tp_size):
        logging.getLogger("aiconfigurator_core.sdk").warning("a note of no use")
        if 16 % tp_size:
            raise AssertionError(f"num_heads 16 should be divisible by tp_size {tp_size}\\nmore")
        CALLS.append((path, system, backend, backend_version, tp_size))
        return cls()

    def predict_decode_latency(self, batch, isl, osl):
        assert osl == 2
        return 2 + 0.1 * batch + 0.0001 * batch * (isl + 1)

    def predict_prefill_latency(self, batch, isl, prefix):
        return 1 + 0.01 * batch * (isl - prefix)


def estimate_kv_cache(path, system, backend, version, *, tp_size, max_num_tokens, max_batch_size,
                      memory_fraction_kind, memory_fraction_value):
    return {
        "total_gpu_capacity_bytes": 80_000_000_000,
        "kv_size_per_token_bytes": 1000 // tp_size,
        "memory_breakdown": {"weights_bytes": 1_500_000_000 // tp_size},
    }
"""

DATABASE = """
SLOTS = {
    ("gpu_a", "sglang"): {"current": "0.5.10"},
    ("gpu_b", "sglang"): {"current": "0.5.14", "next": "0.5.16"},
    ("gpu_b", "vllm"): {"current": "0.24.0"},
}


def get_version_slots(system, backend):
    return SLOTS.get((system, backend))


def load_system_spec(system):
    return {"gpu": {"sm_version": 90 if system == "gpu_b" else 80}}
"""

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "vocab_size": 100_000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}


def write_package(root):
    """Write the stand-in into a folder to be put on the path."""
    package = root / "aiconfigurator_core"
    for folder in ("sdk", "systems", "model_configs"):
        (package / folder).mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "sdk" / "__init__.py").write_text(SDK)
    (package / "sdk" / "perf_database.py").write_text(DATABASE)
    for system in ("gpu_a", "gpu_b", "gpu_without_data"):
        (package / "systems" / f"{system}.yaml").write_text("")
    for model in ("Acme--One", "Acme--Two", "Other--Three"):
        (package / "model_configs" / f"{model}_config.json").write_text(json.dumps(CONFIG))
    (package / "model_configs" / "Acme--Two_hf_quant_config.json").write_text("{}")
    write_version(root, "0.12.0")


def write_version(root, version):
    """Say which version of the distribution is installed."""
    info = root / "aiconfigurator_core-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: aiconfigurator-core\nVersion: {version}\n"
    )


def take_out_modules():
    """Forget the imported package, to import it from elsewhere; gives its modules."""
    names = [name for name in sys.modules if name.partition(".")[0] == "aiconfigurator_core"]
    return {name: sys.modules.pop(name) for name in names}
