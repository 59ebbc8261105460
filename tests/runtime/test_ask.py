"""How a reply ends is taken from the models' tokenizer, and what it refuses is told the client."""

import pytest
from executor_client import make_config

from trmodel.errors import InputError
from trmodel.runtime.server.ask import read_ask
from trmodel.runtime.server.errors import ApiError
from trmodel.runtime.server.tokenizer import ByteTokenizer


class Ending(ByteTokenizer):
    """Byte 0 ends a reply; there are no conversations."""

    end_ids = (0,)

    def encode_chat(self, messages, settings):
        raise InputError("the models have no chat template")


@pytest.mark.parametrize(("ignore", "ids"), [(None, (0,)), (False, (0,)), (True, ())])
def test_end_tokens_end_a_reply_unless_they_are_to_be_ignored(ignore, ids):
    body = {"model": "trmodel", "prompt": ["a", "b"], "ignore_eos": ignore}
    ask = read_ask(body, False, make_config(), Ending())
    assert [choice.sampling.stop_ids for choice in ask.choices] == [ids] * 2
    assert {(choice.sampling.temperature, choice.sampling.top_p) for choice in ask.choices} == {
        (1.0, 1.0)
    }


def test_what_the_tokenizer_refuses_is_told():
    body = {"model": "trmodel", "messages": [{"role": "user", "content": "a"}]}
    with pytest.raises(ApiError, match=r"^messages: the models have no chat template$") as caught:
        read_ask(body, True, make_config(), Ending())
    assert (caught.value.status, caught.value.param) == (400, "messages")
