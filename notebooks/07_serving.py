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
# # How many H100s for this traffic, at which clock, and what does a token cost?
#
# A service wants 60 requests a second of Qwen3-8B: prompts of 512 tokens and answers of
# 256 in the mean, both with long tails, and 95 % of requests at 30 ms a token or less.
# Everything here is `diffenergy.serving`: closed forms of a server under load, made of
# the kernels of its steps and a few constants of vLLM. The boards alone are counted.

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
# ## One server under growing load
#
# Requests come at random (Poisson). The more of them run, the longer a step takes and
# the less a token costs, until memory or the batch limit is reached and a queue grows.

# %%
MODEL, GPU, TRAFFIC = "qwen3-8b", "h100-sxm", 60.0
lengths = dict(input_len="lognormal:512:1", output_len="lognormal:256:0.8")

load = de.serving.Load(rate=10.0, max_batch=256, slo_tpot=0.030, **lengths)
one = de.serving.steady_state(MODEL, GPU, load)
display(one)

# %% [markdown]
# The table of steps behind it is one estimate; every rate is then a few milliseconds,
# and `jax.vmap` takes all of them at once.

# %%
server = de.serving.deploy(MODEL, GPU, load)
costs = server.costs()
most = one.summary["saturation_request_rate_per_s"]
rates = np.linspace(1.0, 0.97 * most, 60)


def figures(rate):
    answer = server.steady(costs, rate=rate)
    return answer.tpot.mean, answer.tpot.quantiles[2], answer.energy


mean, high, energy = jax.jit(jax.vmap(figures))(rates)
figure, (left, right) = plt.subplots(1, 2, figsize=(style.WIDTH, 3.2))
left.plot(rates, 1e3 * mean, label="mean")
left.plot(rates, 1e3 * high, "--", label="95th percentile")
left.axhline(30, color=style.GREY, linewidth=1)
left.set(xlabel="requests/s of one H100", ylabel="ms a token")
left.legend()
right.plot(rates, energy)
right.set(xlabel="requests/s of one H100", ylabel="J a token", yscale="log")
figure.tight_layout()
plt.show()

# %% [markdown]
# ## How many GPUs, and at which clock?
#
# For each number of replicas the clock and the batch limit of least energy that keep
# 30 ms. A server that is too full breaks the limit; one that is too empty pays for
# boards that wait.

# %%
rows = []
for gpus in (2, 3, 4, 6):
    request = de.serving.Load(rate=TRAFFIC, slo_tpot=0.030, **lengths)
    try:
        answer = de.serving.steady_state(
            MODEL, GPU, request, num_gpus=gpus, tp=1, optimize="energy"
        ).summary
    except de.Infeasible:  # the message says what can be had
        rows.append({"GPUs": gpus})
        continue
    rows.append(
        {
            "GPUs": gpus,
            "SM clock, MHz": answer["optimized"]["sm_clock_mhz"],
            "p95 of a token, ms": 1e3 * answer["tpot_s"]["p95"],
            "kW": answer["avg_power_w"] / 1e3,
            "J a token": answer["energy_j_per_output_token"],
        }
    )
table = pd.DataFrame(rows).set_index("GPUs").round(3).astype(object)
display(table.where(table.notna(), "-"))

good = [row for row in rows if "kW" in row]
figure, axes = plt.subplots(figsize=(style.WIDTH, 2.6))
axes.bar(
    [str(x["GPUs"]) for x in good], [1e3 * x["J a token"] for x in good], width=0.5
)
axes.set(xlabel="H100s", ylabel="mJ a token")
plt.show()

# %% [markdown]
# Fewer, fuller boards need a higher clock; more boards can run slower, until their idle
# power costs more than that saves.
#
# ## All of it at once
#
# `search` chooses the sharing, the replicas, the batch limit and the clock together,
# here with prefill and decode apart, too. Lines in the picture join the deployments
# than which none has fewer GPUs and less power.


