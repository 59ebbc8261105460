"""Thresholds for a share of the large model: the search on made-up servers, and on a real one."""

import json
import math

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from trmodel.cli.main import main
from trmodel.errors import InputError, TrmodelError, UsageError
from trmodel.runtime.bench.prompts import random_prompts, read_prompts, repeated
from trmodel.runtime.bench.share import Run, calibrate_share
from trmodel.runtime.server.tokenizer import ByteTokenizer

SCORED = """
import numpy as np

from trmodel.runtime.policies import ThresholdPolicy
from trmodel.runtime.policies.bernoulli import uniform


class Scored(ThresholdPolicy):
    def score(self, batch, result):
        drawn = [uniform(request.sampling.seed, request.steps) for request in batch.requests]
        return np.exp(-6.0 * np.array(drawn))
"""


class MadeUp:
    """Requests that differ; the more the large model writes, the lower the scores become.

    Parameters
    ----------
    scale
        Scores are this to the power of a uniform number.
    below
        Low scores go to the large model.
    """

    def __init__(self, requests=64, tokens=200, scale=1e4, below=False, drift=0.3, seed=0):
        self.shape, self.scale, self.below, self.drift = (requests, tokens), scale, below, drift
        self.seed, self.asked = seed, []

    def __call__(self, threshold):
        self.asked.append(threshold)
        draw = np.random.default_rng(self.seed)
        hard = draw.beta(4, 4, (self.shape[0], 1))
        u = 0.5 * hard + 0.5 * draw.random(self.shape)
        done = np.zeros(self.shape[0])
        large = np.zeros(self.shape[0], dtype=int)
        scores = np.empty(self.shape)
        for t in range(self.shape[1]):
            level = u[:, t] - self.drift * done / (t + 1)
            scores[:, t] = self.scale ** (-level if self.below else level)
            passes = scores[:, t] < threshold if self.below else scores[:, t] > threshold
            large += passes
            done = large.astype(float)
        return Run(np.stack((self.shape[1] - large, large), axis=1), scores.ravel())


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.03, 0.95),
    st.sampled_from([2.0, 1e4, 1e9]),
    st.booleans(),
    st.floats(0.0, 0.5),
    st.integers(0, 2**16),
)
def test_the_share_found_is_the_target(target, scale, below, drift, seed):
    server = MadeUp(scale=scale, below=below, drift=drift, seed=seed)
    found = calibrate_share(server, target, 1.0, above=not below, max_runs=12)
    assert found.reached
    assert abs(found.best.share.value - target) <= 0.01
    assert [tried.threshold for tried in found.tried] == server.asked
    tokens = server(found.best.threshold).tokens
    assert found.best.share.value == pytest.approx(tokens[:, 1].sum() / tokens.sum())


@pytest.mark.parametrize(("drift", "most"), [(0.0, 2), (0.1, 5), (0.5, 8)])
def test_few_runs_are_needed(drift, most):
    for seed in range(5):
        for target in (0.05, 0.2, 0.5, 0.8):
            server = MadeUp(drift=drift, seed=seed)
            assert len(calibrate_share(server, target, 1.0, max_runs=20).tried) <= most


def test_the_interval_holds_the_share_of_other_requests():
    threshold = calibrate_share(MadeUp(seed=99), 0.3, 1.0).best.threshold
    true = np.mean([_share(MadeUp(requests=2000, seed=seed)(threshold)) for seed in range(3)])
    held = 0
    for seed in range(200):
        run = MadeUp(requests=24, tokens=50, seed=seed)
        found = calibrate_share(run, 0.3, threshold, tolerance=1.0)
        (tried,) = found.tried
        held += tried.share.low <= true <= tried.share.high
    # 95 % of 200 give or take; short replies differ a little from the long ones of `true`
    assert 178 <= held <= 200


def _share(run):
    return run.tokens[:, 1].sum() / run.tokens.sum()


def lumps(threshold):
    """Only two scores there are: the share is 1, 0.4 or 0."""
    scores = np.array([1.0] * 6 + [2.0] * 4)
    large = int((scores > threshold).sum())
    return Run(np.array([[10 - large, large]] * 4), np.tile(scores, 4))


def test_a_share_that_jumps_over_the_target_is_told_and_the_nearest_given():
    found = calibrate_share(lumps, 0.3, 5.0, max_runs=100)
    assert not found.reached
    assert found.why == "the share jumps over the target between two neighbouring thresholds"
    assert found.best.share.value == 0.4
    assert 1.0 <= found.best.threshold < 2.0
    assert len(found.tried) < 50


