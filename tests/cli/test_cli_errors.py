"""Every kind of bad input: its exit code, one line for each problem, nothing else."""

import copy
import json
from pathlib import Path

import pytest

from trmodel.cli.main import main

PAPER = "tune --profile a100-paper --N 4"


def spoilt(path, value):
    """Return a change of a profile: the field at ``path`` becomes ``value``."""

    def change(profile):
        *outer, last = path
        place = profile
        for key in outer:
            place = place[key]
        place[last] = value
        return json.dumps(profile)

    return change


LATENCY = ("models", 1, "decode", "latency_ms")
ROUTING = {
    "name": "mine",
    "models": ["Qwen3-0.6B", "Qwen3-32B"],
    "transition_probability": [[0.6, 0.3], [1.0, 0.0]],
    "committed_tokens": [[1, 0], [1, 0]],
    "source": "made up",
}

BAD_PROFILES = {
    "NaN": (spoilt((*LATENCY, 0), float("nan")), ["NaN is not a JSON number (line 1, column "]),
    "negative latency": (spoilt((*LATENCY, 1), -1.0), ["models[1].decode.latency_ms[1]"]),
    "zero latency": (spoilt((*LATENCY, 0), 0), ["models[1].decode.latency_ms[0]"]),
    "huge latency": (spoilt((*LATENCY, 0), 1e9), ["models[1].decode.latency_ms[0]"]),
    "infinite latency": (
        lambda profile: json.dumps(profile).replace("27.9", "1e999"),
        ["too large"],
    ),
    "two problems": (
        spoilt(LATENCY, [-1.0, -2.0]),
        ["models[1].decode.latency_ms[0]", "models[1].decode.latency_ms[1]"],
    ),
    "rows that do not sum to one": (
        spoilt(("routing",), ROUTING),
        ["routing.transition_probability[0]: must sum to 1"],
    ),
    "a model that does not exist": (
        spoilt(
            ("routing",),
            ROUTING
            | {
                "models": ["Qwen3-0.6B", "Qwen3-70B"],
                "transition_probability": [[0.5, 0.5], [1.0, 0.0]],
            },
        ),
        ["Qwen3-70B not in the profile"],
    ),
    "a preset that does not exist": (spoilt(("routing",), "r3r"), ["no such routing preset"]),
    "missing batch sizes": (
        lambda profile: spoilt(("models", 1, "decode", "batch"), [1, 2])(
            json.loads(spoilt(LATENCY, [27.9, 27.9])(profile))
        ),
        ["models[1].decode.batch: Qwen3-32B has latencies for batches up to 2"],
    ),
    "newer schema": (spoilt(("schema_version",), 2), ["schema_version: 2 is newer"]),
    "another schema": (spoilt(("schema",), "x"), ["schema: is"]),
    "unknown field": (spoilt(("latency",), 1), ["latency: unknown field"]),
    "empty": (lambda profile: "", ["the file is empty"]),
    "truncated": (lambda profile: json.dumps(profile)[:200], ["not valid JSON"]),
    "a list": (lambda profile: "[]", ["the top level must be a JSON object"]),
    "nested deep": (lambda profile: "[" * 100_000, ["nested too deep"]),
}


def check_refusal(result, code, parts):
    assert result.code == code
    assert result.out == ""
    lines = [line for line in result.err.splitlines() if not line.startswith("profile: ")]
    assert len(lines) == len(parts)
    for line, part in zip(lines, parts, strict=True):
        assert line.startswith("trmodel: error: ")
        assert part in line
    assert "Traceback" not in result.err


@pytest.mark.parametrize("json_mode", ["", "--json"])
@pytest.mark.parametrize("case", BAD_PROFILES)
def test_a_bad_profile_is_refused(run, plain_profile, case, json_mode):
    change, parts = BAD_PROFILES[case]
    Path("bad.json").write_text(change(copy.deepcopy(plain_profile)), encoding="utf-8")
    result = run(f"tune --profile bad.json --N 4 -o out.json {json_mode}")
    check_refusal(result, 4, parts)
    assert all("bad.json" in line for line in result.err.splitlines())
    assert sorted(path.name for path in Path().iterdir()) == ["bad.json"]


def test_files_of_other_kinds_are_refused(run, plain_profile):
    Path("wide.json").write_text(json.dumps(plain_profile), encoding="utf-16")
    with open("huge.json", "wb") as file:
        file.truncate(100 * 2**20)
    Path("directory.json").mkdir()
    for name, part in (
        ("wide.json", "not a UTF-8 text file"),
        ("huge.json", "larger than 16 MiB"),
        ("directory.json", "is a directory"),
        ("a101", "did you mean a100?"),
        ("no/such.json", "no such file"),
    ):
        check_refusal(run("tune --profile", name), 4, [part])
        check_refusal(run("predict --N 4 --B 1,3 --profile", name), 4, [part])
        check_refusal(run("profile show", name), 4, [part])


def test_a_file_name_cannot_break_the_line(run):
    check_refusal(run("tune --profile", "x\ny\x1b[31m"), 4, ["x\\ny\\x1b[31m"])


