"""Which context is meant, and that it reaches the latencies of a system."""

import pytest
from profile_making import PROVENANCE, model, profile, routing

from trmodel.errors import UsageError
from trmodel.profile import build_system, context_range


def at(*contexts, **fields):
    models = [
        model(
            f"m{i}",
            decode={
                "batch": [1],
                "latency_ms": [[10.0], [20.0]] if isinstance(context, list) else [10.0],
                "context_tokens": context,
                "provenance": PROVENANCE,
            },
        )
        for i, context in enumerate(contexts)
    ]
    chain = routing([[1 / len(models)] * len(models)] * len(models))
    return profile(models, routing=chain, **fields)


@pytest.mark.parametrize(
    ("loaded", "expected"),
    [
        (at(None, None), 2048),
        (at(512, 512), 512),
        (at(512, [1000, 3000]), 512),
        (at(512, 1024), 2048),
        (at([1000, 3000]), 2048),
        (at(0), 2048),
        (at(512, context_tokens=4096), 4096),
    ],
)
def test_the_context_of_a_profile(loaded, expected):
    assert context_range(loaded.profile) == (expected, expected)


def test_the_context_asked_for():
    plain = at(512).profile
    assert context_range(plain, 7) == (7, 7)
    assert context_range(plain, (0, 7)) == (0, 7)


@pytest.mark.parametrize(
    "context", [0, -1, 1.5, True, "x", (3, 2), (1,), (1, 2, 3), (0, 0), (1, 2.5)]
)
def test_contexts_that_make_no_sense(context):
    with pytest.raises(UsageError, match="context: must be a whole number of tokens"):
        build_system(at(512), 1, context=context)


def test_the_context_reaches_the_latencies():
    loaded = at([1000, 3000])
    assert build_system(loaded, 1).latency_ms[0, 0] == pytest.approx(15.24)
    assert build_system(loaded, 1, context=1000).latency_ms[0, 0] == 10.0
    assert build_system(loaded, 1, context=(1000, 2000)).latency_ms[0, 0] == pytest.approx(12.5)
    outside = build_system(loaded, 1, context=4000)
    assert outside.latency_ms[0, 0] == pytest.approx(25.0)
    assert outside.warnings == (
        "m0: context 4000 is outside the listed 1000 to 3000: latency is extrapolated linearly",
    )
    assert build_system(at(512), 1, context=1024).warnings == (
        "m0: context 1024: the latencies listed for 512 are used unchanged",
    )
