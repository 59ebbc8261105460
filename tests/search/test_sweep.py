import pytest

import trmodel
from trmodel.errors import LimitError, UsageError


def test_every_p_has_the_table_that_tune_gives():
    sweep = trmodel.sweep_p([0.2, 0.5], "a100-paper", N=[2, 4])
    assert sweep.values == (0.2, 0.5)
    for p, table in sweep:
        alone = trmodel.tune("a100-paper", N=[2, 4], p=p)
        assert [row.B for row in table] == [row.B for row in alone]
    frame = sweep.to_pandas()
    assert frame["p"].tolist() == [0.2, 0.2, 0.5, 0.5]
    assert frame.columns[0] == "p"
    document = sweep.to_dict()
    assert [row["p"] for row in document["rows"]] == [0.2, 0.2, 0.5, 0.5]
    assert document["schema"] == "trmodel/sweep"


def test_gain_grows_with_p_as_published_for_constants():
    """Design figures: no gain at p = 0.05, 8 % at 0.35, 18 % at 0.5 (N = 8)."""
    sweep = trmodel.sweep_p([0.05, 0.35, 0.5], "a100-paper", N=8)
    gains = [table.row(8).gain_percent for _, table in sweep]
    assert gains == pytest.approx([0.0, 8.1, 18.0], abs=0.5)


def test_progress_covers_the_whole_sweep():
    seen: list[tuple[int, int]] = []
    trmodel.sweep_p([0.1, 0.2], "a100-paper", N=2, progress=lambda *a: seen.append(a))
    assert seen == [(i, 8) for i in range(1, 9)]


def test_limits():
    with pytest.raises(UsageError):
        trmodel.sweep_p([], "a100-paper", N=2)
    with pytest.raises(LimitError):
        trmodel.sweep_p([0.1], "a100-paper", N=2, time_limit_s=0.0)
    with pytest.raises(UsageError, match="between 0 and 1"):
        trmodel.sweep_p([1.5], "a100-paper", N=2)
