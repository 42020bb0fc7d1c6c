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
# # What does a token cost at the wall, at which clock, and what does the grid see?
#
# Boards are 55 to 75 % of what a server draws: its host, fans and power supplies do the
# rest, and the site adds its overhead. Three servers of eight GPUs, a served
# Llama-3.1-8B, and a training of Llama-3.1-70B on 64 H100 over time. Sites have a PUE
# of 1.2.

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
# ## What a token costs at the wall
#
# A saturated server of 128 requests at once, 1,024 tokens in and 256 out. Three parts
# add up to the energy at the site: accelerators and hosts with their share of the
# supplies' losses, and overhead. A saturated server has no times without work, which
# would be the fourth.

# %%
MODEL, PUE = "llama-3.1-8b", 1.2
NODES = {
    "dgx-h100": ("h100-sxm", style.BLUE),
    "dgx-h200": ("h200-sxm", style.VERMILION),
    "hgx-b200-water": ("b200-sxm", style.GREEN),
}
load = de.serving.Load(max_batch=128, input_len=1024, output_len=256)
served = {
    node: de.serving.steady_state(MODEL, gpu, load, node=node, pue=PUE).summary
    for node, (gpu, _) in NODES.items()
}
PARTS = ("accelerator", "host", "idle", "overhead")
tokens = {
    node: {part: s["wall_energy_j_by_part"][part] / 256 for part in PARTS}
    for node, s in served.items()
}
rows = {
    node: {
        "boards, mJ": round(1e3 * s["energy_j_per_output_token"], 1),
        "wall, mJ": round(1e3 * s["wall_energy_j_per_output_token"], 1),
        "site, mJ": round(1e3 * sum(tokens[node].values()), 1),
        "node at the wall, kW": round(8 * s["wall_power_w"] / 1e3, 2),
        "tokens/s a node": round(8 * s["output_token_throughput_per_s"]),
        "grade": s["node"]["grade"],
    }
    for node, s in served.items()
}
display(pd.DataFrame(rows).T)

# %%
figure, axes = plt.subplots(figsize=(style.WIDTH, 2.4))
left = np.zeros(len(NODES))
colors = (style.BLUE, style.VERMILION, style.GREY, style.ORANGE)
for part, color in zip(PARTS, colors, strict=True):
    each = np.array([1e3 * tokens[node][part] for node in NODES])
    if each.any():
        axes.barh(list(NODES), each, left=left, color=color, label=part)
    left += each
axes.invert_yaxis()
axes.set(xlabel="mJ of an output token at the site", xlim=(0, 1.05 * left.max()))
axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
plt.show()

# %% [markdown]
# ## Which clock is best there?
#
# A host draws power as long as the work lasts, so it pays for a higher clock: energy at
# the wall is B times that of the boards plus A times the time. Decoding 64 sequences at
# every clock; dots are the least of each line.

# %%
clocks = [1e6 * mhz for mhz in range(600, 1921, 60)]
best = {}
figure, axes = plt.subplots(figsize=(style.WIDTH, 3.4))
for node, (gpu, color) in NODES.items():
    points = de.estimate(
        MODEL, gpu, phase="decode", batch=64, input_len=1024, sm_clock=clocks, node=node
    ).summary["points"]
    for key, line in (("energy_j", "--"), ("wall_energy_j", "-")):
        each = np.array([1e3 * x[key] / 64 for x in points])
        low = int(each.argmin())
        best[node, key] = (low, each)
        label = node if line == "-" else None
        axes.plot(np.array(clocks) / 1e6, each, line, color=color, label=label)
        axes.plot(clocks[low] / 1e6, each[low], "o", color=color)
axes.set(xlabel="SM clock, MHz", ylabel="mJ a token (dashed: boards alone)")
axes.set_ylim(0)
axes.legend()
plt.show()


def saving(node, key):
    """% of the energy at the wall that the best clock by `key` saves."""
    low, (_, wall) = best[node, key][0], best[node, "wall_energy_j"]
    return 100 * (1 - wall[low] / wall[-1])


