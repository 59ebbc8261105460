import pytest
from figure_reading import words

import trmodel
from trmodel.report import arrivals_figure


@pytest.fixture(scope="module")
def arrivals():
    slo = ["p90-ttft-ms=300", "min-request-speed=5", "p99-admission-ms:Qwen3-32B=200"]
    return trmodel.arrivals("a100", 3, slo=slo, reply_tokens=50, replies=300)


def test_a_panel_for_throughput_and_for_each_objective(arrivals):
    axes = arrivals_figure(arrivals).axes
    assert len(axes) == 4
    for place, panel in enumerate(axes[1:]):
        line = panel.containers[0].lines[0]
        assert list(line.get_xdata()) == [load.rate_per_s for load in arrivals.loads]
        assert list(line.get_ydata()) == [
            load.measured[place].value.value for load in arrivals.loads
        ]
        (limit,) = [one for one in panel.lines if one.get_gid() == "limit"]
        assert limit.get_ydata()[0] == arrivals.objectives[place].limit
    for panel in axes:
        (largest,) = [one for one in panel.lines if one.get_gid() == "largest"]
        assert largest.get_xdata()[0] == arrivals.largest.rate_per_s


def test_without_objectives_the_usual_delays_are_shown():
    found = trmodel.arrivals("a100", 2, reply_tokens=50, replies=200)
    said = words(arrivals_figure(found))
    for part in ("p99-itl (ms)", "p99-ttft (ms)", "Arrivals (requests/s)", "at most 2 at a time"):
        assert part in said


def test_it_says_what_it_is_about(arrivals):
    said = words(arrivals_figure(arrivals))
    for part in ("a100: ", "p90-ttft (ms)", "Request speed", "Qwen3-32B (ms)"):
        assert part in said
