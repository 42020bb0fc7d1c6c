"""`Steps`: what the time and energy of training steps follow from, beside the phases of
a workload; `compose`: from those phases to a step.

A phase is what one GPU launches of one part of a step (`PARTS`) in one kind of virtual
stage. Equations: docs/training.md, Many GPUs.
"""

import dataclasses
from collections.abc import Iterable
from typing import Final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from .. import smooth
from ..corrections import Corrections
from ..records import Record, as_float, as_index
from ..workload import Listing
from ._pipeline import closed_form, makespan
from ._plan import Schedule

PARTS: Final = (
    "forward", "backward", "optimizer", "forward_tp", "backward_tp", "forward_cp",
    "backward_cp", "forward_ep", "backward_ep", "gather", "reduce", "send",
)  # fmt: skip
"""Computation of all micro-batches forward and backward, and of the optimizer; their
exchanges among the GPUs of an axis; once each: weights gathered and gradients reduced
over replicas, a micro-batch sent to the next stage."""
_AT: Final = {name: i for i, name in enumerate(PARTS)}
AXES: Final = ("tp", "pp", "dp", "ep", "cp")
_SHARP: Final = 8.0
"""Order of the norm between two things that run at once."""
HOP: Final = 20e-6
"""s for every doubling of the hosts of a collective (an InfiniBand round trip and the
start of a ring's step; an estimate)."""
_DOUBLING: Final = 8.0
"""GPUs from which doublings are counted for stragglers."""


class Steps(Record):
    """Training steps (leading axes *r) on the GPUs of plans: K kinds of virtual stages,
    S kinds of GPUs along the pipeline, P = len(`PARTS`)."""

    phase: Int[Array, "*r k p"] = eqx.field(converter=as_index)
    """Phase of the workload that holds a part; -1: none."""
    far: Float[Array, "*r k p"] = eqx.field(converter=as_float)
    """Bytes over the network card of a GPU."""
    hops: Float[Array, "*r k p"] = eqx.field(converter=as_float)
    """Latencies between hosts, in units of `HOP`."""
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
        at = jnp.array([_AT["forward"], _AT["backward"]])
        return (self.phase[..., at] >= 0).astype(self.far.dtype)

    def part(self, values: Float[Array, "*r k p"], name: str) -> Float[Array, "*r k"]:
        """The values of one part."""
        return values[..., _AT[name]]


class MicroBatch(Record):
    """One micro-batch in a virtual stage of each kind, s: forward, then backward."""

    work: Float[Array, "*r k 2"]
    """Computation."""
    moved: Float[Array, "*r k 2 a"]
    """Exchanges by axis (`AXES`), hidden or not."""
    exposed: Float[Array, "*r k 2 a"]
    """What of them nothing hides; with `work` all that the micro-batch takes."""


class StepTime(Record):
    """Time of steps and where it goes, s; exchanges by axis (`AXES`) are of the mean
    GPU."""

    time: Float[Array, "*r"]
    pipeline: Float[Array, "*r"]
    """Of all micro-batches, without what follows them."""
    bubble: Float[Array, "*r"]
    """Share of the pipeline in which GPUs idle or wait for a slower stage."""
    stage: Float[Array, "*r s"]
    """Of a micro-batch on a GPU of each kind, with its way to the next."""
    forward: Float[Array, "*r s"]
    backward: Float[Array, "*r s"]
    optimizer: Float[Array, "*r s"]
    moved: Float[Array, "*r a"]
    """Exchanges, hidden or not."""
    exposed: Float[Array, "*r a"]
    """What of them nothing hides."""
    late: Float[Array, "*r s"]
    """What a GPU of each kind waits at the end for weights and gradients."""
    once: Float[Array, "*r s"]
    """What it exchanges of them once a step, hidden or not."""
    micro: MicroBatch


def of_parts(phases: Float[Array, " n"], steps: Steps) -> Float[Array, "*r k p"]:
    """A quantity of phases as that of parts; 0 where a part has no phase."""
    return jnp.where(steps.phase >= 0, phases[jnp.maximum(steps.phase, 0)], 0.0)


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """Order of one step: kind of virtual stage at every place (row c, column s)."""

    schedule: Schedule
    batches: int
    kinds: tuple[tuple[int, ...], ...]

    def span(
        self,
        forward: Float[Array, " k"],
        backward: Float[Array, " k"],
    ) -> Float[Array, ""]:
        """Time of all micro-batches, each `forward` and `backward` (s, with its way to
        the next one) in a virtual stage of each kind."""
        kinds = jnp.asarray(self.kinds)
        ways = forward[kinds], backward[kinds]
        return makespan(*ways, self.batches, self.schedule)


