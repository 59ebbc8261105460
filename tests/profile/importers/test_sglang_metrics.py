"""Import of SGLang's metrics: warm-up, outliers and mixed batches in made-up streams."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

from trmodel.errors import InputError, UsageError
from trmodel.profile.importers import import_sglang_metrics
from trmodel.profile.importers.sglang_metrics import Scheduled, _grouped


def record(ms, *, decode=0, decode_kv=0, prefill=0, new=0, prefill_kv=0, **other):
    """One iteration as SGLang gives it; tokens are per request here."""
    queued = {"num_prefill_requests": 3, "var_prefill_length": 0.5}
    return {
        "version": 1,
        "worker_id": "w",
        "dp_rank": 0,
        "counter_id": None,
        "wall_time": ms / 1000,
        "scheduled_requests": {
            "num_prefill_requests": prefill,
            "sum_prefill_tokens": new * prefill,
            "var_prefill_length": 0.0,
            "sum_prefill_kv_tokens": prefill_kv * prefill,
            "num_decode_requests": decode,
            "sum_decode_kv_tokens": decode_kv * decode,
            "var_decode_kv_tokens": 0.0,
        },
        "queued_requests": queued,
        **other,
    }


def decodes(batch, latencies, context=1000):
    return [record(ms, decode=batch, decode_kv=context) for ms in latencies]


def extends(batch, new, latencies, cached=2000):
    return [record(ms, prefill=batch, new=new, prefill_kv=cached) for ms in latencies]


def write(tmp_path, records, *, array=False, tail=""):
    for i, each in enumerate(records):
        if each.get("counter_id", 0) is None:
            each["counter_id"] = i
    path = tmp_path / "metrics.jsonl"
    lines = "".join(json.dumps(each) + "\n" for each in records)
    path.write_text(json.dumps(records) if array else lines + tail)
    return path


def test_a_stream_of_mixed_batches_becomes_medians(tmp_path):
    rng = np.random.default_rng(1)
    true = {1: 5.0, 2: 5.5, 3: 6.0, 8: 9.0}
    records = [
        each
        for batch, ms in true.items()
        for each in decodes(batch, ms * (1 + 0.01 * rng.standard_normal(200)))
    ]
    rng.shuffle(records)
    slow = [decodes(batch, [500.0, 800.0])[i] for i in (0, 1) for batch in true]
    idle = [record(0) for _ in range(7)]
    mixed = [record(40, decode=4, prefill=1, new=100) for _ in range(9)]
    warm_up = [each for batch in true for each in decodes(batch, [300.0] * 5)]
    path = write(tmp_path, [*warm_up, *records, *slow, *idle, *mixed])
    profile = import_sglang_metrics(path, "Qwen3-8B", sglang_version="0.5.23", gpu="Acme")
    (model,) = profile.models
    assert model.name == "Qwen3-8B"
    assert model.decode.batch == (1, 2, 3, 8)
    assert model.decode.context_tokens == profile.context_tokens == 1000
    assert model.decode.latency_ms == pytest.approx(tuple(true.values()), rel=0.005)
    assert model.extend is None
    assert model.decode.provenance.method == "imported"
    assert profile.software == {"sglang": "0.5.23"}
    note = model.decode.provenance.note
    assert note.startswith("Medians of 808 samples, at least 202 for each size; interquartile ")
    assert "Of 844 records dropped: 20 warm-up, 7 idle, 9 mixed." in note


def test_without_dropping_warm_up_the_first_records_count(tmp_path):
    path = write(tmp_path, decodes(1, [100.0] * 3 + [5.0] * 2))
    for warm_up, latency in ((3, 5), (0, 100)):
        profile = import_sglang_metrics(path, "m", warm_up=warm_up, min_samples=2)
        assert profile.models[0].decode.latency_ms == (latency,)


def test_sizes_with_too_few_samples_are_left_out_and_named(tmp_path):
    path = write(tmp_path, [*decodes(1, [5] * 15), *decodes(2, [6] * 14), *decodes(4, [6] * 3)])
    table = import_sglang_metrics(path, "m").models[0].decode
    assert table.batch == (1,)
    # The third batch has no sample left after warm-up, and is not heard of.
    assert "Too few samples, left out: batch 2 (9)." in table.provenance.note


def test_the_context_is_the_middle_one_with_its_spread(tmp_path):
    records = [each for c in range(1, 102) for each in decodes(1, [5.0], context=10 * c)]
    table = import_sglang_metrics(write(tmp_path, records), "m", warm_up=0).models[0].decode
    assert table.context_tokens == 510
    assert "110 to 910 cached tokens per request" in table.provenance.note


def test_extend_steps_are_a_table_of_their_own(tmp_path):
    records = [
        *decodes(1, [5] * 20),
        *extends(1, 1, [6] * 20),
        *extends(1, 3, [8] * 20),
        *extends(1, 64, [20] * 20),
        *extends(2, 3, [10] * 20),
        *extends(4, 7, [12] * 3),
    ]
    model = import_sglang_metrics(write(tmp_path, records), "m", tensor_parallel=2).models[0]
    table = model.extend
    assert model.decode.latency_ms == (5,)
    assert (table.batch, table.new_tokens) == ((1, 2), (1, 3, 64))
    assert table.context_tokens == 2000
    assert table.latency_ms == ((6, 10), (8, 10), (20, pytest.approx(10 * 64 / 3, abs=1e-3)))
    assert table.status == (
        ("measured", "extrapolated"),
        ("measured", "measured"),
        ("measured", "extrapolated"),
    )
    assert "Medians of 60 samples" in table.provenance.note
    assert "batch 4 with 7 new tokens" not in table.provenance.note  # none left after warm-up


def test_sizes_in_between_are_interpolated(tmp_path):
    records = [
        *decodes(1, [5] * 20),
        *(each for new in (1, 5, 9) for each in extends(1, new, [new] * 20)),
        *(each for new in (1, 9) for each in extends(2, new, [2 * new] * 20)),
    ]
    table = import_sglang_metrics(write(tmp_path, records), "m").models[0].extend
    assert table.new_tokens == (1, 5, 8)  # 9 tokens are counted with 8
    assert table.latency_ms[1] == (5, pytest.approx(2 + 16 * 4 / 7, abs=1e-3))
    assert table.status[1] == ("measured", "interpolated")


def test_extend_steps_of_several_requests_alone_make_no_table(tmp_path):
    path = write(tmp_path, [*decodes(1, [5] * 20), *extends(2, 3, [8] * 20)])
    assert import_sglang_metrics(path, "m").models[0].extend is None


@pytest.mark.parametrize(
    ("tokens", "group"),
    [(0.2, 1), (1, 1), (2.6, 3), (7, 7), (8, 8), (9, 8), (11, 12), (15, 16), (17, 16), (100, 96),
     (127, 128), (1000, 1024)],
)  # fmt: skip
def test_grouping(tokens, group):
    assert _grouped(tokens) == group


def test_grouping_is_within_an_eighth_and_keeps_groups():
    for tokens in range(1, 5000):
        assert abs(_grouped(tokens) - tokens) <= tokens / 8
        assert _grouped(_grouped(tokens)) == _grouped(tokens)


def test_an_array_and_a_cut_off_line_are_read(tmp_path):
    records = decodes(1, [5] * 20)
    whole = import_sglang_metrics(write(tmp_path, records, array=True), "m")
    cut = import_sglang_metrics(write(tmp_path, records, tail='{"version": 1, "wal'), "m")
    assert whole.models[0].decode.latency_ms == cut.models[0].decode.latency_ms == (5,)
    note = cut.models[0].decode.provenance.note
    assert "Of 21 records dropped: 5 warm-up, 1 cut off." in note


def test_lost_records_are_counted_for_each_rank(tmp_path):
    records = decodes(1, [5] * 40)
    for i, each in enumerate(records):
        each["dp_rank"] = i % 2
        each["counter_id"] = (i // 2) % 10  # a restart counts from 0 again
    del records[5]
    records[24]["counter_id"] += 3
    note = import_sglang_metrics(write(tmp_path, records), "m").models[0].decode.provenance.note
    assert "4 more were lost on the way." in note


def test_several_servers_in_one_file_must_be_told_apart(tmp_path):
    records = decodes(1, [5] * 20) + decodes(1, [9] * 20)
    for each in records[20:]:
        each["worker_id"] = "x"
    path = write(tmp_path, records)
    with pytest.raises(InputError, match=r"records of 2 servers.*choose a worker: 'w', 'x'"):
        import_sglang_metrics(path, "m")
    assert import_sglang_metrics(path, "m", worker="x").models[0].decode.latency_ms == (9,)
    with pytest.raises(InputError, match="no record of worker 'y'; there are 'w', 'x'"):
        import_sglang_metrics(path, "m", worker="y")


def test_records_that_are_wrong_are_all_named(tmp_path):
    bad = decodes(1, [5] * 5)
    bad[0]["version"] = 2
    bad[1]["wall_time"] = -1
    bad[2]["scheduled_requests"]["num_decode_requests"] = "one"
    del bad[3]["scheduled_requests"]
    path = write(tmp_path, bad, tail='[1]\n{"a": NaN}\n')
    with pytest.raises(InputError) as caught:
        import_sglang_metrics(path, "m")
    lines = [line.removeprefix(f"{path}: ") for line in caught.value.problems]
    assert lines == [
        "line 1: version: must be 1, got 2",
        "line 2: wall_time: must be at least 0, got -1",
        'line 3: scheduled_requests.num_decode_requests: must be a whole number, got "one"',
        "line 4: scheduled_requests: is missing; it is required",
        "line 6: must be an object, a record of SGLang's forward-pass metrics on each line",
        "line 7: NaN is not a JSON number (line 1, column 7); give a finite number",
    ]


def test_many_bad_records_are_not_all_read(tmp_path):
    path = write(tmp_path, [{"a": 1}] * 500)
    with pytest.raises(InputError) as caught:
        import_sglang_metrics(path, "m")
    assert len(caught.value.problems) == 101
    assert caught.value.problems[-1] == f"{path}: and more problems"


def test_single_requests_are_needed(tmp_path):
    path = write(tmp_path, decodes(2, [5] * 20) + decodes(1, [5] * 8))
    with pytest.raises(InputError, match="3 decode steps with one request are left after warm-up, "
                                         "10 are needed"):  # fmt: skip
        import_sglang_metrics(path, "m")


def test_steps_without_a_time_are_dropped(tmp_path):
    records = [*decodes(1, [5] * 20), *decodes(1, [0] * 2), *extends(1, 0, [5] * 20)]
    model = import_sglang_metrics(write(tmp_path, records), "m").models[0]
    assert model.extend is None
    assert "5 warm-up, 22 not timed." in model.decode.provenance.note


@pytest.mark.parametrize("option", ["warm_up", "min_samples", "tensor_parallel"])
def test_numbers_that_make_no_sense_are_refused(tmp_path, option):
    with pytest.raises(UsageError, match=f"^{option}: must be at least"):
        import_sglang_metrics(tmp_path / "none", "m", **{option: -1})


def test_the_documentation_names_the_fields_and_defaults():
    text = (Path(__file__).parents[3] / "docs" / "importing.md").read_text(encoding="utf-8")
    for name in (*Scheduled.model_fields, "wall_time"):
        assert f"`{name}`" in text
    defaults = inspect.signature(import_sglang_metrics).parameters
    assert f"first {defaults['warm_up'].default} of each" in " ".join(text.split())
    assert f"fewer than {defaults['min_samples'].default} (`min_samples`)" in text
