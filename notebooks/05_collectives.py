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
# # How far from the least time and energy are standard collectives on real machines?
#
# An all-gather and an all-reduce on two machines: two NDv2 chassis of eight V100 with
# one way between the chassis, and two DGX H100 with eight. We look for schedules (which
# block crosses which link, and when), check each against a lower bound on the time of
# *any* schedule, compare with ring and tree, and ask what an all-reduce costs in
# joules.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import Markdown, display

import diffenergy as de

# %matplotlib inline
style = de.charts
house = style.house()
house.__enter__()  # the house style, through the whole notebook

# %% [markdown]
# ## Schedules for 16 MB
#
# `de.collectives.plan` tries list schedules, the standard algorithms and integer
# programming, and stops at the bound. What it returns was verified by code that trusts
# nothing but machine and demand.

# %%
MACHINES = ("ndv2-2", "dgx-h100-2")
COLLECTIVES = ("all_gather", "all_reduce")
SEARCH = de.collectives.Search(time_limit=8.0)

plans = {
    (m, c): de.collectives.plan(m, c, "16MB", search=SEARCH)
    for m in MACHINES
    for c in COLLECTIVES
}
rows = [
    {
        "machine": machine,
        "collective": collective,
        "time, us": 1e6 * plan.finish,
        "bound, us": 1e6 * plan.bound,
        "above the bound, %": 100 * plan.gap,
        "solver": plan.method,
        "ring, us": 1e6 * plan.baselines.algorithms["ring"].finish,
        "sends": len(plan.schedule.sends),
    }
    for (machine, collective), plan in plans.items()
]
table = pd.DataFrame(rows)
display(table.round(1))

# %% [markdown]
# ## Who waits for whom
#
# The all-gather on the two NDv2 chassis. Each row is a link, each bar a block that
# crosses it. The ways between the chassis (the two rows at the bottom) are busy from
# the first moment until only the last block's hop to its last GPU is left: nobody can
# beat that, and everything else is arranged around it.

# %%
picture = plans["ndv2-2", "all_gather"].plot()
picture.set_dpi(80)
display(picture)

# %% [markdown]
# The all-reduce on two DGX H100. Its NVSwitches can add up what passes.

# %%
picture = plans["dgx-h100-2", "all_reduce"].plot()
picture.set_dpi(80)
display(picture)

# %% [markdown]
# ## By size
#
# Small messages wait for latency, large ones for the slowest links. *Algorithm
# bandwidth* is the buffer over the time.

# %%
SIZES = (4 * 16.0 ** np.arange(3, 7)).tolist()  # B, 16 KiB to 64 MiB
for machine in MACHINES:
    result = de.collectives.plan(machine, "all_reduce", SIZES, search=SEARCH)
    picture = result.plot()
    picture.set_dpi(80)
    display(picture)

# %% [markdown]
# ## Joules of an all-reduce
#
# Bits over links (whiskers: the bracket of what is published per bit), reads and writes
# of memory, and all GPUs waiting until the end.

# %%
parts = []
for machine in MACHINES:
    plan = plans[machine, "all_reduce"]
    energies = {"planned": plan.energy, "ring": plan.baseline_energy("ring")}
    for name, energy in energies.items():
        moved = energy.moved
        parts.append(
            {
                "case": f"{machine}, {name}",
                "links": moved.typical,
                "memory": energy.dram + energy.l2,
                "idle": energy.idle,
                "low": moved.typical - moved.low,
                "high": moved.high - moved.typical,
            }
        )
joules = pd.DataFrame(parts)

figure, ax = plt.subplots(figsize=(9, 2.8), layout="constrained")
left = np.zeros(len(joules))
columns = {"idle": "waiting GPUs", "memory": "DRAM and L2", "links": "links"}
for column, label in columns.items():
    values = 1e3 * joules[column]
    ax.barh(joules.index, values, left=left, label=label)
    left += values
ends = 1e3 * joules[["low", "high"]].to_numpy().T
ax.errorbar(left, joules.index, xerr=ends, fmt="none", color=style.BLACK, capsize=3)
style.rows_down(ax, list(joules.case))
ax.set_xlabel("mJ of one all-reduce of 16 MB, all GPUs")
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# ## Answer

# %%
gap = table["above the bound, %"].max()
ring = (table["ring, us"] / table["time, us"]).to_numpy()
idle = (joules.idle / joules[["idle", "memory", "links"]].sum(axis=1)).to_numpy()
display(
    Markdown(
        f"The schedules are **at most {gap:.1f} % above the bound** of any "
        f"schedule at 16 MB, a ring takes {ring.min():.2f} to {ring.max():.2f} times "
        f"as "
        f"long, and GPUs that wait take {idle.min():.0%} to {idle.max():.0%} of the "
        f"joules "
        f"of an all-reduce.\n\n"
        f"*It rests on* published link rates and latencies (some guessed, as "
        f"`docs/reference/collectives.md` says), on a machine that does what its "
        f"links allow, with "
        f"no library on top, and on published picojoules per bit; no data set holds "
        f"the power of a collective, so the energy is untested."
    )
)
