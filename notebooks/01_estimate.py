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
# # Where do the joules of one Llama token go?
#
# A server reads a prompt (*prefill*) and then writes an answer token by token
# (*decode*). We ask what one written token of Llama-3.1-8B costs, who takes it, and how
# that changes with batch, length, GPU and number format. No GPU is needed: everything
# here is `diffenergy.estimate`. The board alone is counted, no host and no cooling.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import Markdown, display

import diffenergy as de

style = de.charts
# %matplotlib inline
jax.config.update("jax_enable_x64", True)
de.enable_compilation_cache()
house = style.house()
house.__enter__()  # the house style, through the whole notebook

# %% [markdown]
# ## One request in a batch of eight
#
# 512 tokens in, 128 out, on an H100: the answer of `diffenergy estimate`, by name.

# %%
MODEL, OUT = "llama-3.1-8b", 128

first = de.estimate(MODEL, "h100-sxm", batch=8, input_len=512, output_len=OUT)
display(first)

# %% [markdown]
# Decode takes nearly all of it: it runs 127 passes that each read all weights, while
# prefill reads them once for all 512 x 8 tokens. How sure is that? Every estimate has
# an interval, as wide as the distance of readings that no fit saw:

# %%
low, high = first.summary["energy_j_p5_p95"]
print(f"{first.energy:.0f} J, 5 to 95 %: {low:.0f} to {high:.0f} J", end="; ")
print(f"grade: {first.summary['grade']}")

# %% [markdown]
# ## Batch: who shares a pass shares its weights
#
# Many estimates of one kind are quicker as records: the first call compiles the model
# for this kind of workload (seconds), others take milliseconds, whatever the batch, the
# lengths or the GPU, and every number in them can be differentiated.

# %%
LLAMA = de.load_model(MODEL)


def run(batch=8, input_len=512, gpu="h100-sxm", dtype="bf16"):
    """Estimate of `batch` requests that are read and answered together."""
    workload = LLAMA.workload(
        batch=batch, input_len=input_len, output_len=OUT, dtype=dtype
    )
    return de.estimate(workload, gpu)


def per_token(result, batch):
    """J of prefill and decode for each token written."""
    return np.asarray(result.phases.energy) / (batch * OUT)


GROUPS = {
    "tensor and CUDA cores": ("tensor", "fma", "sfu", "issue"),
    "shared memory, L2": ("smem", "l2", "link"),
    "DRAM": ("dram",),
    "SM clock tree, other": ("clock_tree", "launch", "other"),
    "idle, leakage": ("idle", "leakage"),
}

batches = 2 ** np.arange(9)
results = [run(batch=int(b)) for b in batches]
joules = np.array([per_token(r, b) for r, b in zip(results, batches, strict=True)])
units = pd.DataFrame([r.energy_by_unit for r in results]).astype(float)
assert sorted(sum(GROUPS.values(), ())) == sorted(units)  # nothing is left out

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.loglog(batches, joules[:, 1], "o-", color=style.VERMILION, label="decode")
left.loglog(batches, joules[:, 0], "s-", color=style.BLUE, label="prefill")
left.set_xticks(batches, [str(b) for b in batches])
left.minorticks_off()
left.set_xlabel("batch, requests")
left.set_ylabel("J a token written")
left.set_title("Both phases")
left.legend()
floor = np.zeros(len(batches))
for (name, parts), colour in zip(GROUPS.items(), style.PALETTE, strict=False):
    share = units[list(parts)].sum(axis=1) / units.sum(axis=1)
    right.bar(range(9), share, bottom=floor, color=colour, label=name, width=0.8)
    floor += share
right.set_xticks(range(9), [str(b) for b in batches])
right.set_xlabel("batch, requests")
right.set_ylabel("share of the energy")
right.set_ylim(0, 1)
right.grid(False)
right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, frameon=False)
right.set_title("Parts of the GPU")
plt.show()

# %% [markdown]
# Alone, a request pays for the whole stream of weights, and while they stream the board
# idles, leaks and drives the clock of all SMs. With 256 requests the same stream serves
# 256 tokens; what is left is arithmetic, the KV cache, and prefill, which no batch
# makes cheaper. That is why the share of prefill rises.
#
# ## Length: the prompt comes to matter

