"""When an extend is read like as many requests' single tokens."""

from types import SimpleNamespace

import pytest

from trmodel.runtime.engines.sglang.adapter import Runner


@pytest.mark.parametrize(
    ("most_rows", "most_spared", "requests", "new", "few"),
    [
        (6, 30.0, 3, 3, True),
        (6, 30.0, 3, 18, True),
        (6, 30.0, 3, 19, False),  # on average too many
        (6, 3.5, 3, 6, True),
        (6, 3.5, 3, 7, False),  # the logits of four more places cost more than they spare
        (1, 30.0, 3, 3, True),
        (1, 30.0, 3, 4, False),  # where caches are not read in place
    ],
)
def test_few_new_tokens_with_cheap_logits_are_a_decode(most_rows, most_spared, requests, new, few):
    runner = SimpleNamespace(_most_rows=most_rows, _most_spared=most_spared)
    assert Runner._few(runner, requests, new) is few