# %%
def search(limit, **more):
    load = de.serving.Load(rate=TRAFFIC, slo_tpot=limit, slo_ttft=1.0, **lengths)
    return de.serving.search(MODEL, [GPU], load, top=4, **more)


result = search(0.030, tp=(1, 2), apart="auto")
display(result)

# %% [markdown]
# ## The price of a latency limit

# %%
limits = (0.015, 0.020, 0.030, 0.050)
answer = [search(limit, tp=1).summary["best"] for limit in limits]
joules = [1e3 * x["energy_j_per_output_token"] for x in answer]
figure, axes = plt.subplots(figsize=(style.WIDTH, 2.6))
axes.plot([1e3 * x for x in limits], joules, marker="o")
for limit, x, y in zip(limits, answer, joules, strict=True):
    axes.annotate(
        f"{x['num_gpus']} x {x['sm_clock_mhz']:.0f} MHz", (1e3 * limit, y),
        textcoords="offset points", xytext=(4, 6),
    )  # fmt: skip
axes.set(xlabel="limit of a token (95th percentile), ms", ylabel="mJ a token")
axes.margins(x=0.15, y=0.2)
plt.show()

# %% [markdown]
# ## What would change it?
#
# Derivatives of the mean figures, by whatever is continuous:

# %%
fields = ("rate", "sm_clock", "dram_bandwidth", "output_len")
slopes = de.serving.steady_state(MODEL, GPU, load, sensitivity=fields).summary
answer = slopes["sensitivities"]
steps = {"rate": 1.0, "sm_clock": 1e8, "dram_bandwidth": 1e11, "output_len": 10.0}
words = ("1 request/s more", "100 MHz more", "100 GB/s more", "10 tokens more")
table = pd.DataFrame(
    {
        name: [1e3 * answer[metric][field] * steps[field] for field in fields]
        for name, metric in (
            ("mJ a token", "energy_j_per_output_token"),
            ("ms a token", "tpot_s"),
        )
    },
    index=words,
)
display(table.round(3))

# %% [markdown]
# ## Beside measured servers
#
# ML.ENERGY v3 measured Qwen3-8B under vLLM on one H100, chat requests, saturated (four
# of its runs, typed off; its requests carry a repetition penalty). The constants of the
# engine were fitted to such rows; what a fit has not seen is in `docs/serving.md`.

# %%
measured = ((8, 8.3, 427, 0.444), (32, 10.9, 478, 0.163))
measured += ((128, 21.6, 573, 0.097), (255, 33.1, 633, 0.082))
lines = ["| running | ms a token (measured) | W (measured) | J a token (measured) |"]
lines += ["|---|---|---|---|"]
for batch, ms, watts, joules in measured:
    chat = de.serving.Load(
        max_batch=batch, input_len="lognormal:270:1.2", cached_len=80,
        output_len="lognormal:641:0.92",
    )  # fmt: skip
    x = de.serving.steady_state(MODEL, GPU, chat, sampling="penalties")
    lines.append(
        f"| {batch} | {1e3 * x.tpot:.1f} ({ms}) | {x.power:.0f} ({watts}) "
        f"| {x.energy:.3f} ({joules}) |"
    )
display(Markdown("\n".join(lines)))

# %% [markdown]
# ## Answer

# %%
best = min(good, key=lambda row: row["J a token"])
display(
    Markdown(
        f"**{good[0]['GPUs']} H100s** are the fewest that keep 30 ms at "
        f"{TRAFFIC:.0f} requests a second; **{best['GPUs']} at "
        f"{best['SM clock, MHz']:.0f} MHz** cost least, "
        f"{1e3 * best['J a token']:.0f} mJ a token.\n\n"
        "*It rests on* steady traffic at random times, shared evenly, constants of "
        "vLLM 0.11 on H100 hosts, and boards alone; bursts are a trace's "
        "(`de.serving.simulate`)."
    )
)
