"""The choice of tokens: what temperature and top-p leave, and the same again for the same seed."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trmodel.runtime.engines.sglang.sampling import NO_TOKEN, choose
from trmodel.runtime.messages import Sampling
from trmodel.runtime.request import Request


def requests(count, seed=0, **sampling):
    return [
        Request(k, [1, 2], 2, Sampling(seed=seed + 97 * k, **sampling), 0, 0, [0])
        for k in range(count)
    ]


def shares(logits, temperature, top_p):
    """Write out the distribution that is to be drawn from."""
    weights = [math.exp(value / temperature) for value in logits]
    total = sum(weights)
    order = sorted(range(len(weights)), key=lambda k: -weights[k])
    kept, before = {}, 0.0
    for k in order:
        if before < top_p:
            kept[k] = weights[k] / total
        before += weights[k] / total
    total = sum(kept.values())
    return [kept.get(k, 0.0) / total for k in range(len(weights))]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (1.3, 0.7), (2.0, 0.3)])
def test_tokens_come_as_often_as_temperature_and_top_p_say(temperature, top_p):
    logits = torch.tensor([0.3, 2.0, -1.0, 1.5, 0.0, 1.9])
    count = 20_000
    asked = requests(count, temperature=temperature, top_p=top_p)
    found = choose(logits.expand(count, -1).clone(), asked, 0)
    expected = shares(logits.tolist(), temperature, top_p)
    for token, share in enumerate(expected):
        seen = (found == token).float().mean().item()
        assert abs(seen - share) < 4.0 * math.sqrt(share * (1.0 - share) / count) + 1e-9


@given(st.integers(0, 2**31), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_a_request_gets_its_token_whatever_it_runs_with(seed, others):
    logits = torch.randn(others + 1, 50, generator=torch.Generator().manual_seed(seed))
    asked = requests(others + 1, seed=seed, temperature=0.8, top_p=0.9)
    together = choose(logits, asked, 1)
    alone = choose(logits[:1], asked[:1], 1)
    assert together[0] == alone[0]


def test_models_draw_apart():
    logits = torch.zeros(200, 50)
    asked = requests(200, temperature=1.0)
    assert (choose(logits, asked, 0) != choose(logits, asked, 1)).float().mean() > 0.9


def test_temperature_zero_takes_the_likeliest_beside_others_that_draw():
    logits = torch.tensor([[0.0, 3.0, 1.0]]).expand(2000, -1).clone()
    asked = [
        Request(k, [1], 1, Sampling(seed=k, temperature=float(k % 2)), 0, 0, [0])
        for k in range(2000)
    ]
    found = choose(logits, asked, 0)
    assert (found[::2] == 1).all()
    assert (found[1::2] != 1).any()


def test_a_token_without_a_share_is_never_drawn():
    logits = torch.full((5000, 8), -math.inf)
    logits[:, 3] = 0.0
    assert (choose(logits, requests(5000, temperature=1.0), 0) == 3).all()


@pytest.mark.parametrize("sampling", [{"top_p": 1e-46}, {"temperature": 1e-39}])
def test_extremes_leave_the_likeliest_token(sampling):
    logits = torch.tensor([[0.0, 1.0, 3.0, 2.0]])
    asked = requests(1, **{"temperature": 1.0, **sampling})
    assert choose(logits, asked, 0).tolist() == [2]


def test_logits_that_are_not_finite_give_no_token():
    logits = torch.zeros(3, 5)
    logits[1, 2] = math.nan
    logits[2] = math.inf
    asked = requests(3, temperature=1.0)
    found = choose(logits, asked, 0).tolist()
    assert found[0] >= 0
    assert found[1:] == [NO_TOKEN, NO_TOKEN]
    asked = requests(3, temperature=0.0)
    assert choose(logits, asked, 0).tolist() == [0, NO_TOKEN, NO_TOKEN]


def test_neighbouring_seeds_draw_apart_at_neighbouring_models():
    logits = torch.zeros(100, 1000)
    one = [Request(k, [0] * k, 0, Sampling(seed=8), 0, 0, [0]) for k in range(100)]
    two = [Request(k, [0] * k, 0, Sampling(seed=7), 0, 0, [0]) for k in range(100)]
    assert (choose(logits, one, 0) == choose(logits, two, 1)).float().mean() < 0.1