display(
    pd.DataFrame(
        {
            node: {
                f"{words}, {what}": number
                for words, key in (("boards", "energy_j"), ("wall", "wall_energy_j"))
                for what, number in (
                    ("best MHz", round(clocks[best[node, key][0]] / 1e6)),
                    ("saves at the wall, %", round(saving(node, key), 1)),
                )
            }
            for node in NODES
        }
    ).T
)

# %% [markdown]
# ## How does a training look to the grid?
#
# One step on 64 H100 in eight dgx-h100: four stages of a pipeline fill and drain, and
# every micro-batch has its exchanges. Supplies filter what is faster than 20 ms.

# %%
training = dict(
    phase="train", plan="tp=4,pp=4,dp=4,vp=5", global_batch=256, input_len=4096,
    node="dgx-h100", pue=PUE, power_step=0.02,
)  # fmt: skip
plain = de.estimate("llama-3.1-70b", "h100-sxm", **training)
floors = {
    floor: de.estimate("llama-3.1-70b", "h100-sxm", **training, smooth=f"floor={floor}")
    for floor in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
}
figure, axes = plt.subplots(figsize=(style.WIDTH, 3.0))
for result, color, label in (
    (plain, style.BLUE, "as it is"),
    (floors[0.7], style.VERMILION, "boards draw 0.7 of their TDP at least"),
):
    curve = result.curves["wall"]
    watts = curve.bins(0.02) / 1e3  # as the supplies pass it on, about
    edges = 0.02 * np.arange(len(watts) + 1)
    axes.stairs(watts, edges, baseline=None, color=color, label=label)
axes.set(xlabel="s of a step", ylabel="kW at the wall of eight nodes")
axes.set_ylim(0)
axes.legend(loc="lower center")
plt.show()

# %% [markdown]
# ## What does smoothing cost?
#
# A floor of dummy work burns joules wherever a board would draw less; a store in the
# rack that makes the step flat loses part of what it gives back.

# %%
cost = {}
for floor, result in {0.0: plain, **floors}.items():
    profile, burnt = result.summary["power_profile"], 0.0
    if floor:
        burnt = result.summary["smoothing"]["burn_j"] / plain.summary["energy_j"]
    cost[floor] = {
        "swing at the wall, kW": round(profile["swing_w"] / 1e3, 1),
        "rms, % of the mean": round(100 * profile["rms_share"]["total"], 1),
        "joules of the boards more, %": round(100 * burnt, 2),
    }
display(pd.DataFrame(cost).T.rename_axis("floor, share of TDP"))
store = floors[0.6].summary["smoothing"]["storage_j"]

# %% [markdown]
# ## Answer

# %%
cheap, dear = (f(served, key=lambda x: rows[x]["site, mJ"]) for f in (min, max))
first = "dgx-h100"
boards, wall = (clocks[best[first, x][0]] / 1e6 for x in ("energy_j", "wall_energy_j"))
profile = plain.summary["power_profile"]
display(
    Markdown(
        f"An output token of Llama-3.1-8B costs **{rows[cheap]['site, mJ']:.0f} mJ** "
        f"at the site in {cheap} and **{rows[dear]['site, mJ']:.0f} mJ** in {dear}, "
        f"where the boards alone say {rows[dear]['boards, mJ']:.0f} mJ; the clock "
        f"of least energy in {first} is **{wall:.0f} MHz** at the wall and "
        f"{boards:.0f} MHz by the boards; and a training on 64 H100 swings by "
        f"**{profile['swing_w'] / 1e3:.0f} kW** within a step, of which a floor of 0.7 "
        f"of the TDP leaves {cost[0.7]['swing at the wall, kW']:.0f} kW for "
        f"**{cost[0.7]['joules of the boards more, %']:.1f} %** more joules, where a "
        f"store of {store:.0f} J a GPU makes it flat.\n\n"
        "*It rests on* hosts fitted to readings of other servers of their kind (wall "
        "power within a few percent; servers of one kind differ by 3 %); on a plan "
        "whose stragglers slow all parts alike; on steps without checkpoints and "
        "evaluations, which swing most of all; and switches of the network are not "
        "counted."
    )
)
