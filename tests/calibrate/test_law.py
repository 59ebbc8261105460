"""What a profile records of the fit it comes from, and what is drawn from that."""

import itertools
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from trmodel.calibrate import law_of_profile, uncertainty
from trmodel.errors import InputError
from trmodel.profile import Profile, build_system, load_profile


@pytest.fixture(scope="module")
def fitted(paper_fit):
    """The fitted profile as it is after a trip through its file."""
    text = paper_fit.to_profile("fitted").model_dump_json(by_alias=True)
    return Profile.model_validate(json.loads(text))


def changed(profile, edit):
    data = profile.model_dump(mode="json", by_alias=True)
    edit(data)
    return Profile.model_validate(data)


def test_the_record_is_the_law_of_the_fit(paper_fit, fitted):
    law, reason = law_of_profile(fitted, paper_fit.models)
    assert reason == ""
    assert law.parameters == paper_fit.law.parameters
    assert law.theta == pytest.approx(paper_fit.theta, abs=1e-4)
    assert np.array_equal(law.covariance, paper_fit.spread.covariance)
    assert law.degrees == paper_fit.spread.degrees
    assert np.array(law.bounds) == pytest.approx(np.array(paper_fit.bounds), abs=1e-4)
    assert law.source.startswith("paper-figure10: arXiv:2610.12242")
    for recorded, estimate in zip(fitted.fit.parameters, paper_fit.estimates, strict=True):
        assert recorded.status == estimate.status
        assert recorded.interval == pytest.approx(estimate.interval, abs=1e-4)


def test_uncertainty_by_the_record_is_that_by_the_fit(paper_fit, fitted):
    system = build_system(load_profile(fitted), 3)
    law, _ = law_of_profile(fitted, system.models)
    by_record = uncertainty(system, [(1, 2)], fit=law, samples=15)
    by_fit = uncertainty(system, [(1, 2)], fit=paper_fit, samples=15)
    assert by_record.throughput_tok_s == pytest.approx(by_fit.throughput_tok_s, rel=5e-3)
    assert "p by 10 % (default), overheads and slow-downs as the fit leaves them" in str(
        by_record.spreads
    )


def test_the_built_in_profile_records_its_fit():
    profile = load_profile("a100").profile
    law, reason = law_of_profile(profile, profile.model_names)
    assert (law is not None, reason) == (True, "")


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda data: data.update(fit=None), "the profile records no fit"),
        (lambda data: data["fit"].update(covariance=None), "does not know how sure it is"),
        (
            lambda data: data["models"][0]["overhead"].update(value_ms=9.0),
            "the profile's overhead of Qwen3-0.6B is 9, but ",
        ),
        (lambda data: data.update(slow_downs=[]), "slow-down of Qwen3-0.6B beside Qwen3-32B is 1"),
    ],
)
def test_a_record_that_does_not_belong_is_left_alone_and_said(paper_fit, fitted, edit, reason):
    law, found = law_of_profile(changed(fitted, edit), paper_fit.models)
    assert law is None
    assert reason in found
    assert law_of_profile(fitted, ["a", "b"])[1] == "the profile's fit is of other models"


@pytest.mark.parametrize(
    ("covariance", "problem"),
    [
        ([[1.0]], "fit.covariance: must be 4 lists of 4 numbers"),
        (np.diag([1.0, 1.0, 1.0, -1.0]).tolist(), "fit.covariance: must be a covariance"),
        (np.triu(np.ones((4, 4))).tolist(), "fit.covariance: must be a covariance"),
    ],
)
def test_a_covariance_is_checked(fitted, tmp_path, covariance, problem):
    data = fitted.model_dump(mode="json", by_alias=True)
    data["fit"]["covariance"] = covariance
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError) as caught:
        load_profile(path)
    assert any(problem in line for line in caught.value.problems)


def test_at_the_deadline_the_samples_there_are_count(fitted, monkeypatch):
    clock = itertools.count()
    module = sys.modules["trmodel.calibrate.uncertainty"]  # the package has a function of this name
    ticking = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr(module, "time", ticking)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    system = build_system(load_profile(fitted), 2)
    result = uncertainty(system, [(1, 2)], samples=30, deadline=10.5)
    assert 2 <= result.samples == len(result.throughput_tok_s) < 30
    assert result.stopped == f"the time limit was reached after {result.samples} of 30 samples"
    assert result.stopped in result.summary()
    assert result.to_dict()["stopped"] == result.stopped
