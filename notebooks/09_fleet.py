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
# # What do clocks, placement and a watt budget save in a fleet over a real week?
#
# Requests of an Azure service for large language models in one week of May 2024 (CC-BY
# 4.0, DynamoLLM, HPCA 2025), carbon intensity of Great Britain in the same hours
# (supported by National Energy SO Open Data), Llama-3.1-8B on two sites with H100 and
# L40S. Each plan comes with a bound that no plan goes below. The two tables are not
# part of this repository: `DIFFENERGY_FLEET_DATA` names the folder that holds them.

# %%
import os
import tempfile
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import Markdown, display
from msgspec import structs

import diffenergy as de

jax.config.update("jax_enable_x64", True)
de.enable_compilation_cache()
# %matplotlib inline
style = de.charts
house = style.house()
house.__enter__()  # the house style, through the whole notebook

# %% [markdown]
# ## Demand and carbon
#
# The shape of the week is Azure's, the level ours. The second site has, all week, the
# mean intensity of the first: neither is the cleaner one on average, which is the best
# case for following the carbon from hour to hour.

# %%
SCALE = 8.0  # our requests for each of the sample's
data = Path(os.environ["DIFFENERGY_FLEET_DATA"])
week = pd.read_csv(data / "demand_azure_2024_conversation_week.csv")
carbon = pd.read_csv(data / "carbon_gb_2024-05-12_week.csv")
demand = SCALE * week["requests_per_s"].to_numpy()
intensity = carbon["g_per_kwh"].to_numpy()

folder = Path(tempfile.mkdtemp())
slots = np.arange(len(demand))
pd.DataFrame({"slot": slots, "model": "chat", "requests_per_s": demand}).to_csv(
    folder / "demand.csv", index=False
)
pd.DataFrame({"slot": slots, "g_per_kwh": intensity}).to_csv(
    folder / "carbon.csv", index=False
)

figure, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(7.5, 4.2))
top.stairs(demand, np.arange(len(demand) + 1), color=style.BLUE)
top.set_title("requests/s")
bottom.stairs(intensity, np.arange(len(demand) + 1), color=style.GREEN, baseline=None)
bottom.axhline(intensity.mean(), color=style.GREY, linestyle="--")
bottom.set_title("g/kWh: Great Britain, and the second site (dashed)")
bottom.set_xlabel("hour of the week")
figure.tight_layout()
plt.show()

# %% [markdown]
# ## The fleet, its serving points
#
# The product prices every clock and batch within the objectives of latency. A GPU that
# serves nobody is parked at its idle power. The points are kept, so that the plans
# below differ in nothing else.

# %%
sites = (
    de.fleet.Site("gb", pue=1.2, carbon=str(folder / "carbon.csv")),
    de.fleet.Site("flat", pue=1.2, carbon=float(intensity.mean())),
)
pools = tuple(
    de.fleet.Pool(f"{site.name}-{gpu}", gpu, count, site.name)
    for site in sites
    for gpu, count in (("h100-sxm", 24), ("l40s", 24))
)
chat = de.fleet.Model(
    "chat",
    "llama-3.1-8b",
    input_len=1700,
    output_len=120,
    slo_ttft_p95_s=1.0,
    slo_tpot_p95_s=0.06,
    start_s=60.0,
)
fleet = de.fleet.Fleet(sites, pools, (chat,), demand=str(folder / "demand.csv"))
first = structs.replace(fleet, demand=str(folder / "one.csv"))
pd.DataFrame({"slot": [0], "model": "chat", "requests_per_s": demand.max()}).to_csv(
    folder / "one.csv", index=False
)
flat = structs.replace(sites[0], carbon=float(intensity.mean()))
first = structs.replace(first, sites=(flat, sites[1]))
result = de.fleet.plan(first, max_gap=0.01, effort=10)
rows = result.solved.problem.rows
points = pd.DataFrame(
    {
        "model": "chat",
        "gpu": [pools[i].gpu for i in rows.pool],
        "gpus_per_replica": rows.gpus.astype(int),
        "requests_per_s": rows.rate,
        "ttft_p95_s": rows.ttft,
        "tpot_p95_s": rows.tpot,
        "power_w": rows.power,
        "sm_clock_mhz": rows.sm_clock / 1e6,
        "max_batch": rows.max_batch,
    }
).drop_duplicates(ignore_index=True)
points.groupby("gpu").agg(
    points=("power_w", "size"),
    most_requests_per_s=("requests_per_s", "max"),
    least_clock=("sm_clock_mhz", "min"),
    top_clock=("sm_clock_mhz", "max"),
)

