"""What the subservers count, as Prometheus metrics: prefix ``trmodel:``, label ``model``.

Counters of a subserver begin anew when it is restarted, as Prometheus expects of a process.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from trmodel.runtime.front import Front

if TYPE_CHECKING:
    from trmodel.runtime.controller import Controller

_GAUGES = {
    "threshold": "Fewest requests that start a batch now.",
    "table_version": "Version of the thresholds in use.",
    "waiting": "Requests in the model's queue.",
    "running": "Requests in the running batch.",
    "held": "Requests that the model knows, pending ones included.",
    "kv_tokens": "Tokens in the KV cache.",
}
_COUNTERS = {
    "handoffs": "Requests handed to another model.",
    "extended": "Tokens read beyond one for each request of a step.",
    "resent": "Messages sent again for want of an acknowledgement.",
}
_SECONDS = {
    "threshold_wait": "Request-seconds in the queue while the model was idle.",
    "batch_wait": "Request-seconds in the queue while the model ran.",
    "forward": "Request-seconds in running batches.",
    "extend": "Those of them in batches in which some request read more than one token.",
    "route": "Request-seconds from the end of a step to the handing on.",
}


class FrontCollector(Collector):
    """Reads a front end whenever Prometheus asks."""

    def __init__(self, front: Front, controller: Controller | None = None) -> None:
        self._front, self._controller = front, controller

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        front = self._front
        yield _gauge("ready", "Whether every model serves.", front.ready)
        yield _gauge("active_requests", "Requests that run now, n.", front.desk.n)
        yield _gauge("queued_requests", "Requests that wait to be admitted.", front.desk.queued)
        yield _count("rebuilt", "Requests rebuilt after a model was lost.", front.desk.rebuilt)
        restarts = CounterMetricFamily(
            "trmodel:restarts", "Restarts of the model's subserver.", labels=["model"]
        )
        for name, number in zip(front.names, front.restarts, strict=True):
            restarts.add_metric([name], number)
        yield restarts
        counted = [(front.names[i], values) for i, values in sorted(front.counted.items())]
        for name, text in _GAUGES.items():
            yield _by_model(GaugeMetricFamily, name, text, counted, name)
        for name, text in _COUNTERS.items():
            yield _by_model(CounterMetricFamily, name, text, counted, name)
        for name, text in _SECONDS.items():
            yield _by_model(CounterMetricFamily, f"{name}_seconds", text, counted, f"{name}_s")
        yield from self._movements(counted)
        if self._controller is not None:
            yield from _retunes(self._controller)
        yield from _batches(counted)

    def _movements(self, counted: list[tuple[str, dict[str, Any]]]) -> Iterator[Metric]:
        for key, name, text in (
            ("transitions", "transitions", "Steps after which a request went to a model."),
            ("committed", "committed_tokens", "Tokens committed on the way to a model."),
        ):
            family = CounterMetricFamily(f"trmodel:{name}", text, labels=["model", "destination"])
            for model, values in counted:
                for destination, number in zip(self._front.names, values[key], strict=True):
                    family.add_metric([model, destination], number)
            yield family


def _retunes(controller: Controller) -> Iterator[Metric]:
    """Decisions about thresholds, and what the latest says of those in force.

    What is measured beside it is the rate of ``trmodel:committed_tokens_total``.
    """
    retunes = CounterMetricFamily(
        "trmodel:retunes", "Decisions about thresholds.", labels=["outcome"]
    )
    for outcome, number in sorted(controller.outcomes.items()):
        retunes.add_metric([outcome], number)
    yield retunes
    known = [d.predicted_tok_s for d in list(controller.decisions) if d.predicted_tok_s]
    if known:
        text = "Predicted throughput under the thresholds in force, at the latest decision."
        yield _gauge("predicted_throughput_tokens_per_second", text, known[-1])


def _batches(counted: list[tuple[str, dict[str, Any]]]) -> Iterator[Metric]:
    """Sizes of batches, in buckets of 1, 2, 4, ..., and how long steps took."""
    sizes = HistogramMetricFamily("trmodel:batch_size", "Requests in a step.", labels=["model"])
    steps = SummaryMetricFamily("trmodel:step_seconds", "Time of a step.", labels=["model"])
    for model, values in counted:
        entries = {int(size): entry for size, entry in values["batches"].items()}
        largest = max(entries, default=1)
        ends = [2**m for m in range((largest - 1).bit_length() + 1)]
        parts = [
            sum(entry[0] for size, entry in entries.items() if low < size <= high)
            for low, high in zip([0, *ends], ends, strict=False)
        ]
        upto = list(accumulate(parts))
        buckets = [(str(float(end)), number) for end, number in zip(ends, upto, strict=True)]
        requests = sum(size * entry[0] for size, entry in entries.items())
        sizes.add_metric([model], [*buckets, ("+Inf", upto[-1])], requests)
        took = sum(entry[1] for entry in entries.values())
        steps.add_metric([model], count_value=upto[-1], sum_value=took)
    yield sizes
    yield steps


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"trmodel:{name}", text, value=value)


def _count(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"trmodel:{name}", text, value=value)


def _by_model(
    family: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    text: str,
    counted: list[tuple[str, dict[str, Any]]],
    key: str,
) -> Metric:
    made = family(f"trmodel:{name}", text, labels=["model"])
    for model, values in counted:
        made.add_metric([model], values[key])
    return made
