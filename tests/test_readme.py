"""What the README shows is what the program does."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PROGRAM = Path(sys.executable).with_name("trmodel")


def shown_commands() -> list[str]:
    return re.findall(r"^    (trmodel .*)$", README, re.MULTILINE)


def test_every_command_runs_in_the_order_shown(tmp_path):
    commands = shown_commands()
    assert len(commands) >= 7
    trace = "request,model,committed\n" + "r1,Qwen3-0.6B,1\nr1,Qwen3-32B,1\n" * 10
    (tmp_path / "trace.csv").write_text(trace)
    for command in commands:
        done = subprocess.run(
            command.replace("trmodel", shlex.quote(str(PROGRAM)), 1),
            shell=True,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {
        "sweep.png",
        "pareto.png",
        "mine.json",
        "thresholds.json",
        "trace.csv",
        "trace.json",
        "mine-routing.json",
    }


def test_the_table_is_what_the_command_prints(tmp_path):
    shown = re.search(r"```text\n(.*?)```", README, re.DOTALL)
    assert shown
    command = [PROGRAM, "tune", "--profile", "a100.json", "--N", "4..16"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    # The last digits of a residual depend on the processor.
    residual = re.compile(r"residual \S+")
    assert residual.sub("", done.stdout.strip()) == residual.sub("", shown[1].strip())


def test_the_python_example_runs(capsys):
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert example
    exec(example[1], {})
    printed = capsys.readouterr().out
    assert printed.startswith("(1, 5)\n")
    assert "\n207.95" in printed


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()
