# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The executor: predicted and measured
#
# The executor with the replay engine serves the paper's two models: steps of 6.0 and 27.9 ms,
# p = 0.35. All else is real: processes, messages, scheduling, handoffs. `benchmarks/executor_grid.py`
# measured its own step and handoff latencies into a profile, and throughput for every threshold
# (1, b) at N = 4, 8 and 16; both are in `data/`. Here the model predicts the same from that profile.
# A few points are measured again on this machine at the end.
#
# Run it as a notebook (jupytext pairs it) or as a script; figures and numbers of the recorded
# measurements go to `reports/`.

# %%
# %matplotlib inline
from pathlib import Path

from trmodel.profile import load_profile
from trmodel.report import comparison_figure, save_figure
from trmodel.runtime.bench.point import measure_point
from trmodel.runtime.bench.results import read_points
from trmodel.runtime.bench.running import running
from trmodel.runtime.bench.validate import validate
from trmodel.runtime.config import ServerConfig

# A script knows where it is; a notebook starts in its own folder.
HERE = Path(__file__).resolve().parent if "__file__" in globals() else Path.cwd()
REPORTS = HERE.parent / "reports"
REPORTS.mkdir(exist_ok=True)
NAME = "03_predicted_measured_executor"

profile = load_profile(HERE / "data" / "executor_profile.json")
points = read_points(HERE / "data" / "executor_points.jsonl")

# %% [markdown]
# ## What a step and a handoff cost here
#
# Scheduling, waking the engine and handing on make steps a few tenths of a millisecond longer than
# the engine's 6.0 and 27.9 ms, and a handoff takes about half a millisecond.

# %%
small, large = (model.decode.latency_ms[0] for model in profile.profile.models)
handoff = profile.profile.handoff.latency_ms
print(f"steps {small:.2f} and {large:.2f} ms, handoffs {handoff:.2f} ms")
assert 6.0 < small < 7.0
assert 27.9 < large < 29.5
assert 0.0 < handoff < 2.0

# %% [markdown]
# ## Predicted and measured
#
# Predictions are simulated with the handoff latency. They are made at the routing frequencies that
# each run really had; those of the second colour also take the run's own step times, so that what
# is left is the error of the model alone.

# %%
found = validate(points, profile)
figure = comparison_figure(
    found.measurements(), title="Executor with the replay engine, steps of 6.0 and 27.9 ms"
)
save_figure(figure, REPORTS / f"{NAME}_comparison.png")
figure

# %%
assert found.mean_error_percent < 2.0
assert found.max_error_percent < 5.0
assert found.mean_own_error_percent < 2.0
for ranking in found.rankings:
    assert ranking.kendall_tau > 0.4
    assert ranking.regret_percent < 3.0

# %% [markdown]
# ## On this machine, now
#
# Three short measurements. A machine that is busy with something else makes steps longer; the
# prediction takes each run's own latencies and the error stays small all the same.

# %%
with running(ServerConfig(profile="a100-paper", max_live=8)) as server:
    live = [
        measure_point(server, N, B, seconds=3.0, warm_up=1.0)
        for N, B in [(4, (1, 3)), (8, (1, 1)), (8, (1, 5))]
    ]
now = validate(live, profile)
for point in now.points:
    print(
        f"N = {point.N}, B = {point.B}: {point.measured_tok_s:.1f} tok/s, "
        f"predicted {point.own_tok_s:.1f} ({point.own_error_percent:+.1f} %)"
    )
    assert abs(point.own_error_percent) < 5.0 + point.interval_percent

# %% [markdown]
# ## The report

# %%
def table(rows) -> list[str]:
    """Lines of Markdown, all columns to the right."""
    lines = [rows[0].keys(), ["---:"] * len(rows[0]), *map(dict.values, rows)]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines]


lines = [
    "# The executor: predicted and measured",
    "",
    f"Written by `notebooks/{NAME}.py` from measurements of `benchmarks/executor_grid.py`: replay "
    "engine, steps of 6.0 and 27.9 ms, p = 0.35. Throughput in tokens per second.",
    "",
    f"Measured steps with one request: {small:.2f} and {large:.2f} ms; handoffs {handoff:.2f} ms.",
    "",
    *table(found.point_rows()),
    "",
    "Error: at the routing frequencies of the run; nominal: at p = 0.35; own: with the step times "
    "of the run itself ([measuring](../docs/measuring.md)).",
    "",
    f"Mean absolute error {found.mean_error_percent:.1f} %, largest "
    f"{found.max_error_percent:.1f} %; with the runs' own step times "
    f"{found.mean_own_error_percent:.1f} % on average.",
    "",
    *table(found.ranking_rows()),
    "",
    f"![Predicted and measured throughput, errors beside]({NAME}_comparison.png)",
    "",
]
(REPORTS / f"{NAME}.md").write_text("\n".join(lines), encoding="utf-8")
