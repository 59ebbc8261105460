from types import SimpleNamespace

from prometheus_client import CollectorRegistry, generate_latest

from trmodel.runtime.controller import Decision
from trmodel.runtime.server.metrics import FrontCollector


def text_of(*decisions, **outcomes):
    desk = SimpleNamespace(n=0, queued=0, rebuilt=0)
    front = SimpleNamespace(ready=True, desk=desk, names=(), restarts=(), counted={})
    controller = SimpleNamespace(outcomes=outcomes, decisions=decisions)
    registry = CollectorRegistry()
    registry.register(FrontCollector(front, controller))
    return generate_latest(registry).decode()


def test_decisions_are_counted_and_the_latest_prediction_shown():
    first = Decision("", "changed", "", predicted_tok_s=100.0)
    latest = Decision("", "kept", "", predicted_tok_s=250.0)
    skipped = Decision("", "skipped", "")
    text = text_of(first, latest, skipped, changed=1, kept=1, skipped=1)
    assert 'trmodel:retunes_total{outcome="changed"} 1.0' in text
    assert "trmodel:predicted_throughput_tokens_per_second 250.0" in text


def test_before_any_decision_nothing_is_predicted():
    assert "predicted_throughput" not in text_of()
