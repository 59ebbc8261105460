"""Policies that need no tensors, and how every policy is found and made."""

import builtins
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trmodel.errors import InputError
from trmodel.routing import load_preset
from trmodel.runtime.messages import FRONT, Kind, PeerReq, Sampling
from trmodel.runtime.policies import ThresholdPolicy, find_policy
from trmodel.runtime.policies.bernoulli import uniform
from trmodel.runtime.policies.boundary import Boundary
from trmodel.runtime.policies.find import BUILT_IN
from trmodel.runtime.policies.glimprouter import GlimpRouter
from trmodel.runtime.policies.recording import read_steps
from trmodel.runtime.request import Batch, Request, StepResult
from trmodel.runtime.scheduler import Scheduler
from trmodel.runtime.table import TableInForce

TWO = ((0.5, 0.5), (0.5, 0.5))
THREE = ((0.5, 0.3, 0.2),) * 3


def batch_of(model, size, first_seed=0, steps=0, M=2):
    requests = [
        Request(i, [65] * 5, 5, Sampling(seed=first_seed + i), 0, steps, [0] * M)
        for i in range(size)
    ]
    return Batch(model, requests, 0.0, [0.0] * size)


def result_of(batch):
    return StepResult([66] * len(batch))


class Scored(ThresholdPolicy):
    """Scores made up from seed and step."""

    def score(self, batch, result):
        return np.array([uniform(r.sampling.seed, r.steps) for r in batch.requests])


class Both(Scored):
    both_ways = True


def test_the_next_model_of_a_mixture_has_its_weights_whatever_model_made_the_step():
    policy = find_policy("ensemble", {"weights": [5, 3, 2]}, THREE, THREE)
    found = [policy.route(batch_of(i, 4000, steps=7, M=3), None) for i in range(3)]
    assert found[0] == found[1] == found[2]
    shares = Counter(found[0])
    for model, share in enumerate((0.5, 0.3, 0.2)):
        spread = math.sqrt(share * (1 - share) / 4000)
        assert abs(shares[model] / 4000 - share) < 4 * spread
    later = policy.route(batch_of(0, 4000, steps=8, M=3), None)
    assert 0.3 < np.mean(np.equal(found[0], later)) < 0.46  # 0.38 by chance: drawn afresh
    request = batch_of(0, 1).requests[0]
    for i in range(3):
        for j in range(3):
            assert policy.commit(request, [1], i, j) == [1]


def test_the_weights_of_a_mixture_come_from_the_routing_unless_given():
    preset = load_preset("ensemble")
    P, C = preset.transition_probability, preset.committed_tokens
    by_routing = find_policy("ensemble", {}, P, C)
    by_hand = find_policy("ensemble", {"weights": [50, 30, 20]}, P, C)
    bernoulli = find_policy("bernoulli", {}, P, C)
    batch = batch_of(1, 500, M=3)
    assert by_routing.route(batch, None) == by_hand.route(batch, None)
    assert by_routing.route(batch, None) == bernoulli.route(batch, None)


def by_request(policy, request, steps):
    """Send one request through it; return who wrote each token, and how many were dropped."""
    model, writers, dropped = 0, [], 0
    for _ in range(steps):
        (to,) = policy.route(Batch(model, [request], 0.0, [0.0]), StepResult([66]))
        kept = policy.commit(request, [66], model, to)
        request.token_ids += kept
        request.steps += 1
        writers += [model] * len(kept)
        dropped += not kept
        model = to
    return writers, dropped


def test_the_whole_reply_is_one_models_and_the_share_is_drawn_by_seed():
    policy = find_policy("request-level", {"share": 0.3}, TWO, TWO)
    large = 0
    for request in batch_of(0, 1000).requests:
        writers, dropped = by_request(policy, request, 6)
        assert len(set(writers)) == 1
        assert dropped == writers[0]  # the small model's first token, where it is not to write
        large += writers[0]
    assert abs(large / 1000 - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 1000)
    again = [by_request(policy, request, 2)[0][-1] for request in batch_of(0, 1000).requests]
    assert sum(again) == large


def prompt_score(tokens):
    return tokens[0]


@pytest.mark.parametrize(
    ("options", "large"),
    [
        ({"longer_than": 4}, True),
        ({"longer_than": 5}, False),
        ({"score": f"{__name__}:prompt_score", "above": 64.5}, True),
        ({"score": f"{__name__}:prompt_score", "above": 65}, False),
        ({"share": 0.0, "longer_than": 4}, True),
        ({"share": 1.0, "longer_than": 100}, True),
        ({"share": 0.0}, False),
    ],
)
def test_conditions_of_request_level_routing(options, large):
    policy = find_policy("request-level", options, TWO, TWO)
    for request in batch_of(0, 20).requests:
        assert set(by_request(policy, request, 4)[0]) == {int(large)}


@settings(max_examples=50, deadline=None)
@given(st.floats(0.0, 1.0), st.integers(1, 20), st.sampled_from([Scored, Both]))
def test_a_score_above_the_threshold_goes_to_the_large_model(threshold, size, kind):
    policy = kind(threshold)
    batch = batch_of(0, size)
    routed = policy.route(batch, result_of(batch)).tolist()
    scores = policy.score(batch, None).tolist()
    assert routed == [int(score > threshold) for score in scores]
    back = batch_of(1, size)
    assert list(policy.route(back, result_of(back))) == (routed if policy.both_ways else [0] * size)
    request = batch.requests[0]
    kept = {(i, j): policy.commit(request, [1], i, j) for i in (0, 1) for j in (0, 1)}
    assert kept == {(0, 0): [1], (0, 1): [], (1, 0): [1], (1, 1): [1]}