def test_the_budget_of_runs_is_kept_and_the_nearest_given():
    server = MadeUp()
    found = calibrate_share(server, 0.3, 1e9, tolerance=1e-9, max_runs=3)
    assert (len(server.asked), found.reached) == (3, False)
    assert found.why == "no share within the tolerance in 3 runs"
    off = [abs(tried.share.value - 0.3) for tried in found.tried]
    assert abs(found.best.share.value - 0.3) == min(off) < 0.1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": 0.0}, "target share"),
        ({"target": 1.0}, "target share"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"confidence": 1.0}, "confidence"),
        ({"max_runs": 0}, "max runs"),
    ],
)
def test_arguments_that_make_no_sense_are_told(given, said):
    with pytest.raises(UsageError, match=said):
        calibrate_share(lumps, **{"target": 0.3, "first": 1.0, **given})


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (Run(np.zeros((4, 2), int), np.ones(3)), "no output"),
        (Run(np.ones((1, 2), int), np.ones(3)), "2 requests are needed"),
        (Run(np.ones((4, 2), int), np.empty(0)), "no scores"),
    ],
)
def test_runs_from_which_nothing_follows_are_told(run, said):
    with pytest.raises(TrmodelError, match=said):
        calibrate_share(lambda _: run, 0.3, 1.0)


def test_prompts_are_texts_or_tokens(tmp_path):
    tokenizer = ByteTokenizer()
    (tmp_path / "p.txt").write_text('one\n\n"two"\r\n')
    assert read_prompts(tmp_path / "p.txt", tokenizer) == [tuple(b"one"), tuple(b'"two"')]
    (tmp_path / "p.jsonl").write_text('"one"\n[1, 2]\n{"prompt": "two"}\n{"prompt": [3]}\n')
    expected = [tuple(b"one"), (1, 2), tuple(b"two"), (3,)]
    assert read_prompts(tmp_path / "p.jsonl", tokenizer) == expected
    assert repeated(expected, 6) == [*expected, *expected[:2]]
    drawn = random_prompts(5, 7, 256, seed=1)
    assert [len(prompt) for prompt in drawn] == [7] * 5
    assert drawn == random_prompts(5, 7, 256, seed=1) != random_prompts(5, 7, 256, seed=2)


@pytest.mark.parametrize(
    "line", ["{", "[]", "[256]", "[-1]", "[true]", "[1.5]", "3", '""', '{"text": "a"}']
)
def test_a_line_that_is_no_prompt_is_told(line, tmp_path):
    (tmp_path / "p.jsonl").write_text(f'"one"\n{line}\n')
    with pytest.raises(InputError, match=r"p\.jsonl: line 2: "):
        read_prompts(tmp_path / "p.jsonl", ByteTokenizer())


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scored.py").write_text(SCORED)
    fast = json.loads(main_output(["profile", "show", "a100-paper", "--json"]))
    for model in fast["models"]:
        model["decode"]["latency_ms"] = [1.0] * len(model["decode"]["latency_ms"])
        model["overhead"] = model["extend"] = None
    (tmp_path / "fast.json").write_text(json.dumps(fast | {"grid_ms": 0.1, "slow_downs": []}))
    settings = {
        "profile": "fast.json",
        "policy": "scored:Scored",
        "policy_options": {"threshold": 0.9},
        "max_live": 8,
    }
    (tmp_path / "scored.yaml").write_text(yaml.safe_dump(settings))
    return tmp_path


def main_output(arguments):
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(arguments) == 0
    return out.getvalue()


def test_a_server_gets_the_threshold_that_its_scores_need(here, capsys):
    line = "routing calibrate --config scored.yaml --target-share 0.25 --requests 20"
    line += " --reply-tokens 60 --tolerance 0.02 --json -o calibrated.yaml --quiet"
    assert main(line.split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert abs(found["share"] - 0.25) <= 0.02
    # A step at the small model passes with probability u where threshold = exp(-6 u).
    assert -math.log(found["threshold"]) / 6.0 == pytest.approx(0.25, abs=0.05)
    assert found["share_interval"][0] < found["share"] < found["share_interval"][1]
    assert all(run["tokens"] == 20 * 60 for run in found["runs"])
    written = yaml.safe_load((here / "calibrated.yaml").read_text())
    before = yaml.safe_load((here / "scored.yaml").read_text())
    assert written == before | {"policy_options": {"threshold": found["threshold"]}}
    # The same requests again, at the threshold found: it is right from the start, with that share.
    line = "routing calibrate --config calibrated.yaml --target-share 0.25 --requests 20"
    line += " --reply-tokens 60 --tolerance 0.02 --json"
    assert main(line.split()) == 0
    (again,) = json.loads(capsys.readouterr().out)["runs"]
    assert again["share"] == found["share"]


def test_the_nearest_is_given_with_exit_code_5_where_the_runs_do_not_suffice(here, capsys):
    (here / "prompts.txt").write_text("one\ntwo\nthree\n")
    line = "routing calibrate --config scored.yaml --target-share 0.25 --prompts prompts.txt"
    line += " --reply-tokens 8 --tolerance 1e-9 --max-runs 1 -o calibrated.json"
    assert main(line.split()) == 5
    shown = capsys.readouterr()
    assert "no share within the tolerance in 1 runs; the nearest is given" in shown.err
    assert "(3 requests)" in shown.out
    assert json.loads((here / "calibrated.json").read_text())["policy_options"] == {
        "threshold": 0.9
    }


def test_policies_without_a_threshold_are_refused(here, capsys):
    (here / "plain.yaml").write_text("profile: a100-paper\n")
    assert main("routing calibrate --config plain.yaml --target-share 0.2".split()) == 2
    assert "policy: bernoulli has no threshold to calibrate" in capsys.readouterr().err
