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
# # What will a GPU cost that nobody has measured here?
#
# Two GPUs that are in no data of this project and in none of its GPU files. For the
# first, the GB10 of a DGX Spark, speeds have been published, so that the forecast can
# fail. The second, NVIDIA's Rubin, is forecast from what its vendor has announced. Both
# are made from a relative by changing the numbers that are known, and every figure
# comes with the interval of GPUs that were left out of a fit.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import Markdown, display

import diffenergy as de

# %matplotlib inline
jax.config.update("jax_enable_x64", True)
de.enable_compilation_cache()
style = de.charts
house = style.house()
house.__enter__()  # the house style, through the whole notebook

# %% [markdown]
# ## GB10, from its data sheet
#
# 48 of the SMs of an RTX PRO 6000, a quarter of its board, and LPDDR5X in place of
# GDDR7. What is not published (idle power, voltage curve) is that of the relative, in
# proportion to the SMs.

# %%
relative = de.load_gpu("rtx-pro-6000")
share = 48 / float(relative.num_sms)
SCALED = ("l2_bytes_per_cycle", "idle_constant", "idle_clock", "idle_leakage")
GB10 = (
    {
        "num_sms": 48,  # 6,144 CUDA cores (NVIDIA, DGX Spark data sheet)
        "dram_bandwidth": 273e9,  # B/s, LPDDR5X, 256 bits (the same)
        "dram_capacity": 128e9,  # B, shared with the CPU (the same)
        "memory": "LPDDR5X",
        "tdp": 140,  # W, CPU included (the same)
        "power_limit_min": 140,
        "power_limit_max": 140,
        "sm_clock_max": 2.418e9,  # Hz, recalled
        "l2_capacity": 25165824,  # B, 24 MiB, recalled
    }
    | {name: share * float(getattr(relative, name)) for name in SCALED}
    | {"thermal_resistance": float(relative.thermal_resistance) / share}
)
assert "gb10" not in de.gpu_names()


def generate(gpu, model, changes=None, **request):
    """Figures of a generation in fp8, and the interval widths of its GPU. `changes`:
    numbers and words that are other than the GPU's."""
    task = de.estimator.prepare(model, gpu, changes=changes, dtype="fp8", **request)
    return task.run().summary, task.trust


# %% [markdown]
# Published for Llama-3.1-8B in fp8, one sequence of 2,048 tokens: 20.5 tokens/s of
# decode and 7,991 tokens/s of prefill (LMSYS, "NVIDIA DGX Spark In-Depth Review",
# October 2025, SGLang; the second is recalled). Neither entered anything here.

# %%
PUBLISHED = {"prefill": 7991.0, "decode": 20.5}  # tokens/s
TOKENS = {"prefill": 2048, "decode": 127}
request = {"batch": 1, "input_len": 2048, "output_len": 128}
run, trust = generate("rtx-pro-6000", "llama-3.1-8b", GB10, **request)
rows = []
for phase, published in PUBLISHED.items():
    seconds, watts = (run["phases"][phase][x] for x in ("time_s", "avg_power_w"))
    low, high = trust.interval("time", seconds, seconds)
    rows.append(
        {
            "phase": phase,
            "forecast": TOKENS[phase] / seconds,
            "p5": TOKENS[phase] / high,
            "p95": TOKENS[phase] / low,
            "published": published,
            "forecast, W": watts,
        }
    )
spark = pd.DataFrame(rows)
off = spark.forecast / spark.published - 1
inside = spark.published.between(spark.p5, spark.p95)
speeds = {x: f"{x}, tokens/s" for x in ("forecast", "p5", "p95", "published")}
display(spark.rename(columns=speeds).round(2))

