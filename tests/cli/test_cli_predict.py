import csv
import io
import json
from pathlib import Path

import pytest
import sympy

import trmodel

PAPER = "predict --profile a100-paper"


def test_the_table_says_throughput_delays_and_costs(run):
    code, out, err = run(f"{PAPER} --N 4 --B 1,3")
    said, warning = err.splitlines()
    assert (code, said) == (0, "profile: built-in a100-paper")
    assert warning.startswith("trmodel: warning: contention is unknown: ")
    assert "208.0 tok/s, 52.0 per request" in out
    assert "14 states" in out
    total = next(line for line in out.splitlines() if line.strip().startswith("all = N/T"))
    *parts, whole = map(float, total.split()[3:])
    assert sum(parts) == pytest.approx(whole, abs=2e-3)
    assert whole == pytest.approx(4000.0 / 207.954, abs=1e-3)


def test_json_is_the_prediction_and_where_it_comes_from(run):
    document = run(f"{PAPER} --N 4 --B 1,3 --json").json
    prediction = json.loads(json.dumps(trmodel.predict("a100-paper", N=4, B=(1, 3)).to_dict()))
    assert {key: document[key] for key in prediction} == prediction
    assert {"schema", "schema_version", "trmodel_version", "profile"} <= set(document)
    assert document["residual"] < 1e-10


def test_csv_is_one_record(run):
    (row,) = csv.DictReader(io.StringIO(run(f"{PAPER} --N 4 --B 1,3 --format csv").out))
    assert row["B_Qwen3-32B"] == "3"
    assert float(row["throughput_tok_s"]) == pytest.approx(207.954, abs=1e-3)
    assert 0.0 < float(row["busy_fraction_Qwen3-32B"]) < 1.0


@pytest.mark.parametrize("solver", ["gauss-seidel", "arnoldi", "direct", "gth"])
def test_every_solver_gives_the_same(run, solver):
    document = run(f"{PAPER} --N 3 --B 1,2 --solver {solver} --json").json
    assert document["solver"] == solver
    assert document["throughput_tok_s"] == pytest.approx(158.1, abs=0.05)


def test_the_solvers_of_the_help_are_those_there_are():
    from typing import get_args

    from trmodel.cli.options import SolverName
    from trmodel.markov import Solver

    assert [name.value for name in SolverName] == list(get_args(Solver))


def test_symbolic_is_the_numeric_chain_as_a_function(run):
    document = run(f"{PAPER} --N 2 --B 1,2 --symbolic --json").json
    found = document["symbolic"]
    assert found["values"] == {"p": 0.35}
    assert found["states"] == document["states"]
    assert found["throughput_tok_s"] == pytest.approx(document["throughput_tok_s"], rel=1e-12)
    value = sympy.sympify(found["expression"]).subs("p", sympy.Rational("0.2"))
    elsewhere = run(f"{PAPER} --N 2 --B 1,2 --p 0.2 --json").json
    assert float(value) == pytest.approx(elsewhere["throughput_tok_s"], rel=1e-12)
    assert "T(p) = " in run(f"{PAPER} --N 2 --B 1,2 --symbolic").out


def test_symbolic_refuses_large_chains(run):
    code, out, err = run(f"{PAPER} --N 8 --B 1,1 --symbolic -o x.json")
    assert (code, out) == (5, "")
    assert "limited to 30 states" in err
    assert not Path("x.json").exists()


def test_symbolic_with_three_models_has_a_symbol_for_each_way_out(run):
    line = "predict --profile a100-ensemble --N 1 --B 1,1,1 --symbolic --json"
    document = run(line).json
    assert document["symbolic"]["throughput_tok_s"] == pytest.approx(
        document["throughput_tok_s"], rel=1e-12
    )


def test_a_sweep_has_a_row_for_each_p(run):
    line = f"{PAPER} --N 4 --B 1,3 --sweep p=0.1..0.3:0.1"
    rows = list(csv.DictReader(io.StringIO(run(f"{line} --format csv").out)))
    assert [row["p"] for row in rows] == ["0.1", "0.2", "0.3"]
    alone = run(f"{PAPER} --N 4 --B 1,3 --p 0.3 --json").json
    assert float(rows[2]["throughput_tok_s"]) == alone["throughput_tok_s"]
    document = run(f"{line} --json").json
    assert [row["p"] for row in document["rows"]] == [0.1, 0.2, 0.3]
    assert "0.3 " in run(line).out


@pytest.mark.parametrize("sweep", ["", "--sweep p=0.2,0.4"])
def test_plots_are_written(run, sweep):
    assert run(f"{PAPER} --N 3 --B 1,2 --plot figure.svg {sweep}").code == 0
    assert Path("figure.svg").read_text().startswith("<?xml")


def test_a_model_that_is_never_reached_is_a_warning(run):
    result = run(f"{PAPER} --N 2 --B 1,1 --p 0 --format csv")
    assert result.code == 0
    assert "never reaches Qwen3-32B" in result.err


def test_a_throughput_that_depends_on_nothing_is_a_constant(run):
    out = run(f"{PAPER} --N 2 --B 1,1 --p 0 --symbolic").out
    assert "\nT = " in out
    assert "T()" not in out
