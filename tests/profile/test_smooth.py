"""Dips with the batch: small ones smoothed by isotonic regression, large ones kept; both told."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_making import PROVENANCE, decode_table, extend_table, model, profile, routing
from scipy.optimize import isotonic_regression

from trmodel.profile import build_system, load_profile, smoothed, step_latency
from trmodel.profile.smooth import LARGE_DIP, smooth_row, table_dips

rows = st.lists(st.floats(1.0, 50.0), min_size=1, max_size=12)
nearly_constant = st.lists(st.floats(20.0, 20.9), min_size=1, max_size=12)  # under 5 % apart


@given(nearly_constant)
def test_rows_with_small_dips_become_their_isotonic_regression(row):
    smooth, dips = smooth_row(range(1, len(row) + 1), row)
    np.testing.assert_allclose(smooth, isotonic_regression(row).x)
    assert np.all(np.diff(smooth) >= 0)
    assert smooth.mean() == pytest.approx(np.mean(row))
    assert all(not dip.large for dip in dips)
    assert bool(dips) == bool(np.any(np.diff(row) < 0))


@given(rows)
def test_every_block_is_either_smoothed_or_kept(row):
    batch = range(1, len(row) + 1)
    smooth, dips = smooth_row(batch, row)
    assert [dip.first for dip in dips] == sorted(dip.first for dip in dips)
    touched = np.zeros(len(row), dtype=bool)
    for dip in dips:
        block = slice(dip.first - 1, dip.last)
        touched[block] = True
        assert dip.first < dip.batch <= dip.last
        before = max(row[dip.first - 1 : dip.batch])
        assert dip.drop == pytest.approx(1 - row[dip.batch - 1] / before)
        if dip.large:
            assert smooth[block].tolist() == row[block]
        else:
            assert np.ptp(smooth[block]) == 0.0
            assert smooth[block][0] == pytest.approx(np.mean(row[block]))
    assert smooth[~touched].tolist() == np.array(row)[~touched].tolist()
    again, left = smooth_row(batch, smooth)
    assert again.tolist() == smooth.tolist()
    assert all(dip.large for dip in left)


def test_rows_without_dips_stay():
    row, dips = smooth_row([1, 2, 4], [1.0, 1.0, 2.0])
    assert (row.tolist(), dips) == ([1, 1, 2], [])


def test_the_dip_of_the_large_model_is_smoothed_and_told():
    table = decode_table([1, 2, 4], [25.5, 25.0, 25.7])
    found = step_latency(table, [1, 2, 3, 4], (0, 0), model="Qwen3-32B")
    assert found.latency_ms == pytest.approx([25.25, 25.25, 25.475, 25.7])
    assert found.notes == ("Qwen3-32B: dip of 2.0 % at batch 2 smoothed",)
    assert step_latency(table, [1], (0, 0)).notes != ()
    far = decode_table([1, 2, 4], [25.0, 25.5, 25.3])
    assert step_latency(far, [1], (0, 0)).notes == ()  # not among the batches that can form


def test_a_large_dip_is_kept_beside_a_small_one():
    table = decode_table([1, 2, 4, 8, 16], [10.0, 9.9, 20.0, 15.0, 30.0])
    found = step_latency(table, [1, 2, 4, 8, 16], (0, 0), model="m")
    assert found.latency_ms == pytest.approx([9.95, 9.95, 20, 15, 30])
    assert found.notes == ("m: dip of 1.0 % at batch 2 smoothed",)
    assert [str(dip) for dip in table_dips(table) if dip.large] == ["dip of 25.0 % at batch 8"]
    assert LARGE_DIP == 0.05


def test_only_the_contexts_that_count_are_told():
    table = decode_table([1, 2], [[10, 9.9], [20, 19.9], [30, 31]], context_tokens=[1, 2, 3])
    (note,) = step_latency(table, [1, 2], (1, 2), model="m").notes
    assert (
        note == "m: 2 dips with batch smoothed, the largest a dip of 1.0 % at batch 2 at context 1"
    )
    assert step_latency(table, [1, 2], (3, 3)).notes == ()


def test_a_dip_that_would_be_printed_as_nothing_is_smoothed_silently():
    found = step_latency(decode_table([1, 2], [10.0, 9.9999]), [1, 2], (0, 0))
    assert found.latency_ms[0] == found.latency_ms[1]
    assert found.notes == ()


def test_tables_can_be_smoothed_before_they_are_written():
    table = smoothed(decode_table([1, 2, 4], [25.5, 25.0, 25.7]), "Qwen3-32B")
    assert table.latency_ms == (25.25, 25.25, 25.7)
    told = "Qwen3-32B: dip of 2.0 % at batch 2 smoothed (isotonic regression)."
    assert table.provenance.note == told
    assert step_latency(table, [1, 2], (0, 0)).notes == ()
    assert smoothed(table, "Qwen3-32B") is table
    several = decode_table([1, 2], [[10, 9.9], [20, 21]], context_tokens=[1, 2])
    assert smoothed(several, "m").latency_ms == ((9.95, 9.95), (20.0, 21.0))
    extend = extend_table([1, 2], [1, 2], [[10, 9.9], [20, 15]])
    told = smoothed(extend, "m")
    assert told.latency_ms == ((9.95, 9.95), (20.0, 15.0))
    assert "at batch 2 at new_tokens 1 smoothed" in told.provenance.note
    provenance = {"method": "assumed", "source": "s", "note": "First."}
    noted = decode_table([1, 2], [10, 9.9], provenance=provenance)
    assert smoothed(noted, "m").provenance.note.startswith("First. m: dip of 1.0 %")


def test_a_loaded_profile_holds_smoothed_latencies_and_says_so_in_its_provenance():
    def table(latency_ms, **fields):
        return {"batch": [1, 2], "latency_ms": latency_ms, "provenance": PROVENANCE, **fields}

    rows = [[10.0, 9.9], [10.0, 11.0]]
    extend = table(rows, new_tokens=[1, 4])
    loaded = profile(
        [model("m0", gpus=[0], decode=table([25.5, 25.0]), extend=extend), model("m1", gpus=[1])],
        routing=routing([[0.5, 0.5], [1.0, 0.0]]),
    )
    first, second = loaded.profile.models
    assert first.decode.latency_ms == (25.25, 25.25)
    assert first.extend.latency_ms == ((9.95, 9.95), (10.0, 11.0))
    note = "m0: dip of 2.0 % at batch 2 smoothed"
    other = "m0, extend: dip of 1.0 % at batch 2 at new_tokens 1 smoothed"
    assert first.decode.provenance.note == f"{note} (isotonic regression)."
    assert first.extend.provenance.note == f"{other} (isotonic regression)."
    assert second.decode.provenance.note is None
    assert dict(loaded.smoothed) == {"m0": (note, other)}
    assert build_system(loaded, 2).warnings[:2] == (note, other)
    again = load_profile(loaded.profile)  # it says so itself now
    assert (again.profile, dict(again.smoothed)) == (loaded.profile, {})