def compose(
    times: Float[Array, " n"],
    steps: Steps,
    c: Corrections,
    order: "Pipeline | Float[Array, '*r'] | None" = None,
) -> StepTime:
    """Time of steps from that of the phases of a workload.

    The constants `plan_*` of `c` say what of an exchange is exposed; for one GPU the
    result is the sum of the phases.

    Args:
        times: s of the phases.
        steps: the steps.
        c: the constants.
        order: of the one step, whose pipeline then follows from the recursion, or s
            that the pipelines take; without it from the closed form.
    """
    m = steps.batches[..., None]
    part = _parts(times, steps, c)
    tp = jnp.where(steps.tp_overlap > 0, c.plan_tp_overlapped, c.plan_tp_exposed)
    shown = {x: tp[..., None] * part[x] for x in ("forward_tp", "backward_tp")}
    forward = part["forward"] + shown["forward_tp"] + part["forward_ep"]
    backward = part["backward"] + shown["backward_tp"] + part["backward_ep"]

    gathers, reduces = steps.gathers[..., None], steps.reduces[..., None]
    ahead = jnp.minimum(gathers, 1.0) * m * part["gather"]
    behind = m * (jnp.maximum(gathers - 1, 0.0) * part["gather"])
    behind = behind + m * reduces * part["reduce"]
    forward_all = beside(forward, ahead + part["forward_cp"], c)
    backward_all = beside(backward, behind + part["backward_cp"], c)
    late = _late(part, forward_all / m, backward_all / m, steps, c)

    def of_gpus(x: Array) -> Array:  # of kinds of virtual stages -> of GPUs
        return jnp.einsum("...sk,...k->...s", steps.members, x)

    sent = c.plan_pp_exposed[..., None, None] * _sends(part["send"], steps)
    x_forward, x_backward = of_gpus(forward_all) / m, of_gpus(backward_all) / m
    early = steps.zero_bubble[..., None] * x_backward / 2
    stage = x_forward + x_backward + of_gpus(jnp.sum(sent, axis=-1))
    if order is None:
        pipeline = closed_form(stage, steps.count, steps.batches, steps.virtual, early)
    elif isinstance(order, Pipeline):
        there, back = forward_all / m + sent[..., 0], backward_all / m + sent[..., 1]
        pipeline = order.span(there, back)
    else:
        pipeline = order
    optimizer = of_gpus(part["optimizer"])
    after = _most(of_gpus(late), steps) + _most(optimizer, steps)
    several = steps.gpus > 1
    doublings = jnp.log2(steps.gpus / _DOUBLING)
    rest = jnp.where(several, c.plan_fixed + c.plan_straggle * doublings, 0.0)
    time = (pipeline + after) * (1 + rest)

    busy = steps.batches * jnp.sum(steps.count * stage, -1) / jnp.sum(steps.count, -1)
    once = (1 - jnp.minimum(gathers, 1.0)) * part["gather"]
    once = once + (1 - reduces) * part["reduce"]
    micro = _micro_batch(
        part,
        (forward, backward),
        (forward_all, backward_all),
        (ahead, behind),
        (tp, c.plan_pp_exposed),
        steps,
    )
    at_end = jnp.arange(len(AXES)) == AXES.index("dp")

    def of_all(x: Array, rest: Array) -> Array:  # micro-batches and the end
        each = m[..., None] * jnp.sum(x, axis=-2) + rest[..., None] * at_end
        of_each = jnp.einsum("...sk,...ka->...sa", steps.members, each)
        share = steps.count / jnp.sum(steps.count, -1, keepdims=True)
        return jnp.sum(share[..., None] * of_each, axis=-2)

    return StepTime(
        time,
        pipeline,
        1 - busy / pipeline,
        stage,
        x_forward,
        x_backward,
        optimizer,
        of_all(micro.moved, once),
        of_all(micro.exposed, late),
        of_gpus(late),
        of_gpus(once),
        micro,
    )


def _micro_batch(
    part: dict[str, Array],
    alone: tuple[Array, Array],
    whole: tuple[Array, Array],
    weights: tuple[Array, Array],
    shares: tuple[Array, Array],
    steps: Steps,
) -> MicroBatch:
    """Where the time of a micro-batch goes; arguments of all micro-batches, forward
    and backward: `alone` without what runs beside, `whole` with it, `weights` that
    replicas exchange beside; `shares` of tensor-parallel exchanges and of sends that
    nothing hides."""
    tp, pp = (x[..., None] for x in shares)
    m = steps.batches[..., None]
    sent = _sends(part["send"], steps)
    work, moved, exposed = [], [], []
    for i, name in enumerate(("forward", "backward")):
        within, among = part[f"{name}_tp"] / m, part[f"{name}_ep"] / m
        cp, dp = part[f"{name}_cp"] / m, weights[i] / m
        both = jnp.where(cp + dp > 0, cp + dp, 1.0)
        over = (whole[i] - alone[i]) / m
        work.append(part[name] / m)
        moved.append((within, sent[..., i], dp, among, cp))
        exposed.append(
            (tp * within, pp * sent[..., i], over * dp / both, among, over * cp / both)
        )
    stacks = (jnp.stack([jnp.stack(x, -1) for x in y], -2) for y in (moved, exposed))
    return MicroBatch(jnp.stack(work, -1), *stacks)


