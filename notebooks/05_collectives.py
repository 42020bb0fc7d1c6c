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
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import Markdown, display

from diffenergy.collectives._demand.demands import demand
from diffenergy.collectives._energy.energy import schedule_energy
from diffenergy.collectives._machine.topology_files import load_topology
from diffenergy.collectives._planning.plan import Search, find_schedule
from diffenergy.hardware import load_gpu
from diffenergy.report._charts import style
from diffenergy.report._charts.plot_collective import collective_figure

# %matplotlib inline
jax.config.update("jax_enable_x64", True)
house = style.house()
house.__enter__()  # the house style, through the whole notebook

# %% [markdown]
# ## Schedules for 16 MB
#
# `find_schedule` tries list schedules, the standard algorithms and integer programming,
# and stops at the bound. What it returns was verified by code that trusts nothing but
# machine and demand.

# %%
MACHINES = ("ndv2-2", "dgx-h100-2")
COLLECTIVES = ("all_gather", "all_reduce")


def plan_of(machine, collective, size):
    """Verified schedule of a collective of `size` (text, or bytes) on a machine."""
    topology = load_topology(machine)
    wanted = demand(collective, topology, size)
    return find_schedule(topology, wanted, Search(time_limit=8.0))


plans = {(m, c): plan_of(m, c, "16MB") for m in MACHINES for c in COLLECTIVES}
rows = [
    {
        "machine": machine,
        "collective": collective,
        "time, us": 1e6 * plan.finish,
        "bound, us": 1e6 * plan.bound,
        "above the bound, %": 100 * plan.gap,
        "found by": plan.method,
        "ring, us": 1e6 * plan.standard.found["ring"].finish,
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
plan = plans["ndv2-2", "all_gather"]
standard = {name: x.schedule for name, x in plan.standard.found.items()}
picture = collective_figure(plan.schedule, plan.bound, standard)
picture.set_dpi(80)
display(picture)

# %% [markdown]
# The all-reduce on two DGX H100. Its NVSwitches can add up what passes.

# %%
plan = plans["dgx-h100-2", "all_reduce"]
standard = {name: x.schedule for name, x in plan.standard.found.items()}
picture = collective_figure(plan.schedule, plan.bound, standard)
picture.set_dpi(80)
display(picture)

# %% [markdown]
# ## By size
#
# Small messages wait for latency, large ones for the slowest links. *Algorithm
# bandwidth* is the buffer over the time.

# %%
SIZES = 4 * 16.0 ** np.arange(3, 7)  # B, 16 KiB to 64 MiB
sweeps = {
    m: [plan_of(m, "all_reduce", float(size)) for size in SIZES] for m in MACHINES
}

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for ax, (machine, found) in zip(axes, sweeps.items(), strict=True):
    bound = SIZES / np.array([p.bound for p in found])
    ax.loglog(SIZES, bound, "--", color=style.BLACK, label="bound")
    ours = SIZES / np.array([p.finish for p in found])
    ax.loglog(SIZES, ours, "o-", color=style.VERMILION, label="found", linewidth=3)
    names = sorted(set.intersection(*(set(p.standard.found) for p in found)))
    others = (style.SKY, style.BLUE, style.GREEN, style.ORANGE)
    marks = zip(names, others, style.MARKERS[1:], strict=False)
    for name, colour, marker in marks:
        line = SIZES / np.array([p.standard.found[name].finish for p in found])
        label = name.replace("_", " ")
        ax.loglog(SIZES, line, marker=marker, color=colour, label=label, markersize=4)
    ax.set_title(f"All-reduce on {machine}")
    ax.set_xlabel("buffer of a GPU")
    style.log_ticks(ax.xaxis)
    style.si_ticks(ax.xaxis, "B")
    style.si_ticks(ax.yaxis, "B/s")
axes[0].set_ylabel("algorithm bandwidth")
axes[0].legend(fontsize=8)
plt.show()

# %% [markdown]
# ## Joules of an all-reduce
#
# Bits over links (whiskers: the bracket of what is published per bit), reads and writes
# of memory, and all GPUs waiting until the end.

# %%
GPUS = {"ndv2-2": "v100-sxm-32gb", "dgx-h100-2": "h100-sxm"}
parts = []
for machine, gpu in GPUS.items():
    plan = plans[machine, "all_reduce"]
    for name, chosen in (("found", plan), ("ring", plan.standard.found["ring"])):
        energy = schedule_energy(chosen.schedule, load_gpu(gpu))
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
for (column, label), colour in zip(columns.items(), style.PALETTE, strict=False):
    values = 1e3 * joules[column]
    ax.barh(joules.index, values, left=left, color=colour, label=label)
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
        f"The schedules found here are **at most {gap:.1f} % above the bound** of any "
        f"schedule at 16 MB, a ring takes {ring.min():.2f} to {ring.max():.2f} times "
        f"as "
        f"long, and GPUs that wait take {idle.min():.0%} to {idle.max():.0%} of the "
        f"joules "
        f"of an all-reduce.\n\n"
        f"*It rests on* published link rates and latencies (some guessed, as "
        f"`docs/collectives.md` says), on a machine that does what its links allow, "
        f"with "
        f"no library on top, and on published picojoules per bit; no data set holds "
        f"the power of a collective, so the energy is untested."
    )
)
