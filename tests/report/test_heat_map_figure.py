"""Heat maps: every live vector has its cell, all others are hatched."""

from itertools import product

import numpy as np
import pytest
from figure_reading import stars, words

import trmodel
from trmodel.errors import UsageError
from trmodel.launch import is_live
from trmodel.report import heat_map_figure


def hatched_cells(axes):
    (hatched,) = (c for c in axes.collections if c.get_gid() == "infeasible")
    assert hatched.get_hatch()
    return {
        tuple(path.get_extents().intervalx) + tuple(path.get_extents().intervaly)
        for path in hatched.get_paths()
    }


def test_hatched_are_the_vectors_that_can_deadlock(table):
    for N in (1, 2, 4):
        axes = heat_map_figure(table, N).axes[0]
        assert hatched_cells(axes) == {
            (x - 0.5, x + 0.5, y - 0.5, y + 0.5)
            for x, y in product(range(1, N + 1), repeat=2)
            if not is_live((x, y), N)
        }


def test_cells_hold_the_throughput_of_their_thresholds(table):
    values = heat_map_figure(table, 4).axes[0].collections[0].get_array()
    row = table.row(4)
    for c in row.candidates:
        assert values[c.B[1] - 1, c.B[0] - 1] == c.throughput_tok_s
    assert np.ma.count(values) == len(row.candidates) == 10


def test_the_star_is_at_the_chosen_thresholds(table):
    assert stars(heat_map_figure(table, 4).axes[0]) == [(1, 3)]
    assert "N = 4; ★ chosen B = 1,3" in words(heat_map_figure(table))


def test_vectors_that_were_not_searched_are_left_grey_and_that_is_said(table):
    fixed = trmodel.tune("a100-paper", N=4, fixed={0: 2})
    assert "grey: not searched" in words(heat_map_figure(fixed))
    assert "grey" not in words(heat_map_figure(table))


def test_axes_have_names_and_units(table):
    said = words(heat_map_figure(table))
    for part in (
        "Threshold B0 of Qwen3-0.6B (requests)",
        "Threshold B1 of Qwen3-32B (requests)",
        "Throughput (tokens/s)",
    ):
        assert part in said


def test_other_numbers_of_models_and_absent_rows_are_refused(table, three_models, one_model):
    for tuned, M in ((three_models, 3), (one_model, 1)):
        with pytest.raises(UsageError, match=f"two models, the table has {M}"):
            heat_map_figure(tuned)
    with pytest.raises(UsageError, match=r"rows for 1\.\.4"):
        heat_map_figure(table, 5)
