"""The least-squares problem of a calibration: parameters, bounds, and the model's throughputs.

A step of model i with b requests takes L_i(b) + o_i, o_i being its *overhead*, and s_ij(L_i + o_i)
while model j runs as well, s_ij being its *slow-down* beside j. Both kinds of parameter are fitted
to the logarithm of measured throughputs, so that every measurement counts by its relative error.
Waking is the profile's.

Throughput is only piecewise smooth in the parameters. Latencies and the work left at a completion
are rounded to the grid of the chain, steps of about 1e-4, for which a finer grid is taken here than
in a prediction. And with step latencies that never vary it jumps, by 2 to 3 %, where two orders of
completion change places (say, whether three short steps end before one long one), on any grid.
Derivatives are therefore differences over more than the distance of such jumps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np

from trmodel.arrays import FloatArray
from trmodel.calibrate.measurements import Measured, Measurements
from trmodel.documents import StrPath
from trmodel.errors import InputError
from trmodel.markov import solve_chain
from trmodel.markov.transitions import split_table
from trmodel.profile import Context, LoadedProfile, Profile, build_system
from trmodel.routing import Routing
from trmodel.system import RoutedSystem
from trmodel.system_checks import slow_down_table

FIT_GRID_MS = 0.02
MAX_FITTED_SLOW_DOWN = 10.0

Configuration = tuple[int, tuple[int, ...], bool]
"""N, thresholds in the system's order of models, and whether the models share GPUs."""


@dataclass(frozen=True)
class Parameter:
    """A number to fit: the overhead of a model, or its slow-down beside another one."""

    model: str
    beside: str | None = None

    @property
    def name(self) -> str:
        """What to call it."""
        if self.beside is None:
            return f"overhead of {self.model}"
        return f"slow-down of {self.model} beside {self.beside}"

    @property
    def unit(self) -> str:
        """Milliseconds for an overhead; a slow-down is a factor."""
        return "ms" if self.beside is None else ""

    @property
    def neutral(self) -> float:
        """The value that changes nothing."""
        return 0.0 if self.beside is None else 1.0

    @property
    def step(self) -> float:
        """Half the width of a difference, wider than the jumps of throughput are apart."""
        return 0.4 if self.beside is None else 0.08


