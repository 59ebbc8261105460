"""Documents on disk: what is refused, in which words, and that nothing is half-written."""

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from trmodel.documents import (
    MAX_DOCUMENT_BYTES,
    Document,
    Name,
    Number,
    WholeNumber,
    check_header,
    check_writable,
    find_document,
    json_text,
    parse_document,
    parse_json,
    read_json,
    read_text,
    shown,
    write_text_atomically,
)
from trmodel.errors import InputError


def refusal(action, *args) -> str:
    with pytest.raises(InputError) as caught:
        action(*args)
    assert len(caught.value.problems) == 1
    line = caught.value.problems[0]
    assert line.isprintable()
    return line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b" \n\t", "the file is empty"),
        (b'{"a": [1, 2', "not valid JSON at line 1, column 12"),
        (b'{\n"a": 1,\n}', "not valid JSON at line 3, column 1"),
        (b'{"a": 1} x', "not valid JSON at line 1, column 10"),
        ('{"a": 1}'.encode("utf-16"), "not a UTF-8 text file"),
        ('{"a": 1}'.encode("utf-16-le"), "not a UTF-8 text file"),
        (b'{"a": "\xff"}', "not a UTF-8 text file"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "is too large"),
        (b'{"a": {"b": 1, "b": 2}}', 'the key "b" appears twice'),
        (b'{"a\\n": 1, "a\\n": 2}', "appears twice"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deep"),
        (b"[1, 2]", "the top level must be a JSON object"),
        (b"3", "the top level must be a JSON object"),
    ],
)
def test_bad_content_is_one_line_that_begins_with_the_path(tmp_path, content, words):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    line = refusal(read_json, path)
    assert line.startswith(f"{path}: ")
    assert words in line


def test_a_large_file_is_refused_without_being_read(tmp_path):
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)
    assert "larger than 16 MiB" in refusal(read_json, path)


def test_a_stream_without_a_size_is_bounded_too():
    assert "larger than 16 MiB" in refusal(read_json, "/dev/zero")


def test_the_size_limit_is_inclusive(tmp_path):
    path = tmp_path / "full.json"
    path.write_bytes(b"{}".ljust(MAX_DOCUMENT_BYTES))
    assert read_json(path)[0] == {}
    path.write_bytes(b"{}".ljust(MAX_DOCUMENT_BYTES + 1))
    assert "larger than 16 MiB" in refusal(read_json, path)


def test_missing_file_directory_and_impossible_paths(tmp_path):
    assert "no such file" in refusal(read_json, tmp_path / "none.json")
    assert "is a directory" in refusal(read_json, tmp_path)
    assert "cannot be read" in refusal(read_json, "a\0b")
    assert "cannot be read" in refusal(read_json, "x" * 5000)
    (tmp_path / "file").touch()
    assert "cannot be read" in refusal(read_json, tmp_path / "file" / "x.json")


def test_read_returns_the_object_and_the_hash_of_its_bytes(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": [1, 2.5, "\\u00e9", null]}')
    data, digest = read_json(path)
    assert data == {"a": [1, 2.5, "é", None]}
    assert type(data["a"][0]) is int
    path.write_bytes(b"{}")
    assert read_json(path)[1] == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert digest != read_json(path)[1]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), json_values))
def test_whatever_is_written_is_read_back(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "round-trip.json"
    write_text_atomically(path, json.dumps(data))
    assert read_json(path)[0] == data


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_in_one_line(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_bytes(content)
    try:
        data, problems = read_json(path)[0], []
    except InputError as error:
        data, problems = {}, error.problems
    assert isinstance(data, dict)
    assert len(problems) <= 1
    assert all(problem.isprintable() for problem in problems)


class Part(Document):
    name: Name
    size: WholeNumber = Field(ge=1, le=9)
    costs: tuple[Number, ...] = ()


class Whole(Document):
    parts: tuple[Part, ...]
    note: str | None = None


def test_every_problem_is_reported_with_its_path():
    data = {
        "parts": [
            {"name": "a\nb", "size": 0, "costs": [1, "2", True, None]},
            {"name": "", "size": 1.0, "prize": 3, "costs": "many"},
            {"size": 10},
            7,
        ],
        "note": {"x": 1},
        "odd\nfield": 1,
    }
    with pytest.raises(InputError) as caught:
        parse_document(Whole, data, "f.json")
    assert caught.value.problems == [
        "f.json: parts[0].name: must be on one line, without control characters, "
        r'got "a\nb"',
        "f.json: parts[0].size: must be at least 1, got 0",
        'f.json: parts[0].costs[1]: must be a number, got "2"',
        "f.json: parts[0].costs[2]: must be a number, got true",
        "f.json: parts[0].costs[3]: must be a number, got null",
        "f.json: parts[1].name: must not be empty",
        "f.json: parts[1].size: must be a whole number, got 1.0",
        'f.json: parts[1].costs: must be a list, got "many"',
        "f.json: parts[1].prize: unknown field; check the spelling or remove it",
        "f.json: parts[2].name: is missing; it is required",
        "f.json: parts[2].size: must be at most 9, got 10",
        "f.json: parts[3]: must be an object, got 7",
        "f.json: note: must be a text, got an object",
        r"f.json: odd\nfield: unknown field; check the spelling or remove it",
    ]


def test_non_finite_numbers_from_python_are_refused():
    for value in (float("nan"), float("inf")):
        data = {"parts": [{"name": "a", "size": 1, "costs": [value]}]}
        line = refusal(parse_document, Whole, data, "f.json")
        assert line.startswith("f.json: parts[0].costs[0]: must be a finite number")


def test_thousands_of_problems_are_counted_not_listed():
    with pytest.raises(InputError) as caught:
        parse_document(Whole, {"parts": [1] * 5000}, "f.json")
    assert len(caught.value.problems) == 101
    assert caught.value.problems[-1] == "f.json: and 4900 more problems"


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({}, "schema: is missing"),
        ({"schema": "other"}, 'schema: is "other"; a file of this kind has "schema": "t/x"'),
        ({"schema": ["t/x"]}, "schema: is a list"),
        ({"schema": "t/x"}, "schema_version: is missing"),
        ({"schema": "t/x", "schema_version": "1"}, 'schema_version: is "1"'),
        ({"schema": "t/x", "schema_version": True}, "schema_version: is true"),
        ({"schema": "t/x", "schema_version": 0}, "schema_version: is 0"),
        ({"schema": "t/x", "schema_version": 3}, "3 is newer than 2"),
    ],
)
def test_header(header, words):
    line = refusal(check_header, header, "t/x", 2, "f.json")
    assert line.startswith("f.json: ")
    assert words in line


