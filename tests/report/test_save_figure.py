"""Figures on disk: formats, refusals, and the same bytes every time."""

import os

import pytest

from trmodel.errors import InputError
from trmodel.report import FIGURE_SUFFIXES, check_figure_path, save_figure
from trmodel.report.style import new_figure

BEGINNING = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def drawn():
    figure = new_figure(2.0, "title", "subtitle")
    figure.add_subplot().plot([1, 2], [3, 4])
    return figure


@pytest.mark.parametrize("suffix", FIGURE_SUFFIXES)
def test_the_suffix_names_the_format(tmp_path, suffix):
    path = tmp_path / f"figure{suffix.upper()}"
    save_figure(drawn(), path)
    assert path.read_bytes().startswith(BEGINNING[suffix])


@pytest.mark.parametrize("suffix", FIGURE_SUFFIXES)
def test_the_same_figure_gives_the_same_bytes(tmp_path, suffix, monkeypatch):
    first, second = tmp_path / f"1{suffix}", tmp_path / f"2{suffix}"
    save_figure(drawn(), first)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")  # another day, as far as a date is concerned
    save_figure(drawn(), second)
    assert first.read_bytes() == second.read_bytes()


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "figure.png"
    path.write_text("old")
    save_figure(drawn(), path)
    assert path.read_bytes().startswith(BEGINNING[".png"])
    assert os.listdir(tmp_path) == ["figure.png"]


@pytest.mark.parametrize("name", ["figure", "figure.jpg", "figure.png.txt", "png", ".png"])
def test_other_suffixes_are_refused(tmp_path, name):
    with pytest.raises(InputError, match=r"must end in one of \.png, \.svg, \.pdf") as refused:
        save_figure(drawn(), tmp_path / name)
    assert str(refused.value).startswith(str(tmp_path))
    assert len(refused.value.problems) == 1
    assert not os.listdir(tmp_path)


def test_a_place_that_cannot_be_written_is_refused_early(tmp_path):
    (tmp_path / "folder.png").mkdir()
    for path in (tmp_path / "folder.png", tmp_path / "absent" / "figure.png"):
        with pytest.raises(InputError, match=str(path)):
            check_figure_path(path)
        with pytest.raises(InputError, match=str(path)):
            save_figure(drawn(), path)


def test_the_process_wide_settings_are_left_alone(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    save_figure(drawn(), tmp_path / "figure.svg")
    assert dict(matplotlib.rcParams) == before
