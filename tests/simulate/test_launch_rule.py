"""A launch rule by state, as the decision process exports it, simulated."""

from dataclasses import replace

import pytest

from trmodel.errors import InputError, UsageError
from trmodel.launch_table import load_launch_table
from trmodel.markov import best_launch_rule
from trmodel.simulate import Options, Simulator, simulate
from trmodel.system import RoutedSystem

GRID = Options(on_grid=True)


def r2r(N, **changes):
    return RoutedSystem(
        ["small", "large"],
        [6.0, 27.9],
        [[0.65, 0.35], [1.0, 0.0]],
        [[1, 0], [1, 0]],
        N,
        **changes,
    )


@pytest.mark.parametrize(
    ("N", "changes"),
    [(4, {}), (6, {}), (4, {"slow_down": {(0, 1): (1.7, 1.2)}}), (4, {"wake_ms": [2.0, 5.0]})],
)
def test_the_exported_rule_reaches_its_predicted_throughput(N, changes, tmp_path):
    system = r2r(N, **changes)
    best = best_launch_rule(system)
    best.table.save(tmp_path / "rule.json")
    table = load_launch_table(tmp_path / "rule.json")
    eager = (1,) * system.M
    found = simulate(system, eager, GRID, batches=1_000_000, confidence=0.999, table=table)
    T = found.throughput_tok_s
    assert T.low <= best.bound_tok_s <= T.high
    assert T.half_width < 0.005 * T.value
    assert simulate(system, eager, GRID, batches=100_000).throughput_tok_s.high < T.low


def test_a_table_that_does_not_fit_is_refused():
    table = best_launch_rule(r2r(3)).table
    with pytest.raises(UsageError, match="made for small, large at N = 3"):
        Simulator(r2r(4), (1, 1), GRID, table=table)
    with pytest.raises(UsageError, match="simulate with on_grid"):
        Simulator(r2r(3), (1, 1), table=table)
    with pytest.raises(UsageError, match="hold_ms: a launch table"):
        Simulator(r2r(3), (1, 1), Options(on_grid=True, hold_ms=5.0), table=table)
    few = replace(
        table,
        waiting=table.waiting[:1],
        running=table.running[:1],
        remaining=table.remaining[:1],
        launches=table.launches[:1],
    )
    with pytest.raises(InputError, match="launch table: it has no entry"):
        Simulator(r2r(3), (1, 1), GRID, table=few).run_batches(100)
