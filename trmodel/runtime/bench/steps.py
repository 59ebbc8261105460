"""Measure the step and handoff latencies of a running executor into a profile.

Closed loops of N = 1, 2, 4, ... requests run under eager launching and, for every model, under the
threshold N for that model alone, which makes all its batches N strong. Steps are pooled by batch
size over all of them. A step lasts from its start until the model could start the next, so that
scheduling and handing on are in it, as the model of the server needs. The table holds means, which
are what throughput goes by; but steps of more than twice the median, which something else on the
machine held up, are left out and counted in the provenance.

The handoff latency of a pair of models is the mean time from the end of such a step until the
request joins the other's queue, without those of more than ten times the median.
"""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from trmodel._version import __version__
from trmodel.documents import parse_document
from trmodel.errors import TrmodelError, UsageError
from trmodel.profile import Profile
from trmodel.profile.schema import Handoff, HandoffPair
from trmodel.profile.tables import DecodeTable, Provenance
from trmodel.routing import Routing
from trmodel.runtime.bench.loop import PROMPT, REPLY_TOKENS
from trmodel.runtime.bench.point import measure_point
from trmodel.runtime.bench.target import Target

GRID_MS = 0.05
"""Of the profile: half the usual one, as overheads are tenths of a millisecond."""
MOST_TRIES = 5
MIN_SAMPLES = 20
"""Steps of a batch size with fewer samples are left out of the table."""
_PACKAGES = ("sglang", "torch", "pyzmq")