WRONG_USAGE = {
    "tune --N 0": "--N",
    "tune --N 16..4": "--N",
    "tune --N 1..99999999999": "--N",
    "tune --N 70000": "--N",
    "predict --N 0 --B 1,1": "--N",
    "predict --N x --B 1,1": "--N",
    "predict --N 4.0 --B 1,1": '--N: "4.0" is not a whole number',
    "predict --N 1_0 --B 1,1": '--N: "1_0" is not a whole number',
    "predict --B 1,1": "--N",
    "predict --N 4": "--B",
    "predict --N 4 --B 1": "--B",
    "predict --N 4 --B 1,2,3": "--B",
    "predict --N 4 --B 1,x": "--B",
    "predict --N 4 --B 0,1": "--B[0]",
    "predict --N 4 --B 1,1 --format r2r": "--format r2r",
    "predict --N 4 --B 1,1 --sweep p=0.1 --p 0.2": "--sweep",
    "predict --N 4 --B 1,1 --sweep p=0.1 --symbolic": "--symbolic",
    "predict --N 4 --B 1,1 --solver magic": "--solver",
    "predict --N 4 --B 1,1 --max-batch 0": "--max-batch",
    "predict --N 4 --B 1,1 --grid-ms nan": "--grid-ms",
    "predict --N 4 --B 1,1 --grid-ms -1": "--grid-ms",
    f"{PAPER} --p 1.5": "--p",
    f"{PAPER} --p nan": "--p",
    f"{PAPER} --B0 0": "--B0",
    f"{PAPER} --B2 1": "--B2",
    f"{PAPER} --format xml": "--format",
    f"{PAPER} --json --format csv": "--json",
    f"{PAPER} --time-limit -1": "--time-limit",
    f"{PAPER} --time-limit nan": "--time-limit",
    f"{PAPER} --sweep q=1": "--sweep",
    f"{PAPER} --sweep p=0.1 --p 0.2": "--sweep",
    f"{PAPER} --sweep p=2": "--p",
    f"{PAPER} --sweep p=0.1 --explain": "--explain",
    f"{PAPER} --sweep p=0.1 --format r2r": "--format r2r",
    f"{PAPER} --explain --format r2r": "--format r2r",
    f"{PAPER} --uncertainty --format r2r": "--format r2r",
    f"{PAPER} --sweep p=0.1 --uncertainty": "--uncertainty",
    f"{PAPER} --uncertainty --samples 1": "--samples",
    "predict --N 4 --B 1,1 --sweep p=0.1 --check-grid": "--check-grid",
    "profile fit": "--measurements",
    "profile import": "command",
    "profile import aiconfigurator": "--system",
    "tune --profile a100-ensemble --N 2 --p 0.1": "--p",
    "tune --no-such-option": "--no-such-option",
    "tune stray": "stray",
    "tume": "tume",
    "profile": "command",
    "profile show": "NAME|FILE",
}


@pytest.mark.parametrize("line", WRONG_USAGE)
def test_wrong_usage_names_the_option(run, line):
    check_refusal(run(line), 2, [WRONG_USAGE[line]])


def test_thresholds_that_can_deadlock_are_infeasible(run):
    check_refusal(run("predict --N 4 --B 1,9"), 3, ["B = 1,9 can deadlock at N = 4"])
    check_refusal(run(f"{PAPER} --B1 5"), 3, ["every vector can deadlock"])


def test_limits_have_their_code(run):
    check_refusal(run("predict --N 300 --B 1,1 --profile a100-paper"), 5, ["outgrows the limit"])
    line = "tune --N 1..1000 --method exact --profile a100-paper"
    check_refusal(run(line), 5, ["chains would have to be"])


def test_a_bug_is_one_line_and_code_1(run, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("trmodel.api.tune", broken)
    check_refusal(run(PAPER), 1, ["RuntimeError: two\\nlines; this is a bug"])
    monkeypatch.setenv("TRMODEL_DEBUG", "1")
    with pytest.raises(RuntimeError):
        main(PAPER.split())


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (MemoryError, 5)])
def test_interrupts_and_exhaustion(run, monkeypatch, error, code):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr("trmodel.api.tune", broken)
    result = run(PAPER)
    assert (result.code, result.out) == (code, "")
    assert len(result.err.splitlines()) == (1 if code == 130 else 2)


def test_json_never_holds_nan():
    from trmodel.cli.options import Format
    from trmodel.cli.output import View, render

    text = render(View({"a": [float("nan"), 1.5], "b": (float("inf"),)}), Format.json)
    assert json.loads(text) == {"a": [None, 1.5], "b": [None]}


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_has_its_place(run, token):
    text = f'{{"name": "NaN \\\\" ,\n "x": [1, "-Infinity Infinity\\"", {token}]}}'
    Path("bad.json").write_text(text, encoding="utf-8")
    column = text.splitlines()[1].rindex(token) + 1
    parts = [f"{token} is not a JSON number (line 2, column {column}); give a finite number"]
    check_refusal(run("tune --profile bad.json"), 4, parts)


@pytest.mark.parametrize(
    "command", ["tune --N 2 --seed -1", "profile fit --measurements paper-figure10 --seed -1"]
)
def test_a_negative_seed_is_wrong_usage(run, command):
    result = run(command)
    assert (result.code, result.out) == (2, "")
    assert "--seed" in result.err


def test_showing_a_profile_names_what_is_doubtful_in_it(run):
    result = run("profile show h200")
    assert result.code == 0
    assert "warning: Qwen3-0.6B: dip of 15.3 % at batch 16" in result.err
