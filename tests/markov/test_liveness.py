"""The liveness condition against exploration of every threshold vector of small systems."""

import contextlib
import io
import re
from itertools import pairwise
from pathlib import Path

import pytest
from liveness_survey import DISTINCT, EQUAL, explored, routings, survey, survey_system, table

from trmodel.launch import is_live, launch_size
from trmodel.markov.enumeration import Limits, enumerate_states
from trmodel.markov.graph import deadlock_witness, states_of
from trmodel.markov.transitions import split_table

DOCUMENT = Path(__file__).parents[2] / "docs" / "liveness.md"
ROUTINGS = [(M, name) for M in (1, 2, 3) for name in routings(M)]


@pytest.mark.parametrize("bounded", [False, True], ids=["any batch", "largest batch below N"])
@pytest.mark.parametrize(("M", "name"), ROUTINGS)
def test_no_vector_that_meets_the_condition_deadlocks(M, name, bounded):
    tally = survey(routings(M)[name], bounded=bounded)
    assert tally.live_but_deadlocks == 0
    assert tally.live >= 20
    # How conservative the condition is does not depend on the latencies.
    assert survey(routings(M)[name], bounded=bounded, latency=EQUAL) == tally


@pytest.mark.parametrize("max_batch", [None, 2])
@pytest.mark.parametrize(("M", "name"), ROUTINGS)
def test_every_witness_is_a_path_to_where_nothing_can_start(M, name, max_batch):
    system = survey_system(routings(M)[name], 3, max_batch)
    splits = split_table(system)
    for B, deadlocks in explored(system):
        path = deadlock_witness(system, B)
        assert (path is not None) == deadlocks
        if path is None:
            continue
        assert not is_live(B, system.N)
        e = enumerate_states(system, B, splits, Limits())
        states = states_of(e)
        numbers = [states.index(state) for state in path]
        assert numbers[0] == 0
        for source, target in pairwise(numbers):
            assert e.transition[source, target] > 0.0
        stuck = path[-1]
        assert sum(stuck.k) == system.N
        assert set(stuck.b) == {0}
        assert not any(
            launch_size(k, 0, threshold, largest)
            for k, threshold, largest in zip(stuck.k, B, system.max_batch, strict=True)
        )


def test_the_condition_is_exact_for_the_routings_of_the_presets():
    for M in (2, 3):
        for name in ("any to any", "first decides, others return (r2r)"):
            tally = survey(routings(M)[name], bounded=False, latency=DISTINCT)
            assert tally.outside > 0
            assert tally.outside_yet_never_deadlocks == 0


def test_the_documented_table_is_what_the_survey_finds():
    assert "\n".join(table()) in DOCUMENT.read_text(encoding="utf-8")


def test_the_documented_example_prints_what_is_documented():
    text = DOCUMENT.read_text(encoding="utf-8")
    code, expected = re.search(r"```python\n(.*?)```.*```\n(.*?)```", text, re.DOTALL).groups()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    assert printed.getvalue() == expected
