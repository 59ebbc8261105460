"""Thresholds of policies that read tensors, calibrated on requests that run through schedulers."""

import numpy as np
import pytest
import torch
from policy_traces import Run as OneRequest

from trmodel.runtime.bench.share import Run, calibrate_share
from trmodel.runtime.policies import find_policy
from trmodel.runtime.policies.recording import read_steps

TWO = ((0.5, 0.5), (0.5, 0.5))
REQUESTS, TOKENS, V, END = 12, 80, 30, 7


def sample_as(seed):
    """Return a model whose logits depend on the request, the text so far and the model."""

    def sample(model, request):
        draw = torch.Generator().manual_seed(hash((seed, model, *request.token_ids[-3:])) % 2**31)
        scale = 10.0 ** (1.5 * torch.rand(1, generator=draw).item())
        logits = scale * torch.randn(V, generator=draw)
        return int(torch.randint(V, (1,), generator=draw)), logits.tolist()

    return sample


@pytest.mark.parametrize(
    ("name", "options"), [("r-stitch", {}), ("glimprouter", {"boundary": [END], "top": 10})]
)
@pytest.mark.parametrize("target", [0.2, 0.6])
def test_the_large_model_writes_the_target_share(name, options, target, tmp_path):
    made = []

    def run(threshold):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(folder)
        asked = {
            "policy": name,
            "options": {**options, "threshold": threshold},
            "folder": str(folder),
        }
        policies = [find_policy("recording", asked, TWO, TWO) for _ in range(2)]
        tokens = np.zeros((REQUESTS, 2), dtype=int)
        for k in range(REQUESTS):
            request = OneRequest(policies, sample_as(k))
            while len(request.output) < TOKENS:
                request.step()
            for model, _, kept in request.steps:
                tokens[k, model] += len(kept)
        steps = read_steps(folder)
        written = [sum(s["committed"] for s in steps if s["model"] == i) for i in range(2)]
        assert written == tokens.sum(axis=0).tolist()
        return Run(tokens, np.array([step["score"] for step in steps if "score" in step]))

    found = calibrate_share(run, target, 0.5, tolerance=0.03, max_runs=12)
    assert found.reached
    assert abs(run(found.best.threshold).tokens[:, 1].mean() / TOKENS - target) <= 0.03
