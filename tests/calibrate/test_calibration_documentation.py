"""docs/calibration.md: its example file loads, its code runs, its figures are those of the fit."""

import json
import re
from pathlib import Path

from trmodel.calibrate import Measurements

DOCS = Path(__file__).parents[2] / "docs" / "calibration.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)


def test_the_example_file_is_one():
    (example,) = blocks("json")
    assert len(Measurements.model_validate(json.loads(example)).measurements) == 3


def test_the_examples_run_and_the_figures_are_those_of_the_fit(paper_fit, capsys):
    first, *others = blocks("python")
    assert 'fit_profile("a100", "paper-figure10")' in first
    shown, drivers = blocks("text")
    # The rest may differ in the last digit between machines.
    for start in ("mean absolute error", "N = "):
        lines = [line for line in paper_fit.summary().splitlines() if line.startswith(start)]
        assert all(line in shown for line in lines)
    namespace = {"fit": paper_fit, "profile": paper_fit.to_profile("a100-fitted")}
    for block in others:
        exec(block, namespace)
    printed = capsys.readouterr().out
    assert drivers.splitlines()[0].split(":")[0] in printed
