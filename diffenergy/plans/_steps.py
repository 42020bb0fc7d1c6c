"""`Steps`: what the time and energy of training steps follow from, beside the phases of
a workload.

A phase is what one GPU launches of one part of a step (`STEP_PARTS`) in one kind of
virtual stage."""

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
from ._pipeline import Pipeline, both_ways_makespan, closed_form_makespan

STEP_PARTS: Final = (
    "forward", "backward", "optimizer", "forward_tp", "backward_tp", "forward_cp",
    "backward_cp", "forward_ep", "backward_ep", "gather", "reduce", "send",
)  # fmt: skip
"""Computation of all micro-batches forward and backward, and of the optimizer; their
exchanges among the GPUs of an axis; once each: weights gathered and gradients reduced
over replicas, a micro-batch sent to the next stage."""
AT: Final = {name: i for i, name in enumerate(STEP_PARTS)}
EXCHANGE_AXES: Final = ("tp", "pp", "dp", "ep", "cp")


class Steps(Record):
    """Training steps (leading axes *r) on the GPUs of plans: K kinds of virtual stages,
    S kinds of GPUs along the pipeline, P = len(`STEP_PARTS`)."""

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
    """1 where exchanges of weights and gradients, and of keys and values, run beside
    computation."""
    ep_overlap: Float[Array, "*r"] = eqx.field(converter=as_float)
    """1 where experts' exchange runs beside the pass of another micro-batch; below 1
    the share of it that is hidden there."""
    zero_bubble: Float[Array, "*r"] = eqx.field(converter=as_float)
    """1 where gradients of weights fill the bubble (ZB-H1)."""
    both_ways: Float[Array, "*r"] = eqx.field(converter=as_float)
    """1 where micro-batches enter the pipeline at both ends (DualPipe)."""

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


def merge_steps(
    works: Iterable[tuple[list[Listing], Steps]],
) -> tuple[list[Listing], Steps]:
    """Listings of several works as one list, and their steps, which nothing
    differentiates, as one record."""
    listings: list[Listing] = []
    steps: list[Steps] = []
    for phases, step in works:
        at_phase = np.asarray(step.phase)  # by NumPy: each operation of JAX is compiled
        at = np.where(at_phase >= 0, at_phase + len(listings), -1)
        steps.append(dataclasses.replace(step, phase=at))
        listings += phases
    return listings, stacked(steps)


def stacked(steps: "list[Steps]") -> Steps:
    """Several steps as one record, kinds filled up with ones that nothing has."""
    kinds = max(x.far.shape[-2] for x in steps)
    stages = max(x.count.shape[-1] for x in steps)
    filled = [pad_steps(x, kinds, stages) for x in steps]
    fields = [field.name for field in dataclasses.fields(Steps)]
    return Steps(**{x: np.stack([getattr(y, x) for y in filled]) for x in fields})


def pad_steps(x: Steps, kinds: int, stages: int) -> Steps:
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


# --- `compose_step`: the time of training steps from that of their phases.
#
# Equations: docs/physics.md, Many GPUs.

_SHARP: Final = 8.0
"""Order of the norm between two things that run at once."""
HOP: Final = 20e-6
"""s for every doubling of the hosts of a collective (an InfiniBand round trip and the
start of a ring's step; an estimate)."""
_DOUBLING: Final = 8.0
"""GPUs from which doublings are counted for stragglers."""


class MicroBatch(Record):
    """One micro-batch in a virtual stage of each kind, s: forward, then backward."""

    work: Float[Array, "*r k 2"]
    """Computation."""
    moved: Float[Array, "*r k 2 a"]
    """Exchanges by axis (`EXCHANGE_AXES`), hidden or not."""
    exposed: Float[Array, "*r k 2 a"]
    """What of them nothing hides; with `work` all that the micro-batch takes."""


class StepTime(Record):
    """Time of steps and where it goes, s; exchanges by axis (`EXCHANGE_AXES`) are of
    the mean GPU."""

    time: Float[Array, "*r"]
    pipeline: Float[Array, "*r"]
    """Time of all micro-batches, without what follows them (s)."""
    bubble: Float[Array, "*r"]
    """Share of the pipeline in which GPUs idle or wait for a slower stage."""
    stage: Float[Array, "*r s"]
    """Time of a micro-batch on a GPU of each kind, with the send to the next (s)."""
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


