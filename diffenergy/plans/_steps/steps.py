"""`Steps`: what the time and energy of training steps follow from, beside the phases of
a workload.

A phase is what one GPU launches of one part of a step (`PARTS`) in one kind of virtual
stage.
"""

import dataclasses
from collections.abc import Iterable
from typing import Final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ...records import Record, as_float, as_index
from ...workload import Listing

PARTS: Final = (
    "forward", "backward", "optimizer", "forward_tp", "backward_tp", "forward_cp",
    "backward_cp", "forward_ep", "backward_ep", "gather", "reduce", "send",
)  # fmt: skip
"""Computation of all micro-batches forward and backward, and of the optimizer; their
exchanges among the GPUs of an axis; once each: weights gathered and gradients reduced
over replicas, a micro-batch sent to the next stage."""
AT: Final = {name: i for i, name in enumerate(PARTS)}
AXES: Final = ("tp", "pp", "dp", "ep", "cp")


class Steps(Record):
    """Training steps (leading axes *r) on the GPUs of plans: K kinds of virtual stages,
    S kinds of GPUs along the pipeline, P = len(`PARTS`)."""

    phase: Int[Array, "*r k p"] = eqx.field(converter=as_index)
    """Phase of the workload that holds a part; -1: none."""
    far: Float[Array, "*r k p"] = eqx.field(converter=as_float)
    """Bytes over the network card of a GPU."""
    hops: Float[Array, "*r k p"] = eqx.field(converter=as_float)
    """Latencies between hosts, in units of `compose.HOP`."""
    members: Float[Array, "*r s k"] = eqx.field(converter=as_float)
    """Virtual stages of each kind on a GPU."""
    count: Float[Array, "*r s"] = eqx.field(converter=as_float)
    """GPUs of each kind along the pipeline; 0: none."""
    batches: Float[Array, "*r"] = eqx.field(converter=as_float)
    """Micro-batches of a replica."""
    virtual: Float[Array, "*r"] = eqx.field(converter=as_float)
    abreast: Float[Array, "*r"] = eqx.field(converter=as_float)
    """GPUs of a stage, tp x cp x dp."""
    network: Float[Array, "*r"] = eqx.field(converter=as_float)
    """B/s of a GPU's network card; infinity where there is none."""
    gathers: Float[Array, "*r"] = eqx.field(converter=as_float)
    """Times that a micro-batch gathers the weights (ZeRO-3: 2, less what of them is
    frozen in front; ZeRO-2 as FSDP: 1)."""
    reduces: Float[Array, "*r"] = eqx.field(converter=as_float)
    """1 where every micro-batch reduces its gradients, else 0: once a step."""
    tp_overlap: Float[Array, "*r"] = eqx.field(converter=as_float)
    """1 where tensor-parallel exchanges run beside computation."""
    dp_overlap: Float[Array, "*r"] = eqx.field(converter=as_float)
    """The same of weights and gradients."""
    zero_bubble: Float[Array, "*r"] = eqx.field(converter=as_float)
    """1 where gradients of weights fill the bubble (ZB-H1)."""

    @property
    def gpus(self) -> Float[Array, "*r"]:
        """GPUs of all stages and replicas."""
        return self.abreast * jnp.sum(self.count, axis=-1)

    @property
    def ways(self) -> Float[Array, "*r k 2"]:
        """1 where a micro-batch passes a virtual stage, forward and backward; 0 where
        no gradient does."""
        at = jnp.array([AT["forward"], AT["backward"]])
        return (self.phase[..., at] >= 0).astype(self.far.dtype)


def of_parts(phases: Float[Array, " n"], steps: Steps) -> Float[Array, "*r k p"]:
    """A quantity of phases as that of parts; 0 where a part has no phase."""
    return jnp.where(steps.phase >= 0, phases[jnp.maximum(steps.phase, 0)], 0.0)


def of_gpus(values: Array, steps: Steps) -> Float[Array, "*r s"]:
    """A quantity of kinds of virtual stages (*r, k) as that of kinds of GPUs."""
    return jnp.einsum("...sk,...k->...s", steps.members, values)


def merged(works: Iterable[tuple[list[Listing], Steps]]) -> tuple[list[Listing], Steps]:
    """Listings of several works as one list, and their steps, which nothing
    differentiates, as one record."""
    listings: list[Listing] = []
    steps: list[Steps] = []
    for made, step in works:
        at = np.where(step.phase >= 0, step.phase + len(listings), -1)
        steps.append(dataclasses.replace(step, phase=at))
        listings += made
    return listings, stacked(steps)


def stacked(steps: "list[Steps]") -> Steps:
    """Several steps as one record, kinds filled up with ones that nothing has."""
    kinds = max(x.far.shape[-2] for x in steps)
    stages = max(x.count.shape[-1] for x in steps)
    filled = [filled_to(x, kinds, stages) for x in steps]
    fields = [field.name for field in dataclasses.fields(Steps)]
    return Steps(**{x: np.stack([getattr(y, x) for y in filled]) for x in fields})


def filled_to(x: Steps, kinds: int, stages: int) -> Steps:
    """Steps with at least as many kinds of virtual stages and of GPUs, those that were
    not there had by none."""
    more = max(kinds - x.far.shape[-2], 0)
    rest = max(stages - x.count.shape[-1], 0)
    ahead = [(0, 0)] * (x.count.ndim - 1)
    rows = (*ahead, (0, more), (0, 0))
    return dataclasses.replace(
        x,
        phase=np.pad(x.phase, rows, constant_values=-1),
        far=np.pad(x.far, rows),
        hops=np.pad(x.hops, rows),
        members=np.pad(x.members, (*ahead, (0, rest), (0, more))),
        count=np.pad(x.count, (*ahead, (0, rest))),
    )
