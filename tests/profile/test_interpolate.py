"""Reading tables: against scipy's interpolators and quadrature; padding, statuses, refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_making import decode_table, extend_table
from scipy.integrate import quad
from scipy.interpolate import RegularGridInterpolator, interp1d

from trmodel.errors import InputError
from trmodel.profile.interpolate import extend_latency, row_weights, step_latency

steps = st.lists(st.integers(1, 20), min_size=0, max_size=5)


@st.composite
def tables(draw, rows=st.integers(2, 5)):
    """Batch sizes, contexts and latencies that grow with the batch, so that nothing is smoothed."""
    batch = np.cumsum([1, *draw(steps)])
    R = draw(rows)
    contexts = np.cumsum(draw(st.lists(st.integers(1, 4000), min_size=R, max_size=R)))
    seed = draw(st.integers(0, 2**32 - 1))
    growth = np.random.default_rng(seed).uniform(0.1, 5.0, (R, len(batch)))
    return batch.tolist(), contexts.tolist(), np.cumsum(growth, axis=1).tolist()


def table_of(parts):
    batch, contexts, latency = parts
    return decode_table(batch, latency, context_tokens=contexts)


@given(tables(), st.data())
def test_bilinear_as_scipy_has_it(parts, data):
    batch, contexts, latency = parts
    sizes = np.arange(1, batch[-1] + 1)
    context = data.draw(st.integers(contexts[0], contexts[-1]))
    found = step_latency(table_of(parts), sizes, (context, context))
    if len(batch) > 1:
        grid = RegularGridInterpolator((contexts, batch), latency)
        expected = grid(np.column_stack([np.full(len(sizes), context), sizes]))
    else:
        expected = interp1d(contexts, np.array(latency)[:, 0])([context])
    np.testing.assert_allclose(found.latency_ms, expected, rtol=1e-9)
    assert found.notes == ()
    listed = np.isin(sizes, batch) & (context in contexts)
    assert found.status.tolist() == np.where(listed, "measured", "interpolated").tolist()


@given(tables(), st.integers(0, 30_000))
def test_outside_the_contexts_the_line_goes_on_and_this_is_said(parts, context):
    batch, contexts, latency = parts
    found = step_latency(table_of(parts), batch, (context, context), model="m")
    line = interp1d(contexts, latency, axis=0, fill_value="extrapolate")(context)
    np.testing.assert_allclose(found.latency_ms, np.maximum(line, 0), rtol=1e-9, atol=1e-9)
    if contexts[0] <= context <= contexts[-1]:
        assert found.notes == ()
        assert "extrapolated" not in found.status
    else:
        assert found.notes[0] == (
            f"m: context {context} is outside the listed {contexts[0]} to {contexts[-1]}: latency "
            "is extrapolated linearly"
        )
        assert set(found.status) == {"extrapolated"}
        assert len(found.notes) == 1 + bool((line < 0).any())


@given(tables(), st.integers(0, 20_000), st.integers(1, 20_000))
def test_a_growing_context_is_averaged_as_quadrature_does(parts, low, length):
    _, contexts, latency = parts
    high = low + length
    weights = row_weights(contexts, low, high)
    assert weights.sum() == pytest.approx(1.0)
    column = np.array(latency)[:, -1]
    line = interp1d(contexts, column, fill_value="extrapolate")
    bends = [c for c in contexts if low < c < high]
    mean = quad(line, low, high, points=bends or None, limit=200)[0] / length
    assert weights @ column == pytest.approx(mean, rel=1e-7, abs=1e-7)


def test_a_growing_context_by_hand():
    table = decode_table([1, 2], [[10, 12], [20, 24], [20, 24]], context_tokens=[0, 100, 300])
    found = step_latency(table, [1, 2], (50, 150))
    # 50..100: mean of 15 and 20; 100..150: 20
    assert found.latency_ms == pytest.approx([18.75, 22.5])
    assert found.status.tolist() == ["interpolated"] * 2
    assert step_latency(table, [1, 2], (100, 100)).status.tolist() == ["measured"] * 2


def test_a_range_that_leaves_the_contexts_says_so():
    table = decode_table([1], [[10], [20]], context_tokens=[100, 200])
    found = step_latency(table, [1], (150, 250), model="m")
    assert found.latency_ms == pytest.approx([20.0])
    assert found.notes == (
        "m: context 150 to 250 is outside the listed 100 to 200: latency is extrapolated linearly",
    )


def test_a_latency_continued_below_zero_is_zero_and_said():
    table = decode_table([1], [[10], [20]], context_tokens=[1000, 1100])
    found = step_latency(table, [1], (100, 100), model="m")
    assert found.latency_ms.tolist() == [0.0]
    assert found.notes[1] == "m: latency extrapolated below 0 ms is taken as 0"


def test_a_table_of_one_context_is_used_at_another_unchanged_and_this_is_said():
    table = decode_table([1, 2], [5.0, 6.0], context_tokens=2048)
    at, other = step_latency(table, [1, 2], (2048, 2048)), step_latency(table, [1, 2], (9, 9))
    assert (at.notes, at.status.tolist()) == ((), ["measured"] * 2)
    assert other.latency_ms.tolist() == at.latency_ms.tolist() == [5.0, 6.0]
    assert other.status.tolist() == ["extrapolated"] * 2
    assert other.notes == (
        "the model: context 9: the latencies listed for 2048 are used unchanged",
    )
    unknown = step_latency(decode_table([1, 2], [5.0, 6.0]), [1, 2], (9, 99))
    assert (unknown.notes, unknown.latency_ms.tolist()) == ((), [5.0, 6.0])


def test_padding_takes_the_next_size_and_above_the_last_its_own():
    table = decode_table([1, 2, 4, 8, 16], [1.0, 2, 4, 8, 16], padded_batches=[2, 3, 8])
    found = step_latency(table, np.arange(1, 13), (0, 0))
    assert found.latency_ms.tolist() == [2, 2, 3, 8, 8, 8, 8, 8, 9, 10, 11, 12]
    assert found.status.tolist() == ["measured"] * 2 + ["interpolated"] + ["measured"] * 5 + (
        ["interpolated"] * 4
    )


@given(tables(), st.lists(st.integers(1, 60), min_size=1, max_size=5, unique=True).map(sorted))
def test_a_padded_step_is_never_shorter(parts, padded):
    batch, contexts, latency = parts
    padded = [size for size in padded if size <= batch[-1]] or [batch[-1]]
    plain = table_of(parts)
    graphs = decode_table(batch, latency, context_tokens=contexts, padded_batches=padded)
    sizes, context = np.arange(1, batch[-1] + 1), (contexts[0], contexts[-1])
    with_padding = step_latency(graphs, sizes, context).latency_ms
    without = step_latency(plain, sizes, context).latency_ms
    assert (with_padding >= without - 1e-9).all()
    same = np.isin(sizes, padded) | (sizes > padded[-1])
    assert with_padding[same].tolist() == without[same].tolist()


@pytest.mark.parametrize(
    ("padded", "size", "words"),
    [
        (None, 5, "batches of 5 can form; add larger batches, lower N, .*--max-batch 4"),
        ([2, 4], 5, "batches of 5 can form; .*--max-batch 4"),
        ([1, 2, 8], 3, r"batches of 3, which run padded to 8, can form; .*--max-batch 2\)"),
        ([8], 3, "batches of 3, which run padded to 8, can form; add larger batches, lower N$"),
    ],
)
def test_batches_beyond_the_table_are_refused(padded, size, words):
    table = decode_table([1, 4], [1.0, 2.0], padded_batches=padded)
    with pytest.raises(InputError, match=f"f: m has latencies for batches up to 4, but {words}"):
        step_latency(table, [1, size], (0, 0), where="f", model="m")


def test_a_batch_of_none_is_refused_although_padding_would_list_it():
    table = decode_table([1, 4], [1.0, 2.0], padded_batches=[2, 4])
    with pytest.raises(InputError, match="no latency for a batch of 0"):
        step_latency(table, [0], (0, 0))


def test_a_value_is_as_good_as_the_worst_entry_it_rests_on():
    table = decode_table(
        [1, 4, 8],
        [[1.0, 2, 3], [4.0, 5, 6]],
        context_tokens=[10, 20],
        status=[["measured", "interpolated", "extrapolated"], ["measured"] * 3],
    )
    worst = ["measured", "interpolated", "interpolated", "extrapolated", "extrapolated"]
    found = step_latency(table, [1, 2, 4, 5, 8], (10, 10), model="m")
    assert found.status.tolist() == worst
    assert found.notes == (
        "m: latencies of batches 5 to 8 rest on entries that the table marks as extrapolated",
    )
    assert step_latency(table, [1, 4, 8], (20, 20)).status.tolist() == ["measured"] * 3
    between = step_latency(table, [1, 4, 8], (15, 15)).status.tolist()
    assert between == ["interpolated", "interpolated", "extrapolated"]


@given(tables(), st.data())
def test_extend_tables_are_read_in_the_same_way(parts, data):
    batch, new_tokens, latency = parts
    table = extend_table(batch, new_tokens, latency)
    new = data.draw(st.floats(new_tokens[0], new_tokens[-1]))
    found = extend_latency(table, batch, new, (0, 0))
    expected = interp1d(new_tokens, latency, axis=0)(new)
    np.testing.assert_allclose(found.latency_ms, expected, rtol=1e-9)
    assert found.notes == ()


def test_extend_tables_say_what_they_extrapolate():
    table = extend_table([1, 2], [4, 8], [[10, 11], [12, 15]], context_tokens=2048)
    found = extend_latency(table, [1, 2], 2.857, (2048, 2048), model="m")
    assert found.latency_ms == pytest.approx([10 - 0.57150, 11 - 1.143])
    assert found.notes == (
        "m: new tokens 2.857 is outside the listed 4 to 8: latency is extrapolated linearly",
    )
    found = extend_latency(table, [1, 2], 4, (1, 3000), model="m")
    assert found.latency_ms.tolist() == [10, 11]
    assert found.status.tolist() == ["extrapolated"] * 2
    assert found.notes == (
        "m: context 1 to 3000: the latencies listed for 2048 are used unchanged",
    )
    with pytest.raises(InputError, match=r"extend\.batch: .* up to 2, but batches of 3"):
        extend_latency(table, [3], 4, (0, 0))


def test_sizes_of_any_shape():
    table = decode_table([1, 3], [1.0, 3.0])
    assert step_latency(table, [[1, 2], [3, 1]], (0, 0)).latency_ms.tolist() == [[1, 2], [3, 1]]
    assert step_latency(table, [], (0, 0)).latency_ms.shape == (0,)
    assert step_latency(table, 2, (0, 0)).latency_ms.shape == ()
