"""Weights of learned routers: what is read, and what is said of files that do not fit."""

import re

import pytest
import torch
from policy_traces import batch_of, result_of, routers
from real_server import config_of
from safetensors.torch import save_file

from trmodel.errors import InputError
from trmodel.runtime.plan import make_plan
from trmodel.runtime.policies import find_policy

TWO = ((0.5, 0.5), (0.5, 0.5))
D, V = 16, 50


def make(name, **options):
    return find_policy(name, options, TWO, TWO)


def saved(folder, state, metadata=None):
    path = folder / "router.safetensors"
    save_file(state, path, metadata)
    return str(path)


def test_the_script_writes_routers_that_are_read(tmp_path):
    routers.make(tmp_path, D, V)
    for name in ("citer", "co-llm", "r2r"):
        policy = make(name, weights=str(tmp_path / f"{name}.safetensors"))
        scores = policy.score(batch_of(0, 50), result_of(50, V, D))
        assert 0.02 < scores.std() < 0.5
        assert policy.threshold == {"citer": 0.95, "co-llm": 0.5, "r2r": 0.5}[name]


def test_half_precision_checkpoints_and_other_heads_are_read(tmp_path):
    rows = routers.co_llm(D, V)["lm_head.weight"]
    whole = make("co-llm", weights=saved(tmp_path, {"lm_head.weight": rows}))
    expected = whole.score(batch_of(0, 9), result_of(9, V, D))
    for name in ("embed_out.weight", "model.embed_tokens.weight"):
        state = {name: rows[-1:].bfloat16(), "model.norm.weight": torch.ones(D)}
        policy = make("co-llm", weights=saved(tmp_path, state))
        found = policy.score(batch_of(0, 9), result_of(9, V, D))
        torch.testing.assert_close(found, expected, rtol=0.0, atol=0.01)


def test_only_the_last_row_of_a_checkpoint_is_held(tmp_path):
    policy = make("co-llm", weights=saved(tmp_path, routers.co_llm(D, V)))
    held = policy._weights.on(torch.device("cpu"))
    assert [tuple(tensor.shape) for tensor in held.values()] == [(1, D)]


def test_the_threshold_of_r2r_comes_from_the_file_unless_given(tmp_path):
    state = routers.r2r(D, 7)
    path = saved(tmp_path, state, {"threshold": "0.406"})
    assert make("r2r", weights=path).threshold == 0.406
    assert make("r2r", weights=path, threshold=0.1).threshold == 0.1
    for metadata, said in (
        (None, "has none in its metadata"),
        ({"threshold": "x"}, "is no number"),
    ):
        with pytest.raises(InputError, match=rf"^policy_options\.threshold: .*{said}; give one$"):
            make("r2r", weights=saved(tmp_path, state, metadata))


def without(state, name):
    return {key: tensor for key, tensor in state.items() if key != name}


FAULTS = {
    "citer": [
        (lambda s: without(s, "mlp.1.running_var"), "has no tensor mlp.1.running_var"),
        (
            lambda s: s | {"mlp.4.weight": torch.zeros(D, 9)},
            "mlp.4.weight has shape (16, 9), needed is (16, 32)",
        ),
        (lambda s: s | {"linear.weight": torch.zeros(2, D)}, "shape (2, 16), needed is (1, 16)"),
        (lambda s: s | {"linear.weight": torch.zeros(D)}, "shape (16), needed is (1, 16)"),
        (lambda s: s | {"other": torch.zeros(1)}, "other belongs to another kind of router"),
    ],
    "co-llm": [
        (lambda s: {"head": s["lm_head.weight"]}, "has no tensor lm_head.weight or "),
        (lambda s: {"lm_head.weight": torch.zeros(D)}, "needed is (16, d)"),
    ],
    "r2r": [
        (lambda s: {}, "has no tensor logits_projection.weight"),
        (
            lambda s: s | {"combined_projection.weight": torch.zeros(32, 40)},
            "combined_projection.weight has shape (32, 40), needed is (32, 48)",
        ),
        (lambda s: without(s, "backbone.blocks.0.dim_change.weight"), "blocks.0"),
        (lambda s: without(s, "backbone.blocks.1.mlp.3.bias"), "no tensor backbone.blocks.1.mlp.3"),
        (
            lambda s: s | {"backbone.position_embedding": torch.zeros(8, 32)},
            "backbone.position_embedding belongs to another kind of router",
        ),
        (
            lambda s: s | {"backbone.output_layer.1.weight": torch.zeros(3, 32)},
            "shape (3, 32), needed is (1, 32)",
        ),
    ],
}
STATES = {"citer": routers.citer(D), "co-llm": routers.co_llm(D, V), "r2r": routers.r2r(D, 7)}


