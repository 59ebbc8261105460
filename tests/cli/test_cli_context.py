"""``--context``, and what does not fit into GPU memory."""

import json
from pathlib import Path

import pytest

from trmodel import api
from trmodel.errors import InfeasibleError

IMPORTED = "tune --profile a100-imported"


@pytest.mark.parametrize(
    ("line", "recorded", "words"),
    [
        ("", 2048, "context of 2048 tokens;"),
        ("--context 1024", 1024, "context of 1024 tokens;"),
        ("--context 1024..3072", [1024, 3072], "context that grows from 1024 to 3072 tokens, av"),
    ],
)
@pytest.mark.parametrize("command", [f"{IMPORTED} --N 2", "predict --profile h100 --N 2 --B 1,2"])
def test_the_context_is_recorded_and_shown(run, command, line, recorded, words):
    assert run(f"{command} {line} --json").json["system"]["context_tokens"] == recorded
    assert words in run(f"{command} {line}").out


def test_constants_of_unknown_context_name_none(run):
    result = run("tune --profile a100-paper --N 2 --json")
    assert result.json["system"]["context_tokens"] is None
    assert "context" not in run("tune --profile a100-paper --N 2").out


def test_a_longer_context_costs_throughput(run):
    short, long = (
        run(f"{IMPORTED} --N 4 --context {c} --json").json["rows"][0] for c in ("1024", "8192")
    )
    assert long["throughput_tok_s"] < short["throughput_tok_s"]


def test_sweeps_take_a_context(run):
    tuned = run(f"{IMPORTED} --N 2 --context 4096 --sweep p=0.2,0.3 --json").json
    assert tuned["system"]["context_tokens"] == 4096
    predict = "predict --profile a100-imported --N 2 --B 1,2 --context 4096"
    rows = run(f"{predict} --sweep p=0.2,0.35 --json").json["rows"]
    assert rows[1]["throughput_tok_s"] == run(f"{predict} --json").json["throughput_tok_s"]


@pytest.mark.parametrize("context", ["0", "x", "3072..1024", "1024..", "1..2..3", "-1", "1.5"])
def test_a_bad_context_is_refused(run, context):
    for command in (f"{IMPORTED} --N 2", "predict --N 2 --B 1,1", "profile capacity h100"):
        result = run(f"{command} --context", context)
        assert (result.code, result.out) == (2, "")
        assert "trmodel: error: --context: " in result.err


def test_what_does_not_fit_is_refused(run):
    result = run(f"{IMPORTED} --N 2,60 --context 1024..8192")
    assert (result.code, result.out) == (3, "")
    assert result.err.splitlines()[-1] == (
        "trmodel: error: 60 requests of 8192 tokens do not fit into GPU memory: at most 20 do "
        "(GPU 0 holds 169425 cached tokens); --clip leaves out what does not fit"
    )


def test_clip_leaves_out_what_does_not_fit(run):
    result = run(f"{IMPORTED} --N 2,3,60..64 --context 8192 --clip --json")
    assert [row["N"] for row in result.json["rows"]] == [2, 3]
    assert "trmodel: warning: left out N from 60 on: 64 requests of 8192 tokens" in result.err
    assert any("left out" in warning for warning in result.json["warnings"])
    assert run(f"{IMPORTED} --N 60 --context 8192 --clip").code == 3


def test_without_memory_fields_only_explain_speaks_of_it(run):
    assert "memory" not in run("tune --profile a100-paper --N 2").err
    text = run("tune --profile a100-paper --N 2 --explain").out
    assert "memory: KV capacity is not checked: " in text
    assert "memory: at most 82 requests fit" in run(f"{IMPORTED} --N 2 --explain").out


def test_predict_warns_of_what_does_not_fit_in_the_words_of_tune(run):
    at = "--profile a100-imported --N 21 --context 1024..8192"
    refusal = run(f"tune {at}").err.splitlines()[-1].removeprefix("trmodel: error: ")
    words = refusal.removesuffix("; --clip leaves out what does not fit")
    result = run(f"predict {at} --B 1,1 --grid-ms 2 --json")
    assert result.code == 0
    assert words in result.json["warnings"]
    assert f"trmodel: warning: {words}\n" in result.err
    fits = run("predict --profile a100-imported --N 3 --B 1,1 --context 8192 --json")
    assert not any("do not fit" in warning for warning in fits.json["warnings"])


def test_predict_warns_where_not_even_the_weights_fit(run):
    plain = run("profile show h100 --json").json
    plain["hardware"]["gpu_memory_bytes"] = 40 * 10**9
    Path("small.json").write_text(json.dumps(plain))
    result = run("predict --profile small.json --N 2 --B 1,1")
    assert result.code == 0
    assert "warning: GPU 0: weights (" in result.err


def test_a_huge_context_is_called_too_large(run):
    result = run("tune --N 2 --context 99999999999999999999")
    assert (result.code, result.err) == (
        2,
        "trmodel: error: --context: 99999999999999999999 is too large\n",
    )
    assert "--clip" not in run("tune --N 2 --context 9999999999").err  # it would leave nothing


def test_the_python_function_names_its_own_argument():
    with pytest.raises(InfeasibleError, match="; clip=True leaves out what does not fit"):
        api.fitting("a100-imported", [2, 60], context=8192)
