"""GlimpRouter and R-Stitch through the real scheduler, one request and its tokens given."""

import itertools

import pytest
import torch
from policy_traces import Run, batch_of, result_of
from transformers import AutoTokenizer

from trmodel.errors import InputError
from trmodel.runtime.messages import Frame, LiveCount, decode, encode
from trmodel.runtime.policies import find_policy
from trmodel.runtime.policies.boundary import Boundary

TWO = ((0.5, 0.5), (0.5, 0.5))
WIDE, NARROW = [0.0] * 40, [30.0] + [0.0] * 39
END, FEED = 7, 10
"""A token that is an empty line, and one that is a line feed."""


def glimprouter(**options):
    options = {"boundary": [END], "newline": [FEED], **options}
    return [find_policy("glimprouter", options, TWO, TWO) for _ in range(2)]


def r_stitch():
    return [find_policy("r-stitch", {"threshold": 0.5}, TWO, TWO) for _ in range(2)]


def script(steps):
    """Sample what a list says, checking whose turn each token is."""
    tokens = iter(steps)

    def sample(model, request):
        whose, token, logits = next(tokens)
        assert model == whose
        return token, logits

    return sample


def test_a_wide_probe_gives_the_step_to_the_large_model_and_a_narrow_one_keeps_it():
    steps = [
        (0, 90, WIDE),  # probe
        (1, 1, NARROW),
        (1, 2, WIDE),  # nobody looks at it within a step
        (1, END, NARROW),
        (0, 91, NARROW),  # probe
        (0, 3, WIDE),
        (0, FEED, WIDE),
        (0, 4, WIDE),
        (0, FEED, WIDE),
        (0, FEED, WIDE),  # the second in a row ends the step
        (0, 92, WIDE),  # probe
        (1, FEED, NARROW),  # the first of a step: what was before does not count
        (1, 5, NARROW),
    ]
    run = Run(glimprouter(), script(steps))
    found = run.until(len(steps))
    assert run.output == [1, 2, END, 3, FEED, 4, FEED, FEED, FEED, 5]
    assert [kept for _, _, kept in found] == [
        [] if token >= 90 else [token] for _, token, _ in steps
    ]
    owners = [owner for _, owner, _ in found]
    assert owners[:-1] == [model for model, _, _ in steps[1:]]


@pytest.mark.parametrize("most", [1, 3, 512])
@pytest.mark.parametrize("writer", [0, 1])
def test_a_step_is_cut_at_the_most_tokens(most, writer):
    logits = WIDE if writer else NARROW
    run = Run(glimprouter(step_tokens=most), lambda model, request: (5, logits))
    found = run.until(2 * (most + 1))
    one = [(0, writer, []), *[(writer, writer, [5])] * (most - 1), (writer, 0, [5])]
    assert found == one * 2


def test_512_is_the_most_unless_told_otherwise():
    run = Run(glimprouter(), lambda model, request: (5, WIDE))
    found = run.until(514)
    assert [kept for _, _, kept in found].count([]) == 2
    assert len(run.output) == 512


def test_what_follows_the_end_of_thinking_is_the_large_models():
    steps = [
        (0, 90, NARROW),
        (0, 1, WIDE),
        (0, 8, WIDE),  # ends the thinking
        (1, END, NARROW),
        (1, 2, NARROW),
        (1, END, WIDE),
        (1, 3, WIDE),
    ]
    run = Run(glimprouter(think_end=[8]), script(steps))
    run.until(len(steps))
    assert run.output == [1, 8, END, 2, END, 3]


def test_the_end_of_thinking_may_be_the_large_models_too():
    steps = [(0, 90, WIDE), (1, 8, NARROW), (1, END, NARROW), (1, 2, NARROW)]
    run = Run(glimprouter(think_end=[8]), script(steps))
    run.until(len(steps))
    assert run.output == [8, END, 2]


