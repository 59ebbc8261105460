"""Timelines as pictures: a panel for each strategy, a bar for each batch."""

import pytest
from figure_reading import words

from trmodel.errors import UsageError
from trmodel.profile import build_system, load_profile
from trmodel.report import timeline_figure
from trmodel.simulate.strategies import STRATEGIES, strategy_case
from trmodel.simulate.timeline import timeline


@pytest.fixture(scope="module")
def lines():
    system = build_system(load_profile("a100-paper"), 4)
    return {
        name: timeline(strategy_case(name, system, (1, 3)), duration_ms=200.0)
        for name in STRATEGIES
    }


def test_a_bar_for_each_batch_and_the_rest_is_idle(lines):
    figure = timeline_figure(lines)
    assert len(figure.axes) == 4
    for axes, (name, line) in zip(figure.axes, lines.items(), strict=True):
        bars = [bars for bars in axes.collections if bars.get_gid() == "batches"]
        for i, own in enumerate(bars):
            boxes = [path.get_extents() for path in own.get_paths()]
            assert [(round(box.y0 + 0.4), box.x0, box.x1) for box in boxes] == [
                (i, pytest.approx(start), pytest.approx(end))
                for batch in line.batches
                if batch.model == i
                for start, end in [line.shown(batch)]
            ]
        assert sum(bar.get_gid() == "idle" for bar in axes.patches) == 2
        assert axes.get_xlim() == (0.0, 200.0)
        labels = [text.get_text() for text in axes.texts]
        large = [str(batch.size) for batch in line.batches if batch.model == 1]
        assert set(labels) >= set(large[:-1])
        assert [t.get_text() for t in axes.get_yticklabels()] == ["Qwen3-0.6B", "Qwen3-32B"]
        assert axes.get_title(loc="left").startswith(name)
    said = words(figure)
    assert "delayed, B = 1,3" in said
    assert "Time (ms)" in said


def test_one_panel_and_narrow_bars_have_no_label(lines):
    line = timeline(
        strategy_case("eager", build_system(load_profile("a100-paper"), 4)), duration_ms=20_000.0
    )
    figure = timeline_figure({"eager": line}, title="mine")
    (axes,) = figure.axes
    assert not axes.texts
    assert "mine" in words(figure)


def test_no_timeline_is_refused():
    with pytest.raises(UsageError, match="at least one"):
        timeline_figure({})
