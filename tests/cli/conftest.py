"""Running the command line inside the test process, where imports are paid for once."""

import importlib
import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from trmodel.cli.main import main
from trmodel.profile import load_profile


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        def refuse(token: str) -> None:
            raise AssertionError(f"{token} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture(scope="session")
def paper_fit():
    """The published points fitted, on a coarse grid; some seconds."""
    from trmodel.calibrate import fit_profile

    return fit_profile("a100-imported", "paper-figure10", grid_ms=0.1)


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``trmodel`` with a line of arguments in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRMODEL_DEBUG", raising=False)

    def run(line: str, *more: str) -> Result:
        code = main([*line.split(), *more])
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def plain_profile() -> dict[str, Any]:
    """A valid profile as plain values, to be spoilt."""
    profile = load_profile("a100-paper").profile
    return profile.model_dump(mode="json", by_alias=True)


POINTS = Path(__file__).parents[1] / "fixtures" / "measured-points.jsonl"


class MeasuredServer:
    """Answers as a server of two models would that was measured before."""

    def __init__(self) -> None:
        from trmodel.runtime.bench.target import Stats

        self.points = [json.loads(line) for line in POINTS.read_text().splitlines()]
        self.asked: list[tuple[int, tuple[int, ...]]] = []
        self._stats = Stats(tuple(self.points[0]["models"]), {}, 0, 0, 1)

    def stats(self) -> Any:
        return self._stats

    def measure(self, target: Any, N: int, B: tuple[int, ...], **given: Any) -> dict[str, Any]:
        self.asked.append((N, tuple(B)))
        point = next((p for p in self.points if p["B"] == list(B)), self.points[0])
        point = point | {"N": N, "B": list(B), "seed": given.get("seed", 0)}
        point["per_model"] = [
            # Every batch size in question was seen often enough.
            model | {"steps": dict.fromkeys(("1", str(N)), next(iter(model["steps"].values())))}
            for model in point["per_model"]
        ]
        return point


@pytest.fixture
def measured_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MeasuredServer:
    """A server in place of real ones, and the files of its measurement in the directory."""
    # What takes it from there by name must have the real one, if it is loaded while that is away.
    importlib.import_module("trmodel.runtime.bench.share_runs")
    importlib.import_module("trmodel.runtime.bench.engine_profile")

    server = MeasuredServer()
    package = "trmodel.runtime.bench"
    monkeypatch.setattr(f"{package}.running.running", lambda *_: nullcontext(server))
    monkeypatch.setattr(f"{package}.point.measure_point", server.measure)
    monkeypatch.setattr(f"{package}.steps.measure_point", server.measure)
    shutil.copy(POINTS, tmp_path / "results.jsonl")
    (tmp_path / "r2r.yaml").write_text("profile: a100-paper\n")
    profile = load_profile("a100-paper").profile
    (tmp_path / "measured.json").write_text(profile.model_dump_json(by_alias=True))
    table = {"models": server.points[0]["models"], "thresholds": [[1, n] for n in range(1, 9)]}
    (tmp_path / "thresholds.json").write_text(json.dumps(table))
    return server


POLICY = """
from trmodel.runtime.policies import ThresholdPolicy


class Scored(ThresholdPolicy):
    pass
"""


class ScoredRuns:
    """Answers as runs of a server would whose scores are 0.01, 0.02, ..., 1."""

    def __init__(self, config: Any, prompts: Any, reply_tokens: int, seed: int = 0) -> None:
        self.requests, self.reply_tokens = len(prompts), reply_tokens

    def __call__(self, threshold: float) -> Any:
        from trmodel.runtime.bench.share import Run

        scores = np.arange(1, 101) / 100.0
        large = (scores > threshold).mean() * self.reply_tokens
        tokens = np.array([[self.reply_tokens - large, large]] * self.requests)
        return Run(tokens.round().astype(int), scores)


@pytest.fixture
def scored_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a server whose policy has a threshold, and runs in place of real ones."""
    monkeypatch.setattr("trmodel.runtime.bench.share_runs.ServerRuns", ScoredRuns)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "scored.py").write_text(POLICY)
    settings = "profile: a100-paper\npolicy: scored:Scored\npolicy_options: {threshold: 0.5}\n"
    (tmp_path / "scored.yaml").write_text(settings)
    (tmp_path / "prompts.txt").write_text("Why?\nHow?\n")
