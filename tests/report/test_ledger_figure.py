"""The cost ledger as bars: parts add up to N / T."""

import pytest
from figure_reading import words

import trmodel
from trmodel.errors import UsageError
from trmodel.report import ledger_figure
from trmodel.system import RoutedSystem


@pytest.mark.parametrize(
    ("profile", "B"), [("a100-paper", [(1, 1), (1, 2)]), ("a100-ensemble", [(1, 1, 1), (1, 1, 2)])]
)
def test_the_bars_of_a_prediction_add_up_to_the_time_per_token(profile, B):
    predictions = [trmodel.predict(profile, N=2, B=b) for b in B]
    figure = ledger_figure(predictions)
    cost, busy = figure.axes
    widths = [bar.get_width() for bar in cost.patches]
    bars = 3 * len(B[0])
    for i, prediction in enumerate(predictions):
        total = sum(widths[i * bars : (i + 1) * bars])
        assert total == pytest.approx(1000.0 * 2 / prediction.throughput_tok_s)
        assert f"{prediction.throughput_tok_s:.1f} tokens/s" in words(figure)
    shares = [bar.get_width() for bar in busy.patches][1::2]
    assert shares == pytest.approx(
        [100.0 * m.busy_fraction for prediction in predictions for m in prediction.per_model]
    )


def test_one_model():
    from trmodel.markov import predict_chain

    system = RoutedSystem(["only"], [[10.0, 11.0]], [[1.0]], [[1.0]], 2)
    said = words(ledger_figure([predict_chain(system, (2,))]))
    for part in ("only", "N = 2, B = 2", "(ms)", "Model busy (%)"):
        assert part in said


def test_no_prediction_is_refused():
    with pytest.raises(UsageError, match="at least one"):
        ledger_figure([])
