"""KV capacity: by hand, as a bound that is tight, and every way in which it cannot be told."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_making import PROVENANCE, model, profile, routing

from trmodel.errors import InfeasibleError, InputError, UsageError
from trmodel.profile import check_capacity, load_profile
from trmodel.profile.capacity import capacity

STAY = [[0.5, 0.5], [1, 0]]


def memory(weights: int, kv: int):
    return {"weight_bytes": weights, "kv_bytes_per_token": kv, "provenance": PROVENANCE}


def machine(placements, weights, kv, *, gpus=2, total=1000, reserved=100, P=None, **fields):
    M = len(placements)
    models = [
        model(f"m{i}", len(placements[i]), gpus=placements[i], memory=memory(weights[i], kv[i]))
        for i in range(M)
    ]
    hardware = {"gpus": gpus, "gpu_memory_bytes": total, "reserved_bytes": reserved}
    return profile(models, hardware, routing=routing(P or [[1 / M] * M] * M), **fields)


def test_shared_gpus_by_hand():
    # m0 on GPU 0, m1 on both: GPU 0 has 1000 - 100 - 50 - 300 = 550 for 1 + 4 bytes a token,
    # GPU 1 has 600 for 4.
    found = capacity(machine([[0], [0, 1]], [50, 600], [1, 8], P=STAY), context=20)
    first, second = found.gpus
    assert (first.weight_bytes, second.weight_bytes) == ({"m0": 50, "m1": 300}, {"m1": 300})
    assert (first.kv_bytes_per_token, second.kv_bytes_per_token) == (5, 4)
    assert (first.free_bytes, second.free_bytes) == (550, 600)
    assert (first.tokens, second.tokens) == (110, 150)
    assert (found.binding_gpu, found.tokens, found.models) == (0, 110, ("m0", "m1"))
    assert (found.context_tokens, found.largest_N) == (20, 5)
    assert found.largest_context(5) == 22
    assert found.largest_context(111) == 0
    with pytest.raises(UsageError, match="N: must be"):
        found.largest_context(0)


def test_separate_gpus_and_an_empty_one():
    found = capacity(machine([[0], [2]], [50, 600], [1, 3], gpus=3, P=STAY), context=20)
    assert [gpu.tokens for gpu in found.gpus] == [850, None, 100]
    assert found.binding_gpu == 2


def test_a_model_that_is_never_visited_takes_weights_but_no_cache():
    loaded = machine([[0], [0]], [50, 600], [1, 3], P=[[1, 0], [0.5, 0.5]])
    found = capacity(loaded, context=10)
    assert found.models == ("m0",)
    assert (found.gpus[0].free_bytes, found.tokens) == (250, 250)
    other = {**routing([[1.0]]), "name": "only m0"}
    alone = machine([[0], [0]], [50, 600], [1, 3])
    chosen = type(loaded.profile.routing).model_validate(other)
    assert capacity(alone, chosen, context=10).tokens == 850


def test_a_growing_context_counts_with_its_largest():
    loaded = machine([[0]], [0 + 50], [1], gpus=1, context_tokens=85)
    assert capacity(loaded).largest_N == 10
    assert capacity(loaded, context=(10, 170)).largest_N == 5


machines = st.integers(1, 4).flatmap(
    lambda gpus: st.tuples(
        st.just(gpus),
        st.lists(
            st.tuples(
                st.sets(st.integers(0, gpus - 1), min_size=1).map(sorted),
                st.integers(1, 300),
                st.integers(1, 50),
            ),
            min_size=1,
            max_size=4,
        ),
    )
)


@given(machines, st.integers(1, 40))
def test_the_largest_fits_and_one_more_does_not(parts, context):
    gpus, models = parts
    placements, weights, kv = zip(*models, strict=True)
    loaded = machine(placements, weights, kv, gpus=gpus, total=2000, reserved=10)

    def fits(tokens: int) -> bool:
        return all(
            10
            + sum(Fraction(w, len(on)) for on, w, _ in models if g in on)
            + tokens * sum(Fraction(v, len(on)) for on, _, v in models if g in on)
            <= 2000
            for g in range(gpus)
        )

    found = capacity(loaded, context=context)
    N = found.largest_N
    assert fits(N * context)
    assert not fits((N + 1) * context)
    if N:
        longest = found.largest_context(N)
        assert longest >= context
        assert fits(N * longest)
        assert not fits(N * (longest + 1))
        assert check_capacity(loaded, N, context=context).fits
    assert not check_capacity(loaded, N + 1, context=context).fits


def test_what_does_not_fit_is_said():
    loaded = machine([[0]], [50], [1], gpus=1)
    check = check_capacity(loaded, 9, context=100)
    assert (check.fits, check.largest_N) == (False, 8)
    assert check.message == (
        "9 requests of 100 tokens do not fit into GPU memory: at most 8 do (GPU 0 holds 850 "
        "cached tokens)"
    )
    check = check_capacity(loaded, 8, context=100)
    assert (check.fits, check.largest_N, check.message) == (True, 8, None)


def test_weights_that_do_not_fit():
    loaded = machine([[0, 1], [1]], [1000, 500], [1, 1], P=STAY)
    with pytest.raises(InfeasibleError) as caught:
        capacity(loaded)
    (line,) = str(caught.value).splitlines()
    assert line.startswith("GPU 1: weights (m0 0.0 GB, m1 0.0 GB) and 0.0 GB reserved do not fit")
    with pytest.raises(InfeasibleError):
        check_capacity(loaded, 1)


def test_weights_that_fit_exactly_leave_room_for_no_request():
    found = capacity(machine([[0]], [900], [1], gpus=1), context=1)
    assert (found.tokens, found.largest_N) == (0, 0)


def test_missing_fields_are_all_named():
    loaded = load_profile("a100-paper")
    with pytest.raises(InputError) as caught:
        capacity(loaded)
    assert [line.split(": ")[1] for line in caught.value.problems] == [
        "hardware.gpu_memory_bytes",
        "hardware.reserved_bytes",
        "models[0].gpus",
        "models[0].memory",
        "models[1].gpus",
        "models[1].memory",
    ]
    assert all("is missing; add" in line for line in caught.value.problems)
    check = check_capacity(loaded, 4)
    assert (check.fits, check.largest_N) == (True, None)
    assert check.message is not None
    assert check.message.startswith(
        "KV capacity is not checked: built-in a100-paper: hardware.gpu_memo"
    )


def test_arguments_are_those_of_a_system():
    loaded = machine([[0]], [50], [1], gpus=1)
    with pytest.raises(UsageError, match="context: "):
        capacity(loaded, context=0)
    bare = profile([model("m0")])
    with pytest.raises(InputError, match="routing: the profile has no default"):
        capacity(bare)