@pytest.mark.parametrize(
    ("name", "spoil", "said"),
    [(name, *fault) for name, faults in FAULTS.items() for fault in faults],
)
def test_a_layout_that_does_not_fit_is_told_in_one_line(name, spoil, said, tmp_path):
    path = saved(tmp_path, spoil(STATES[name]))
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        make(name, weights=path, threshold=0.5)
    assert "\n" not in str(caught.value)
    assert path in str(caught.value)


def test_files_that_are_missing_or_of_another_kind_are_told(tmp_path):
    with pytest.raises(InputError, match=r"^policy_options\.weights: .*there is no such file"):
        make("citer", weights=str(tmp_path / "none"))
    torch.save(STATES["citer"], tmp_path / "mlp.pth")
    with pytest.raises(InputError, match=r"is no safetensors file .*docs/policies\.md"):
        make("citer", weights=str(tmp_path / "mlp.pth"))


@pytest.mark.parametrize("name", STATES)
def test_a_model_of_another_width_is_told(name, tmp_path):
    policy = make(name, weights=saved(tmp_path, STATES[name]), threshold=0.5)
    with pytest.raises(InputError, match="are for hidden states of 16, the small model's have 12"):
        policy.score(batch_of(0, 2), result_of(2, V, 12))


def test_a_vocabulary_with_fewer_tokens_than_logits_are_read_is_told(tmp_path):
    policy = make("r2r", weights=saved(tmp_path, STATES["r2r"]), threshold=0.5)
    with pytest.raises(InputError, match="read 7 logits, the small model has 5"):
        policy.score(batch_of(0, 2), result_of(2, 5, D))


HIDDEN, TOKENS = 128, 1024
"""Of the small model."""


@pytest.mark.parametrize(
    ("name", "state", "said"),
    [
        ("citer", routers.citer(64), "are for hidden states of 64, the small model's have 128"),
        ("co-llm", routers.co_llm(64, TOKENS), "for hidden states of 64, the small model's have"),
        ("r2r", routers.r2r(256, 7), "are for hidden states of 256, the small model's have 128"),
        ("r2r", routers.r2r(HIDDEN, 1025), "read 1025 logits, the small model has 1024"),
        (
            "co-llm",
            routers.co_llm(HIDDEN, TOKENS - 1),
            "has 1024 rows, the small model 1024 tokens",
        ),
    ],
)
def test_weights_for_another_model_keep_a_server_from_starting(name, state, said, models, tmp_path):
    path = saved(tmp_path, state)
    two = {name: models[name] for name in ("small", "large")}
    config = config_of(two, policy=name, policy_options={"weights": path, "threshold": 0.5})
    with pytest.raises(InputError) as caught:
        make_plan(config)
    assert str(caught.value).startswith(f"policy_options.weights: {path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_for_the_small_model_are_taken(models, tmp_path):
    two = {name: models[name] for name in ("small", "large")}
    routers.make(tmp_path, HIDDEN, TOKENS)
    save_file({"lm_head.weight": torch.zeros(1, HIDDEN)}, tmp_path / "row.safetensors")
    for name, file in (("citer",) * 2, ("co-llm",) * 2, ("r2r",) * 2, ("co-llm", "row")):
        options = {"weights": str(tmp_path / f"{file}.safetensors")}
        assert make_plan(config_of(two, policy=name, policy_options=options)).config.policy == name
