"""Routings with phases: documents, functions that make them, completion."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trmodel import predict, tune
from trmodel.errors import InputError, UsageError
from trmodel.markov import solve_chain
from trmodel.phases import Phase
from trmodel.profile import build_system, load_profile
from trmodel.routing import (
    Completion,
    Routing,
    fixed_length,
    glimprouter,
    load_preset,
    load_routing,
    with_completion,
)
from trmodel.system import RoutedSystem

PHASED = {
    "schema": "trmodel/routing",
    "schema_version": 1,
    "name": "mine",
    "models": ["small", "large"],
    "phases": [
        {"name": "ask", "model": "small", "added_ms": 2.5},
        {"name": "write", "model": "small"},
        {"name": "help", "model": "large"},
    ],
    "transition_probability": [[0, 0.7, 0.3], [0.1, 0.9, 0], [0.1, 0, 0.9]],
    "committed_tokens": [[0, 0, 0], [1, 1, 1], [1, 1, 1]],
    "entry": "ask",
    "restart": "ask",
    "source": "test",
}


def load(tmp_path, **changes):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(PHASED | changes))
    return load_routing(path)


def test_a_document_with_phases(tmp_path):
    routing = load(tmp_path)
    assert routing.phase_models == (0, 0, 1)
    assert (routing.entry_index, routing.restart_index) == (0, 0)
    assert routing.reached_models == (0, 1)
    assert load(tmp_path, entry="help", restart=None).entry_index == 2
    P = [[0, 1, 0], [0.1, 0.9, 0], [0.1, 0, 0.9]]
    assert load(tmp_path, transition_probability=P).reached_models == (0,)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"entry": "small"}, "entry: small is not one of the phases ask, write, help"),
        ({"restart": "end"}, "restart: end is not one of the phases ask, write, help"),
        (
            {"committed_tokens": [[1, 0], [1, 0]]},
            "committed_tokens: must have 3 rows for 3 phases, has 2",
        ),
        (
            {"phases": [*PHASED["phases"][:2], {"name": "ask", "model": "huge"}]},
            "phases: names must be distinct, got ask, write, ask",
        ),
        (
            {"phases": [*PHASED["phases"][:2], {"name": "ask", "model": "huge"}]},
            "phases[2].model: huge is not one of the models small, large",
        ),
        (
            {"phases": [*PHASED["phases"][:2], {"name": "help", "model": "small"}]},
            "phases: large has none",
        ),
        (
            {"phases": [{"name": "ask", "model": "small", "added_ms": 1, "prompt_tokens": 5}]},
            "phases[0]: added_ms is what reading the prompt_tokens takes; give one of them",
        ),
    ],
)
def test_bad_phases_are_named(tmp_path, changes, problem):
    with pytest.raises(InputError) as caught:
        load(tmp_path, **changes)
    assert f"{tmp_path / 'mine.json'}: {problem}" in caught.value.problems


@pytest.mark.parametrize(
    ("name", "made"), [("glimprouter", glimprouter), ("fixed-length", fixed_length)]
)
def test_presets_are_what_the_functions_make(name, made):
    preset, routing = load_preset(name), made()
    for field in Routing.model_fields:
        assert getattr(preset, field) == getattr(routing, field), field


def test_glimprouter_writes_whole_steps():
    routing = glimprouter(hand_over=0.25, step_tokens=10)
    system = build_system(load_profile("a100-paper"), 1, routing)
    # A probe of 6 ms, then ten tokens of one of the two models.
    mean_ms = 6.0 + 10 * (0.75 * 6.0 + 0.25 * 27.9)
    assert solve_chain(system, (1, 1)).throughput_tok_s == pytest.approx(10_000 / mean_ms, rel=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: glimprouter(hand_over=1.5), "hand_over: must be between 0 and 1, got 1.5"),
        (lambda: glimprouter(step_tokens=0.5), "step_tokens: must be a mean of at least 1"),
        (lambda: fixed_length(0), "K: must be a whole number from 1"),
        (lambda: fixed_length(3, p=-1), "p: must be between 0 and 1, got -1"),
        (lambda: Completion(0.5, prefill_ms=1), "reply_tokens: must be a mean length from 1"),
        (lambda: Completion(10), "prompt_tokens: give the length of a prompt"),
        (lambda: Completion(10, 5, 5.0), "prompt_tokens: give the length of a prompt"),
        (lambda: Completion(10, 0), "prompt_tokens: must be a whole number from 1"),
        (lambda: Completion(10, None, -1.0), "prefill_ms: must be from 0"),
    ],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_p_is_for_plain_routing_only():
    loaded = load_profile("a100-paper")
    with pytest.raises(UsageError, match="p: routing glimprouter has phases"):
        build_system(loaded, 2, "glimprouter", p=0.3)
    # It comes before completion, which keeps its meaning.
    found = build_system(loaded, 2, p=0.2, completion=Completion(10, prefill_ms=0))
    P = found.transition_probability
    assert P[0].tolist() == pytest.approx([0.8 * 0.9, 0.2, 0.8 * 0.1])
    assert P[2].tolist() == P[0].tolist()


def test_completion_adds_a_prefill_that_goes_on_as_the_entry_does():
    ended = with_completion(load_routing("r2r"), Completion(100, prefill_ms=30.0))
    assert [phase.name for phase in ended.phases] == ["Qwen3-0.6B", "Qwen3-32B", "prefill"]
    assert ended.phases[2].model == "Qwen3-0.6B"
    assert ended.phases[2].added_ms == 30.0
    assert (ended.entry, ended.restart) == ("prefill", "prefill")
    assert ended.transition_probability[2] == ended.transition_probability[0]
    assert np.allclose(
        ended.transition_probability,
        [[0.6435, 0.35, 0.0065], [0.99, 0, 0.01], [0.6435, 0.35, 0.0065]],
    )
    assert np.allclose(ended.committed_tokens, [[1, 0, 1], [1, 0, 1], [1, 0, 1]], atol=1e-10)
    with pytest.raises(UsageError, match="reply_tokens: routing r2r says already"):
        with_completion(ended, Completion(5, prefill_ms=0))


@st.composite
def endless_routings(draw):
    U = draw(st.integers(1, 3))
    weights = [draw(st.lists(st.integers(1, 5), min_size=U, max_size=U)) for _ in range(U)]
    tokens = [draw(st.lists(st.integers(0, 5), min_size=U, max_size=U)) for _ in range(U)]
    tokens[0][0] += 1
    P = np.array(weights) / np.sum(weights, axis=1, keepdims=True)
    return Routing(
        name="any",
        models=tuple(f"m{u}" for u in range(U)),
        transition_probability=tuple(map(tuple, P.tolist())),
        committed_tokens=tuple(map(tuple, tokens)),
        source="test",
    )


@settings(max_examples=50, deadline=None)
@given(endless_routings(), st.floats(1.0, 1e4), st.integers(1, 2))
def test_replies_have_the_length_asked_for(routing, reply_tokens, N):
    ended = with_completion(routing, Completion(reply_tokens, prefill_ms=3.0))
    system = RoutedSystem(
        ended.models,
        [2.0 + i for i in range(len(ended.models))],
        ended.transition_probability,
        ended.committed_tokens,
        N,
        entry=ended.entry,
        restart=ended.restart,
        phases=[
            Phase(phase.name, i, phase.added_ms)
            for phase, i in zip(ended.phases, ended.phase_models, strict=True)
        ],
        grid_ms=1.0,
    )
    chain = solve_chain(system, (1,) * system.M)
    assert chain.replies_per_s * reply_tokens == pytest.approx(chain.throughput_tok_s, rel=1e-9)


def test_tokens_of_a_step_that_ends_a_reply_are_cut_at_the_end():
    one = Routing(
        name="bursts",
        models=("m",),
        transition_probability=((1.0,),),
        committed_tokens=((3.0,),),
        source="test",
    )
    ended = with_completion(one, Completion(2.0, prefill_ms=0.0))
    # With q = 1/2 a burst ends at its first, second, third token with 1/2, 1/4, 1/8.
    assert ended.transition_probability[0] == pytest.approx((1 / 8, 7 / 8))
    assert ended.committed_tokens[0][1] == pytest.approx((1 / 2 + 2 / 4 + 3 / 8) / (7 / 8))


def test_a_prompt_takes_what_the_extend_table_says():
    loaded = load_profile("h100")
    options = {"routing": "r2r", "context": 2048}
    plain = build_system(loaded, 4, **options)
    ended = build_system(loaded, 4, **options, completion=Completion(100, prompt_tokens=256))
    small = next(model for model in loaded.profile.models if model.name == "Qwen3-0.6B")
    decode = small.decode.rows[small.decode.contexts.index(2048)][0]
    read = small.extend.rows[small.extend.new_tokens.index(256)][0]
    assert ended.added_ms.tolist() == pytest.approx([0, 0, read - decode])
    assert ended.restart == ended.entry == 2
    # Prefills are no handoffs: what the small model is handed is what it was, but for replies
    # that end while the large model has them.
    assert ended.latency_ms[1] == pytest.approx(plain.latency_ms[1], rel=1e-3)


def test_without_an_extend_table_a_prompt_is_refused():
    with pytest.raises(InputError, match=r"models\[0\]\.extend: is missing; .*\(--prefill-ms\)"):
        build_system(load_profile("a100"), 2, completion=Completion(10, prompt_tokens=100))


def test_a_free_prefill_changes_nothing():
    plain = predict("a100-paper", N=4, B=(1, 3))
    ended = predict("a100-paper", N=4, B=(1, 3), completion=Completion(50, prefill_ms=0))
    assert ended.throughput_tok_s == pytest.approx(plain.throughput_tok_s, rel=1e-3)
    assert plain.replies_per_s is None
    assert ended.replies_per_s == pytest.approx(ended.throughput_tok_s / 50)
    slower = predict("a100-paper", N=4, B=(1, 3), completion=Completion(50, prefill_ms=100))
    assert slower.throughput_tok_s < 0.9 * plain.throughput_tok_s


def test_phased_routings_are_tuned():
    table = tune("a100-paper", 3, routing="glimprouter")
    assert [row.N for row in table.rows] == [1, 2, 3]
    assert table.origin["system"]["entry"] == "probe"
    assert [u["name"] for u in table.origin["system"]["phases"]] == [
        "probe",
        "small step",
        "large step",
    ]