def compose_step(
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
    micro, whole, shown = _micro_batch(part, steps, c)
    forward, backward = (x / m for x in whole)
    gathered, reduced = _once(part, steps)
    late = _late(gathered, forward, steps, c) + _late(reduced, backward, steps, c)
    sent = c.plan_pp_exposed[..., None, None] * _sends(part["send"], steps)
    ways = [of_gpus(x, steps) / m for x in whole]
    stage = ways[0] + ways[1] + of_gpus(jnp.sum(sent, axis=-1), steps)
    if order is None:
        early = steps.zero_bubble[..., None] * ways[1] / 2
        one_way = closed_form_makespan(
            stage, steps.count, steps.batches, steps.virtual, early
        )
        two_way = both_ways_makespan(stage, ways[1], steps.count, steps.batches)
        pipeline = jnp.where(steps.both_ways > 0, two_way, one_way)
    elif isinstance(order, Pipeline):
        pipeline = order.span(forward + sent[..., 0], backward + sent[..., 1])
    else:
        pipeline = order
    pipeline = pipeline + _begun_and_ended(shown, steps)
    optimizer, late_of_gpus = of_gpus(part["optimizer"], steps), of_gpus(late, steps)
    after = _most(late_of_gpus, steps) + _most(optimizer, steps)
    time = (pipeline + after) * (1 + _rest(steps, c))
    busy = steps.batches * jnp.sum(steps.count * stage, -1) / jnp.sum(steps.count, -1)
    once = gathered + reduced
    return StepTime(
        time,
        pipeline,
        1 - busy / pipeline,
        stage,
        ways[0],
        ways[1],
        optimizer,
        _of_mean_gpu(micro.moved, once, steps),
        _of_mean_gpu(micro.exposed, late, steps),
        late_of_gpus,
        of_gpus(once, steps),
        micro,
    )


def _rest(steps: Steps, c: Corrections) -> Float[Array, "*r"]:
    """Share of a step of several GPUs that it takes beyond its parts."""
    doublings = jnp.log2(steps.gpus / _DOUBLING)
    rest = c.plan_fixed + c.plan_straggle * doublings
    return jnp.where(steps.gpus > 1, rest, 0.0)


def _once(
    part: dict[str, Array], steps: Steps
) -> tuple[Float[Array, "*r k"], Float[Array, "*r k"]]:
    """s of weights and of gradients that replicas exchange once a step."""
    gathers, reduces = steps.gathers[..., None], steps.reduces[..., None]
    both = _stages_of_a_gpu(steps)[..., None]
    gathered = (1 - jnp.minimum(gathers, 1.0)) * part["gather"]
    return both * gathered, both * (1 - reduces) * part["reduce"]


def _stages_of_a_gpu(steps: Steps) -> Float[Array, "*r"]:
    """2 where a GPU has two stages, each with half of the micro-batches (DualPipe), so
    that `members` counts halves; what happens once a step happens to both."""
    return jnp.where(steps.both_ways > 0, 2.0, 1.0)


def _of_mean_gpu(
    micro: Float[Array, "*r k 2 a"], end: Float[Array, "*r k"], steps: Steps
) -> Float[Array, "*r a"]:
    """s of the mean GPU by axis: of all micro-batches, and at the `end` of the step."""
    at_end = jnp.arange(len(EXCHANGE_AXES)) == EXCHANGE_AXES.index("dp")
    m = steps.batches[..., None, None]
    each = m * jnp.sum(micro, axis=-2) + end[..., None] * at_end
    of_each = jnp.einsum("...sk,...ka->...sa", steps.members, each)
    share = steps.count / jnp.sum(steps.count, -1, keepdims=True)
    return jnp.sum(share[..., None] * of_each, axis=-2)


def _begun_and_ended(hidden: Float[Array, "*r k"], steps: Steps) -> Float[Array, "*r"]:
    """s of experts' exchange that nothing hides while a pipeline fills and drains, of
    `hidden` s of a micro-batch: (p - 1)/v of the mean GPU's; of one stage that of one
    micro-batch. DualPipe fills from both ends with other micro-batches."""
    number = jnp.sum(steps.count, axis=-1)
    mean = jnp.sum(steps.count * of_gpus(hidden, steps), axis=-1) / number
    filling = jnp.where(number > 1, (number - 1) / steps.virtual, 1.0)
    return jnp.where(steps.both_ways > 0, 0.0, filling) * mean


def _micro_batch(
    part: dict[str, Array], steps: Steps, c: Corrections
) -> tuple[MicroBatch, list[Array], Float[Array, "*r k"]]:
    """Where the time of a micro-batch goes; s of all of them forward and backward, with
    all that runs beside computation; s of a micro-batch that another one hides of its
    experts' exchange."""
    m = steps.batches[..., None]
    tp = jnp.where(steps.tp_overlap > 0, c.plan_tp_overlapped, c.plan_tp_exposed)
    tp, pp = tp[..., None], c.plan_pp_exposed[..., None]
    gathers, reduces = steps.gathers[..., None], steps.reduces[..., None]
    ahead = jnp.minimum(gathers, 1.0) * m * part["gather"]
    behind = m * (jnp.maximum(gathers - 1, 0.0) * part["gather"])
    behind = behind + m * reduces * part["reduce"]
    sent = _sends(part["send"], steps)
    whole, work, moved, exposed = [], [], [], []
    shown, hidden = _experts_exposed(part, tp, steps, c)
    for i, (name, weights) in enumerate((("forward", ahead), ("backward", behind))):
        sent_to_experts = shown * part[f"{name}_ep"]
        alone = part[name] + tp * part[f"{name}_tp"] + sent_to_experts
        others = weights + part[f"{name}_cp"]
        hidden_others = beside(alone, others, c.plan_contention)
        hides = steps.dp_overlap[..., None] > 0
        whole.append(jnp.where(hides, hidden_others, alone + others))
        within, among = part[f"{name}_tp"] / m, part[f"{name}_ep"] / m
        cp, dp = part[f"{name}_cp"] / m, weights / m
        both = jnp.where(cp + dp > 0, cp + dp, 1.0)
        over = (whole[i] - alone) / m
        work.append(part[name] / m)
        moved.append((within, sent[..., i], dp, among, cp))
        exposed.append(
            (
                tp * within,
                pp * sent[..., i],
                over * dp / both,
                sent_to_experts / m,
                over * cp / both,
            )
        )
    stacks = (jnp.stack([jnp.stack(x, -1) for x in y], -2) for y in (moved, exposed))
    return MicroBatch(jnp.stack(work, -1), *stacks), whole, hidden / m


def _experts_exposed(
    part: dict[str, Array], tp: Array, steps: Steps, c: Corrections
) -> tuple[Float[Array, "*r k"], Float[Array, "*r k"]]:
    """Share of experts' exchange that a step takes beyond its computation, and s of all
    micro-batches that it does not.

    One micro-batch's exchange runs beside another one's computation, forward beside
    backward (DualPipe, Megatron-LM): `beside` of both together. Programs that launch
    their kernels one by one hide a share of it.
    """
    sent = part["forward_ep"] + part["backward_ep"]
    within = part["forward_tp"] + part["backward_tp"]
    work = part["forward"] + part["backward"] + tp * within
    there = jnp.where(sent > 0, sent, 1.0)
    overlap = steps.ep_overlap[..., None]
    over = beside(work, sent, c.plan_experts_contention) - work
    shown = jnp.where(overlap == 1, over / there, 1 - overlap)
    return shown, jnp.where(sent > 0, (1 - shown) * sent, 0.0)


def _parts(times: Array, steps: Steps, c: Corrections) -> dict[str, Array]:
    """s of every part, its share between hosts included."""
    within = of_parts(times, steps)
    rate = steps.network[..., None, None] * c.plan_network
    between = jnp.where(steps.far > 0, steps.far / rate, 0.0)
    total = smooth.pnorm((within, between), _SHARP)
    total = jnp.where(steps.far > 0, total + HOP * steps.hops, within)
    return {name: total[..., i] for i, name in enumerate(STEP_PARTS)}


def beside(work: Array, moved: Array, contention: Array) -> Array:
    """Time of computation (`work`, s) beside an exchange (`moved`, s) that takes SMs
    and memory from it:

        max_8(work + contention min(moved, work), moved)
    """
    slowed = work + contention[..., None] * jnp.minimum(moved, work)
    return jnp.where(moved > 0, smooth.pnorm((slowed, moved), _SHARP), work)


def _late(
    moved: Array, work: Array, steps: Steps, c: Corrections
) -> Float[Array, "*r k"]:
    """What a step waits for what it exchanges once: gradients beside the last
    micro-batch backward, weights beside the next one forward (`work`)."""
    over = beside(work, moved, c.plan_contention) - work
    return jnp.where(steps.dp_overlap[..., None] > 0, over, moved)


def _sends(send: Array, steps: Steps) -> Float[Array, "*r k 2"]:
    """s of a micro-batch from a virtual stage to the next, forward and backward, of
    which a schedule with several hides half (arXiv 2104.04473)."""
    each = jnp.max(send, axis=-1) * jnp.where(steps.virtual > 1, 0.5, 1.0)
    return each[..., None, None] * steps.ways


def _most(x: Float[Array, "*r s"], steps: Steps) -> Float[Array, "*r"]:
    """The largest value of all kinds of GPUs that there are."""
    return jnp.max(jnp.where(steps.count > 0, x, 0.0), axis=-1)


# --- Energy of training steps: of all GPUs, and where along the pipeline it goes.


class StepEnergy(Record):
    """Energy of steps, J of all GPUs, and power, W of a GPU of each kind."""

    energy: Float[Array, "*r"]
    stage_power: Float[Array, "*r s"]
    busy: Float[Array, "*r s"]
    """Share of the step in which a GPU of each kind runs kernels or exchanges."""
    calls: Float[Array, "*r k p"]
    """How often a step runs each part (`STEP_PARTS`) of a virtual stage."""


def step_energy(
    times: Float[Array, " n"],
    dynamic: Float[Array, " n"],
    static: Float[Array, " n"],
    step: StepTime,
    steps: Steps,
) -> StepEnergy:
    """Energy of steps: what kernels draw beyond static power, however long they wait,
    and static power all along:

        E = sum of GPUs (E_dynamic + P_static T)

    Args:
        times: s of the phases.
        dynamic: J of the phases beyond static power.
        static: W of idling and leakage in the phases.
        step: time of the steps.
        steps: the steps.
    """
    calls = _calls(steps)
    own = jnp.sum(calls * of_parts(dynamic, steps), axis=-1)
    spent = calls * of_parts(times, steps)
    still = jnp.sum(spent * of_parts(static, steps), axis=-1)
    drawn, total = of_gpus(own, steps), of_gpus(jnp.sum(spent, axis=-1), steps)
    there, still = steps.count > 0, of_gpus(still, steps)
    waiting = jnp.where(there, still / jnp.where(there, total, 1.0), 0.0)
    power = drawn / step.time[..., None] + waiting
    work = steps.batches[..., None] * (step.forward + step.backward)
    busy = jnp.minimum((work + step.optimizer) / step.time[..., None], 1.0)
    energy = steps.abreast * step.time * jnp.sum(steps.count * power, axis=-1)
    return StepEnergy(energy, power, busy, calls)


def _calls(steps: Steps) -> Float[Array, "*r k p"]:
    """How often a step runs each part."""
    ones = jnp.ones_like(steps.far)
    m = steps.batches[..., None]
    gathers = jnp.maximum(steps.gathers[..., None] * m, 1.0)
    reduces = jnp.where(steps.reduces[..., None] > 0, m, 1.0)
    both = _stages_of_a_gpu(steps)[..., None]
    gathers, reduces = both * gathers, both * reduces
    ones = ones.at[..., AT["gather"]].multiply(gathers)
    ones = ones.at[..., AT["reduce"]].multiply(reduces)
    return ones.at[..., AT["send"]].multiply(m * jnp.sum(steps.ways, axis=-1))


def dynamic_joules(
    joules: Float[np.ndarray, "*r k p"], steps: Steps
) -> tuple[
    Float[np.ndarray, "*r k 2"], Float[np.ndarray, "*r k"], Float[np.ndarray, "*r k"]
]:
    """J of each kind of virtual stages from those of its parts (`of_parts`): of a
    micro-batch (forward, backward), of what replicas exchange once a step, of the
    optimizer."""
    part = {name: joules[..., i] for i, name in enumerate(STEP_PARTS)}
    m, gathers = float(steps.batches), float(steps.gathers)
    ways = []
    for name in ("forward", "backward"):
        axes = (name, *(f"{name}_{axis}" for axis in ("tp", "cp", "ep")))
        there = np.asarray(steps.phase)[..., STEP_PARTS.index(name)] >= 0
        sent = part["send"] * there
        ways.append(sum(part[x] for x in axes) / m + sent)
    reduces = float(steps.reduces)
    ways[0] = ways[0] + min(gathers, 1.0) * part["gather"]
    ways[1] = ways[1] + max(gathers - 1.0, 0.0) * part["gather"]
    ways[1] = ways[1] + reduces * part["reduce"]
    once = (1 - min(gathers, 1.0)) * part["gather"] + (1 - reduces) * part["reduce"]
    return np.stack(ways, axis=-1), once, part["optimizer"]
