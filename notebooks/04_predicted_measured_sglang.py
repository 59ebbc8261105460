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
# # SGLang: predicted and measured
#
# Two tiny models (0.66 and 26 million parameters, random weights) are served by the executor on
# SGLang's engine on a CPU, each on a core of its own, routed as R2R does at p = 0.35.
# `benchmarks/sglang_grid.py` measured engines and executor into a profile, as `trmodel profile
# measure --engine sglang` does, and in turns with that throughput at N = 1, 4, 8 under three
# thresholds each; both are in `data/`. Here the model predicts the same from that profile.
#
# Run it as a notebook (jupytext pairs it) or as a script; figures and numbers go to `reports/`. With
#
#     python scripts/make_tiny_models.py build/models
#     python notebooks/04_predicted_measured_sglang.py --remeasure build/models
#
# in an environment of `make sglang-cpu` it measures again first, which takes twenty minutes.

# %%
# %matplotlib inline
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt

from trmodel.profile import load_profile
from trmodel.report import comparison_figure, save_figure
from trmodel.runtime.bench.results import read_points
from trmodel.runtime.bench.validate import validate

# A script knows where it is; a notebook starts in its own folder.
HERE = Path(__file__).resolve().parent if "__file__" in globals() else Path.cwd()
REPORTS = HERE.parent / "reports"
REPORTS.mkdir(exist_ok=True)
NAME = "04_predicted_measured_sglang"
PROFILE, POINTS = HERE / "data" / "sglang_profile.json", HERE / "data" / "sglang_points.jsonl"

if "--remeasure" in sys.argv:
    models = sys.argv[sys.argv.index("--remeasure") + 1]
    for file in (PROFILE, POINTS):
        file.unlink(missing_ok=True)
    grid = HERE.parent / "benchmarks" / "sglang_grid.py"
    subprocess.run([sys.executable, grid, models, "-o", POINTS, "--profile", PROFILE])

profile = load_profile(PROFILE)
points = read_points(POINTS)

# %% [markdown]
# ## What was measured
#
# Decode steps by batch and context and extends by batch and new tokens are the engine's alone. What
# whole steps of the executor take beyond them is the overhead, and the wake where a model was idle.

# %%
names = profile.profile.model_names
figure, axes = plt.subplots(2, 2, figsize=(9.0, 6.4), layout="constrained", sharex=True)
for column, model in zip(axes.T, profile.profile.models, strict=True):
    for context, row in zip(model.decode.contexts, model.decode.rows, strict=True):
        column[0].plot(model.decode.batch, row, marker="o", label=f"context {context}")
    for new, row in zip(model.extend.new_tokens, model.extend.latency_ms, strict=True):
        column[1].plot(model.extend.batch, row, marker="o", label=f"{new} new")
    column[0].set_title(model.name)
    column[1].set_xlabel("batch")
    for axis, what in zip(column, ("decode", "extend"), strict=True):
        axis.set_ylim(bottom=0.0)
        axis.set_ylabel(f"{what} step, ms")
        axis.legend(fontsize="small")
save_figure(figure, REPORTS / f"{NAME}_tables.png")

# %%
overheads = [model.overhead.value_ms for model in profile.profile.models]
wakes = [model.wake.value_ms for model in profile.profile.models]
slow_down = profile.profile.slow_downs[0].factors
handoff = profile.profile.handoff.latency_ms
executor = list(zip(profile.profile.models, overheads, wakes, slow_down, strict=True))
for model, overhead, wake, factor in executor:
    print(
        f"{model.name}: overhead {overhead:.2f} ms, wake {wake:.2f} ms, {factor:.2f} times as long "
        "beside the other"
    )
    print("   ", model.overhead.provenance.note)
print(f"handoff {handoff:.2f} ms")

# %% [markdown]
# ## Predicted and measured
#
# Predictions are simulated, at the routing frequencies and the context that each run really had;
# those of the second colour take the run's own step times, so that what is left is the error of the
# model alone.

# %%
found = validate(points, profile, context="run")
figure = comparison_figure(found.measurements(), title="SGLang on two cores, tiny models")
save_figure(figure, REPORTS / f"{NAME}_comparison.png")
figure

# %%
print(
    f"mean error {found.mean_error_percent:.1f} %, with the runs' own steps "
    f"{found.mean_own_error_percent:.1f} %"
)
for ranking in found.rankings:
    print(
        f"N = {ranking.N}: Kendall tau {ranking.kendall_tau:.2f}, best {ranking.best_measured}, "
        f"predicted {ranking.best_predicted}, regret {ranking.regret_percent:.1f} %"
    )
of_setting = {}
for point in found.points:
    of_setting.setdefault((point.N, point.B), []).append(point.measured_tok_s)
drift = max(100.0 * (max(several) / min(several) - 1.0) for several in of_setting.values())
print(f"runs of one setting differ by up to {drift:.0f} %")
assert found.mean_error_percent <= 8.0
assert found.max_regret_percent <= 2.0

# %% [markdown]
# ## The report

# %%
def table(rows, first: str = "---:") -> list[str]:
    """Lines of Markdown; how the first column is aligned, the others to the right."""
    lines = [rows[0].keys(), [first, *["---:"] * (len(rows[0]) - 1)], *map(dict.values, rows)]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines]


steps = [
    {
        "model": model.name,
        "step of one, ms": f"{model.decode.rows[0][0]:.2f} to {model.decode.rows[-1][0]:.2f}",
        "overhead, ms": f"{overhead:.2f}",
        "wake, ms": f"{wake:.2f}",
        "times as long beside the other": f"{factor:.2f}",
    }
    for model, overhead, wake, factor in executor
]
rows = [
    {"N": row["N"], "B": row["B"], "context": point.context} | row
    for point, row in zip(found.points, found.point_rows(), strict=True)
]
lines = [
    "# SGLang: predicted and measured",
    "",
    f"Written by `notebooks/{NAME}.py` from measurements of `benchmarks/sglang_grid.py`: tiny models "
    "of 0.66 and 26 million parameters on SGLang's engine on a CPU, each on a core of its own, "
    "routing of R2R at p = 0.35. Throughput in tokens per second.",
    "",
    f"{profile.profile.hardware.note}; load average up to "
    f"{max(max(point['load_average']) for point in points):.1f}.",
    "",
    *table(steps, first="---"),
    "",
    f"Contexts of {profile.profile.models[0].decode.contexts[0]} to "
    f"{profile.profile.models[0].decode.contexts[-1]} tokens; handoffs {handoff:.2f} ms.",
    "",
    *table(rows),
    "",
    "Error: at the routing frequencies and the context of the run; nominal: at p = 0.35; own: with "
    "the step times of the run itself ([measuring](../docs/measuring.md)).",
    "",
    f"Mean absolute error {found.mean_error_percent:.1f} %, largest "
    f"{found.max_error_percent:.1f} %; with the runs' own step times "
    f"{found.mean_own_error_percent:.1f} % on average. Runs of one setting differ by up to "
    f"{drift:.0f} % in measured throughput: the machine drifts, under profile and points alike.",
    "",
    *table(found.ranking_rows()),
    "",
    f"![Step times by batch, context and new tokens]({NAME}_tables.png)",
    "",
    f"![Predicted and measured throughput, errors beside]({NAME}_comparison.png)",
    "",
]
(REPORTS / f"{NAME}.md").write_text("\n".join(lines), encoding="utf-8")
