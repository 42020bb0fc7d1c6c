# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What does my own program cost on five GPUs, and which kernels should I mend?
#
# Two programs: a training step written in JAX, of which nothing has to run, and a
# PyTorch profiler's trace (a made-up one: two layers of a vision transformer, 8 images
# of 577 tokens, eager).

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
import pandas as pd
from IPython.display import Markdown, display

import diffenergy as de
from diffenergy.workload import Listing, from_listings

# %matplotlib inline
jax.config.update("jax_enable_x64", True)
de.enable_compilation_cache()
style = de.charts
house = style.house()
house.__enter__()  # the house style, through the whole notebook

GPUS = ("h100-sxm", "a100-sxm-80gb", "b200-sxm", "l40s", "rtx-4090")
TRACE = "../docs/examples/trace.json"

# %% [markdown]
# ## A training step in JAX
#
# A language model of 8 layers under `lax.scan`, its gradient, and AdamW. `de.trace`
# takes the step as it is, with the shapes of its arguments.

# %%
LAYERS, WIDTH, HEADS, INNER, WORDS = 8, 1024, 16, 4096, 32_000
BATCH, LENGTH = 8, 1024
half = jnp.bfloat16


def layer(x, p):
    """Attention and a gated MLP."""
    shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
    q, k, v = (jnp.reshape(x @ p[name], shape) for name in "qkv")
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    x = x + mixed.reshape(x.shape) @ p["o"]
    return x + (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"], None


def loss(params, tokens):
    """Cross entropy of the next token."""
    x, _ = jax.lax.scan(layer, params["words"][tokens], params["layers"])
    logits = (x @ params["words"].T).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(
        logits[:, :-1], tokens[:, 1:]
    ).mean()


optimizer = optax.adamw(1e-4)


@jax.jit
def train_step(params, state, tokens):
    """One step of the optimizer."""
    value, slopes = jax.value_and_grad(loss)(params, tokens)
    updates, state = optimizer.update(slopes, state, params)
    return optax.apply_updates(params, updates), state, value


def shape(*sizes, dtype=half):
    """An array that is never made."""
    return jax.ShapeDtypeStruct(sizes, dtype)


layers = {name: shape(LAYERS, WIDTH, WIDTH) for name in "qkvo"}
layers |= {name: shape(LAYERS, WIDTH, INNER) for name in ("gate", "up")}
layers["down"] = shape(LAYERS, INNER, WIDTH)
params = {"words": shape(WORDS, WIDTH), "layers": layers}
state = jax.eval_shape(optimizer.init, params)
arguments = (params, state, shape(BATCH, LENGTH, dtype=jnp.int32))

listing = de.trace_listing(train_step, *arguments)
step = de.trace(train_step, *arguments)
rows = pd.DataFrame(listing.kernels)
print(f"{len(rows)} rows, {int(rows['count'].sum())} launches")
display(rows.groupby("op")["count"].sum().to_frame("launches").astype(int))
for note in listing.notes:
    print("note:", note)

# %% [markdown]
# FLOP of its products and attention, against the count by hand: three times the
# forward pass (products of weights 2 m n k, attention 4 batch length^2 width).

# %%
matrix = rows[rows.op == "gemm"]
flop = 2 * matrix.batch * matrix.m * matrix.n * matrix.k
counted = float((flop * matrix["count"]).sum())
attention = 4 * BATCH * LENGTH**2 * WIDTH * LAYERS
weights = LAYERS * (4 * WIDTH**2 + 3 * WIDTH * INNER) + WORDS * WIDTH
by_hand = 3 * (2 * BATCH * LENGTH * weights + attention)
print(f"counted {counted / 1e12:.3f} TFLOP, by hand {by_hand / 1e12:.3f} TFLOP")

# %% [markdown]
# ## A trace of PyTorch
#
# Sizes come from the operators that launched the kernels.

# %%
brought = de.imports.read(TRACE)
display(brought)

# %% [markdown]
# ## What both cost on five GPUs
#
# The trace keeps its launches, not its times: every kernel with a shape is predicted.

# %%
(traced,) = brought.listings
cost = {}
for gpu in GPUS:
    run = de.estimate(step, de.load_gpu(gpu))
    passed = de.estimate(TRACE, gpu, dispatch="graph")
    cost[gpu] = {
        "step, ms": 1e3 * float(run.time),
        "step, J": float(run.energy),
        "trace, ms": 1e3 * passed.time,
        "trace, J": passed.energy,
    }
cost = pd.DataFrame(cost).T
display(cost.round(3))

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for ax, program in zip(axes, ("step", "trace"), strict=True):
    for gpu, colour, marker in zip(GPUS, style.PALETTE, style.MARKERS, strict=False):
        at = cost.loc[gpu]
        ax.plot(
            at[f"{program}, ms"], at[f"{program}, J"], marker, color=colour, label=gpu,
            markersize=9, linestyle="none",
        )  # fmt: skip
    ax.set_xlabel(f"time of the {program}, ms")
    ax.set_ylabel(f"energy of the {program}, J")
    ax.set_xlim(0, None)
    ax.set_ylim(0, 1.12 * cost[f"{program}, J"].max())
axes[0].legend(fontsize=8, loc="lower right")
plt.show()

# %% [markdown]
# ## Which kernels to mend
#
# A kernel is worth mending where a better one of the same work would be much faster.
# Here the sizes give it away: 577 tokens make matrices whose rows are no multiple of
# 16 B, for which libraries have only slow kernels. With 584 tokens (7 that are masked)
# there is a little more work, in fast kernels; copies that are not needed go as well.

# %%
scores = de.measurements.evaluate_trace(brought)
now = pd.DataFrame(scores.kernels).set_index("kernel")


def mended(row):
    """The same kernel with tokens padded to a multiple of 8."""
    padded = dict(row)
    for size in ("m", "n", "k", "cols"):
        if row.get(size) == 577:
            padded[size] = 584
    return padded


def kernel_time(rows, gpu="h100-sxm"):
    """us of all launches of each row."""
    work = from_listings([Listing("rows", kernels=tuple(rows), dispatch="eager")])
    result = de.estimate(work, de.load_gpu(gpu)).kernels
    time = np.zeros(len(rows))
    live = np.asarray(result.count) > 0
    each = (np.asarray(result.time) - np.asarray(result.launch)) * np.asarray(
        result.count
    )
    np.add.at(time, np.asarray(result.row)[live], each[live])
    return 1e6 * time


before = kernel_time(traced.kernels)
after = kernel_time([mended(row) for row in traced.kernels])
names = [
    f"{row.get('fn', row['op'])} "
    + " x ".join(str(row[x]) for x in ("m", "n", "k", "rows", "cols") if x in row)
    for row in traced.kernels
]
table = pd.DataFrame(
    {
        "traced, us": [row["traced_total_us"] for row in traced.kernels],
        "predicted, us": before,
        "padded, us": after,
    },
    index=names,
).sort_values("predicted, us", ascending=False)
table["gain, us"] = table["predicted, us"] - table["padded, us"]
display(table.round(1))

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
place = np.arange(len(table))
for shift, (column, colour) in enumerate(
    zip(table.columns[:3], (style.GREY, style.BLUE, style.VERMILION), strict=True)
):
    ax.barh(place + 0.27 * (shift - 1), table[column], 0.25, color=colour, label=column)
style.rows_down(ax, list(table.index))
ax.set_xlabel("time of all launches, us")
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# ## And once it runs: is the service as frugal as predicted?
#
# Logs of a server (made up: the model's answers with noise) against the prediction for
# the same requests, window by window.

# %%
logs = [f"../docs/examples/{name}" for name in ("power.csv", "metrics.json")]
service = de.service.evaluate(logs, model="qwen3-8b", every=120.0)
errors = pd.DataFrame(service.summary["errors"]).T
display(errors.round(1))
display(service.plot())

# %% [markdown]
# ## Answer

# %%
best = cost["step, J"].idxmin()
fast = cost["step, ms"].idxmin()
gain = table["gain, us"].clip(lower=0)
copies = table["predicted, us"][[x.startswith("strided") for x in table.index]].sum()
display(
    Markdown(
        f"The training step takes least time on **{fast}** "
        f"({cost['step, ms'].min():.1f} ms) and least energy on **{best}** "
        f"({cost['step, J'].min():.2f} J), and of the trace one should mend the two "
        f"products of attention (**{', '.join(table.index[gain > 0.05 * before.sum()])}"
        f"**), where padding 577 tokens to 584 saves {gain.sum() / before.sum():.0%} "
        f"of the kernels' time, and the strided copies around them, another "
        f"{copies / before.sum():.0%}.\n\n"
        f"*It rests on* predictions of kernels that were never run here (median error "
        f"of this made-up trace {scores.summary['time_median_pct']:.1f} %; it was made "
        f"by the same model, so that this says nothing), and on a step that XLA may "
        f"fuse otherwise."
    )
)
