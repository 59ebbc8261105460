"""What the front end counts and times itself, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

OUTCOMES = ("stop", "length", "aborted", "error")
_WAITS_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.5, 5.0, 10.0, 30.0)


class Meter:
    """Counters and histograms of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.admission = self._times("admission_wait", "From submission to admission.")
        self.first = self._times("time_to_first_token", "From submission to the first token.")
        self.between = self._times("inter_token", "From one token to the next.")
        self.prompt_tokens = self._count("prompt_tokens", "Tokens of accepted prompts.")
        self.output_tokens = self._count("output_tokens", "Tokens sent to clients.")
        self.refused = self._count("requests_refused", "Requests answered with 429 or 503.")
        self._ended = Counter(
            "trmodel:requests", "Replies that ended.", ["outcome"], registry=self.registry
        )
        for outcome in OUTCOMES:
            self._ended.labels(outcome)

    def ended(self, outcome: str) -> None:
        """Count a reply that ended."""
        self._ended.labels(outcome).inc()

    def _times(self, name: str, text: str) -> Histogram:
        return Histogram(f"trmodel:{name}_seconds", text, buckets=_WAITS_S, registry=self.registry)

    def _count(self, name: str, text: str) -> Counter:
        return Counter(f"trmodel:{name}", text, registry=self.registry)
