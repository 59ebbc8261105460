"""Launch tables: looked up, saved, read back, and refused."""

import json

import numpy as np
import pytest
from chain_systems import r2r

from trmodel.errors import InputError, UsageError
from trmodel.launch_table import LaunchTable, load_launch_table
from trmodel.markov import best_launch_rule

COLUMNS = ("waiting", "running", "remaining", "launches")


@pytest.fixture(scope="module")
def table():
    return best_launch_rule(r2r(4), (1, 3)).table


def plain(**changes):
    """A table of two states of two models at N = 2, to be spoilt."""
    columns = {
        "waiting": [[2, 0], [1, 0]],
        "running": [[0, 0], [0, 1]],
        "remaining": [[0, 0], [0, 5]],
        "launches": [[2, 0], [0, 0]],
    }
    arrays = {name: np.array(rows) for name, rows in (columns | changes).items()}
    return LaunchTable(("a", "b"), 2, 0.1, **arrays)


def test_round_trip(table, tmp_path):
    table.save(tmp_path / "rule.json", {"bound_tok_s": 1.0, "profile": {"name": "x"}})
    again = load_launch_table(tmp_path / "rule.json")
    assert (again.models, again.N, again.grid_ms) == (table.models, table.N, table.grid_ms)
    assert len(again) == len(table) == 715
    for column in COLUMNS:
        assert np.array_equal(getattr(again, column), getattr(table, column))
    document = json.loads((tmp_path / "rule.json").read_text())
    assert document["bound_tok_s"] == 1.0
    assert document["schema"] == "trmodel/launch-rule"
    assert len(document["states"]["waiting"]) == 2


def test_every_state_is_found_again(table):
    for s in range(len(table)):
        state = table.waiting[s], table.running[s], table.remaining[s] * table.grid_ms
        assert table.launches_at(*state) == tuple(table.launches[s])


def test_the_nearest_remaining_work_decides(table):
    """The large model runs three; the small one starts a request unless it is nearly done."""
    assert table.launches_at((1, 0), (0, 3), (0, 9.9)) == (1, 0)
    assert table.launches_at((1, 0), (0, 3), (0, 9.93)) == (1, 0)
    assert table.launches_at((1, 0), (0, 3), (0, 3.9)) == (0, 0)
    assert table.launches_at((1, 0), (0, 3), (0, 0.01)) == (0, 0)


def test_requests_that_no_state_has(table):
    with pytest.raises(UsageError, match="no state has 5,0 waiting and 0,0 running requests"):
        table.launches_at((5, 0), (0, 0), (0, 0))


def test_plain_is_a_table():
    assert plain().launches_at((2, 0), (0, 0), (0, 0)) == (2, 0)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"waiting": [[3, 0], [1, 0]]}, "state 0: waiting and running requests must be 2"),
        ({"launches": [[2, 0], [2, 0]]}, "state 1: more is launched than waits"),
        ({"launches": [[0, 0], [0, 0]]}, "state 0: nothing runs"),
        (
            {"remaining": [[2, 0], [1, 5]]},
            "state 1: an idle model takes less to wake than in other states, and not 0",
        ),
        (
            {"waiting": [[2, 0], [0, 1]], "launches": [[2, 0], [0, 1]]},
            "state 1: a busy model launches",
        ),
        ({"remaining": [[0, 0]]}, "every column needs a value for each state and model"),
    ],
)
def test_tables_that_make_no_sense(changes, problem):
    with pytest.raises(InputError, match=f"launch rule: {problem}"):
        plain(**changes)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda d: d.update(schema="trmodel/profile"), 'schema: is "trmodel/profile"'),
        (lambda d: d.update(schema_version=2), "schema_version: 2 is newer than 1"),
        (lambda d: d.pop("models"), "models: is missing"),
        (lambda d: d["states"].pop("launches"), "states.launches: is missing"),
        (lambda d: d["states"]["running"].pop(), "needs a list for each of 2 models"),
        (lambda d: d["states"]["running"][0].pop(), "all of one length"),
        (lambda d: d["states"]["waiting"][0].__setitem__(1, -1), "must be at least 0, got -1"),
        (lambda d: d["states"]["waiting"][0].__setitem__(0, 7), "state 0: waiting and running"),
    ],
)
def test_files_that_are_refused(spoil, problem, tmp_path):
    document = json.loads(plain().to_json())
    spoil(document)
    (tmp_path / "rule.json").write_text(json.dumps(document))
    with pytest.raises(InputError) as refused:
        load_launch_table(tmp_path / "rule.json")
    assert all(line.startswith(str(tmp_path / "rule.json")) for line in refused.value.problems)
    assert problem in str(refused.value)


def test_a_file_that_is_no_object(tmp_path):
    (tmp_path / "rule.json").write_text("[1]")
    with pytest.raises(InputError, match="the top level must be a JSON object"):
        load_launch_table(tmp_path / "rule.json")