# %%
lengths = 2 ** np.arange(7, 16)
by_length = {
    b: np.array([per_token(run(batch=b, input_len=int(n)), b) for n in lengths])
    for b in (1, 8)
}

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", sharey=True)
for ax, (batch, table) in zip(axes, by_length.items(), strict=True):
    ax.loglog(lengths, table[:, 1], "o-", color=style.VERMILION, label="decode")
    ax.loglog(lengths, table[:, 0], "s-", color=style.BLUE, label="prefill")
    ax.set_xticks(lengths, [f"{n / 1024:g}k" if n > 999 else str(n) for n in lengths])
    ax.minorticks_off()
    ax.set_xlabel(f"prompt, tokens (answer: {OUT})")
    ax.set_title(f"Batch {batch}")
axes[0].set_ylabel("J a token written")
axes[0].legend()
plt.show()
crossing = {b: lengths[np.argmax(t[:, 0] > t[:, 1])] for b, t in by_length.items()}
print("prefill takes more than decode from a prompt of", end=" ")
print(", ".join(f"{n} tokens on (batch {b})" for b, n in crossing.items()))

# %% [markdown]
# ## GPU and number format
#
# The same eight requests elsewhere. Whiskers are 5 to 95 % intervals; in brackets is
# what a bar rests on: rows of a GPU of its architecture (*transferred*) or of others
# (*forecast*). An A100 has no fp8 units, so it has one bar.

# %%
cases = [
    (gpu, dtype)
    for gpu in ("a100-sxm-80gb", "l40s", "rtx-4090", "h100-sxm", "h200-sxm", "b200-sxm")
    for dtype in ("bf16", "fp8")
    if not (gpu.startswith("a100") and dtype == "fp8")
]
rows = []
for gpu, dtype in cases:
    result = de.estimate(MODEL, gpu, batch=8, output_len=OUT, dtype=dtype)
    answer, tokens = result.summary, 8 * OUT
    both = [answer["phases"][x]["energy_j"] / tokens for x in ("prefill", "decode")]
    ends = [joule / tokens for joule in answer["energy_j_p5_p95"]]
    rows.append((f"{gpu}, {dtype}", answer["grade"], *both, *ends, result.time))
columns = ["case", "grade", "prefill", "decode", "low", "high", "time, s"]
table = pd.DataFrame(rows, columns=columns)
table["total"] = table.prefill + table.decode
table = table.sort_values("total", ignore_index=True)

figure, ax = plt.subplots(figsize=(9, 3.8), layout="constrained")
ax.barh(table.index, table.decode, color=style.VERMILION, label="decode")
ax.barh(
    table.index, table.prefill, left=table.decode, color=style.BLUE, label="prefill"
)
ax.errorbar(
    table.total,
    table.index,
    xerr=[table.total - table.low, table.high - table.total],
    fmt="none",
    color=style.BLACK,
    capsize=3,
)
marks = " (" + table.grade + ")"
style.rows_down(ax, list(table.case + marks))
ax.set_xlabel("J a token written (batch 8, 512 in, 128 out)")
ax.legend(loc="upper right")
plt.show()

# %% [markdown]
# ## Answer

# %%
best = table.iloc[0]
display(
    Markdown(
        f"A token of Llama-3.1-8B on an H100 takes "
        f"**{joules[0].sum():.2g} J alone and {joules[-1].sum():.2g} J in a batch of "
        f"{batches[-1]}**: decode takes {joules[3, 1] / joules[3].sum():.0%} at batch "
        f"8, "
        f"to stream the weights and keep the board powered meanwhile, until the prompt "
        f"reaches {crossing[8]} tokens; of the GPUs here {best.case} needs least "
        f"({best.total:.2g} J).\n\n"
        f"*It rests on* the shipped corrections, fitted to public measurements of "
        f"whole "
        f"passes and kernels (README, Accuracy), on random operands and one steady "
        f"clock a phase, and leaves out what a server does between steps; the interval "
        f"of each figure is given above."
    )
)