figure, ax = plt.subplots(figsize=(7.5, 1.8), layout="constrained")
ends = [(spark.forecast - spark.p5), (spark.p95 - spark.forecast)]
ax.errorbar(
    np.ones(2),
    spark.index,
    xerr=ends / spark.forecast.to_numpy(),
    fmt="o",
    color=style.BLUE,
    capsize=4,
    label="forecast, 5 to 95 %",
)
place = spark.published / spark.forecast
ax.plot(place, spark.index, "D", color=style.VERMILION, label="published")
style.rows_down(ax, list(spark.phase))
ax.set_xlim(0, 2)
ax.set_xlabel("tokens/s / forecast, Llama-3.1-8B in fp8 on a GB10")
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# ## Rubin, from what was announced
#
# NVIDIA (CES, January 2026): 224 SMs, 288 GB of HBM4 at 22 TB/s, 50 PFLOP/s of NVFP4
# for inference and 35 for training; we take 35 as the dense rate, which is 65,536 FLOP
# a cycle and SM at 2.384 GHz. Its power was not in that announcement; trade press says
# 1.8 kW (Max-Q) and 2.3 kW (Max-P). fp8 has half the rate of NVFP4. Everything else is
# a B300's, scaled by SMs or bandwidth. Nothing has been fitted of the process, TSMC's
# N3P, nor of HBM4: laws of published claims say what an operation and a byte cost, and
# the interval holds what they leave open. Beside it stands the same chip in the process
# and with the memory of the B300.

# %%
b300 = de.load_gpu("b300")
more = 224 / float(b300.num_sms)


def rubin(power):
    """What Rubin with a power limit (W) has other than a B300."""
    return (
        {
            "num_sms": 224,
            "tensor_flop_per_cycle_fp4": 65536,
            "tensor_flop_per_cycle_fp8": 32768,
            "sm_clock_max": 2.384e9,
            "dram_bandwidth": 22e12,
            "dram_capacity": 288e9,
            "link_bandwidth": 1.8e12,  # NVLink 6, one direction
            "tdp": power,
            "power_limit_max": power,
        }
        | {name: more * float(getattr(b300, name)) for name in ("l2_capacity", *SCALED)}
        | {"thermal_resistance": float(b300.thermal_resistance) / more}
    )


NEW = {"process_node": "N3P", "memory": "HBM4"}
CASES = {
    "h200-sxm": ("h200-sxm", None),
    "b200-sxm": ("b200-sxm", None),
    "b300": ("b300", None),
    "Rubin, 1.8 kW, 4NP and HBM3e": ("b300", rubin(1800)),
    "Rubin, 1.8 kW": ("b300", rubin(1800) | NEW),
    "Rubin, 2.3 kW": ("b300", rubin(2300) | NEW),
}
request = {"batch": 64, "input_len": 1024, "output_len": 256}
rows = []
for name, (gpu, changes) in CASES.items():
    run, trust = generate(gpu, "llama-3.1-70b", changes, **request)
    tokens, prefill = 64 * 256, run["phases"]["prefill"]
    rows.append(
        {
            "GPU": name,
            "grade": trust.grade,
            "tokens/s": tokens / run["time_s"],
            "slowest": tokens / run["time_s_p5_p95"][1],
            "fastest": tokens / run["time_s_p5_p95"][0],
            "J a token": run["energy_j"] / tokens,
            "least": run["energy_j_p5_p95"][0] / tokens,
            "most": run["energy_j_p5_p95"][1] / tokens,
            "prefill, W": prefill["avg_power_w"],
            "decode, W": run["phases"]["decode"]["avg_power_w"],
            "prefill, MHz": prefill["sm_clock_mhz"],
        }
    )
table = pd.DataFrame(rows).set_index("GPU")
display(table.drop(columns=["slowest", "fastest", "least", "most"]).round(3))

# %%
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.2), layout="constrained", sharey=True)
place = np.arange(len(table))
colours = [style.GREY] * 3 + [style.BLUE] * 3
for ax, what, low, high in (
    (axes[0], "tokens/s", "slowest", "fastest"),
    (axes[1], "J a token", "least", "most"),
):
    ax.barh(place, table[what], color=colours, height=0.7)
    ends = [table[what] - table[low], table[high] - table[what]]
    ax.errorbar(table[what], place, xerr=ends, fmt="none", color=style.BLACK, capsize=3)
