"""What is written where: files that must not be lost, narrow terminals, closed streams."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trmodel.cli.options import Format
from trmodel.cli.output import Grid, View, render

PREDICT = "predict --N 4 --B 1,3 --profile"
full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")


@pytest.mark.parametrize(
    "line",
    [
        f"{PREDICT} m.png --plot m.png",
        f"{PREDICT} m.png --plot link.png",
        f"{PREDICT} a100-paper --routing m.png --plot m.png",
        "tune --profile m.png --plot m.png",
        "profile show m.png --plot m.png",
        f"{PREDICT} a100-paper -o x.png --plot x.png",
        f"{PREDICT} a100-paper -o x.png --plot ./x.png",
        f"{PREDICT} a100-paper -o m.png --plot link.png",
    ],
)
def test_a_figure_never_takes_the_place_of_another_file(run, line):
    Path("m.png").write_text("{}", encoding="utf-8")
    Path("link.png").symlink_to("m.png")
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert err.startswith("trmodel: error: --plot: ")
    assert len(err.splitlines()) == 1
    assert Path("m.png").read_text(encoding="utf-8") == "{}"
    assert not Path("x.png").exists()


def test_a_dash_is_no_file(run):
    code, out, err = run(f"{PREDICT} a100-paper -o -")
    assert (code, out) == (2, "")
    assert err == "trmodel: error: -o: stdout gets the result anyway; leave out -o -\n"
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("columns", [20, 40, 60, 200])
def test_a_terminal_never_cuts_a_figure(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("trmodel.cli.render.is_terminal", lambda stream: True)
    rows = [(str(n), f"1,{n}", "1234.5", "308.6", f"1,{n} (-0.10 %)", "2") for n in (4, 100)]
    headings = ("N", "B", "tok/s", "per request", "runner-up", "notes")
    view = View({}, blocks=[Grid(headings, rows, ("B", "runner-up", "notes"))])
    from trmodel.cli.render import _table

    drawn = _table(view.blocks, True)
    words = drawn.replace("\x1b[1m", " ").replace("\x1b[0m", " ").split()
    assert "\N{HORIZONTAL ELLIPSIS}" not in drawn
    for row in rows:
        for cell in row:
            assert set(cell.split()) <= set(words)
    if columns == 200:
        plain = render(view, Format.table)
        assert drawn.count("\n") == plain.count("\n")


def shell(line):
    return subprocess.run(
        ["bash", "-c", line.replace("trmodel", f"{sys.executable} -m trmodel", 1)],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("line", "code", "err"),
    [
        ("trmodel tune --profile a100-paper --N 2 >&-", 4, "stdout: is closed"),
        ("trmodel --version >&-", 4, "stdout: is closed"),
        pytest.param("trmodel --version > /dev/full", 4, "No space left", marks=full),
        pytest.param("trmodel tune --help > /dev/full", 4, "No space left", marks=full),
        ("trmodel profile list 2>&-", 0, None),
        ("trmodel tune --profile a100-paper --N 2 2>&-", 0, None),
        pytest.param("trmodel tune --profile a100-paper --N 2 2>/dev/full", 0, None, marks=full),
        pytest.param("trmodel tune --profile nosuch 2>/dev/full", 4, None, marks=full),
        ("trmodel tune --profile nosuch 2>&-", 4, None),
    ],
)
def test_closed_and_full_streams(line, code, err):
    found = shell(line)
    assert found.returncode == code, found
    assert "error" not in found.stdout
    if err is None:
        assert found.stderr == ""
        assert bool(found.stdout) == (code == 0)
    else:
        assert err in found.stderr
        assert found.stderr.startswith("trmodel: error: ")
        assert len(found.stderr.splitlines()) == 1


def test_a_file_needs_no_stdout(tmp_path):
    file = tmp_path / "x.json"
    line = f"trmodel tune --profile a100-paper --N 2 --quiet -o {file} >&- 2>&-"
    assert shell(line).returncode == 0
    assert file.stat().st_size > 100
