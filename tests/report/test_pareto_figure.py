import pytest
from figure_reading import stars, words

import trmodel
from trmodel.report import pareto_figure
from trmodel.search.pareto import Place


@pytest.fixture(scope="module")
def pareto():
    return trmodel.pareto("a100", 4, batches=20_000)


def test_every_vector_is_a_point_and_the_chosen_one_a_star(pareto):
    (axes,) = pareto_figure(pareto).axes
    drawn = {
        (x, y)
        for container in axes.containers
        for x, y in zip(*container.lines[0].get_data(), strict=True)
    }
    assert drawn == {(p.delay_ms.value, p.throughput_tok_s) for p in pareto.points}
    chosen = pareto.at(pareto.chosen)
    assert stars(axes) == [(chosen.delay_ms.value, chosen.throughput_tok_s)]


def test_only_the_front_is_joined(pareto):
    (axes,) = pareto_figure(pareto).axes
    joined = [c.lines[0] for c in axes.containers if c.lines[0].get_linestyle() == "-"]
    (line,) = joined
    front = [p for p in pareto.points if p.place is Place.front]
    assert list(line.get_xdata()) == [p.delay_ms.value for p in front]


def test_it_says_what_it_is_about(pareto):
    said = words(pareto_figure(pareto))
    for part in ("a100: ", "N = 4, 10 live", "p99-itl (ms)", "Throughput (tokens/s)", "eager"):
        assert part in said
    assert pareto_figure(pareto, title="Mine").get_suptitle().startswith("Mine\n")