def test_find_prefers_an_existing_file(tmp_path, monkeypatch):
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    (shipped / "fast.json").write_text("{}")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    built_in = (shipped / "fast.json", "built-in fast")
    assert find_document("fast", shipped, "thing") == built_in
    assert find_document("fast.json", shipped, "thing") == built_in
    Path("fast").mkdir()  # a directory is not a document
    assert find_document("fast", shipped, "thing") == built_in
    Path("fast.json").write_text("{}")
    assert find_document("fast.json", shipped, "thing") == (Path("fast.json"), "fast.json")
    assert find_document("fast", shipped, "thing") == built_in
    line = refusal(find_document, "dir/fats.json", shipped, "thing")
    assert line == (
        "dir/fats.json: no such file and no built-in thing; did you mean fast? built in: fast"
    )
    assert refusal(find_document, "", shipped, "thing").startswith('"": no such file')
    assert "did you mean" not in refusal(find_document, "zzz", shipped, "thing")


def test_write_replaces_keeps_permissions_and_follows_links(tmp_path):
    path = tmp_path / "out.txt"
    write_text_atomically(path, "one\n")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    write_text_atomically(link, "zwei é\n")
    assert link.is_symlink()
    assert path.read_bytes() == "zwei é\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["link", "out.txt"]


def test_write_to_a_device_leaves_it_a_device():
    check_writable("/dev/null")
    write_text_atomically("/dev/null", "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("action", [check_writable, lambda path: write_text_atomically(path, "x")])
def test_impossible_targets_are_refused_early_and_late(tmp_path, monkeypatch, action):
    (tmp_path / "file").write_text("old")
    assert "is a directory" in refusal(action, tmp_path)
    assert "there is no directory" in refusal(action, tmp_path / "none" / "out.txt")
    assert "there is no directory" in refusal(action, tmp_path / "file" / "out.txt")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    assert "cannot be overwritten" in refusal(action, tmp_path / "file")
    assert "cannot write in" in refusal(action, tmp_path / "new.txt")
    assert os.listdir(tmp_path) == ["file"]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "out.txt"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    line = refusal(write_text_atomically, path, "new")
    assert line == f"{path}: cannot be written: No space left on device"
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]
    assert "cannot be written" in refusal(write_text_atomically, tmp_path / ("n" * 300), "new")


def test_shown_escapes_what_would_break_a_line():
    assert shown("a\nb\x1b[31m é") == r"a\nb\x1b[31m é"
    assert shown("") == '""'


def test_text_of_any_kind_is_read_with_the_same_suspicion(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b\r\n")
    assert read_text(path, max_bytes=8)[0] == "a,b\r\n"
    path.write_bytes(b" " * 9)
    assert refusal(read_text, path, "a table").endswith("the file is empty; a table is needed")
    assert "larger than" in refusal(read_text, path, "a table", 8)


def test_json_of_any_kind_is_parsed_as_strictly():
    assert parse_json("[1, 2]", "here") == [1, 2]
    assert refusal(parse_json, "[NaN]", "here").startswith("here: NaN is not a JSON number")


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.recursive(
        PLAIN | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_json_for_people_is_the_same_json(value):
    assert json.loads(json_text(value)) == value


def test_json_for_people_has_plain_lists_on_one_line():
    assert json_text({"a": [1, 2.5], "b": [[1], [2]], "c": {}, "d": []}) == (
        '{\n  "a": [1, 2.5],\n  "b": [\n    [1],\n    [2]\n  ],\n  "c": {},\n  "d": []\n}'
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text([float("inf")])
