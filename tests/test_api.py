import doctest
import json
import subprocess
import sys

import numpy as np
import pytest

import trmodel
from trmodel.api import predicting, tuning
from trmodel.errors import InfeasibleError, InputError, NotConvergedError, UsageError


def test_every_public_name_is_there():
    for name in trmodel.__all__:
        assert getattr(trmodel, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trmodel.nothing


@pytest.mark.parametrize("module", [trmodel, tuning, predicting])
def test_docstring_examples_are_true(module):
    result = doctest.testmod(module)
    assert result.attempted >= 1
    assert result.failed == 0


def test_importing_the_package_loads_nothing_heavy():
    heavy = "numba scipy numpy pandas matplotlib sympy networkx torch sglang".split()
    code = f"import sys, trmodel; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_predict_and_tune_agree():
    table = trmodel.tune("a100", N=6)
    row = table.row(6)
    alone = trmodel.predict("a100", N=6, B=row.B)
    assert alone.throughput_tok_s == pytest.approx(row.throughput_tok_s, rel=1e-9)
    assert alone.states == row.choice.best.states


def test_the_ensemble_profile_tunes_three_models():
    row = trmodel.tune("a100-ensemble", N=2).row(2)
    assert len(row.B) == 3
    assert len(row.candidates) == 4


def test_options_reach_the_system():
    base = trmodel.predict("a100-paper", N=4, B=(1, 3))
    assert trmodel.predict("a100-paper", N=4, B=(1, 3), p=0.35).throughput_tok_s == (
        base.throughput_tok_s
    )
    citer = trmodel.predict("a100-paper", N=4, B=(1, 3), routing="citer")
    assert citer.throughput_tok_s == pytest.approx(
        trmodel.predict("a100-paper", N=4, B=(1, 3), p=0.18).throughput_tok_s
    )
    assert citer.throughput_tok_s > base.throughput_tok_s
    bounded = trmodel.predict("a100-paper", N=4, B=(1, 1), max_batch=1)
    assert all(m.mean_batch == 1.0 for m in bounded.per_model)
    coarse = trmodel.predict("a100-paper", N=4, B=(1, 1), grid_ms=1.0)
    assert coarse.grid_error_percent == pytest.approx(100 * (28 / 27.9 - 1))
    assert coarse.states < trmodel.predict("a100-paper", N=4, B=(1, 1)).states


def test_documents_say_what_they_were_made_from():
    document = trmodel.tune("a100-paper", N=2).to_dict()
    assert document["schema"] == "trmodel/thresholds"
    assert document["schema_version"] == 1
    assert document["trmodel_version"] == trmodel.__version__
    assert document["profile"]["name"] == "a100-paper"
    assert len(document["profile"]["sha256"]) == 64
    assert document["system"]["transition_probability"] == [[0.65, 0.35], [1.0, 0.0]]
    assert document["thresholds"] == [[1, 1], [1, 2]]
    assert set(document["rows"][0]) >= {
        "N",
        "B",
        "throughput_tok_s",
        "eager_tok_s",
        "gain_percent",
        "runner_up",
        "states",
        "method",
        "residual",
    }


@pytest.mark.parametrize("N", [0, -1, [], [3, 0]])
def test_bad_concurrencies(N):
    with pytest.raises(UsageError):
        trmodel.tune("a100-paper", N=N)


def test_errors_are_the_documented_ones():
    with pytest.raises(InputError, match="a100"):
        trmodel.tune("a1000", N=2)
    with pytest.raises(InfeasibleError, match="can deadlock"):
        trmodel.predict("a100-paper", N=4, B=(2, 4))
    with pytest.raises(UsageError, match="2 thresholds are needed"):
        trmodel.predict("a100-paper", N=4, B=(1,))
    with pytest.raises(InputError, match=r"decode\.batch"):
        trmodel.tune("a100", N=512, context=64)
    with pytest.raises(InfeasibleError, match="do not fit into GPU memory"):
        trmodel.tune("a100", N=512)


@pytest.mark.parametrize("N", ["4..6", "4", None, 4.0, [2, "3"], True])
def test_concurrencies_of_the_wrong_type(N):
    with pytest.raises(UsageError, match="N: "):
        trmodel.tune("a100-paper", N=N)
    with pytest.raises(UsageError, match="N: "):
        trmodel.predict("a100-paper", N=N, B=(1, 1))


@pytest.mark.parametrize(
    ("option", "value"),
    [("B", 3), ("B", "1,3"), ("B", (1, "3")), ("p", "0.2"), ("max_batch", "4"), ("grid_ms", "1")],
)
def test_options_of_the_wrong_type(option, value):
    with pytest.raises(UsageError, match=option):
        trmodel.predict("a100-paper", **({"N": 4, "B": (1, 3)} | {option: value}))


@pytest.mark.parametrize("fixed", [{"Qwen3-32B": 2}, {0: 1.5}, {0: "1"}])
def test_fixed_thresholds_of_the_wrong_type(fixed):
    with pytest.raises(UsageError):
        trmodel.tune("a100-paper", N=4, fixed=fixed)


def test_numpy_numbers_and_arrays_are_numbers():
    table = trmodel.tune("a100-paper", np.int64(3), fixed={np.int64(0): np.int64(1)})
    assert json.dumps(table.to_dict())
    assert trmodel.tune("a100-paper", np.arange(2, 4)).wanted == (2, 3)
    assert trmodel.sweep_p(np.array([0.1, 0.2]), "a100-paper", N=2).values == (0.1, 0.2)
    assert trmodel.predict("a100-paper", N=np.int64(2), B=np.array([1, 2])).B == (1, 2)


def test_a_latency_of_half_a_grid_unit_vanishes():
    with pytest.raises(InputError, match="vanishes on a grid of 12 ms"):
        trmodel.predict("a100-paper", N=4, B=(1, 1), grid_ms=12.0)


@pytest.mark.parametrize("q", [1e-4, 1e-6, 1e-8, 1e-12])
def test_nearly_decomposable_chains_are_solved_right_or_not_at_all(q):
    """Vectors far from the stationary law have residuals of 1e-16 here."""
    right = trmodel.predict("a100-paper", N=6, B=(1, 2), p=1 - q, solver="gth").throughput_tok_s
    for solver in ("auto", "arnoldi", "gauss-seidel", "direct"):
        try:
            found = trmodel.predict("a100-paper", N=6, B=(1, 2), p=1 - q, solver=solver)
        except NotConvergedError:
            assert solver != "auto"
        else:
            assert found.throughput_tok_s == pytest.approx(right, rel=1e-9)
