"""docs/simulation.md: its code runs, and its figures are true."""

import re
from pathlib import Path

import pytest

import trmodel

TEXT = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
def test_the_code_runs(code, capsys):
    exec(code, {})
    assert capsys.readouterr().out


def test_pairing_is_worth_what_it_says():
    """Delayed against eager at N = 8: half as wide."""
    found = trmodel.compare_strategies("a100-paper", N=8, B=(1, 5))
    alone = [found.simulations[name].throughput_tok_s for name in ("delayed", "eager")]
    ratio = alone[0].value / alone[1].value
    apart = 100.0 * ratio * sum((T.half_width / T.value) ** 2 for T in alone) ** 0.5
    assert found.gain_percent["eager"].half_width == pytest.approx(0.5 * apart, rel=0.2)


def test_the_throughput_hardly_depends_on_the_length_of_replies():
    speeds = [
        trmodel.compare_systems("a100", N=8, B=(2, 6), reply_tokens=tokens)
        .comparison.simulations["request-level"]
        .throughput_tok_s
        for tokens in (100.0, 500.0)
    ]
    assert speeds[0].value == pytest.approx(speeds[1].value, rel=0.03)
    assert speeds[1].half_width > speeds[0].half_width


def test_sections_and_warm_up_are_as_stated():
    from trmodel.simulate.intervals import FEWEST_SECTIONS
    from trmodel.simulate.sections import SECTIONS, WARM_UP

    assert (SECTIONS, FEWEST_SECTIONS, WARM_UP) == (64, 16, 0.1)
    assert "64 sections" in TEXT
    assert "16 sections" in TEXT
