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
# # Given more silicon but no more power, what should an inference chip grow?
#
# We start from an H100, keep its 700 W, and let the die grow. The workload is a
# server's: Llama-3.1-8B, 32 requests of 1,024 tokens in and 256 out. First the slope at
# the H100 as it is, number by number; then designs that could be built (SMs in
# clusters, memory in stacks, clocks in steps) for several budgets of silicon.

# %%
import jax
import jax.numpy as jnp
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

MODEL, GPU = "llama-3.1-8b", "h100-sxm"
REQUEST = {"batch": 32, "input_len": 1024, "output_len": 256}
h100 = de.load_gpu(GPU)
workload = de.load_model(MODEL).workload(**REQUEST)

# %% [markdown]
# ## The slope at the H100
#
# `estimate` is differentiable in every number of the GPU. An elasticity of -0.4 says: 1
# % more of that number alone lowers energy x delay by 0.4 %.


# %%
def log_edp(gpu):
    """ln of energy x delay: of prefill, of decode, of both."""
    run = de.estimate(workload, gpu)
    phases = jnp.log(run.phases.energy) + jnp.log(run.phases.time)
    return jnp.append(phases, jnp.log(run.energy * run.time))


slopes = jax.jit(jax.jacrev(log_edp), compiler_options=de.compiler_options(once=True))(
    h100
)
FIELDS = {
    "num_sms": "SMs",
    "tensor_flop_per_cycle_bf16": "tensor rate of an SM",
    "dram_bandwidth": "DRAM bandwidth",
    "l2_capacity": "L2 capacity",
    "l2_bytes_per_cycle": "L2 bandwidth",
    "smem_bytes_per_cycle": "shared memory bandwidth",
    "smem_per_sm": "shared memory of an SM",
    "sm_clock_max": "SM clock",
    "tdp": "power limit",
}
elastic = pd.DataFrame(
    {
        words: np.asarray(getattr(slopes, field)) * float(getattr(h100, field))
        for field, words in FIELDS.items()
    },
    index=["prefill", "decode", "both"],
).T

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for shift, (phase, colour) in enumerate(
    zip(elastic.columns, (style.BLUE, style.VERMILION, style.BLACK), strict=True)
):
    place = np.arange(len(elastic)) + 0.27 * (shift - 1)
    ax.barh(place, elastic[phase], height=0.25, color=colour, label=phase)
ax.axvline(0, color=style.BLACK, linewidth=1)
style.rows_down(ax, list(elastic.index))
ax.set_xlabel("elasticity of energy x delay (below 0: growing it helps)")
ax.legend(loc="lower left")
plt.show()
display(elastic.round(3))

# %% [markdown]
# Turn it yourself: with a running kernel the next cell has sliders, without one it is
# the picture as they begin.

# %%
de.explore(MODEL, GPU, **REQUEST)

# %% [markdown]
# The two phases disagree: prefill wants arithmetic, decode wants bandwidth and a lower
# clock (prefill already runs below its highest one, held by the power limit). What
# silicon costs is not in these slopes, and neither is what can be built.
#
# ## Designs for a budget of silicon
#
# The search varies five numbers within half and twice those of an H100 (the clock
# within its own range) and keeps area and 700 W. The area of a design comes from a
# regression over published dies.

# %%
BUDGETS = (814.0, 1200.0, 1628.0)  # mm2; an H100 has 814
VARIED = (
    "num_sms",
    "tensor_flop_per_cycle_bf16",
    "l2_capacity",
    "dram_bandwidth",
    "sm_clock",
)


def best(area):
    """Least energy x delay on `area` mm2 of silicon."""
    return de.codesign.search(
        MODEL,
        GPU,
        vary=VARIED,
        limits={"area": area},
        goals="edp",
        effort=de.codesign.Effort(starts=4, rounds=4, seed=0),
        **REQUEST,
    )


