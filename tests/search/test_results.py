import json

import pytest

import trmodel
from trmodel.errors import InputError, UsageError
from trmodel.search.exact import solve
from trmodel.search.results import read_row

PAPER = "a100-paper"


class Interrupting:
    """Solves so many chains and is then interrupted, as by Ctrl-C."""

    def __init__(self, chains):
        self.left = chains

    def __call__(self, done, total):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def interrupted(path, chains, N=range(2, 7), **more):
    with pytest.raises(KeyboardInterrupt):
        trmodel.tune(PAPER, N, results=path, progress=Interrupting(chains), **more)
    return json.loads(path.read_text())


@pytest.fixture
def counted(monkeypatch):
    """The vectors whose chains were solved."""
    solved = []

    def counting(system, B, *more):
        solved.append((system.N, B))
        return solve(system, B, *more)

    monkeypatch.setattr("trmodel.search.tune.solve", counting)
    return solved


def test_an_interrupted_search_leaves_its_rows_and_goes_on_from_them(tmp_path, counted):
    path = tmp_path / "table.json"
    document = interrupted(path, chains=12)  # n = 1..3 take 1 + 3 + 6
    assert [row["N"] for row in document["rows"]] == [1, 2, 3]
    assert document["stopped"] == "interrupted before all rows were searched"
    counted.clear()
    table = trmodel.tune(PAPER, range(2, 7), results=path, resume=True)
    assert {n for n, _ in counted} == {4, 5, 6}
    whole = trmodel.tune(PAPER, range(2, 7))
    assert table.to_dict(every_row=True) == whole.to_dict(every_row=True)
    assert json.loads(path.read_text()) == json.loads(json.dumps(table.to_dict(every_row=True)))


def test_a_finished_table_can_be_extended(tmp_path, counted):
    path = tmp_path / "table.json"
    trmodel.tune(PAPER, [4], results=path)
    counted.clear()
    table = trmodel.tune(PAPER, [4, 6], results=path, resume=True)
    assert {n for n, _ in counted} == {5, 6}
    assert table.to_dict() == trmodel.tune(PAPER, [4, 6]).to_dict()


def test_races_are_resumed_by_row(tmp_path):
    path = tmp_path / "table.json"
    options = {"method": "simulated", "effort": trmodel.search.Effort(1e6, 1.0)}
    trmodel.tune(PAPER, [4], results=path, **options)
    table = trmodel.tune(PAPER, [4, 6], results=path, resume=True, **options)
    assert table.to_dict() == trmodel.tune(PAPER, [4, 6], **options).to_dict()


def test_a_sweep_is_resumed_by_p_and_row(tmp_path, counted):
    path = tmp_path / "sweep.json"
    # n = 1..3 take 10 chains for each p: the second p is interrupted in its third row.
    with pytest.raises(KeyboardInterrupt):
        trmodel.sweep_p([0.1, 0.2, 0.3], PAPER, 3, results=path, progress=Interrupting(15))
    rows = json.loads(path.read_text())["rows"]
    assert [(row["p"], row["N"]) for row in rows] == [
        (0.1, 1), (0.1, 2), (0.1, 3), (0.2, 1), (0.2, 2),
    ]  # fmt: skip
    counted.clear()
    sweep = trmodel.sweep_p([0.1, 0.2, 0.3], PAPER, 3, results=path, resume=True)
    assert len(counted) == 6 + 10
    assert sweep.to_dict(True) == trmodel.sweep_p([0.1, 0.2, 0.3], PAPER, 3).to_dict(True)


def test_nothing_found_leaves_no_file(tmp_path):
    path = tmp_path / "table.json"
    with pytest.raises(KeyboardInterrupt):
        trmodel.tune(PAPER, 6, results=path, progress=Interrupting(0))
    assert not path.exists()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"profile": "a100"}, "profile"),
        ({"routing": "citer"}, "system.transition_probability"),
        ({"fixed": {0: 1}}, "search.fixed"),
        ({"method": "exact"}, "search.method"),
        ({"seed": 1}, "search.seed"),
        ({"max_batch": 2}, "system.max_batch"),
        ({"grid_ms": 0.3}, "system.grid_ms"),
    ],
)
def test_other_inputs_are_refused_in_one_line(tmp_path, changes, named):
    path = tmp_path / "table.json"
    trmodel.tune(PAPER, [3], results=path)
    before = path.read_bytes()
    with pytest.raises(InputError) as refused:
        trmodel.tune(**({"profile": PAPER, "N": [3, 4]} | changes), results=path, resume=True)
    assert len(refused.value.problems) == 1
    assert f"it was made with another {named};" in str(refused.value)
    assert path.read_bytes() == before


def test_what_is_no_results_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "table.json"
    document = trmodel.tune(PAPER, [3]).to_dict()
    for broken in ({}, document | {"rows": [{"N": 3}]}, document | {"rows": 7}):
        path.write_text(json.dumps(broken))
        with pytest.raises(InputError) as refused:
            trmodel.tune(PAPER, [3], results=path, resume=True)
        assert len(refused.value.problems) == 1
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="trmodel/sweep"):
        trmodel.sweep_p([0.1], PAPER, [3], results=path, resume=True)
    with pytest.raises(UsageError, match="results file"):
        trmodel.tune(PAPER, [3], resume=True)


def test_a_row_survives_its_document():
    for row in trmodel.tune(PAPER, range(1, 9)):
        plain = json.loads(json.dumps(row.to_dict()))
        assert read_row(plain).to_dict() == row.to_dict()
