"""The launches of a workload on one axis, whatever their groups: their candidates side
by side, mixed into launches, summed over phases.

Groups are the kernels of one class, [kernel, candidate]. Formulas take all candidates
of all groups as one long axis (`flat`), and give back launches, groups one after the
other.
"""

import dataclasses
from typing import Final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from .. import smooth
from ..corrections import Corrections
from ..hardware import GpuSpec
from ..kernels import formulas
from ..physics import Demand
from ..workload import Workload

_ILLEGAL: Final = 1e3
"""Factor on the time of candidates that cannot run."""
_FEW_PHASES: Final = 8


class Launches(eqx.Module):
    """Demand of the launches of a workload on a GPU, at any clock.

    `demand`: of every candidate; `pace`: time in its phase's programs over that of the
    formulas; `count`, `row` and `phase` of every launch.
    """

    demand: Demand
    pace: Float[Array, " flat"]
    phase_of_candidate: Int[Array, " flat"]
    count: Float[Array, " k"]
    row: Int[Array, " k"]
    phase: Int[Array, " k"]
    sizes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    """(kernels, candidates) of each group."""
    num_phases: int = eqx.field(static=True)

    def per_candidate(self, x: Float[Array, " p"]) -> Float[Array, " flat"]:
        """A phase quantity for every candidate."""
        return _per_candidate(x, self.phase_of_candidate)

    def per_phase(self, x: Float[Array, "q k"]) -> Float[Array, "q p"]:
        """Sums of launch quantities over phases, counts included."""
        x = x * self.count
        if self.num_phases <= _FEW_PHASES:
            member = self.phase[:, None] == jnp.arange(self.num_phases)
            return x @ member.astype(x.dtype)
        return jax.ops.segment_sum(x.T, self.phase, self.num_phases).T

    def by_group(self, x: Float[Array, "*q flat"]) -> list[Float[Array, "*q n c"]]:
        """Candidate quantities cut into (kernels, candidates) by group."""
        parts, start = [], 0
        for n, c in self.sizes:
            part = x[..., start : start + n * c]
            parts.append(part.reshape(*x.shape[:-1], n, c))
            start += n * c
        return parts

    def mixture(self, time: Float[Array, " flat"]) -> list[Float[Array, "n c"]]:
        """Weights of the candidates of each group, which take `time` s."""
        d = self.demand
        # Candidates that cannot run count as far slower, so that the mixture gives them
        # no weight and stays smooth.
        believed = time * (1 + (_ILLEGAL - 1) * d.illegal)
        stacked = jnp.stack([believed, d.choice, d.tau])
        return [smooth.choice_weights(*x) for x in self.by_group(stacked)]

    def mean(
        self, weights: list[Array], x: Float[Array, "q flat"]
    ) -> Float[Array, "q k"]:
        """Means of candidate quantities under the mixture, a launch each."""
        parts = zip(self.by_group(x), weights, strict=True)
        return jnp.concatenate([jnp.sum(w * part, axis=-1) for part, w in parts], -1)


def launches(workload: Workload, gpu: GpuSpec, corrections: Corrections) -> Launches:
    """The launches of `workload` on `gpu`, contents and software of their phases
    counted in."""
    all_demands = demands(workload, gpu, corrections)
    sizes = tuple(demand.ctas.shape for demand in all_demands)
    flat = [jax.tree.map(jnp.ravel, demand) for demand in all_demands]
    joined: Demand = jax.tree.map(lambda *x: jnp.concatenate(x), *flat)
    groups = workload.groups
    owner = jnp.concatenate(
        [
            jnp.repeat(group.phase, c, total_repeat_length=n * c)
            for group, (n, c) in zip(groups, sizes, strict=True)
        ]
    )
    p = workload.phases
    about = (p.data_activity, p.math_activity, p.training, p.age)
    bytes_, math, trains, age = (_per_candidate(x, owner) for x in about)
    older = joined.training * jnp.exp(joined.aging * age)
    filled = dataclasses.replace(
        joined,
        activity=joined.activity * bytes_,
        math_activity=joined.math_activity * math,
    )
    count, row, phase = (
        jnp.concatenate([getattr(group, name) for group in groups])
        for name in ("count", "row", "phase")
    )
    pace = jnp.where(trains > 0, older, 1.0)
    names = workload.names
    return Launches(filled, pace, owner, count, row, phase, sizes, len(names))


def demands(workload: Workload, gpu: GpuSpec, corrections: Corrections) -> list[Demand]:
    """What the launches of each group of `workload` ask of `gpu`, with all candidates:
    axes (launch, candidate). No clock changes it."""
    by_shape = formulas()
    return [by_shape[type(s)](s, gpu, corrections) for s in workload.shapes]


def _per_candidate(x: Array, owner: Array) -> Array:
    if x.shape == (1,):
        return jnp.broadcast_to(x, owner.shape)  # no gather
    return x[owner]
