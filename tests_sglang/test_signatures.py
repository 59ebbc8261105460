"""The check of the installed SGLang: silent where all is as it was, and plain where it is not."""

import logging

import pytest

from trmodel.errors import InputError
from trmodel.runtime.engines.sglang import signatures
from trmodel.runtime.engines.sglang.environment import prepare_cpu

prepare_cpu()


def test_the_installed_sglang_is_as_it_should_be(caplog):
    with caplog.at_level(logging.WARNING, logger="trmodel"):
        signatures.check_signatures()
    assert not caplog.records


def test_every_difference_is_told(monkeypatch):
    request = "sglang.srt.managers.schedule_batch:Req"
    calls = {
        request: ("rid", "colour"),
        "sglang.srt.nothing:there": (),
        "sglang.srt.managers.schedule_batch:ScheduleBatch.vanished": (),
    }
    wanted = {"sglang.srt.managers.schedule_batch:ReqKvInfo": ("kv_allocated_len", "kv_flavour")}
    monkeypatch.setattr(signatures, "CALLS", calls)
    monkeypatch.setattr(signatures, "FIELDS", wanted)
    with pytest.raises(InputError) as raised:
        signatures.check_signatures()
    told = str(raised.value)
    for difference in (
        "Req takes no colour",
        "Req needs origin_input_ids",
        "there is gone",
        "ScheduleBatch.vanished is gone",
        "ReqKvInfo has no kv_flavour",
    ):
        assert difference in told
    assert "kv_allocated_len" not in told


def test_another_version_that_looks_the_same_is_only_warned_of(monkeypatch, caplog):
    monkeypatch.setattr(signatures, "version", lambda _: "0.9.9")
    with caplog.at_level(logging.WARNING, logger="trmodel"):
        signatures.check_signatures()
    assert "0.9.9" in caplog.text


def test_without_sglang_it_is_told_how_to_install_it(monkeypatch):
    def missing(_):
        raise signatures.PackageNotFoundError

    monkeypatch.setattr(signatures, "version", missing)
    with pytest.raises(InputError, match="sglang-cpu"):
        signatures.check_signatures()
