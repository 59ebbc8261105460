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
# # Figure 10 of the paper: predicted and measured
#
# arXiv:2610.12242 measures nine settings of delayed batching on two A100s and predicts each with
# a Markov chain whose step latencies are two constants: 6.0 ms for Qwen3-0.6B, 27.9 ms for
# Qwen3-32B. Here `trmodel` predicts the same nine from the same constants, and the single request
# of the paper's table 6 as a tenth.
#
# Run it as a notebook (jupytext pairs it) or as a script; either way the figures and the numbers
# go to `reports/`, and every number in the text below is checked by an assertion.

# %%
# %matplotlib inline
import json
from pathlib import Path

import trmodel
from trmodel.report import (
    Measurement,
    comparison_figure,
    heat_map_figure,
    ledger_figure,
    save_figure,
    threshold_figure,
)

# A script knows where it is; a notebook starts in its own folder.
HERE = Path(__file__).resolve().parent if "__file__" in globals() else Path.cwd()
REPORTS = HERE.parent / "reports"
REPORTS.mkdir(exist_ok=True)
NAME = "01_paper_figure10"

published = json.loads((HERE / "data" / "figure10.json").read_text(encoding="utf-8"))
points = [published["single_request"], *published["figure10"]]

# %% [markdown]
# ## Ours against theirs
#
# The chain is exact, so the two predictions must agree to the last digit that the paper prints.

# %%
CHAIN, PAPER = "exact chain", "paper's prediction"


def measurement(point: dict, profile: str = "a100-paper") -> Measurement:
    """A published measurement with our prediction and, where there is one, the paper's."""
    N, B = point["N"], tuple(point["B"])
    predicted = {CHAIN: trmodel.predict(profile, N=N, B=B).throughput_tok_s}
    if "predicted" in point:
        predicted[PAPER] = point["predicted"]
    return Measurement(N, B, point["measured"], predicted)


measurements = [measurement(point) for point in points]
differences = [
    abs(m.predicted_tok_s[CHAIN] - m.predicted_tok_s[PAPER])
    for m in measurements
    if PAPER in m.predicted_tok_s
]
assert len(differences) == 9
assert max(differences) < 0.1

# %% [markdown]
# ## Predicted and measured
#
# The paper reports one configuration three times, which shows how far two measurements of the
# same thing lie apart.

# %%
repeated = published["repeated_tok_s"]
noise_percent = round(50 * (max(repeated) - min(repeated)) / (sum(repeated) / len(repeated)), 1)

figure = comparison_figure(
    measurements,
    noise_percent=noise_percent,
    title="arXiv:2610.12242, figure 10: R2R on two A100s (a100-paper)",
)
save_figure(figure, REPORTS / f"{NAME}_comparison.png")
figure

# %%
errors = {(m.N, m.B): m.error_percent(CHAIN) for m in measurements}


def mean_abs(values) -> float:
    """The mean of absolute values."""
    values = [abs(value) for value in values]
    return sum(values) / len(values)


mean_error, largest_error = mean_abs(errors.values()), max(map(abs, errors.values()))
fitted = [measurement(point, "a100") for point in points]
fitted_error = mean_abs(m.error_percent(CHAIN) for m in fitted)

assert round(mean_error, 1) == 8.3
assert round(largest_error, 1) == 16.1
assert round(fitted_error, 1) == 2.7
assert sum(abs(error) <= noise_percent for error in errors.values()) == 1

# %% [markdown]
# ## Throughput against threshold
#
# The star is what `trmodel tune` chooses. Every vector (B0, B1) that cannot deadlock was
# evaluated; a point is the best over B0.

# %%
table = trmodel.tune("a100-paper", N=range(2, 13))
figure = threshold_figure(table)
save_figure(figure, REPORTS / f"{NAME}_thresholds.png")
figure

# %% [markdown]
# ## Both thresholds at once

# %%
figure = heat_map_figure(table, 8)
save_figure(figure, REPORTS / f"{NAME}_heat_map.png")
figure

# %% [markdown]
# ## What delaying buys
#
# Eager launching against the chosen thresholds at N = 4: requests now wait for the threshold,
# but in total wait less (3.5 instead of 5.6 ms per token), and the large model is busy 64 % of the time instead of 99 %.

# %%
chosen = table.row(4).B
ledgers = [trmodel.predict("a100-paper", N=4, B=B) for B in ((1, 1), chosen)]
figure = ledger_figure(ledgers, title="a100-paper: Qwen3-0.6B + Qwen3-32B, eager and chosen")
save_figure(figure, REPORTS / f"{NAME}_ledger.png")
figure

# %%
waits = [p.ledger.threshold_wait_ms + p.ledger.batch_wait_ms for p in ledgers]
assert [round(wait, 1) for wait in waits] == [5.6, 3.5]
assert [round(p.per_model[1].busy_fraction, 2) for p in ledgers] == [0.99, 0.64]

# %% [markdown]
# ## Would the advice have been right?
#
# For each N: the thresholds that are best by prediction and by measurement, what delaying gains
# over eager launching, and the *regret*, the measured throughput that taking the advice costs.

