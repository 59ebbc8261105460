"""Options of policies that make no sense are told at the start, in one line that names them."""

import math

import pytest

from trmodel.errors import InputError
from trmodel.runtime.config import ServerConfig
from trmodel.runtime.plan import make_plan
from trmodel.runtime.policies import Policy, ThresholdPolicy, find_policy
from trmodel.runtime.policies.base import SmallModel
from trmodel.runtime.policies.glimprouter import GlimpRouter
from trmodel.runtime.policies.options import OptionError
from trmodel.runtime.policies.r_stitch import RStitch

ROWS = ((0.5, 0.5), (0.2, 0.8))
NO_FUNCTION = 3


class Plain(Policy):
    pass


class Open(Policy):
    def __init__(self, needed, **more):
        self.more = more


class Wrong(Policy):
    def __init__(self, x=1):
        raise OptionError("x", "is never right")


TOLD = [
    ("bernoulli", {"x": 1}, "x: bernoulli has no such option; it has none"),
    ("ensemble", {"weight": [1, 2]}, "weight: ensemble has no such option; it has weights"),
    ("ensemble", {}, "weights: are needed where the rows of the routing differ"),
    ("ensemble", {"weights": 5}, "weights: must be a list, got 5"),
    ("ensemble", {"weights": "ab"}, "weights: must be a list, got 'ab'"),
    ("ensemble", {"weights": [1, -1]}, "weights: must be a number of at least 0, got -1"),
    ("ensemble", {"weights": [1, True]}, "weights: must be a number of at least 0, got True"),
    ("ensemble", {"weights": [1, math.nan]}, "weights: must be finite, got nan"),
    ("ensemble", {"weights": [0, 0]}, "weights: must not all be 0"),
    ("request-level", {}, "share: this, longer_than or score is needed"),
    ("request-level", {"share": 1.5}, "share: must be a number from 0 to 1, got 1.5"),
    ("request-level", {"share": "0.2"}, "share: must be a number from 0 to 1, got '0.2'"),
    ("request-level", {"longer_than": 2.5}, "longer_than: must be a whole number of at least 0"),
    ("request-level", {"longer_than": "9"}, "longer_than: must be a whole number of at least 0"),
    ("request-level", {"score": "a:b"}, "above: score and above need each other"),
    ("request-level", {"above": 1.0, "share": 0.5}, "score: score and above need each other"),
    ("request-level", {"score": 5, "above": 1}, "score: must be a text, got 5"),
    ("request-level", {"score": "math", "above": 1}, "score: math is not of the form"),
    ("request-level", {"score": "math:pow", "above": "x"}, "above: must be a number, got 'x'"),
    ("request-level", {"score": "no_such:f", "above": 1}, "score: no_such:f cannot be loaded: No"),
    ("request-level", {"score": "math:f", "above": 1}, "score: math:f cannot be loaded: "),
    ("request-level", {"score": "math:pi", "above": 1}, "score: math:pi is no function"),
    ("request-level", {"shares": 0.1}, "it has share, longer_than, score, above"),
    ("scripted", {}, "script: scripted needs it"),
    ("scripted", {"script": 5}, "script: must be a list, got 5"),
    ("scripted", {"script": []}, "script: must not be empty"),
    ("scripted", {"script": [0, 0.5]}, "script: must be a list of models by their place"),
    ("scripted", {"script": [0], "drop_on_leaving": [-1]}, "drop_on_leaving: must be a list of"),
    ("recording", {"policy": "bernoulli"}, "folder: recording needs it"),
    ("recording", {"policy": "bernoulli", "folder": "/no/such"}, "folder: /no/such is no folder"),
    ("recording", {"policy": "bernoulli", "folder": 5}, "folder: must be a text, got 5"),
    ("recording", {"policy": 5, "folder": "."}, "policy: must be a text, got 5"),
    ("recording", {"policy": "bernoulli", "folder": ".", "options": [1]}, "options: must be named"),
    (
        "recording",
        {"policy": "request-level", "folder": ".", "options": {"share": 2}},
        "options.share: must be a number from 0 to 1, got 2",
    ),
    (f"{__name__}:Plain", {"x": 1}, f"x: {__name__}:Plain has no such option; it has none"),
    (f"{__name__}:Open", {"x": 1}, f"needed: {__name__}:Open needs it"),
    (f"{__name__}:Wrong", {}, "x: is never right"),
]


@pytest.mark.parametrize(("name", "options", "said"), TOLD)
def test_an_option_that_makes_no_sense_is_told(name, options, said):
    with pytest.raises(InputError) as caught:
        find_policy(name, options, ROWS, ROWS)
    message = str(caught.value)
    assert message.startswith("policy_options.")
    assert said in message
    assert "\n" not in message
    assert "__init__" not in message


def test_a_policy_may_take_options_of_any_name():
    assert find_policy(f"{__name__}:Open", {"needed": 1, "x": 2}, ROWS, ROWS).more == {"x": 2}


STEP = {"boundary": [1]}


@pytest.mark.parametrize(
    ("cls", "options", "said"),
    [
        (GlimpRouter, {}, "tokenizer: this or the tokens that end a step"),
        (GlimpRouter, {"tokenizer": "x", **STEP}, "tokenizer: this or the tokens"),
        (GlimpRouter, {"tokenizer": 5}, "tokenizer: must be a text, got 5"),
        (GlimpRouter, {**STEP, "step_tokens": 0}, "step_tokens: must be a whole number of at"),
        (GlimpRouter, {**STEP, "top": 2.5}, "top: must be a whole number of at least 1, got 2.5"),
        (GlimpRouter, {"boundary": 7}, "boundary: must be a list, got 7"),
        (GlimpRouter, {"boundary": "271"}, "boundary: must be a list, got '271'"),
        (GlimpRouter, {**STEP, "newline": [True]}, "newline: must be a list of tokens, got [True]"),
        (GlimpRouter, {**STEP, "think_end": ["</think>"]}, "think_end: must be a list of tokens"),
        *(
            (cls, {**others, "threshold": wrong}, "threshold: must be ")
            for cls, others in ((GlimpRouter, STEP), (RStitch, {}), (ThresholdPolicy, {}))
            for wrong in ("0.5", None, True, math.nan, math.inf)
        ),
    ],
)
def test_options_of_policies_that_read_tensors_are_checked_likewise(cls, options, said):
    with pytest.raises(OptionError) as caught:
        cls(**options)
    assert str(caught.value).startswith(said)


def settings(folder):
    options = {"policy": "request-level", "options": {"share": 0.5}, "folder": str(folder)}
    return ServerConfig(
        profile="a100-paper", policy="recording", policy_options=options, thresholds="eager"
    )


def test_a_server_does_not_add_to_the_recording_of_an_earlier_one(tmp_path):
    make_plan(settings(tmp_path))
    (tmp_path / "0-17.jsonl").write_text("{}\n")
    with pytest.raises(InputError) as caught:
        make_plan(settings(tmp_path))
    assert str(caught.value) == (
        f"policy_options.folder: {tmp_path} has the steps of an earlier run, 0-17.jsonl; "
        "name an empty one"
    )


def test_what_a_recorded_policy_says_of_the_models_is_told(tmp_path, monkeypatch):
    def refuse(self, small):
        raise OptionError("share", f"is not for {small.hidden_size}")

    monkeypatch.setattr("trmodel.runtime.policies.request_level.RequestLevel.check_start", refuse)
    made = find_policy("recording", settings(tmp_path).policy_options, ROWS, ROWS)
    with pytest.raises(InputError, match=r"^policy_options\.options\.share: is not for 128$"):
        made.check_start(SmallModel(128, 1024))
