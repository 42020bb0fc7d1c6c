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
# # Which plan trains Llama-3.1-70B and DeepSeek-V3 on my GPUs, and what would move it?
#
# Llama-3.1-70B in bf16 on 64 and 256 H100, DeepSeek-V3 in blocks of fp8, as it was
# trained, on 256 GB200, sequences of 4,096 tokens: the fastest plan, what a token
# costs, what faster links buy (a gradient), the best plan under a power cap on all
# GPUs, and a clock for every stage. The boards alone are counted.

# %%
import dataclasses

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
# ## The best plans
#
# All ways to divide the GPUs are ranked, those near the best are priced exactly. The
# layers of DeepSeek-V3 can be divided among GPUs in hundreds of ways, each with kernels
# of its own, which takes long; four keys are held here: no tensor parallelism,
# experts over 64 GPUs of an NVL72, micro-batches of one sequence, full recomputation.

# %%
LLAMA, BOARD, INPUT_LEN, TOKENS = "llama-3.1-70b", "h100-sxm", 4096, 15e12
FIELDS = ("link_bandwidth", "network", "dram_bandwidth", "sm_clock")
request = {
    "Llama, 64 H100": (LLAMA, BOARD, 64, 256, None),
    "Llama, 256 H100": (LLAMA, BOARD, 256, 1024, None),
    "DeepSeek, 256 GB200": (
        "deepseek-v3",
        "gb200",
        256,
        2048,
        "tp=1,ep=64,microbatch=1,recompute=full",
    ),
}
plans = {
    name: de.parallel.plan(
        model,
        gpu,
        num_gpus=number,
        global_batch=sequences,
        plan=fixed,
        input_len=INPUT_LEN,
        sensitivity=FIELDS,
    )
    for name, (model, gpu, number, sequences, fixed) in request.items()
}
rows = {}
for name, result in plans.items():
    best = result.best.summary
    rows[name] = {
        "plan": result.summary["plan"],
        "of plans": result.summary["considered"],
        "s a step": round(best["step_time_s"], 2),
        "kW": round(best["power_total_w"] / 1e3, 1),
        "MFU, %": round(100 * best["mfu"], 1),
        "J a token": round(best["energy_j_per_token"], 3),
        "15e12 tokens, days": round(TOKENS / best["tokens_per_s"] / 86400),
        "and GWh": round(TOKENS * best["energy_j_per_token"] / 3.6e12, 2),
    }
display(pd.DataFrame(rows).T)

# %% [markdown]
# Every plan of Llama on 64 GPUs that fits into memory; the line joins those that no
# other beats in time and energy.

# %%
first = plans["Llama, 64 H100"]
first.plot()

# %% [markdown]
# ## What does a faster link buy?
#
# The step of the plan is a record that `de.estimate` differentiates. Below: % of the
# time and energy of a step for one more % of each number.

# %%
percents = {
    (name, words): {
        field: x["per_percent"]
        for field, x in result.summary["sensitivities"][metric].items()
    }
    for name, result in plans.items()
    for metric, words in (("step_time_s", "time"), ("energy_j", "energy"))
}
display(pd.DataFrame(percents).T.round(3) + 0.0)

# %% [markdown]
# An H100 trains Llama at its power limit, so that a higher clock is none. A gradient
# holds nearby: links between GPUs of a host (NVLink) from half to three times their
# rate, and dashed the tangent of `jax.grad` at today's.

# %%
ratios = np.linspace(0.5, 3.0, 11)
figure, axes = plt.subplots(figsize=(style.WIDTH, 3.2))
for name, color in (
    ("Llama, 64 H100", style.BLUE),
    ("DeepSeek, 256 GB200", style.VERMILION),
):
    step, gpu = plans[name].step, de.load_gpu(request[name][1])

    def step_time(ratio, step=step, gpu=gpu):
        faster = dataclasses.replace(gpu, link_bandwidth=ratio * gpu.link_bandwidth)
        return de.estimate(step, faster).time

    quick = de.compiler_options(once=True)
    times = jax.jit(jax.vmap(step_time), compiler_options=quick)(ratios)
    slope = jax.jit(jax.grad(step_time), compiler_options=quick)(1.0)
    now = float(np.interp(1.0, ratios, times))
    axes.plot(ratios, times / now, color=color, label=name)
    near = np.array([0.5, 1.5])
    axes.plot(near, 1 + float(slope) / now * (near - 1), "--", color=color)
    axes.plot([1], [1], "o", color=color)
