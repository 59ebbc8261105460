"""Without SGLang or transformers, what needs them says so in one line."""

import sys

import pytest

from trmodel.errors import InputError
from trmodel.runtime.engines.sglang.environment import prepare_cpu
from trmodel.runtime.engines.sglang.tokenizer import load_tokenizer


def test_no_sglang(monkeypatch):
    monkeypatch.setitem(sys.modules, "sglang", None)
    monkeypatch.delenv("SGLANG_USE_CPU_ENGINE", raising=False)
    with pytest.raises(InputError, match=r"^engine: SGLang is not installed; .*make sglang-cpu$"):
        prepare_cpu()


def test_no_transformers(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"^engine: real models need transformers; pip install"):
        load_tokenizer(tmp_path)
