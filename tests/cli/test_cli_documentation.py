"""docs/cli.md and the help are true: examples run, codes are as stated, no option is left out."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from trmodel.cli.main import app, main
from trmodel.profile import load_profile

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", TEXT, flags=re.DOTALL)
IMPORTS = [("profile", "import", name) for name in ("aiconfigurator", "csv", "sglang-metrics")]
PROFILE = [
    ("profile", name) for name in ("list", "show", "schema", "capacity", "fit", "measure", "import")
]
MODEL = ["tune", "predict", "best-rule", "simulate", "compare", "pareto", "arrivals"]
MEASURED = ["bench", "validate"]
ROUTING = [("routing", name) for name in ("list", "show", "fit", "calibrate")]
GROUPS = [("profile",), ("profile", "import"), ("routing",)]
SERVING = [("serve",), ("subserver",)]
"""They go on until they are told to end: tests/runtime runs them."""
COMMANDS = [
    *((name,) for name in (*MODEL, *MEASURED, "keys")),
    ("profile",),
    *PROFILE,
    *IMPORTS,
    ("routing",),
    *ROUTING,
]
TRACE = "request,model,committed\n" + "r1,Qwen3-0.6B,1\nr1,Qwen3-32B,1\n" * 20
LINES = '{"request": 1, "model": "Qwen3-0.6B", "committed": 1}\n' * 20


@pytest.fixture
def traces(tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "trace.jsonl").write_text(LINES)


@pytest.fixture(autouse=True)
def _a_server(measured_server, scored_server):
    """What there is to measure, and files about it."""


@pytest.fixture(autouse=True)
def nothing_slow_or_missing(monkeypatch, paper_fit):
    """Fit once for all, and import whatever is asked for."""
    profile = load_profile("h100").profile
    monkeypatch.setattr("trmodel.calibrate.fit_profile", lambda *_, **__: paper_fit)
    for importer in ("aiconfigurator", "csv", "sglang_metrics"):
        name = f"trmodel.profile.importers.import_{importer}"
        monkeypatch.setattr(name, lambda *_, **__: profile)


def examples(text):
    """Yield arguments, exit code and output lines of the examples ``$ trmodel ...``."""
    for example in re.split(r"^\s*\$ trmodel ", text, flags=re.MULTILINE)[1:]:
        line, *output = example.strip().splitlines()
        arguments, _, comment = line.partition("#")
        code = re.search(r"exit code (\d)", comment)
        yield shlex.split(arguments), int(code[1]) if code else 0, output


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_examples_run(block, capsys, tmp_path, monkeypatch, traces):
    monkeypatch.chdir(tmp_path)
    for arguments, code, output in examples(BLOCKS[block]):
        assert main(arguments) == code, arguments
        shown = capsys.readouterr().out
        if output:
            assert shown.splitlines() == output


def help_of(*command):
    group = typer.main.get_command(app)
    for name in command:
        group = group.commands[name]
    return group


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_run(command, capsys, tmp_path, monkeypatch, traces):
    monkeypatch.chdir(tmp_path)
    assert main([*command, "-h"]) == 0
    shown = capsys.readouterr().out
    assert "Examples:" in shown
    assert main([*command, "--help"]) == 0
    assert capsys.readouterr().out == shown
    found = list(examples(help_of(*command).epilog))
    assert found
    for arguments, code, _ in found:
        assert main(arguments) == code, arguments
        capsys.readouterr()


def test_no_command_shows_the_help(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert "Exit codes:" in shown
    assert "Examples:" in shown
    for code in (0, 1, 2, 3, 4, 5, 130):
        assert re.search(rf"^\s+{code}  ", shown, flags=re.MULTILINE)
        assert f"| {code} |" in TEXT


def section_of(command):
    """Return the part of the document about a command, and what it shares with others."""
    title = " ".join(("trmodel", *command[:2]))
    if f"## `{title}`" not in TEXT:  # list, show and schema share the section of profile
        title = f"trmodel {command[0]}"
    (found,) = re.findall(rf"^##+ `{title}`\n(.*?)(?=^##|\Z)", TEXT, flags=re.MULTILINE | re.DOTALL)
    shared = TEXT[: TEXT.index("## Options of")] if len(command) > 1 else TEXT
    return shared + found


@pytest.mark.parametrize("command", [c for c in COMMANDS + SERVING if c not in GROUPS])
def test_every_option_is_documented(command):
    about = section_of(command)
    for parameter in help_of(*command).params:
        for option in parameter.opts:
            if option.startswith("-"):
                assert f"`{option}" in about, option