class Problem:
    """Measured and modelled throughputs of one profile, as functions of the parameters theta.

    Attributes
    ----------
    parameters
        An overhead per model, then two slow-downs per pair; theta is in this order.
    kept
        (P,): the values in the profile.
    lower, upper
        (P,): bounds of theta.
    configurations
        The distinct configurations that were measured.
    row
        For each measurement, its configuration.
    log_measured
        Logarithm of each measured throughput.
    """

    def __init__(
        self,
        loaded: LoadedProfile,
        document: Measurements,
        pool: Executor,
        *,
        routing: StrPath | Routing | None = None,
        p: float | None = None,
        context: Context | None = None,
        allow_negative_overheads: bool = False,
        grid_ms: float | None = None,
    ) -> None:
        points = document.measurements
        largest = max(point.N for point in points)
        self._system = build_system(
            replace(loaded, profile=_bare(loaded)),
            largest,
            routing,
            p=p,
            context=context,
            grid_ms=FIT_GRID_MS if grid_ms is None else grid_ms,
        )
        names = self._system.models
        if set(names) != set(document.models):
            raise InputError(
                f"measurements {document.name}: models: are {', '.join(document.models)}, but the "
                f"routing has {', '.join(names)}; choose the routing that was measured"
            )
        self._splits = {
            N: split_table(self._system.with_N(N).restricted()) for N in {p.N for p in points}
        }
        self._pool = pool
        self._known: dict[tuple[int, bytes], float] = {}
        order = [document.models.index(name) for name in names]
        found = [_configuration(point, order) for point in points]
        self.configurations = tuple(dict.fromkeys(found))
        self.row = np.array([self.configurations.index(c) for c in found])
        self.log_measured = np.log([point.throughput_tok_s for point in points])
        self.parameters = tuple(Parameter(name) for name in names) + tuple(
            Parameter(a, b) for a in names for b in names if a != b
        )
        self.kept = np.array([in_profile(loaded.profile, each) for each in self.parameters])
        alone = self._system.latency_ms
        M = len(names)
        self.lower = np.ones(len(self.parameters))
        # A step must keep some duration, whatever is subtracted from its table.
        self.lower[:M] = -0.9 * alone.min(axis=1) if allow_negative_overheads else 0.0
        self.upper = np.full(len(self.parameters), MAX_FITTED_SLOW_DOWN)
        self.upper[:M] = 10.0 * (alone.max(axis=1) + 1.0)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models, in the order of the routing."""
        return self._system.models

    @property
    def grid_ms(self) -> float:
        """Time unit of the chains."""
        return self._system.grid_ms

    @property
    def step_ms(self) -> FloatArray:
        """Duration of a step with one request, without overhead; (M,)."""
        return np.asarray(self._system.latency_ms[:, 0])

    def log_throughput(self, theta: FloatArray) -> FloatArray:
        """Logarithm of the modelled throughput in tokens per second; (configurations,)."""
        return np.asarray(self.log_throughputs([theta], range(len(self.configurations)))[0])

    def log_throughputs(self, thetas: Sequence[FloatArray], which: Iterable[int]) -> FloatArray:
        """Evaluate some configurations at several theta, all chains at once; (thetas, which)."""
        jobs = [[(c, self._seen_by(c, theta)) for c in which] for theta in thetas]
        wanted = dict.fromkeys((c, t.tobytes()) for row in jobs for c, t in row)
        new = [job for job in wanted if job not in self._known]
        self._known.update(zip(new, self._pool.map(self._solve, new), strict=True))
        return np.array([[self._known[c, t.tobytes()] for c, t in row] for row in jobs])

    def jacobian(
        self,
        theta: FloatArray,
        columns: Sequence[int],
        which: Sequence[int],
        narrower: float = 1.0,
    ) -> FloatArray:
        """Central differences of the logarithms, one-sided at a bound; (which, columns).

        ``narrower`` divides the steps of the parameters.
        """
        ends = []
        for column in columns:
            for sign in (1, -1):
                end = theta.copy()
                end[column] += sign * self.parameters[column].step / narrower
                ends.append(np.clip(end, self.lower, self.upper))
        values = self.log_throughputs(ends, which)
        widths = [ends[2 * i][c] - ends[2 * i + 1][c] for i, c in enumerate(columns)]
        return np.asarray(((values[::2] - values[1::2]) / np.array(widths)[:, None]).T)

    def system(self, theta: FloatArray, N: int, shared: bool = True) -> RoutedSystem:
        """Return the system at concurrency N whose overheads and slow-downs are theta."""
        M = self._system.M
        return replace(
            self._system,
            N=N,
            latency_ms=self._system.latency_ms + theta[:M, None],
            slow_down=slow_down_table(M, self._pairs(theta) if shared else {}),
        )

    def _pairs(self, theta: FloatArray) -> dict[tuple[int, int], tuple[float, float]]:
        names = self._system.models
        value = dict(zip(self.parameters, theta.tolist(), strict=True))
        return {
            (i, j): (value[Parameter(a, b)], value[Parameter(b, a)])
            for i, a in enumerate(names)
            for j, b in enumerate(names)
            if i < j
        }

    def _seen_by(self, configuration: int, theta: FloatArray) -> FloatArray:
        """Theta without what a configuration does not depend on, to solve no chain twice."""
        if self.configurations[configuration][2]:
            return theta
        return np.concatenate([theta[: self._system.M], np.ones(len(theta) - self._system.M)])

    def _solve(self, job: tuple[int, bytes]) -> float:
        N, B, shared = self.configurations[job[0]]
        system = self.system(np.frombuffer(job[1]), N, shared)
        return float(np.log(solve_chain(system, B, splits=self._splits[N]).throughput_tok_s))


def _bare(loaded: LoadedProfile) -> Profile:
    """Return the profile without overheads and slow-downs."""
    models = [m.model_copy(update={"overhead": None}) for m in loaded.profile.models]
    return loaded.profile.model_copy(
        update={"models": tuple(models), "slow_downs": (), "fit": None}
    )


def _configuration(point: Measured, order: Sequence[int]) -> Configuration:
    return point.N, tuple(point.B[i] for i in order), point.placement == "shared"


def in_profile(profile: Profile, parameter: Parameter) -> float:
    """Return what a profile says of a parameter; what changes nothing if it says nothing."""
    if parameter.beside is None:
        (model,) = (m for m in profile.models if m.name == parameter.model)
        return 0.0 if model.overhead is None else model.overhead.value_ms
    for entry in profile.slow_downs:
        if set(entry.models) == {parameter.model, parameter.beside}:
            return entry.factors[entry.models.index(parameter.model)]
    return 1.0
