import doctest
import subprocess
import sys

import pytest

import trmodel
from trmodel import api
from trmodel.errors import InfeasibleError, InputError, UsageError


def test_every_public_name_is_there():
    for name in trmodel.__all__:
        assert getattr(trmodel, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trmodel.nothing


@pytest.mark.parametrize("module", [trmodel, api])
def test_docstring_examples_are_true(module):
    result = doctest.testmod(module)
    assert result.attempted >= 2
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
        trmodel.tune("a100", N=64)