result = {area: best(area) for area in BUDGETS}
base = result[BUDGETS[0]].start
rows = {"H100 as it is": base} | {f"{a:.0f} mm2": f.best for a, f in result.items()}
table = pd.DataFrame(
    {
        name: {
            "SMs": s.fields["num_sms"],
            "tensor FLOP/cycle/SM, bf16": s.fields["tensor_flop_per_cycle_bf16"],
            "L2, MB": s.fields["l2_capacity"] / 1e6,
            "DRAM, TB/s": s.fields["dram_bandwidth"] / 1e12,
            "SM clock, MHz": s.fields["sm_clock"] / 1e6,
            "time, s": s.time,
            "energy, J": s.energy,
            "mean power, W": s.power,
            "energy x delay, J s": s.objective,
        }
        for name, s in rows.items()
    }
)
display(table.round(2))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
NAMES = ("SMs", "tensor rate", "L2", "DRAM bandwidth", "SM clock")
for name, words, colour, marker in zip(
    VARIED, NAMES, style.PALETTE, style.MARKERS, strict=False
):
    ratio = [f.best.fields[name] / base.fields[name] for f in result.values()]
    left.plot(BUDGETS, ratio, marker=marker, color=colour, label=words)
left.axhline(1, color=style.GREY, linewidth=1, linestyle="--")
left.set_ylabel("design / H100")
left.set_ylim(0, None)
left.legend(fontsize=8, ncols=2)
for what, key, colour, marker, aside in (  # side by side, mm2
    ("time", "time_s_p5_p95", style.BLUE, "o", -8),
    ("energy", "energy_j_p5_p95", style.VERMILION, "s", 8),
):
    values = np.array([getattr(f.best, what) for f in result.values()])
    ends = np.array([f.summary[key] for f in result.values()]).T
    start = getattr(base, what)
    errors = [(values - ends[0]) / start, (ends[1] - values) / start]
    right.errorbar(
        np.array(BUDGETS) + aside,
        values / start,
        errors,
        color=colour,
        marker=marker,
        capsize=3,
        label=what,
    )
right.axhline(1, color=style.GREY, linewidth=1, linestyle="--")
right.set_ylabel("design / H100 at default clocks")
right.set_ylim(0, None)
right.legend()
for ax in (left, right):
    ax.set_xlabel("silicon, mm2")
plt.show()

# %% [markdown]
# ## What holds the largest design back
#
# Multipliers say what one unit more of a limit would be worth.

# %%
largest = result[BUDGETS[-1]]
for active in largest.outcome.active:
    print(f"{active.name}: {active.multiplier:.4g} {active.unit}")

# %% [markdown]
# ## Answer

# %%
more = {
    words: largest.best.fields[name] / base.fields[name]
    for name, words in zip(VARIED, NAMES, strict=True)
}
there = dict(largest.outcome.sensitivities)  # of energy x delay, at the largest design
counts = {
    words: abs(there.get(name) or 0) > 0.05
    for name, words in zip(VARIED, NAMES, strict=True)
}
grown = sorted(
    ((x, w) for w, x in more.items() if x > 1.01 and counts[w]), reverse=True
)
equal = result[BUDGETS[0]].best
display(
    Markdown(
        f"At equal power an inference chip should grow "
        f"**{', then '.join(f'{w} (x {x:.2f})' for x, w in grown)}** "
        f"and run its SMs at {largest.best.fields['sm_clock'] / 1e6:.0f} MHz instead "
        f"of "
        f"{base.fields['sm_clock'] / 1e6:.0f}: on {BUDGETS[-1] / BUDGETS[0]:.2g} times "
        f"the silicon it takes {1 - largest.best.energy / base.energy:.0%} less "
        f"energy and {1 - largest.best.time / base.time:.0%} less time, while on the "
        f"same silicon {1 - equal.objective / base.objective:.0%} of energy x delay "
        f"can "
        f"be had, mostly by the lower clock.\n\n"
        f"*It rests on* a forecast (nobody measured such chips; the whiskers are the "
        f"5 to 95 % of GPUs that were left out of a fit; numbers that hardly matter at "
        f"the "
        f"largest design, elasticity below 0.05, are not named), an area model with a "
        f"mean "
        f"error "
        f"of 4 % on left-out dies, and a search that compares legal designs exactly "
        f"but "
        f"does not prove that none is better."
    )
)
