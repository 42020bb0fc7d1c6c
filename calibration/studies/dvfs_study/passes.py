"""Whole passes at every setting (Figures 3 and 4), with what differs in that campaign.

It was measured apart from Figure 5: its baseline, its power limit, the clock its hotter
board applies, and the level of each memory clock are nuisances with priors.
"""

import dataclasses
from typing import Final

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from diffenergy.fitting._clock_law import ClockLaw, Points
from diffenergy.fitting._clock_model import Base, Flat, law_of
from diffenergy.smooth import robust
from diffenergy.units import GHz

from .campaigns import MEM_CLOCKS, SETTINGS, SM_CLOCKS, Study, clocks
from .joined import Sums, together, with_gpu

PASSES: Final = ("forward", "backward")
_TOP: Final = 0.015
_CAP: Final = 0.02
_OFFSET: Final = (0.01, 0.015)  # time, energy
_LEVEL: Final = 0.01
_IDLE_LEVEL: Final = (0.1, 0.05)
"""Prior sd of the nuisances, of ln; the last for memory clocks that are idle states."""
_LOCKED: Final = len(MEM_CLOCKS) - 1


def errors() -> Float[np.ndarray, "2 setting"]:
    """Expected error of ln time and ln energy: model and campaign together."""
    sm, mem = SETTINGS.T
    slow = np.nan_to_num(sm, nan=np.inf) < 0.8 * GHz
    sd = np.where(mem < 1 * GHz, 0.1, np.where(slow, 0.05, 0.02))
    return np.stack([sd, sd])


def widths() -> np.ndarray:
    """Prior sd of the nuisances: top clock; per pass: limit, then offsets; per pass and
    quantity: locked memory clocks."""
    levels = [[low, low, _LEVEL, _LEVEL, _LEVEL] for low in _IDLE_LEVEL]
    return np.concatenate([[_TOP], [_CAP] * 2, _OFFSET * 2, np.ravel([levels] * 2)])


def measured(study: Study) -> Float[np.ndarray, "2 2 setting"]:
    """ln of time and energy of each pass against default clocks."""
    percents = []
    for name in PASSES:
        rows = study.passes[study.passes["pass"] == name]
        requested = np.stack([clocks(rows.core_mhz), clocks(rows.mem_mhz)], 1)
        if not np.array_equal(requested, SETTINGS, equal_nan=True):
            raise ValueError(f"`fig3_fig4_pass_sweep` has other clocks in {name}.")
        changes = (rows[f"{word}_change_pct"] for word in ("time", "energy"))
        percents.append([np.asarray(change, float) for change in changes])
    return np.log1p(np.array(percents) / 100)


def pass_sums(study: Study, point: Points) -> Sums:
    """Residuals of both passes: one setting for all kernels, one clock when limited."""
    known, sd = measured(study), errors()
    members = [np.flatnonzero(study.forward), np.flatnonzero(~study.forward)]

    def residuals(base: Base, z: Array, flat: Flat) -> Array:
        shared, latents, others = flat.split(z)
        top, cap, offset, level = jnp.split(others, [1, 3, 7])
        offset = offset.reshape(2, 2, 1)
        level = jnp.repeat(level.reshape(2, 2, _LOCKED), len(SM_CLOCKS), axis=-1)
        parts = []
        for i, kernels in enumerate(members):
            law = law_of(base, shared, latents[kernels], jnp.asarray(kernels))
            law = _other_board(law, jnp.exp(cap[i]), jnp.exp(top[0]))
            got = together(law, jnp.asarray(study.counts[kernels]), point)
            logs = jnp.log(jnp.stack([got.time, got.energy]))
            change = logs - logs[:, -1:] + offset[i]
            change = change.at[:, : level.shape[-1]].add(level[i])
            parts.append(jnp.ravel(robust((change - known[i]) / sd)[:, :-1]))
        return jnp.concatenate(parts)

    return Sums(residuals, widths())


def _other_board(law: ClockLaw, cap: Array, top: Array) -> ClockLaw:
    law = dataclasses.replace(law, power_cap=law.power_cap * cap)
    share = law.gpu.sm_clock_applied_share * top
    return with_gpu(law, sm_clock_applied_share=share)