def test_what_has_tolist_is_asked_for_all_its_numbers_at_once():
    class OneCopy:
        """A tensor far away: going through it one by one is what must not happen."""

        copies = 0

        def tolist(self):
            OneCopy.copies += 1
            return [1]

        def __iter__(self):
            raise AssertionError

    class Far(Scored):
        def route(self, batch, result):
            return OneCopy()

    scheduler = Scheduler(0, 2, Far(0.5), TableInForce(((1, 1),)), 1, 1.0)
    start = PeerReq(0, 1, FRONT, 0, Kind.new, 0, (65,), 1, 0, (0, 0), Sampling(max_tokens=9))
    scheduler.receive(start, 0.0)
    scheduler.next_batch(0.0)
    (_, report), (to, _) = scheduler.complete(StepResult([66]), 0.0)
    assert (OneCopy.copies, to, report.token_ids) == (1, 1, ())


ONLY_TWO = ["citer", "co-llm", "glimprouter", "r-stitch", "r2r", "request-level"]


def test_every_policy_says_what_it_needs_and_which_preset_describes_it():
    from importlib import import_module

    for name, place in BUILT_IN.items():
        module, _, attribute = place.partition(":")
        cls = getattr(import_module(f"trmodel.runtime.policies.{module}"), attribute)
        assert cls.needs <= {"logits", "hidden", "embedding"}
        assert (cls.models == 2) == (name in ONLY_TWO)
        if cls.default_routing is not None:
            preset = load_preset(cls.default_routing)
            assert cls.models in (None, len(preset.models))
    assert GlimpRouter.needs == {"logits"}


def test_policies_of_two_models_refuse_others():
    with pytest.raises(InputError, match="policy: request-level goes between 2 models"):
        find_policy("request-level", {"share": 0.5}, THREE, THREE)


def test_without_torch_a_policy_that_needs_it_is_told_in_one_line(monkeypatch):
    from importlib import util

    monkeypatch.setattr(
        "trmodel.runtime.policies.find.find_spec",
        lambda name: None if name in ("torch", "safetensors") else util.find_spec(name),
    )
    for name in ("citer", "co-llm", "glimprouter", "r-stitch", "r2r"):
        with pytest.raises(InputError, match="needs torch and safetensors") as caught:
            find_policy(name, {}, TWO, TWO)
        assert "\n" not in str(caught.value)
        assert "pip install 'trmodel[sglang]'" in str(caught.value)


def test_policies_without_tensors_do_not_import_torch(monkeypatch):
    imported = builtins.__import__

    def refuse(name, *rest):
        assert name.partition(".")[0] not in ("torch", "safetensors", "transformers")
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    for name, options in (
        ("bernoulli", {}),
        ("ensemble", {"weights": [1, 1]}),
        ("request-level", {"share": 0.5}),
        ("scripted", {"script": [0, 1]}),
    ):
        batch = batch_of(0, 3)
        assert len(find_policy(name, options, TWO, TWO).route(batch, result_of(batch))) == 3


TEXTS = ["a", "\n", "\n\n", ".\n\n", "x\n", "\ny", " ", "\n\n\n"]


@given(st.lists(st.integers(0, len(TEXTS) - 1), min_size=1, max_size=12))
def test_an_empty_line_is_found_where_the_text_has_one(tokens):
    boundary = Boundary.of_texts(TEXTS)
    reached = any(
        boundary.reached(before, token)
        for before, token in zip([None, *tokens], tokens, strict=False)
    )
    assert reached == ("\n\n" in "".join(TEXTS[token] for token in tokens))


@pytest.mark.parametrize("kind", [Scored, Both])
def test_a_recording_routes_as_the_other_policy_and_holds_every_step(kind, tmp_path):
    options = {
        "policy": f"{__name__}:{kind.__name__}",
        "options": {"threshold": 0.6},
        "folder": str(tmp_path),
    }
    recordings = [find_policy("recording", options, TWO, TWO) for _ in range(2)]
    plain = kind(0.6)
    expected = []
    for number, request in enumerate(batch_of(0, 10).requests):
        model = 0
        for step in range(1, 8):
            batch = Batch(model, [request], 0.0, [0.0])
            (to,) = recordings[model].route(batch, result_of(batch))
            to = int(to)
            assert [to] == list(plain.route(batch, result_of(batch)))
            scored = model == 0 or kind is Both
            score = uniform(request.sampling.seed, request.steps)
            request.steps += 1
            kept = recordings[model].commit(request, [66], model, to)
            assert kept == plain.commit(request, [66], model, to)
            expected.append(
                {
                    "request": number,
                    "seed": number,
                    "step": step,
                    "model": model,
                    "destination": to,
                    "committed": len(kept),
                    **({"score": score} if scored else {}),
                }
            )
            model = to
    assert read_steps(tmp_path) == expected


def test_a_recording_needs_what_the_other_policy_needs(tmp_path):
    made = find_policy(
        "recording",
        {"policy": "request-level", "options": {"share": 1}, "folder": str(tmp_path)},
        TWO,
        TWO,
    )
    assert (made.needs, made.models) == (frozenset(), 2)