# %% [markdown]
# ## Plans of the week
#
# Top clocks, best GPUs each hour; free clocks on H100 alone, and on both kinds; the
# same for least carbon; and with a budget of 60 % of the most that the site in Great
# Britain drew.


# %%
def planned(name, objective, budget=None, table=points, fleet=fleet):
    path = folder / f"points_{name}.csv"
    table.to_csv(path, index=False)
    if budget is not None:
        gb = structs.replace(fleet.sites[0], power_budget_w=budget)
        fleet = structs.replace(fleet, sites=(gb, *fleet.sites[1:]))
    return de.fleet.plan(
        fleet, objective=objective, points=str(path), max_gap=0.005, effort=30
    )


top_clock = points.groupby("gpu")["sm_clock_mhz"].transform("max")
at_top = points[points["sm_clock_mhz"] == top_clock]
ever = points["gpu"] == "h100-sxm"  # else too slow: parked all week
h100 = points.assign(ttft_p95_s=points["ttft_p95_s"].where(ever, 1e3))
plans = {
    "top clocks, least energy": planned("top", "energy", table=at_top),
    "free clocks, H100 alone": planned("h100", "energy", table=h100),
    "free clocks, least energy": planned("free", "energy"),
    "free clocks, least carbon": planned("carbon", "carbon"),
}
drawn = [
    x["power_w"]
    for x in plans["free clocks, least carbon"].summary["site_power"]
    if x["site"] == "gb"
]
budget = 0.6 * max(drawn)
plans["the same, 60 % of the watts in gb"] = planned("tight", "carbon", budget)
steady = tuple(structs.replace(x, carbon=float(intensity.mean())) for x in sites)
blind = planned("blind", "carbon", fleet=structs.replace(fleet, sites=steady))
powers = {
    site: np.array(
        [x["power_w"] for x in blind.summary["site_power"] if x["site"] == site]
    )
    for site in ("gb", "flat")
}
flat_g = powers["flat"].sum() * intensity.mean()
blind_g = float(powers["gb"] @ intensity + flat_g) / 1e3  # W h x g/kWh

base = plans["top clocks, least energy"].summary
table = pd.DataFrame(
    {
        name: {
            "energy, MWh": x.summary["energy_j"] / 3.6e9,
            "carbon, kg": x.summary["carbon_g"] / 1e3,
            "energy saved, %": 100 * (1 - x.summary["energy_j"] / base["energy_j"]),
            "carbon saved, %": 100 * (1 - x.summary["carbon_g"] / base["carbon_g"]),
            "gap, %": 100 * x.gap,
        }
        for name, x in plans.items()
    }
).T
display(table.round(2))

# %%
plans["the same, 60 % of the watts in gb"].plot()

# %% [markdown]
# ## Answer

# %%
best = plans["free clocks, least carbon"].summary
free = plans["free clocks, least energy"].summary
tight = plans["the same, 60 % of the watts in gb"].summary
alone = plans["free clocks, H100 alone"].summary
kinds_pct = 100 * (1 - free["energy_j"] / alone["energy_j"])
clocks_pct = 100 * (1 - free["energy_j"] / base["energy_j"])
follow_pct = 100 * (1 - best["carbon_g"] / blind_g)
tight_pct = 100 * (tight["carbon_g"] / best["carbon_g"] - 1)
worst = 100 * max(x.gap for x in plans.values())
display(
    Markdown(
        f"Free clocks save **{clocks_pct:.1f} %** of the week's energy, placing the "
        f"peaks on L40S too **{kinds_pct:.1f} %** beside H100 alone, following the "
        f"carbon from hour to hour between two sites with equal means "
        f"**{follow_pct:.1f} %** of its grams, and a budget of 60 % of the "
        f"watts at one site changes them by **{tight_pct:+.1f} %**, each plan within "
        f"{worst:.1f} % of its bound.\n\n"
        "*It rests on* serving points that a closed form predicts, a demand curve read "
        "off a figure, one model, and parked GPUs at idle power, which is why little "
        "can be moved: interactive load has to be served when it comes."
    )
)
