"""Draw `docs/energy.png`: where the joules of a Llama token go, and at which clock.

python docs/picture.py        (needs matplotlib)
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import diffenergy as de
from diffenergy.hardware import default_point
from diffenergy.physics import COMPONENTS

jax.config.update("jax_enable_x64", True)
GROUPS = {
    "tensor cores": ("tensor", "fma", "sfu", "issue"),
    "shared memory, L2": ("smem", "l2"),
    "DRAM": ("dram",),
    "SM clock tree": ("clock_tree", "launch"),
    "idle, leakage": ("idle", "leakage"),
}
COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#999999")
BATCHES = (1, 4, 16, 64)

model, gpu = de.load_model("llama-3.1-8b"), de.load_gpu("h100-sxm")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")

shares = []
for batch in BATCHES:
    result = de.estimate(
        model.workload(batch=batch, input_len=512, output_len=128), gpu
    )
    shares.append(np.asarray(result.phases.components.sum(0)) / (128 * batch))
total = np.array([sum(share) for share in shares])
bottom = np.zeros(len(BATCHES))
for (label, units), colour in zip(GROUPS.items(), COLOURS, strict=True):
    part = np.array([sum(s[COMPONENTS.index(u)] for u in units) for s in shares])
    left.bar(
        range(len(BATCHES)), part / total, bottom=bottom, color=colour, label=label
    )
    bottom += part / total
for i, joules in enumerate(total):
    left.text(i, 1.01, f"{joules:.2g} J", ha="center", va="bottom", fontsize=9)
left.set_xticks(range(len(BATCHES)), [f"batch {b}" for b in BATCHES])
left.set_ylabel("share of the energy of a token")
left.set_ylim(0, 1.42)
left.set_yticks(np.linspace(0, 1, 6))
left.legend(ncols=2, fontsize=8, loc="upper center", frameon=False)

clocks = jnp.arange(600e6, 1.981e9, 60e6)
for batch, colour in ((1, COLOURS[2]), (64, COLOURS[0])):
    work = model.workload(batch=batch, input_len=512, output_len=128)
    point = default_point(gpu)

    def at(clock, work=work, point=point):
        from dataclasses import replace

        run = de.estimate(work, gpu, replace(point, sm_clock=clock))
        return run.time, run.energy

    time, energy = jax.jit(jax.vmap(at), compiler_options=de.compiler_options())(clocks)
    relative = energy / energy[-1]
    best = int(jnp.argmin(relative))
    mhz, slower = clocks / 1e6, time[best] / time[-1] - 1
    right.plot(mhz, relative, color=colour, label=f"batch {batch}")
    right.plot(mhz[best], relative[best], "o", color=colour)
    right.annotate(
        f"{mhz[best]:.0f} MHz: {1 - relative[best]:.0%} less energy,\n"
        f"{slower:.0%} more time",
        (mhz[best], relative[best]),
        textcoords="offset points",
        xytext=(-15, 32) if batch == 1 else (0, -30),
        ha="center",
        fontsize=8,
        color=colour,
    )
right.set_xlabel("SM clock, MHz")
right.set_ylabel("J per token / that at 1980 MHz")
right.set_ylim(0.5, 1.05)
right.legend(frameon=False, loc="lower right", fontsize=8)
figure.suptitle("Llama-3.1-8B on an H100, 512 tokens in, 128 out", fontsize=11)
figure.savefig(Path(__file__).with_name("energy.png"), dpi=110)
