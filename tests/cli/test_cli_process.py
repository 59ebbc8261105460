"""What only a process of its own shows: start-up, pipes, signals, terminals."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

TRMODEL = [sys.executable, "-m", "trmodel"]


def shell(command, **options):
    line = command.replace("trmodel", " ".join(TRMODEL), 1)
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


def test_python_m_and_version():
    found = shell("trmodel --version")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("trmodel ")


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        (["--help"], "numba scipy pandas matplotlib sympy numpy"),
        (["tune", "--help"], "numba scipy pandas matplotlib sympy numpy"),
        (["profile", "fit", "--help"], "numba scipy pandas matplotlib sympy numpy"),
        (["profile", "import", "csv", "--help"], "numba scipy pandas matplotlib sympy numpy"),
        (["--version"], "numba scipy pandas matplotlib sympy numpy"),
        (["profile", "list"], "numba pandas matplotlib sympy"),
        (["tune", "--profile", "a100-paper", "--N", "2"], "pandas matplotlib sympy networkx"),
    ],
)
def test_nothing_heavy_is_imported_without_need(line, absent):
    program = (
        "import sys; from trmodel.cli.main import main; "
        f"code = main({line!r}); "
        f"print([m for m in {absent.split()!r} if m in sys.modules], file=sys.stderr); "
        "sys.exit(code)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0
    assert found.stderr.splitlines()[-1] == "[]"


def test_a_reader_that_has_seen_enough_is_no_error():
    found = shell("trmodel tune --profile a100-paper --N 4 --json --quiet | head -1")
    assert (found.returncode, found.stdout, found.stderr) == (0, "{\n", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("format", ["table", "json"])
def test_a_full_disk_is_an_error(format):
    found = shell(f"trmodel profile list --format {format} > /dev/full")
    assert found.returncode == 4
    assert found.stderr == "trmodel: error: stdout: cannot be written: No space left on device\n"


def test_an_interrupt_is_quiet_and_leaves_the_rows_that_were_found(tmp_path):
    process = subprocess.Popen(
        [*TRMODEL, "tune", "--N", "32", "-o", str(tmp_path / "x.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    process.stderr.readline()  # "profile: ...": the search begins
    for _ in range(600):  # rows are written every few seconds
        time.sleep(0.1)
        if list(tmp_path.glob("x.json")):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    (kept,) = tmp_path.iterdir()
    document = json.loads(kept.read_text())
    assert document["stopped"] == "interrupted before all rows were searched"
    assert 1 <= len(document["rows"]) < 32
    assert f"interrupted; --resume goes on from the rows in {kept}" in err


def test_stdout_of_another_encoding():
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    found = shell("trmodel profile show a100", env=environment)
    assert found.returncode == 0
    assert found.stdout.isascii()


def test_a_terminal_gets_a_bar_and_no_colour_if_so_asked():
    pty = pytest.importorskip("pty")
    seen = {}
    for name, extra in (("plain", {"NO_COLOR": "1"}), ("colour", {})):
        main_end, terminal = pty.openpty()
        environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80"} | extra
        process = subprocess.Popen(
            [*TRMODEL, "tune", "--profile", "a100-paper", "--N", "6"],
            stdout=subprocess.PIPE,
            stderr=terminal,
            text=True,
            env=environment,
        )
        os.close(terminal)
        written = b""
        try:
            while piece := os.read(main_end, 4096):
                written += piece
        except OSError:  # Linux says so when the other end is closed
            pass
        os.close(main_end)
        assert process.stdout is not None
        assert "\x1b" not in process.stdout.read()
        process.stdout.close()
        assert process.wait(60) == 0
        seen[name] = written
    assert b"chains" in seen["plain"]
    colour = re.compile(rb"\x1b\[(3|9)\d")
    assert not colour.search(seen["plain"])
    assert colour.search(seen["colour"])
