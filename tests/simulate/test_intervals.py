import numpy as np
import pytest

from trmodel.simulate.distribution import BINS, Distribution, gather
from trmodel.simulate.intervals import independent, ratio


def gathered(values):
    count, total, scratch = np.zeros(BINS), np.zeros(BINS), np.zeros(1)
    for value in values:
        gather(count, total, value, 1.0, scratch, scratch.view(np.int64))
    return Distribution(count, total)


def test_quantiles_are_those_of_the_sample_within_a_bin():
    values = np.random.default_rng(0).gamma(2.0, 30.0, 20_000)
    found = gathered(values)
    assert found.n == len(values)
    assert found.mean_ms == pytest.approx(values.mean())
    for q in (0.01, 0.5, 0.9, 0.99):
        assert found.quantile_ms(q) == pytest.approx(np.quantile(values, q), rel=0.016)
    assert found.share_above(100.0) == pytest.approx(np.mean(values > 100.0), abs=0.01)


def test_times_that_recur_come_out_exactly():
    found = gathered([0.0] * 50 + [6.0] * 30 + [27.9] * 20)
    assert [found.quantile_ms(q) for q in (0.5, 0.51, 0.8, 0.81)] == pytest.approx([0, 6, 6, 27.9])


def test_extreme_times_are_kept():
    found = gathered([1e-9, 1e12])
    assert found.mean_ms == pytest.approx(5e11)
    assert np.isnan(gathered([]).quantile_ms(0.5))
    assert np.isnan(gathered([]).mean_ms)


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(400):
        x = rng.gamma(4.0, 1.0, 32)
        y = 3.0 * x + rng.normal(size=32)
        estimate = ratio(y, x, 0.9)
        covered += estimate.low <= 3.0 <= estimate.high
    assert 0.86 <= covered / 400 <= 0.94


def test_no_interval_of_nothing():
    assert np.isnan(ratio(np.zeros(4), np.zeros(4), 0.9).value)


def test_correlated_sections_are_merged():
    rng = np.random.default_rng(3)
    noise = rng.normal(size=256)
    drifting = np.convolve(noise, np.ones(6), "valid")[:128]

    def add(a, b):
        return a + b

    def centred(values):
        return np.array(values) - np.mean(values)

    merged, apart = independent(list(drifting), centred, add)
    assert apart
    assert len(merged) < 128
    assert sum(merged) == pytest.approx(drifting.sum())
    trend = list(np.arange(64.0))
    merged, apart = independent(trend, centred, add)
    assert not apart
    assert len(merged) == 16
