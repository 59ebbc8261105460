"""The optional fields of a profile: accepted shapes, and every way in which they can be wrong."""

import copy

import pytest
from profile_making import PROVENANCE, decode_table, model, profile

from trmodel.documents import parse_document
from trmodel.errors import InputError
from trmodel.profile import Profile

FULL = profile(
    [
        model(
            "a",
            2,
            gpus=[0, 1],
            decode={
                "batch": [1, 2],
                "context_tokens": [10, 20, 30],
                "latency_ms": [[1, 2], [3, 4], [5, 6]],
                "padded_batches": [1, 4],
                "status": [["measured", "interpolated"]] * 3,
                "provenance": PROVENANCE,
            },
            extend={
                "batch": [1, 2],
                "new_tokens": [1, 4],
                "latency_ms": [[1, 2], [3, 4]],
                "context_tokens": 10,
                "status": [["measured", "extrapolated"]] * 2,
                "provenance": PROVENANCE,
            },
            memory={"weight_bytes": 10, "kv_bytes_per_token": 1, "provenance": PROVENANCE},
        ),
        model("b"),
    ],
    {"gpus": 2, "gpu_memory_bytes": 100, "reserved_bytes": 0},
    context_tokens=100,
    handoff={
        "latency_ms": 0,
        "pairs": [{"source": "a", "destination": "b", "latency_ms": 1}],
        "provenance": PROVENANCE,
    },
).profile


def data_with(path: str, value):
    data = copy.deepcopy(FULL.model_dump(mode="json", by_alias=True))
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    inner = data
    for part in parents:
        inner = inner[part]
    inner[last] = value
    return data


def test_a_profile_with_every_field_survives_being_written():
    assert Profile.model_validate_json(FULL.model_dump_json(by_alias=True)) == FULL
    assert FULL.models[0].decode.rows == ((1, 2), (3, 4), (5, 6))
    assert FULL.models[0].decode.contexts == (10, 20, 30)


def test_rows_are_the_same_for_any_shape():
    one = decode_table([1, 2], [3, 4], context_tokens=5, status=["measured", "extrapolated"])
    assert (one.rows, one.contexts) == (((3, 4),), (5,))
    assert one.status_rows == (("measured", "extrapolated"),)
    plain = decode_table([1, 2], [3, 4])
    assert (plain.contexts, plain.status_rows) == ((), (("measured", "measured"),))
    single = decode_table([1, 2], [[3, 4]], context_tokens=[5])
    assert (single.rows, single.contexts) == (one.rows, one.contexts)


DECODE, EXTEND = "models[0].decode", "models[0].extend"
PAIR = {"source": "a", "destination": "b", "latency_ms": 1}