def _parts(times: Array, steps: Steps, c: Corrections) -> dict[str, Array]:
    """s of every part, its share between hosts included."""
    within = of_parts(times, steps)
    rate = steps.network[..., None, None] * c.plan_network
    between = jnp.where(steps.far > 0, steps.far / rate, 0.0)
    total = smooth.pnorm((within, between), _SHARP)
    total = jnp.where(steps.far > 0, total + HOP * steps.hops, within)
    return {name: steps.part(total, name) for name in PARTS}


def beside(work: Array, moved: Array, c: Corrections) -> Array:
    """Time of computation (`work`, s) beside an exchange (`moved`, s) that takes SMs
    and memory from it:

        max_8(work + contention min(moved, work), moved)
    """
    slowed = work + c.plan_contention * jnp.minimum(moved, work)
    return jnp.where(moved > 0, smooth.pnorm((slowed, moved), _SHARP), work)


def _late(
    part: dict[str, Array],
    forward: Array,
    backward: Array,
    steps: Steps,
    c: Corrections,
) -> Array:
    """What a step waits for weights and gradients that it exchanges once: gradients
    beside the last micro-batch backward, weights beside the next one forward."""
    gathered = jnp.where(steps.gathers[..., None] > 0, 0.0, part["gather"])
    reduced = jnp.where(steps.reduces[..., None] > 0, 0.0, part["reduce"])
    found = 0.0
    for moved, work in ((gathered, forward), (reduced, backward)):
        over = beside(work, moved, c) - work
        found = found + jnp.where(steps.dp_overlap[..., None] > 0, over, moved)
    return jnp.asarray(found)


def _sends(send: Array, steps: Steps) -> Float[Array, "*r k 2"]:
    """s of a micro-batch from a virtual stage to the next, forward and backward, of
    which a schedule with several hides half (arXiv 2104.04473)."""
    each = jnp.max(send, axis=-1) * jnp.where(steps.virtual > 1, 0.5, 1.0)
    return each[..., None, None] * steps.ways


def _most(x: Float[Array, "*r s"], steps: Steps) -> Float[Array, "*r"]:
    """That of the GPU that takes longest."""
    return jnp.max(jnp.where(steps.count > 0, x, 0.0), axis=-1)


class StepEnergy(Record):
    """Energy of steps, J of all GPUs, and power, W of a GPU of each kind."""

    energy: Float[Array, "*r"]
    stage_power: Float[Array, "*r s"]
    busy: Float[Array, "*r s"]
    """Share of the step in which a GPU of each kind runs kernels or exchanges."""
    calls: Float[Array, "*r k p"]
    """How often a step runs each part (`PARTS`) of a virtual stage."""


def step_energy(
    times: Float[Array, " n"],
    dynamic: Float[Array, " n"],
    static: Float[Array, " n"],
    found: StepTime,
    steps: Steps,
) -> StepEnergy:
    """Energy of steps: what kernels draw beyond static power, however long they wait,
    and static power all along:

        E = sum of GPUs (E_dynamic + P_static T)

    Args:
        times: s of the phases.
        dynamic: J of the phases beyond static power.
        static: W of idling and leakage in the phases.
        found: time of the steps.
        steps: the steps.
    """
    calls = _calls(steps)
    own = jnp.sum(calls * of_parts(dynamic, steps), axis=-1)
    spent = calls * of_parts(times, steps)
    still = jnp.sum(spent * of_parts(static, steps), axis=-1)

    def of_gpus(x: Array) -> Array:
        return jnp.einsum("...sk,...k->...s", steps.members, x)

    drawn, total = of_gpus(own), of_gpus(jnp.sum(spent, axis=-1))
    there = steps.count > 0
    waiting = jnp.where(there, of_gpus(still) / jnp.where(there, total, 1.0), 0.0)
    power = drawn / found.time[..., None] + waiting
    work = steps.batches[..., None] * (found.forward + found.backward)
    busy = jnp.minimum((work + found.optimizer) / found.time[..., None], 1.0)
    energy = steps.abreast * found.time * jnp.sum(steps.count * power, axis=-1)
    return StepEnergy(energy, power, busy, calls)


def _calls(steps: Steps) -> Float[Array, "*r k p"]:
    """How often a step runs each part."""
    ones = jnp.ones_like(steps.far)
    m = steps.batches[..., None]
    gathers = jnp.maximum(steps.gathers[..., None] * m, 1.0)
    reduces = jnp.where(steps.reduces[..., None] > 0, m, 1.0)
    ones = ones.at[..., _AT["gather"]].multiply(gathers)
    ones = ones.at[..., _AT["reduce"]].multiply(reduces)
    return ones.at[..., _AT["send"]].multiply(m * jnp.sum(steps.ways, axis=-1))


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
    return _joined([filled_to(x, kinds, stages) for x in steps])


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


def _joined(steps: list[Steps]) -> Steps:
    columns = {
        field.name: np.stack([getattr(x, field.name) for x in steps])
        for field in dataclasses.fields(Steps)
    }
    return Steps(**columns)
