"""Energy of a launch by unit, and what every clock does to it.

Core energies are stated at the floor voltage V0 and scale with (V/V0)^2; DRAM and links
have their own rails. At a clock f with the core voltage V(f) a phase of t seconds takes

    V(f) = V0 + slope h + curvature h^2
           h = w ln(1 + exp((f - knee)/w)),  w = 30 MHz
    P    = idle + leakage
           + (sum of launch energies + other_core_work (V/V0)^2 core_energy)/t

V(f) is flat up to a knee. With the voltage and idle tables published with EnergAIzer
(A100, 81 rows each) it leaves 2.3 mV and 0.35-0.37 W rms; the form is this project's.
Each GPU file says whether its curve was fitted, borrowed from a sibling, or is a prior.
With the memory clock left alone GeForce boards run the SMs at a higher voltage:
`vf_unlocked_slope` h comes on top (0 where nothing is known; RTX 3080 Ti 0.22 V/GHz,
fitted to arXiv 2601.08539). `OperatingPoint.mem_locked` says which it is. Requests
above `sm_clock_max` x `sm_clock_applied_share` are cut to that (RTX 3080 Ti: 1.86 of
2.1 GHz).
"""

import dataclasses
from typing import Final

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..corrections import Corrections
from ..hardware import GpuSpec
from ._demand import UNITS, Demand
from ._timeline import Timing

COMPONENTS: Final = (*UNITS, "clock_tree", "launch", "other", "idle", "leakage")
"""What the energy of a run is split into; all but the last two belong to launches."""
LAUNCH_COMPONENTS: Final = COMPONENTS[:-2]
STATIC: Final = slice(-2, None)
"""Idle and leakage among the `COMPONENTS`."""


def with_corrections(gpu: GpuSpec, c: Corrections) -> GpuSpec:
    """`gpu` with the V(f) curve that the constants make of the one in its file."""
    return dataclasses.replace(
        gpu,
        vf_knee_clock=gpu.vf_knee_clock * c.voltage_knee,
        vf_slope=gpu.vf_slope * c.voltage_slope,
        vf_curvature=gpu.vf_curvature * c.voltage_curvature,
    )


def launch_energy(
    demand: Demand,
    timing: Timing,
    c: Corrections,
    clock: Float[Array, "*batch"],
    core: Float[Array, "*batch"],
) -> Float[Array, " component *batch"]:
    """Energy of one launch beyond idle, J, in the order of `LAUNCH_COMPONENTS`: work
    times price of every unit, then what no unit explains.

    With `core` = (V/V0)^2 `core_energy`, below times `dynamic_energy`, and a =
    activity:

    | component | J |
    |---|---|
    | tensor | a core x price of its type x FLOP |
    | fma, sfu, issue, smem | a core x `energy_` of that name x work |
    | l2 | a core `energy_l2` (l2 + store_l2) |
    | dram | a `dynamic_energy` `energy_dram` x bytes (own rail: no V) |
    | link | a `energy_link` x bytes (own rail) |
    | clock_tree | core `sm_clock_energy` min(ctas, N) f t |
    | launch | core (launches `energy_launch` + ctas `energy_tile`) |

    The clock tree of *empty* SMs is in the idle law; SMs that hold CTAs add theirs.
    Core power goes with V^2 only.
    """
    d = demand
    core = core * c.dynamic_energy
    live = core * d.activity
    math, rail = live * d.math_activity, c.dynamic_energy * d.activity
    price = (
        math * d.tensor_energy, math * c.energy_fma, live * c.energy_sfu,
        live * c.energy_issue, live * c.energy_smem, live * c.energy_l2,
        rail * c.energy_dram, d.activity * c.energy_link,
    )  # fmt: skip
    rest = (
        core * c.sm_clock_energy * timing.active_sms * clock * timing.time,
        core * (d.launches * c.energy_launch + d.ctas * c.energy_tile),
        core * d.other_energy,
    )
    return jnp.concatenate([d.work * jnp.stack(price), jnp.stack(rest)])