def settings(sizes: Sequence[int], M: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return the (N, B) to run so that every model takes batches of every size."""
    found: dict[tuple[int, tuple[int, ...]], None] = {}
    for N in sizes:
        found[N, (1,) * M] = None
        for i in range(M):
            found[N, tuple(N if j == i else 1 for j in range(M))] = None
    return list(found)


def sizes_up_to(largest: int) -> list[int]:
    """Return 1, 2, 4, ... and the largest itself.

    Raises
    ------
    UsageError
        If that is below 1.
    """
    if largest < 1:
        raise UsageError(f"N: must be at least 1, got {largest}")
    return sorted({*(2**k for k in range(largest.bit_length())), largest})


class Pooled:
    """Summaries of times at several settings, put together.

    Means are those of all times; medians and deviations the means of the settings' own.
    """

    def __init__(self) -> None:
        self.count = self.left_out = 0.0
        self._sums: dict[str, float] = {}

    def add(self, summary: Mapping[str, float]) -> None:
        """Take in one; see `trmodel.runtime.counters.summary`."""
        self.count += summary["count"]
        self.left_out += summary.get("left_out", 0)
        for name in ("mean_ms", "median_ms", "deviation_ms"):
            added = summary["count"] * summary.get(name, 0.0)
            self._sums[name] = self._sums.get(name, 0.0) + added

    def mean(self, name: str) -> float:
        """Return the mean of a figure; 0 without any times."""
        return self._sums.get(name, 0.0) / self.count if self.count else 0.0


class StepMeasurements:
    """Steps and handoffs, pooled over points.

    Parameters
    ----------
    models
        The server's, in order.
    """

    def __init__(self, models: Sequence[str]) -> None:
        self.models = tuple(models)
        M = len(self.models)
        self.steps: list[dict[int, Pooled]] = [{} for _ in range(M)]
        """By model and batch size."""
        self.lags = [[Pooled() for _ in range(M)] for _ in range(M)]
        """By source and destination: from the end of the engine's step to the queue."""
        self.route = [Pooled() for _ in range(M)]
        self.points: list[Mapping[str, Any]] = []
        """What was taken in."""

    def add(self, point: Mapping[str, Any]) -> None:
        """Take in what was measured at one setting."""
        self.points.append(point)
        for i, model in enumerate(point["per_model"]):
            for size, steps in model["steps"].items():
                self.steps[i].setdefault(int(size), Pooled()).add(steps)
                self.route[i].add(
                    {"count": int(size) * steps["count"], "mean_ms": model["route_ms"]}
                )
            for source, handoffs in enumerate(model["arrivals"]):
                self.lags[source][i].add(handoffs)

    def steps_ms(self, i: int, fewest: int = 1) -> dict[int, float]:
        """Return mean step times of a model by batch size, of which there are enough steps."""
        return {
            size: steps.mean("mean_ms")
            for size, steps in sorted(self.steps[i].items())
            if steps.count >= fewest
        }

    def table(self, i: int) -> dict[int, tuple[float, str]]:
        """Return mean step times of a model in ms by batch size, each with its circumstances.

        Raises
        ------
        TrmodelError
            If there are too few steps of every size.
        """
        found = {}
        for size, latency_ms in self.steps_ms(i, MIN_SAMPLES).items():
            steps = self.steps[i][size]
            told = (
                f"batch {size}: {steps.count:.0f}, median {steps.mean('median_ms'):.4g} ms, "
                f"standard deviation {steps.mean('deviation_ms'):.2g} ms"
            )
            stalls = f", {steps.left_out:.0f} stalls left out" if steps.left_out else ""
            found[size] = (latency_ms, told + stalls)
        if not found or 1 not in found:
            raise TrmodelError(
                f"{self.models[i]}: fewer than {MIN_SAMPLES} steps with one request were seen; "
                "measure longer, or with a routing that uses the model"
            )
        return found

    def handoff_ms(self, source: int, destination: int) -> float | None:
        """Return the mean latency of a handoff; None if none was seen on one machine."""
        lags = self.lags[source][destination]
        if not lags.count:
            return None
        return max(lags.mean("mean_ms") - self.route[source].mean("mean_ms"), 0.0)

    def profile(self, like: Profile, name: str, source: str, routing: Routing | None) -> Profile:
        """Make the profile document.

        Parameters
        ----------
        like
            A profile with these models: machine, memory and splits are taken from it.
        name, source
            Of the profile, and what was measured.
        routing
            Default routing; None for that of ``like``.

        Raises
        ------
        TrmodelError, InputError
            If there are too few steps, or ``like`` lacks a model.
        """
        by_name = {model.name: model for model in like.models}
        if missing := [model for model in self.models if model not in by_name]:
            raise UsageError(f"like: {like.name} has no model {', '.join(missing)}")
        where = f"trmodel {__version__}: {source}"
        models = tuple(
            by_name[model].model_copy(
                update={
                    "decode": self._decode(i, where),
                    "extend": None,
                    "overhead": None,
                    "wake": None,
                }
            )
            for i, model in enumerate(self.models)
        )
        changed = like.model_copy(
            update={
                "name": name,
                "description": f"Steps and handoffs of a running executor ({source}).",
                "hardware": like.hardware.model_copy(update={"note": machine()}),
                "software": software(),
                "obtained": "measured",
                "grid_ms": GRID_MS,
                "models": models,
                "slow_downs": (),
                "handoff": self.handoff(where),
                "fit": None,
                **({} if routing is None else {"routing": routing}),
            }
        )
        return parse_document(Profile, changed.model_dump(mode="json", by_alias=True), name)

    def _decode(self, i: int, where: str) -> DecodeTable:
        table = self.table(i)
        told = "; ".join(told for _, told in table.values())
        return DecodeTable(
            batch=tuple(table),
            latency_ms=tuple(round(mean, 4) for mean, _ in table.values()),
            context_tokens=None,
            provenance=Provenance(
                method="measured",
                source=where,
                note=f"Means of whole steps, scheduling and what models that ran at the same time "
                f"did to them included; warm-up left out. Steps: {told}.",
            ),
        )

    def handoff(self, where: str) -> Handoff | None:
        """Return the handoff latencies as a profile has them; None if none was seen.

        Parameters
        ----------
        where
            Source of the numbers.
        """
        M = len(self.models)
        pairs = {
            (i, j): latency
            for i in range(M)
            for j in range(M)
            if i != j and (latency := self.handoff_ms(i, j)) is not None
        }
        if not pairs:
            return None
        count = sum(self.lags[i][j].count for i, j in pairs)
        mean = sum(self.lags[i][j].count * latency for (i, j), latency in pairs.items()) / count
        return Handoff(
            latency_ms=round(mean, 4),
            pairs=tuple(
                HandoffPair(
                    source=self.models[i],
                    destination=self.models[j],
                    latency_ms=round(latency, 4),
                )
                for (i, j), latency in pairs.items()
            ),
            provenance=Provenance(
                method="measured",
                source=where,
                note=f"Mean of {count:.0f} handoffs, from the end of the step to the other queue.",
            ),
        )


def software() -> dict[str, str]:
    """Return the versions of what was measured, as far as it is installed."""
    found = {"trmodel": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """Say on what it was measured."""
    return f"measured on {platform.machine()}, {platform.system()} {platform.release()}"


def measure_steps(
    target: Target,
    largest: int,
    *,
    seconds: float = 2.0,
    warm_up: float | Callable[[int], float] = 0.7,
    sizes: Sequence[int] | None = None,
    reply_tokens: int = REPLY_TOKENS,
    prompt: Sequence[int] = PROMPT,
    into: StepMeasurements | None = None,
    progress: Any = None,
) -> StepMeasurements:
    """Measure the steps of a server's models at batches up to the largest, and its handoffs.

    Parameters
    ----------
    seconds, warm_up
        Of every setting, the latter perhaps by N; one with too few large steps is repeated.
    sizes
        In place of `sizes_up_to`.
    reply_tokens, prompt
        Length of every reply, and the prompt.
    into
        Earlier measurements of the same server, to which these are added.
    progress
        Called with settings done and settings in all.

    Raises
    ------
    TrmodelError
        One of its subclasses, as `measure_point`.
    """
    models = target.stats().models
    found = StepMeasurements(models) if into is None else into
    todo = settings(sizes or sizes_up_to(largest), len(models))
    random.Random(len(found.points)).shuffle(todo)  # in no order: machines drift
    for done, (N, B) in enumerate(todo, start=1):
        for _ in range(MOST_TRIES):
            found.add(
                measure_point(
                    target,
                    N,
                    B,
                    seconds=seconds,
                    warm_up=warm_up(N) if callable(warm_up) else warm_up,
                    reply_tokens=reply_tokens,
                    prompt=prompt,
                )
            )
            wanted = [i for i, threshold in enumerate(B) if threshold == N]
            if all(found.steps[i].get(N, Pooled()).count >= MIN_SAMPLES for i in wanted):
                break
        if progress:
            progress(done, len(todo))
    return found
