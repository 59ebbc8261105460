"""Running the command line inside the test process, where imports are paid for once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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
