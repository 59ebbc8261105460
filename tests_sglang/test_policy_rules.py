"""Every policy against its paper's rule, for one request at a time (`policy_references`)."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_references import RULES, entropy
from policy_traces import batch_of, result_of, routers
from safetensors.torch import save_file

from trmodel.runtime.policies import find_policy
from trmodel.runtime.request import StepResult

TWO = ((0.5, 0.5), (0.5, 0.5))
SIZE, V, D = 200, 50, 16


def make(name, **options):
    return find_policy(name, options, TWO, TWO)


STATES = {
    "citer": routers.citer(D),
    "co-llm": routers.co_llm(D, V),
    "r2r": routers.r2r(D, 7),
    "r2r, normalising": routers.r2r(D, 7, widths=(24, 24, 24), normalizes=True),
}


@pytest.fixture
def files(tmp_path):
    paths = {}
    for name, state in STATES.items():
        paths[name] = str(tmp_path / f"{name}.safetensors")
        save_file(state, paths[name])
    return paths


@pytest.mark.parametrize("kind", ["r-stitch", *STATES])
@pytest.mark.parametrize("model", [0, 1])
def test_decisions_commits_and_frequencies_are_those_of_the_rule(kind, model, files):
    name = kind.partition(",")[0]
    rule, passes, both_ways = RULES[name]
    result = result_of(SIZE, V, D)
    rows = [{key: t[i].tolist() for key, t in result.tensors.items()} for i in range(SIZE)]
    scores = [rule(STATES.get(kind), row) for row in rows]
    threshold = sorted(scores)[SIZE // 3]  # at a score, so that > and >= differ
    options = {"weights": files[kind]} if kind in files else {}
    policy = make(name, threshold=threshold, **options)
    batch = batch_of(model, SIZE)
    if model == 0 or both_ways:
        found = policy.score(batch, result)
        torch.testing.assert_close(found.double(), torch.tensor(scores, dtype=torch.float64),
                                   rtol=1e-4, atol=1e-6)  # fmt: skip
        clear = [abs(score - threshold) > 1e-4 for score in scores]
        expected = [int(passes(score, threshold)) for score in scores]
    else:
        clear, expected = [True] * SIZE, [0] * SIZE
    routed = policy.route(batch, result)
    if both_ways or model == 0:
        assert (routed.dtype, routed.device.type) == (torch.int64, "cpu")
        routed = routed.tolist()
        assert 0 < sum(routed) < SIZE
    assert sum(clear) > 0.9 * SIZE
    assert [j for j, c in zip(routed, clear, strict=True) if c] == [
        j for j, c in zip(expected, clear, strict=True) if c
    ]
    assert abs(sum(routed) - sum(expected)) <= clear.count(False)  # p_ij, as the trace has it
    for request, token, j in zip(batch.requests, result.token_ids, routed, strict=True):
        kept = policy.commit(request, [token], model, j)
        assert kept == ([] if model == 0 and j == 1 else [token])


@pytest.mark.parametrize("name", ["r-stitch", "citer", "co-llm", "r2r"])
def test_a_score_equal_to_the_threshold_is_decided_as_the_paper_does(name, files):
    options = {"weights": files[name]} if name in files else {}
    result, batch = result_of(1, V, D), batch_of(0, 1)
    policy = make(name, threshold=0.5, **options)
    policy.threshold = policy.score(batch, result).item()
    assert policy.route(batch, result).tolist() == [int(name == "r2r")]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(2, 40), st.integers(0, 2**20))
def test_normalised_entropy_is_from_0_to_1_whatever_the_logits(size, V, seed):
    result = result_of(size, V, seed=seed)
    logits = result.tensors["logits"]
    logits[:, 1:][torch.rand(size, V - 1) < 0.3] = -math.inf
    logits[0] = 3.0
    score = make("r-stitch").score(batch_of(0, size), result)
    assert ((score > -1e-6) & (score < 1.0 + 1e-6)).all()
    assert abs(score[0].item() - 1.0) < 1e-5
    for row, found in zip(logits.tolist(), score.tolist(), strict=True):
        assert abs(found - entropy(row) / math.log(V)) < 1e-5


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(2, 30), st.integers(1, 25), st.integers(0, 2**20))
def test_glimprouter_scores_probes_by_the_entropy_of_the_likeliest_tokens(size, V, top, seed):
    result, batch = result_of(size, V, seed=seed), batch_of(0, size)
    for request in batch.requests[1::2]:
        request.extra = {"step": request.id}
    policy = make("glimprouter", boundary=[0], top=top, threshold=0.7)
    scores = policy.score(batch, result).tolist()
    routed = policy.route(batch, result).tolist()
    for i, row in enumerate(result.tensors["logits"].tolist()):
        if i % 2:
            assert math.isnan(scores[i])
            assert routed[i] == 0
            continue
        expected = entropy(sorted(row, reverse=True)[:top])
        assert abs(scores[i] - expected) < 1e-4
        if abs(expected - 0.7) > 1e-4:
            assert routed[i] == int(expected >= 0.7)


def test_tensors_in_half_precision_will_do(files):
    for name, path in {"r-stitch": None, **files}.items():
        options = {"weights": path} if path else {}
        policy = make(name.partition(",")[0], threshold=0.5, **options)
        result = result_of(20, V, D)
        halves = {key: tensor.bfloat16() for key, tensor in result.tensors.items()}
        wholes = {key: tensor.float() for key, tensor in halves.items()}
        batch = batch_of(0, 20)
        torch.testing.assert_close(
            policy.score(batch, StepResult(result.token_ids, halves)),
            policy.score(batch, StepResult(result.token_ids, wholes)),
        )
