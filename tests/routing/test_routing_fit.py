"""Routings estimated from traces that are drawn here from known ones."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trmodel.cli.main import main
from trmodel.errors import InputError, UsageError
from trmodel.markov import solve_chain
from trmodel.profile import build_system, load_profile
from trmodel.routing import Routing, fixed_length, glimprouter, load_routing
from trmodel.routing.fit import fit_routing
from trmodel.routing.runs import ages, constant_hazard
from trmodel.routing.trace import read_trace, trace_of

PLAIN = Routing(
    name="plain",
    models=("a", "b", "c"),
    transition_probability=((0.6, 0.3, 0.1), (0.5, 0.5, 0.0), (0.9, 0.0, 0.1)),
    committed_tokens=((1, 0, 2), (1, 3, 0), (0.5, 0, 1)),
    source="test",
)


def drawn(routing, requests=40, steps=250, seed=0):
    """Rows of requests that follow a routing, those of different requests mixed."""
    rng = np.random.default_rng(seed)
    P, C = np.array(routing.transition_probability), np.array(routing.committed_tokens)
    names = [routing.models[i] for i in routing.phase_models]
    u = np.full(requests, routing.entry_index)
    rows = []
    for _ in range(steps):
        v = (rng.random(requests)[:, None] > P.cumsum(axis=1)[u, :-1]).sum(axis=1)
        rows += [(f"r{r}", names[u[r]], C[u[r], v[r]]) for r in range(requests)]
        u = v
    return rows


def test_a_plain_routing_is_recovered():
    found = fit_routing(drawn(PLAIN), name="again")
    assert found.routing.name == "again"
    assert found.routing.models == ("a", "b", "c")
    assert found.routing.phases == ()
    P = np.array(PLAIN.transition_probability)
    assert np.allclose(found.routing.transition_probability, P, atol=0.03)
    assert np.allclose(
        np.array(found.routing.committed_tokens)[P > 0], np.array(PLAIN.committed_tokens)[P > 0]
    )
    assert [runs.phases for runs in found.runs] == [1, 1, 1]
    assert all(runs.p_value > 0.01 for runs in found.runs)
    assert all("agree with geometric" in reading for reading in found.readings())
    assert found.reply_tokens == pytest.approx(sum(c for *_, c in drawn(PLAIN)) / 40)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    held = []
    for seed in range(60):
        found = fit_routing(drawn(PLAIN, requests=10, steps=60, seed=seed), max_phases=1)
        truth = {("a", "b"): 0.3, ("b", "a"): 0.5, ("c", "a"): 0.9}
        held += [
            move.low <= truth[move.source, move.target] <= move.high
            for move in found.moves
            if (move.source, move.target) in truth
        ]
    assert 0.9 <= np.mean(held) <= 0.99


def test_geometric_runs_are_rejected_no_more_often_than_the_level_says():
    found = [fit_routing(drawn(PLAIN, 20, 60, seed), level=1e-9) for seed in range(80)]
    p_values = np.array([[runs.p_value for runs in each.runs if runs.model == 0] for each in found])
    assert 0.02 < np.mean(p_values < 0.1) < 0.2
    assert 0.4 < np.mean(p_values) < 0.6


@pytest.mark.parametrize("K", [2, 3, 7])
def test_fixed_lengths_are_found(K):
    routing = fixed_length(K, 0.3)
    found = fit_routing(drawn(routing))
    small, large = found.runs
    assert (small.phases, small.fixed) == (1, None)
    assert (large.phases, large.fixed) == (K, K)
    assert large.p_value < 1e-6
    assert f"exactly {K} steps: a phase for each" in found.readings()[1]
    P = found.routing.transition_probability
    assert P[0][1] == pytest.approx(0.3, abs=0.03)
    assert np.array(P)[1:] == pytest.approx(np.array(routing.transition_probability)[1:])
    names = [phase.name for phase in found.routing.phases]
    assert names == ["Qwen3-0.6B", *(f"Qwen3-32B {k}" for k in range(1, K + 1))]
    # Under the chain it is worth what the true one is.
    loaded = load_profile("a100-paper")
    true, fitted = (
        solve_chain(build_system(loaded, 2, each), (1, 1)).throughput_tok_s
        for each in (routing, found.routing)
    )
    assert fitted == pytest.approx(true, rel=0.03)


def test_longer_fixed_lengths_ask_for_more_phases():
    found = fit_routing(drawn(fixed_length(6, 0.3)), max_phases=4)
    assert "raise the largest number of phases (--max-phases 6)" in found.readings()[1]
    assert found.runs[1].phases == 4


def test_a_first_step_that_differs_becomes_a_phase():
    """The first step at b always leads to a second, and then each leaves with 1/4."""
    routing = Routing(
        name="two",
        models=("a", "b"),
        phases=({"name": "a", "model": "a"}, {"name": "b1", "model": "b"},
                {"name": "b2", "model": "b"}),
        transition_probability=((0.5, 0.5, 0.0), (0.0, 0.0, 1.0), (0.25, 0.0, 0.75)),
        committed_tokens=((1, 1, 1), (0, 0, 0), (1, 1, 1)),
        source="test",
    )  # fmt: skip
    found = fit_routing(drawn(routing))
    assert [phase.name for phase in found.routing.phases] == ["a", "b 1", "b 2+"]
    assert np.allclose(
        found.routing.transition_probability, routing.transition_probability, atol=0.03
    )
    assert "2 phases by age" in found.readings()[1]
    assert found.routing.committed_tokens[1][2] == 0.0
    plain = fit_routing(drawn(routing), max_phases=1)
    assert plain.routing.phases == ()
    assert plain.readings()[1].endswith("one phase is not enough for them")


def test_whole_steps_of_a_router_are_told_from_single_ones():
    found = fit_routing(drawn(glimprouter(0.4, 8.0), requests=60))
    # The small model probes again at once or goes on writing: its runs are no geometric ones.
    small, large = found.runs
    assert small.p_value < 0.01
    assert small.phases > 1
    assert large.phases == 1


def test_cut_runs_do_not_bias_the_test():
    """Requests of five steps, most runs cut by the end: lengths of complete runs are short."""
    routing = Routing(
        name="long",
        models=("a", "b"),
        transition_probability=((0.8, 0.2), (0.2, 0.8)),
        committed_tokens=((1, 1), (1, 1)),
        source="test",
    )
    found = fit_routing(drawn(routing, requests=2000, steps=5))
    assert found.routing.transition_probability[0][1] == pytest.approx(0.2, abs=0.02)
    assert all(runs.p_value > 0.01 for runs in found.runs)
    assert found.runs[0].mean_steps == pytest.approx(5.0, rel=0.1)


def test_ages_restart_with_model_and_request():
    trace = trace_of([(1, "a", 1), (2, "a", 1), (1, "a", 1), (1, "b", 1), (2, "b", 1), (1, "a", 0)])
    assert trace.request.tolist() == [0, 0, 0, 0, 1, 1]
    assert ages(trace).tolist() == [1, 2, 1, 1, 1, 1]
    assert trace.followed.tolist() == [0, 1, 2, 4]


def test_the_chi_square_by_hand():
    seen, leaving = np.array([100, 60]), np.array([30, 34])
    h = 64 / 160
    x2 = (30 - 40) ** 2 / (100 * h * (1 - h)) + (34 - 24) ** 2 / (60 * h * (1 - h))
    # One degree of freedom: the tail is that of a squared normal.
    from math import erfc, sqrt

    assert constant_hazard(seen, leaving) == pytest.approx(erfc(sqrt(x2 / 2)), rel=1e-9)
    assert constant_hazard(np.array([50]), np.array([20])) is None
    assert constant_hazard(np.array([50, 3]), np.array([20, 1])) is None
    assert constant_hazard(np.array([50, 50]), np.array([50, 50])) is None


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 3)), min_size=1))
def test_any_trace_gives_a_valid_routing_or_one_clear_line(rows):
    followed = {a[1] for a, b in pairwise(sorted(rows, key=lambda row: row[0])) if a[0] == b[0]}
    if followed < {model for _, model, _ in rows}:
        with pytest.raises(InputError, match="only in last steps"):
            fit_routing(rows)
        return
    found = fit_routing(rows)
    assert np.allclose(np.sum(found.routing.transition_probability, axis=1), 1.0)
    assert len(found.routing.all_phases) == sum(runs.phases for runs in found.runs)


def test_csv_and_json_lines_are_the_same_trace(tmp_path):
    rows = [("x", "a", 1.0), ("y", "b", 0.5), ("x", "b", 2.0), ("y", "a", 0.0)]
    table, lines = tmp_path / "t.csv", tmp_path / "t.jsonl"
    table.write_text(
        "time,committed, request,model\n" + "".join(f"0,{c},{r},{m}\n\n" for r, m, c in rows)
    )
    lines.write_text(
        "\n".join(json.dumps({"request": r, "model": m, "committed": c}) for r, m, c in rows)
    )
    for trace in (read_trace(table), read_trace(lines)):
        assert trace.models == ("a", "b")
        assert trace.model.tolist() == [0, 1, 1, 0]
        assert trace.committed.tolist() == [1.0, 2.0, 0.5, 0.0]
        assert len(trace.sha256) == 64


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["the file is empty; a trace with the columns request,model,committed is needed"]),
        ("request,model\n1,a\n", ["line 1: the header must have one column committed; it needs "
                                  "request,model,committed, and others are ignored"]),
        ("request,model,committed\n", ["the trace has no rows"]),
        ("request,model,committed\n1,a,1\n1,,x\n,b,1\n1,b\n",
         ["line 3: model: must be a name of at most 200 characters",
          "line 3: committed: must be a number from 0 to 1e+06, got x",
          "line 4: request: must be a text or a whole number",
          "line 5: 3 cells are needed, got 2"]),
        ("request,model,committed\n1,a,nan\n",
         ["line 2: committed: must be a number from 0 to 1e+06, got nan"]),
        ('{"request": 1, "model": "a", "committed": 1}\n{"request": 1\n[]\n'
         '{"request": 1.5, "model": "a"}\n',
         ["line 2: not valid JSON at column 14: Expecting ',' delimiter",
          "line 3: must be a JSON object {...}",
          "line 4: request: must be a text or a whole number",
          "line 4: committed: must be a number from 0 to 1e+06, got None"]),
    ],
)  # fmt: skip
def test_malformed_traces_are_refused_by_line(tmp_path, text, problems):
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        fit_routing(path)
    assert caught.value.problems == [f"{path}: {line}" for line in problems]


def test_what_cannot_be_estimated_is_refused():
    with pytest.raises(InputError, match="b: only in last steps of requests"):
        fit_routing([(1, "a", 1), (1, "b", 1), (2, "a", 1), (2, "a", 1)])
    with pytest.raises(InputError, match="13 models; at most 12"):
        fit_routing([(1, f"m{i}", 1) for i in range(13)])
    with pytest.raises(UsageError, match="level: must be a p-value"):
        fit_routing([(1, "a", 1)] * 3, level=0)
    with pytest.raises(UsageError, match="max_phases: must be a whole number"):
        fit_routing([(1, "a", 1)] * 3, max_phases=0)
    problems = [(1, "a", -1)] * 50
    with pytest.raises(InputError) as caught:
        fit_routing(problems)
    assert caught.value.problems[-1] == "trace: and 30 more problems"


def test_requests_that_start_elsewhere_are_told():
    rows = [(1, "a", 1), (1, "b", 1), (1, "a", 1), (2, "b", 1), (2, "a", 1), (3, "a", 1)]
    found = fit_routing(rows)
    assert found.routing.entry == "a"
    assert found.notes == ("1 of 3 requests start elsewhere than at a, where all start in the "
                           "model",)  # fmt: skip


def test_the_command_writes_a_routing_that_the_others_read(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = drawn(fixed_length(2, 0.3), requests=20, steps=100)
    (tmp_path / "trace.csv").write_text(
        "request,model,committed\n" + "".join(f"{r},{m},{c}\n" for r, m, c in rows)
    )
    assert main(["routing", "fit", "trace.csv", "-o", "mine.json", "--name", "mine"]) == 0
    captured = capsys.readouterr()
    assert "all" in captured.out
    assert "exactly 2 steps" in captured.out
    assert captured.err == "wrote mine.json\n"
    assert load_routing("mine.json") == fit_routing("trace.csv", name="mine").routing
    assert main(["routing", "show", "mine.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "mine.json").read_text())
    assert main(["tune", "--profile", "a100-paper", "--routing", "mine.json", "--N", "2"]) == 0
    assert main(["routing", "fit", "trace.csv", "-o", "trace.csv"]) == 2
    assert main(["routing", "fit", "trace.csv", "--level", "2"]) == 2
    assert "trmodel: error: --level: must be a p-value" in capsys.readouterr().err