def test_the_phase_travels_with_a_handoff_as_plain_values():
    policies = glimprouter()
    run = Run(policies, script([(0, 90, WIDE), (1, 1, NARROW), (1, 2, NARROW)]))
    run.until(1)
    request = run.schedulers[0].requests[0]
    message = policies[0].send(request, 0, 1)
    frame = Frame(0, 1, 1, 0, 0, (message,), LiveCount())
    assert decode(encode(frame)).messages[0].extra == {"step": 0}


def test_a_rebuilt_request_goes_on_in_its_phase():
    steps = [(0, FEED, WIDE), (0, 90, NARROW), (0, 6, WIDE)]
    run = Run(glimprouter(), script(steps), committed=(1, FEED), extra={"step": 2})
    run.until(3)
    assert run.output == [FEED, 6]
    run = Run(glimprouter(), script([(0, 90, NARROW)]), committed=(1, FEED), extra={"step": -2})
    run.until(1)
    assert run.steps == [(0, 1, [])], "the answer is the large model's"


def test_a_request_that_reaches_the_large_model_as_a_probe_is_sent_back():
    policy = glimprouter()[1]
    batch, result = batch_of(1, 3), result_of(3)
    assert policy.route(batch, result) == [0, 0, 0]
    assert policy.commit(batch.requests[0], [5], 1, 0) == []
    assert batch.requests[0].extra == {}


def test_a_probe_that_is_the_stop_token_ends_nothing():
    steps = [(0, 2, NARROW), (0, 1, NARROW), (0, 2, NARROW)]
    run = Run(glimprouter(), script(steps), stop_ids=(2,))
    run.until(3)
    assert run.output == [1]
    assert run.finish == "stop"


def test_r_stitch_goes_to_the_large_model_and_back_by_the_entropy_of_both():
    steps = [
        (0, 1, NARROW),
        (0, 90, WIDE),  # dropped: the large model writes it
        (1, 2, WIDE),  # kept, and it goes on
        (1, 3, WIDE),
        (1, 4, NARROW),  # kept, and back
        (0, 5, NARROW),
        (0, 91, WIDE),
        (1, 6, NARROW),
        (0, 92, WIDE),
    ]
    run = Run(r_stitch(), script(steps))
    found = run.until(len(steps))
    assert run.output == [1, 2, 3, 4, 5, 6]
    owners = [owner for _, owner, _ in found]
    assert owners == [*(model for model, _, _ in steps[1:]), 1]


def test_tokens_that_make_empty_lines_are_found_in_a_vocabulary():
    boundary = Boundary.of_texts(["a", "\n", "\n\n", ".\n\n", "x\n", "\ny", " ", "\n\n\n"])
    pairs = [(b, t) for b, t in itertools.product(range(8), repeat=2) if boundary.reached(b, t)]
    texts = ["a", "\n", "\n\n", ".\n\n", "x\n", "\ny", " ", "\n\n\n"]
    expected = [
        (b, t)
        for b, t in itertools.product(range(8), repeat=2)
        if "\n\n" in texts[t] or (texts[b].endswith("\n") and texts[t].startswith("\n"))
    ]
    assert pairs == expected
    assert boundary.reached(None, 3)
    assert not boundary.reached(None, 1)


def test_every_decision_is_a_tensor_where_the_tensors_are():
    (policy, _) = glimprouter()
    routed = policy.route(batch_of(0, 5), result_of(5))
    assert (routed.dtype, routed.device) == (torch.int64, torch.device("cpu"))


def test_the_boundary_comes_from_a_models_folder_whose_faults_are_told(models, tmp_path):
    policy = find_policy("glimprouter", {"tokenizer": str(models["small"])}, TWO, TWO)
    (feed,) = AutoTokenizer.from_pretrained(models["small"])("\n")["input_ids"]
    assert policy._boundary.reached(feed, feed)
    assert not policy._boundary.reached(None, feed)
    with pytest.raises(InputError, match=r"its tokenizer cannot be read") as caught:
        find_policy("glimprouter", {"tokenizer": str(tmp_path)}, TWO, TWO)
    assert str(caught.value).startswith(f"policy_options.tokenizer: {tmp_path}: ")
    assert "\n" not in str(caught.value)
