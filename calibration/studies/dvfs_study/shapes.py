"""Kernels of the study at other batch sizes and tensor-parallel degrees.

Every kernel keeps what the fit says of it at batch 40, as factors on what the model
expects from its shape: core work, DRAM bytes, core energy. Waves, tiles, occupancy and
what L2 serves then come from the shape.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Final, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from diffenergy import smooth
from diffenergy.corrections import Corrections
from diffenergy.estimator import demands
from diffenergy.fitting._clock_law import ClockLaw
from diffenergy.hardware import GpuSpec, load_gpu
from diffenergy.physics import LAUNCH_COMPONENTS, Demand, launch_energy, timing
from diffenergy.physics._timeline import cta_cycles, sm_cycles
from diffenergy.workload import Kernel, Listing, assemble, load_model

from .fitted import GPU

_MODEL: Final = "gpt3-xl"
_LENGTH: Final = 1024
"""Tokens of a sequence."""
SHARDED: Final[Mapping[int, str]] = {
    **dict.fromkeys((4, 6, 34, 35, 37, 38), "batch"),  # heads
    **dict.fromkeys((3, 7, 11, 19, 23, 25, 33, 36, 39, 40), "elements"),
    5: "rows",
    # columns of the QKV and MLP up projections: outputs, forward and backward
    **{2: "n", 41: "k", 42: "m", 10: "n", 26: "k", 27: "m"},
    # rows of the attention output and MLP down projections: inputs
    **{8: "k", 31: "n", 32: "n", 12: "k", 22: "n", 24: "n"},
}
"""Field of each kernel's listing row that tensor parallelism divides. Norms, residuals,
embeddings and the biases behind a sum over ranks are whole."""
HEAD_SHARDED: Final[Mapping[int, str]] = {14: "n", 15: "cols", 16: "k", 17: "m"}
"""The same of the vocabulary. The study does not say; its printed sum at degree 4 fits
a whole LM head."""
_ADDED: Final = (17, 24, 27, 32, 42)
"""Weight gradients: llm.c adds to the old ones, which the epilogue reads."""
_WORK: Final = ("tensor", "fma", "sfu", "issue", "smem", "l2")
_ILLEGAL: Final = 1e3


class Shape(NamedTuple):
    """Sequences in a batch, degree of tensor parallelism; whether every rank holds the
    whole vocabulary."""

    batch: int
    degree: int = 1
    whole_head: bool = True


REFERENCE: Final = Shape(40)
"""What the fit has seen."""


class Work(NamedTuple):
    """What the model expects of a launch of each kernel, from its shape."""

    cycles: Float[np.ndarray, " kernel"]  # SM cycles, were DRAM infinitely fast
    dram: Float[np.ndarray, " kernel"]  # B
    exposed: Float[np.ndarray, " kernel"]  # B of them that no other tile hides
    energy: Float[np.ndarray, " kernel"]  # J at V0 beyond DRAM and clock tree


def shape_listings(shape: Shape) -> list[Listing]:
    """Forward and backward pass of one rank, rows in the order of Table 1."""
    sharded = SHARDED if shape.whole_head else {**SHARDED, **HEAD_SHARDED}
    listings = load_model(_MODEL).listings(
        phase="train",
        batch=shape.batch,
        input_len=_LENGTH,
        attention="eager",
        dispatch="graph",
    )
    sharded_listings, first = [], 0
    for listing in listings[:2]:
        numbered = enumerate(listing.kernels, first)
        rows = tuple(_part(x, sharded.get(i), shape.degree) for i, x in numbered)
        sharded_listings.append(dataclasses.replace(listing, kernels=rows))
        first += len(rows)
    return sharded_listings


def _part(row: Kernel, field: str | None, degree: int) -> Kernel:
    return {**row, field: row[field] / degree} if field else row


@functools.cache
def shape_work(shape: Shape) -> Work:
    """Means over the candidates of each kernel, at the highest clocks."""
    gpu = load_gpu(GPU)
    c = gpu.corrections
    workload = assemble(shape_listings(shape))
    figures = np.zeros((5, workload.num_rows))
    for demand, group in zip(demands(workload, gpu, c), workload.groups, strict=True):
        live = np.asarray(group.count) > 0
        of_group = np.asarray(_group_work(demand, gpu, c))
        figures[:, np.asarray(group.row)[live]] = of_group[:, live]
    cycles, main, stored, exposed, energy = figures
    twice = np.ones(workload.num_rows)
    twice[list(_ADDED)] = 2.0
    return Work(cycles, main + twice * stored, twice * exposed, energy)


def _group_work(d: Demand, gpu: GpuSpec, c: Corrections) -> Float[Array, "5 launch"]:
    """(cycles, main loop's DRAM bytes, stored ones, exposed ones, core energy)."""
    clock = jnp.broadcast_to(gpu.sm_clock_applied_max, d.ctas.shape)
    times = timing(d, gpu, c, clock, gpu.mem_clock)
    none = jnp.zeros_like(d.dram)
    without = dict.fromkeys(("dram", "store_dram", "launches", "fixed_seconds"), none)
    core = timing(dataclasses.replace(d, **without), gpu, c, clock, gpu.mem_clock).time
    waves = sm_cycles(d, gpu, *cta_cycles(d, gpu, clock))[1]
    exposed = 1 / waves + (1 - 1 / waves) * d.store_exposed
    parts = launch_energy(d, times, c, clock, jnp.ones_like(clock))
    energy = sum(parts[LAUNCH_COMPONENTS.index(name)] for name in _WORK)
    legal = times.time * (1 + _ILLEGAL * d.illegal)
    weights = smooth.choice_weights(legal, d.choice, d.tau)
    each = (core * clock, d.dram, d.store_dram, exposed * d.store_dram, energy)
    return jnp.sum(weights * jnp.stack(each), axis=-1)


def at_shape(law: ClockLaw, there: Work, here: Work) -> ClockLaw:
    """`law` of kernels that the model expects to do `here`, moved to shapes `there`.

    Of the stores what is more exposed per core work than here stands behind the main
    loop: products with a short inner dimension (few tokens in a weight gradient, few
    inputs a rank) pause to write.
    """
    kernels = law.kernels
    cycles, energy = there.cycles / here.cycles, there.energy / here.energy
    dram = np.asarray(kernels.dram) * there.dram / here.dram
    exposed = np.clip(there.exposed - cycles * here.exposed, 0.0, dram)
    moved = dataclasses.replace(
        kernels,
        path_cycles=kernels.path_cycles * cycles,
        dram=jnp.asarray(dram - exposed),
        store_dram=jnp.asarray(exposed),
        other_energy=kernels.other_energy * energy,
    )
    return dataclasses.replace(law, kernels=moved)
