"""Fixtures: a stand-in for aiconfigurator-core, and for its tables of measured points."""

import sys

import pandas as pd
import pytest
from fake_aiconfigurator import take_out_modules, write_package


@pytest.fixture
def fake_package(tmp_path, monkeypatch):
    """Install the stand-in for one test; gives the folder it lies in."""
    root = tmp_path / "site"
    write_package(root)
    monkeypatch.syspath_prepend(str(root))
    saved = take_out_modules()
    yield root
    take_out_modules()
    sys.modules.update(saved)


@pytest.fixture
def fake_tables(monkeypatch):
    """Let the stand-in have measured points: contexts to 2048, but 512 at batch 4."""
    points = [(b, s) for b in (1, 2) for s in (512, 1024, 2048)] + [(4, 512)]
    attention = pd.DataFrame(
        {
            "batch_size": [b for b, _ in points] * 2,
            "isl": [s - 1 for _, s in points] * 2,
            "step": 1,
            "num_heads": 16,
            "num_key_value_heads": [8] * len(points) + [4] * len(points),
            "head_dim": 128,
            "attn_dtype": "bfloat16",
            "kv_cache_dtype": "bfloat16",
            "kernel_source": "only",
        }
    )
    shapes = [(4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072), (8192, 4096)]
    products = pd.DataFrame(
        {
            "gemm_dtype": "bfloat16",
            "device": "Acme GPU A",
            "m": [1, 2, 4, 8, 8],
            "n": [n for n, _ in shapes],
            "k": [k for _, k in shapes],
        }
    )
    tables = {"generation_attention_perf": attention, "gemm_perf": products}
    monkeypatch.setattr(pd, "read_parquet", lambda path: tables[path.stem])
    return tables