@pytest.mark.parametrize(
    ("path", "value", "problems"),
    [
        ("models.0.decode.context_tokens", [10, 10, 5],
         [f"{DECODE}.context_tokens[1]: must be above the one before, 10, got 10",
          f"{DECODE}.context_tokens[2]: must be above the one before, 10, got 5"]),
        ("models.0.decode.context_tokens", [], [f"{DECODE}.context_tokens: must not be empty"]),
        ("models.0.decode.context_tokens", [-1, 2, 3],
         [f"{DECODE}.context_tokens[0]: must be at least 0, got -1"]),
        ("models.0.decode.context_tokens", "long",
         [f'{DECODE}.context_tokens: must be a whole number, got "long"']),
        ("models.0.decode.context_tokens", [10, 20],
         [f"{DECODE}.latency_ms: 2 contexts are listed, got 3 rows of latencies"]),
        ("models.0.decode.context_tokens", 10,
         [f"{DECODE}.latency_ms: has several rows: context_tokens must list their contexts"]),
        ("models.0.decode.latency_ms", [1, 2],
         [f"{DECODE}.latency_ms: must be a list of 3 lists, one for each of the context_tokens"]),
        ("models.0.decode.latency_ms", [[1, 2], [3], [4, 5, 6]],
         [f"{DECODE}.latency_ms[1]: 2 batch sizes are listed, got 1 latencies",
          f"{DECODE}.latency_ms[2]: 2 batch sizes are listed, got 3 latencies"]),
        ("models.0.decode.latency_ms", [[1, 2], [3, 0], 4],
         [f"{DECODE}.latency_ms[1][1]: must be above 0, got 0",
          f"{DECODE}.latency_ms[2]: must be a list, got 4"]),
        ("models.0.decode.padded_batches", [4, 2],
         [f"{DECODE}.padded_batches[1]: must be above the one before, 4, got 2"]),
        ("models.0.decode.padded_batches", [0],
         [f"{DECODE}.padded_batches[0]: must be at least 1, got 0"]),
        ("models.0.decode.padded_batches", [], [f"{DECODE}.padded_batches: must not be empty"]),
        ("models.0.decode.status", [["measured"] * 2] * 2,
         [f"{DECODE}.status: must have the shape of latency_ms, one status for each latency"]),
        ("models.0.decode.status", ["measured"] * 3,
         [f"{DECODE}.status: must have the shape of latency_ms, one status for each latency"]),
        ("models.0.decode.status", [["measured", "guessed"]] * 3,
         [f"{DECODE}.status[{i}][1]: must be 'measured', 'interpolated' or 'extrapolated', got "
          '"guessed"' for i in range(3)]),
        ("models.0.extend.new_tokens", [0, 4],
         [f"{EXTEND}.new_tokens[0]: must be at least 1, got 0"]),
        ("models.0.extend.new_tokens", [4, 4],
         [f"{EXTEND}.new_tokens[1]: must be above the one before, 4, got 4"]),
        ("models.0.extend.new_tokens", [4],
         [f"{EXTEND}.latency_ms: 1 numbers of new tokens are listed, got 2 rows of latencies"]),
        ("models.0.extend.latency_ms", [[1], [2, 3]],
         [f"{EXTEND}.latency_ms[0]: 2 batch sizes are listed, got 1 latencies"]),
        ("models.0.extend.context_growth", [1.0],
         [f"{EXTEND}.context_growth: has 1 numbers, one is needed for each of 2 numbers of new "
          "tokens"]),
        ("models.0.extend.context_growth", [1.0, -1.0],
         [f"{EXTEND}.context_growth[1]: must be at least 0, got -1.0"]),
        ("models.0.extend.batch", [2, 3],
         [f"{EXTEND}.batch[0]: the first batch size must be 1, got 2"]),
        ("models.0.extend.status", [["measured"]] * 2,
         [f"{EXTEND}.status: must have the shape of latency_ms, one status for each latency"]),
        ("models.0.extend.context_tokens", [1],
         [f"{EXTEND}.context_tokens: must be a whole number, got a list"]),
        ("models.0.gpus", [0], ["models[0].gpus: must list 2 GPUs, one for each of "
                                "tensor_parallel, got 1"]),
        ("models.0.gpus", [1, 1], ["models[0].gpus: must be distinct, got 1, 1"]),
        ("models.0.gpus", [1, 2],
         ["models[0].gpus[1]: must be below the number of GPUs, 2, got 2"]),
        ("models.0.memory.weight_bytes", 0,
         ["models[0].memory.weight_bytes: must be at least 1, got 0"]),
        ("models.0.memory.kv_bytes_per_token", 1.5,
         ["models[0].memory.kv_bytes_per_token: must be a whole number, got 1.5"]),
        ("hardware.gpu_memory_bytes", 8.5,
         ["hardware.gpu_memory_bytes: must be a whole number, got 8.5"]),
        ("hardware.reserved_bytes", -1, ["hardware.reserved_bytes: must be at least 0, got -1"]),
        ("context_tokens", 0, ["context_tokens: must be at least 1, got 0"]),
        ("handoff.latency_ms", -1, ["handoff.latency_ms: must be at least 0, got -1"]),
        ("handoff.pairs", [{**PAIR, "source": "c"}, {**PAIR, "source": "b"}, PAIR, PAIR],
         ["handoff.pairs[0]: c not among the models a, b",
          "handoff.pairs[1]: must be two different models",
          "handoff.pairs[3]: this pair is listed before"]),
        ("handoff.provenance", None, ["handoff.provenance: must be an object, got null"]),
    ],
)  # fmt: skip
def test_bad_values(path, value, problems):
    with pytest.raises(InputError) as caught:
        parse_document(Profile, data_with(path, value), "f.json")
    assert caught.value.problems == [f"f.json: {line}" for line in problems]