# %%
advice = []
for N in (2, 3, 4):
    measured = {m.B: m.measured_tok_s for m in measurements if m.N == N}
    predicted = {m.B: m.predicted_tok_s[CHAIN] for m in measurements if m.N == N}
    advised = table.row(N).B
    best = max(measured, key=measured.get)
    advice.append(
        {
            "N": N,
            "advised": advised,
            "best measured": best,
            "regret %": 100 * (1 - measured[advised] / measured[best]),
            "gain predicted %": 100 * (predicted[advised] / predicted[1, 1] - 1),
            "gain measured %": 100 * (measured[advised] / measured[1, 1] - 1),
            "order": sorted(measured, key=measured.get) == sorted(predicted, key=predicted.get),
        }
    )

assert all(row["regret %"] == 0 for row in advice)
assert [row["order"] for row in advice] == [True, True, False]
assert [round(row["gain predicted %"], 1) for row in advice] == [11.5, 11.1, 11.1]
assert [round(row["gain measured %"], 1) for row in advice] == [29.6, 34.2, 22.5]

# %%
by_B = {(m.N, m.B): m for m in measurements}
second, third = by_B[4, (1, 2)], by_B[4, (1, 4)]
assert second.predicted_tok_s[CHAIN] > third.predicted_tok_s[CHAIN]
assert round(100 * (1 - second.measured_tok_s / third.measured_tok_s)) == 8
assert [round(errors[N, (1, 1)]) for N in (1, 2, 3, 4)] == [-13, 5, 13, 16]

# %% [markdown]
# ## What this says, and what it does not
#
# - **The chain is right; its inputs are rough.** We give the paper's nine predictions to within
#   0.1 tok/s. Against the ten measurements the constants are off by 8.3 % on average and 16.1 %
#   at worst; only one of the ten errors is within the noise of the measurements.
# - **The best is ranked right, the level is not.** At N = 2, 3 and 4 the best thresholds by
#   prediction are the best by measurement: no regret. The full order is right at N = 2 and 3; at
#   N = 4 the second and third are swapped: B = (1, 2) is predicted above (1, 4) and measured 8 %
#   below it.
# - **The gain is understated.** Predicted 11 to 12 % over eager launching, measured 22 to 34 %:
#   eager launching is predicted too fast, by 5, 13 and 16 % at N = 2, 3 and 4.
# - **What the constants leave out.** A step takes longer with a larger batch, and the two models
#   share the GPUs here, so that each slows the other; eager launching, which has both run at once
#   the most, is what is predicted too fast. The built-in profile `a100` has both: imported
#   latencies by batch, with overheads and slow-downs fitted to these same ten measurements
#   (`docs/calibration.md`). It misses them by 2.7 % on average; left out of the fit one by one,
#   by 3.4 %.
# - **What is not shown.** Three concurrencies of one routing on one machine, with B0 = 1
#   throughout, and measurements of the paper that the constants come from. How good the advice is
#   elsewhere has to be measured there.

# %% [markdown]
# The numbers, for `reports/`:

# %%
def cells(*values) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(str(value) for value in values) + " |"


def shown(B) -> str:
    """A threshold vector as in the text."""
    return f"({', '.join(map(str, B))})"


lines = [
    "# Figure 10 of arXiv:2610.12242: predicted and measured",
    "",
    f"Written by `notebooks/{NAME}.py`; throughput in tokens per second.",
    "",
    cells("N", "B", "measured", "paper's prediction", "exact chain", "error %"),
    cells(*["---:"] * 6),
    *(
        cells(
            m.N,
            shown(m.B),
            m.measured_tok_s,
            m.predicted_tok_s.get(PAPER, ""),
            f"{m.predicted_tok_s[CHAIN]:.2f}",
            f"{m.error_percent(CHAIN):+.1f}",
        )
        for m in measurements
    ),
    "",
    f"Mean absolute error {mean_error:.1f} %, largest {largest_error:.1f} % (profile `a100-paper`); "
    f"mean {fitted_error:.1f} % with the profile `a100`, which is fitted to them. "
    f"Noise of the measurements: {noise_percent} % either way.",
    "",
    cells("N", "advised B", "best measured B", "regret %", "predicted gain %", "measured gain %"),
    cells(*["---:"] * 6),
    *(
        cells(
            row["N"],
            shown(row["advised"]),
            shown(row["best measured"]),
            *(f"{row[key]:.1f}" for key in ("regret %", "gain predicted %", "gain measured %")),
        )
        for row in advice
    ),
    "",
    "Gains are over eager launching, B = (1, 1).",
    "",
    *(
        f"![{what}]({NAME}_{file}.png)\n"
        for file, what in (
            ("comparison", "Predicted and measured throughput, errors beside"),
            ("thresholds", "Throughput against the threshold of the large model"),
            ("heat_map", "Throughput over both thresholds at N = 8"),
            ("ledger", "Where the time goes, eager and chosen thresholds at N = 4"),
        )
    ),
]
(REPORTS / f"{NAME}.md").write_text("\n".join(lines), encoding="utf-8")
