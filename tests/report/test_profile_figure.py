"""The figure of a profile shows every listed step, overhead included."""

import pytest
from figure_reading import words

from trmodel.profile import load_profile, profile_names
from trmodel.report import profile_figure


@pytest.mark.parametrize("name", profile_names())
def test_every_listed_step_is_a_point(name):
    profile = load_profile(name).profile
    figure = profile_figure(profile)
    assert len(figure.axes) == len(profile.models)
    for axes, model in zip(figure.axes, profile.models, strict=True):
        lines = [line for line in axes.lines if line.get_gid() != "not measured"]
        overhead = model.overhead.value_ms if model.overhead else 0.0
        assert len(lines) == len(model.decode.rows)
        for line, row in zip(lines, model.decode.rows, strict=True):
            assert list(line.get_xdata()) == list(model.decode.batch)
            assert list(line.get_ydata()) == [latency + overhead for latency in row]
        hollow = sum(len(line.get_xdata()) for line in axes.lines if line not in lines)
        statuses = [status for row in model.decode.status_rows for status in row]
        assert hollow == len(statuses) - statuses.count("measured")
        assert model.name in words(figure)


def test_contexts_are_named_where_there_are_several():
    (legend,) = profile_figure(load_profile("h100").profile).legends
    assert [t.get_text() for t in legend.get_texts()] == ["8192", "4096", "2048", "1024", "512"]
    assert not profile_figure(load_profile("a100-paper").profile).legends