axes.set(xlabel="link bandwidth, times today's", ylabel="time of a step, times today's")
axes.legend()
plt.show()

# %% [markdown]
# ## Where does a power cap on the whole cluster move the best plan?
#
# The GPUs in use may draw so much together; the SM clock may be lowered, and the answer
# may leave half of the 64 GPUs off.

# %%
chosen = {
    cap: de.parallel.plan(
        LLAMA,
        BOARD,
        num_gpus=(32, 64),
        global_batch=256,
        input_len=INPUT_LEN,
        max_power=1e3 * cap,
    ).summary
    for cap in (28, 16, 12)
}
free = first.summary
capped = {
    "none" if cap is None else f"{cap} kW": {
        "GPUs": s["num_gpus"],
        "plan": s["plan"],
        "SM clock, MHz": round(s["sm_clock_mhz"]),
        "kW": round(s["best"]["power_total_w"] / 1e3, 1),
        "s a step": round(s["best"]["step_time_s"], 2),
        "J a token": round(s["best"]["energy_j_per_token"], 3),
    }
    for cap, s in {None: free, **chosen}.items()
}
display(pd.DataFrame(capped).T.rename_axis("power cap"))

figure, axes = plt.subplots(figsize=(style.WIDTH, 3.0))
for s in (free, *chosen.values()):
    drawn, rate = s["best"]["power_total_w"] / 1e3, s["best"]["tokens_per_s"] / 1e3
    axes.plot(drawn, rate, "o", color=style.BLUE)
    label = f"{s['num_gpus']} GPUs, {s['sm_clock_mhz']:.0f} MHz"
    axes.annotate(
        label, (drawn, rate), (6, -12), textcoords="offset points", fontsize=style.SMALL
    )
axes.set(xlabel="kW of all GPUs", ylabel="thousand tokens/s", xlim=(0, 55))
axes.set_ylim(0)
plt.show()

# %% [markdown]
# ## A clock for every stage
#
# Stages wait for each other, and who waits need not have hurried. 16 micro-batches
# through four stages of Llama without virtual ones, layers split by time: every pass
# gets the lowest clock with which the step takes no longer.

# %%
clocks = de.parallel.stage_clocks(
    LLAMA, BOARD, "tp=4,pp=4,dp=4", global_batch=64, input_len=INPUT_LEN
)
clocks.plot()

# %%
saved = clocks.summary
display(
    pd.DataFrame(
        [
            {"stage": number, "layers": stage["layers"]}
            | {
                f"{x['instruction']}, {words}": round(x[f"sm_clock_{key}mhz"])
                for x in stage["instructions"]
                for words, key in (("least MHz", "min_"), ("mean", ""))
            }
            for number, stage in enumerate(saved["stages"])
        ]
    ).set_index("stage")
)

# %% [markdown]
# ## Answer

# %%
mixture = plans["DeepSeek, 256 GB200"]
cost, other = (x.best.summary["energy_j_per_token"] for x in (first, mixture))
link = -percents["Llama, 64 H100", "time"]["link_bandwidth"]
link_mixture = -percents["DeepSeek, 256 GB200", "time"]["link_bandwidth"]
least = chosen[12]
display(
    Markdown(
        f"On 64 H100 Llama-3.1-70B trains fastest with **{free['plan']}**, at "
        f"**{cost:.2f} J a token**, and DeepSeek-V3 on 256 GB200 with "
        f"**{mixture.summary['plan']}**, at **{other:.2f} J**; 1 % more NVLink takes "
        f"**{link:.2f} %** and **{link_mixture:.2f} %** off their steps; under 12 kW "
        f"{64 - least['num_gpus']} of the 64 H100 are left off and the rest run "
        f"**{least['plan']}** at {least['sm_clock_mhz']:.0f} MHz; clocks for the "
        f"stages of a plain pipeline save **{saved['saving_pct']:.1f} %** of its "
        f"joules without a slow-down, of {saved['bound_saving_pct']:.1f} % that any "
        "clocks could.\n\n"
        "*It rests on* constants fitted to published steps of dense models: mixtures "
        "are forecasts (steps of DeepSeek-V3 came out 19 % too long in the mean), and "
        "watts of a training step were published nowhere; on four keys that were held "
        "for DeepSeek-V3; on boards alone, without hosts, switches and cooling; GPUs "
        "that are off draw nothing; and changes of clocks take no time."
    )
)