axes[0].set_xlabel("tokens/s")
axes[1].set_xlabel("J a token written")
style.rows_down(axes[0], list(table.index))
axes[0].set_title("Llama-3.1-70B, batch 64, 1,024 in, 256 out")
plt.show()

# %% [markdown]
# How far SMs, L2, bandwidth and the power limit alone carry a B300 towards it can be
# turned by hand: with a running kernel the next cell has sliders, without one it is the
# picture as they begin.

# %%
de.explore("llama-3.1-70b", "b300", dtype="fp8", **request)

# %% [markdown]
# ## Against what is published
#
# The vendor's ratios are of peaks, which no workload reaches. Ours is of one workload
# that fits one GPU. The Inference Performance Index of October 2026 (jasonlizhengjian
# on GitHub) gives a VR200 2.18 times the score of a GB300: four models in a simulator,
# with 19.2 TB/s. An error that both GPUs share cancels in a ratio; the interval below
# assumes that none does, and is wide.

# %%
ours = table.loc["Rubin, 1.8 kW"]
blackwell = table.loc["b300"]
ratio = ours["tokens/s"] / blackwell["tokens/s"]
spread = np.hypot(
    np.log(ours.fastest / ours["tokens/s"]),
    np.log(blackwell.fastest / blackwell["tokens/s"]),
)
ends = ratio * np.exp(np.array([-spread, spread]))
claims = {
    "fp8 peak (17.5 / 4.5 PFLOP/s)": 17.5 / 4.5,
    "memory bandwidth (22 / 8 TB/s)": 22 / 8,
    "Inference Performance Index (simulated)": 2.177,
}
figure, ax = plt.subplots(figsize=(9, 2.2), layout="constrained")
ax.errorbar(
    ratio, 0, xerr=[[ratio - ends[0]], [ends[1] - ratio]], fmt="o", color=style.BLUE,
    capsize=4,
)  # fmt: skip
ax.plot(list(claims.values()), range(1, 4), "D", color=style.VERMILION)
style.rows_down(ax, ["our forecast, tokens/s, 5 to 95 %", *claims])
ax.set_xlim(0, None)
ax.axvline(1, color=style.GREY, linewidth=1, linestyle="--")
ax.set_xlabel("Rubin / B300")
plt.show()

# %% [markdown]
# ## Answer

# %%
saved = 1 - ours["J a token"] / blackwell["J a token"]
display(
    Markdown(
        f"A GPU without a single measurement can be forecast from its data sheet "
        f"**to about {trust.half_width('energy', 1.0):.0%}**: the speeds published for "
        f"the GB10 are {1 / (1 + off.max()) - 1:+.0%} and "
        f"{1 / (1 + off.min()) - 1:+.0%} "
        f"from ours ({inside.sum()} of {len(inside)} within its 5 to 95 %), and a "
        f"Rubin "
        f"at 1.8 kW should write {ours['tokens/s']:,.0f} tokens/s of Llama-3.1-70B at "
        f"{ours['J a token']:.2g} J "
        f"each ({ours.least:.2g} to {ours.most:.2g}), {ratio:.1f} times the tokens of "
        f"a "
        f"B300 and {saved:.0%} less energy a token.\n\n"
        f"*It rests on* published data-sheet numbers (some of the GB10's are recalled, "
        f"Rubin's power is from the press), on laws of what process and memory save "
        f"(with 4NP and HBM3e the token takes "
        f"{table.loc['Rubin, 1.8 kW, 4NP and HBM3e', 'J a token']:.2g} J), on "
        f"corrections "
        f"of the relatives, and on intervals of GPUs that were left out of fits while "
        f"close relatives stayed in; how far a new architecture differs from all "
        f"before "
        f"is not in them."
    )
)
