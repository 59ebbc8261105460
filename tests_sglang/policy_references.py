"""The rules of the papers, written again for one request at a time with loops."""

import math


def softmax(row):
    top = max(row)
    powers = [math.exp(x - top) for x in row]
    return [p / sum(powers) for p in powers]


def entropy(row):
    return -sum(p * math.log(p) for p in softmax(row) if p > 0.0)


def sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x))


def dense(state, name, x):
    """A linear layer, one output at a time."""
    weight, bias = state[f"{name}.weight"].double(), state[f"{name}.bias"].double()
    return [float(sum(w * v for w, v in zip(row, x, strict=True)) + b)
            for row, b in zip(weight.tolist(), bias.tolist(), strict=True)]  # fmt: skip


def layer_norm(state, name, x):
    mean = sum(x) / len(x)
    spread = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
    scale, shift = state[f"{name}.weight"].tolist(), state[f"{name}.bias"].tolist()
    return [(v - mean) / spread * a + b for v, a, b in zip(x, scale, shift, strict=True)]


def gelu(x):
    return 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0)))


def r_stitch_score(_, row):
    return entropy(row["logits"]) / math.log(len(row["logits"]))


def citer_score(state, row):
    x = dense(state, "mlp.0", row["hidden"])
    values = zip(
        x,
        *(state[f"mlp.1.{name}"].tolist()
          for name in ("running_mean", "running_var", "weight", "bias")),
        strict=True,
    )  # fmt: skip
    x = [max(0.0, (v - mean) / math.sqrt(var + 1e-5) * a + b) for v, mean, var, a, b in values]
    return sigmoid(dense(state, "linear", dense(state, "mlp.4", x))[0])


def co_llm_score(state, row):
    last = state["lm_head.weight"][-1].tolist()
    return sigmoid(sum(a * b for a, b in zip(last, row["hidden"], strict=True)))


def r2r_score(state, row):
    hidden, embedding = row["hidden"], row["embedding"]
    top = sorted(row["logits"], reverse=True)[: state["logits_projection.weight"].shape[1]]
    if "layer_norm_token.weight" in state:
        hidden = layer_norm(state, "layer_norm_hidden_states", hidden)
        embedding = layer_norm(state, "layer_norm_token", embedding)
        top = softmax(top)
    x = [*hidden, *embedding, *dense(state, "logits_projection", top)]
    x = dense(state, "backbone.input_projection", dense(state, "combined_projection", x))
    for i in range(3):
        block = f"backbone.blocks.{i}"
        inner = dense(state, f"{block}.mlp.0", layer_norm(state, f"{block}.layer_norm", x))
        inner = dense(state, f"{block}.mlp.3", [gelu(v) for v in inner])
        if f"{block}.dim_change.weight" in state:
            x = dense(state, f"{block}.dim_change", x)
        x = [a + b for a, b in zip(x, inner, strict=True)]
    x = layer_norm(state, "backbone.output_layer.0", x)
    return sigmoid(dense(state, "backbone.output_layer.1", x)[0])


RULES = {
    "r-stitch": (r_stitch_score, lambda score, threshold: score > threshold, True),
    "citer": (citer_score, lambda score, threshold: score < threshold, False),
    "co-llm": (co_llm_score, lambda score, threshold: score > threshold, False),
    "r2r": (r2r_score, lambda score, threshold: score >= threshold, False),
}
