"""`compose`: the time of training steps from that of their phases.

Equations: docs/training.md, Many GPUs.
"""

from typing import Final

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ... import smooth
from ...corrections import Corrections
from ...records import Record
from .._pipeline import Pipeline, closed_form
from .steps import AXES, PARTS, Steps, of_gpus, of_parts

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
    micro, whole = _micro_batch(part, steps, c)
    forward, backward = (x / m for x in whole)
    gathered, reduced = _once(part, steps)
    late = _late(gathered, forward, steps, c) + _late(reduced, backward, steps, c)
    sent = c.plan_pp_exposed[..., None, None] * _sends(part["send"], steps)
    ways = [of_gpus(x, steps) / m for x in whole]
    stage = ways[0] + ways[1] + of_gpus(jnp.sum(sent, axis=-1), steps)
    if order is None:
        early = steps.zero_bubble[..., None] * ways[1] / 2
        pipeline = closed_form(stage, steps.count, steps.batches, steps.virtual, early)
    elif isinstance(order, Pipeline):
        pipeline = order.span(forward + sent[..., 0], backward + sent[..., 1])
    else:
        pipeline = order
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
    gathered = (1 - jnp.minimum(gathers, 1.0)) * part["gather"]
    return gathered, (1 - reduces) * part["reduce"]


def _of_mean_gpu(
    micro: Float[Array, "*r k 2 a"], end: Float[Array, "*r k"], steps: Steps
) -> Float[Array, "*r a"]:
    """s of the mean GPU by axis: of all micro-batches, and at the `end` of the step."""
    at_end = jnp.arange(len(AXES)) == AXES.index("dp")
    m = steps.batches[..., None, None]
    each = m * jnp.sum(micro, axis=-2) + end[..., None] * at_end
    of_each = jnp.einsum("...sk,...ka->...sa", steps.members, each)
    share = steps.count / jnp.sum(steps.count, -1, keepdims=True)
    return jnp.sum(share[..., None] * of_each, axis=-2)


def _micro_batch(
    part: dict[str, Array], steps: Steps, c: Corrections
) -> tuple[MicroBatch, list[Array]]:
    """Where the time of a micro-batch goes; s of all of them forward and backward, with
    all that runs beside computation."""
    m = steps.batches[..., None]
    tp = jnp.where(steps.tp_overlap > 0, c.plan_tp_overlapped, c.plan_tp_exposed)
    tp, pp = tp[..., None], c.plan_pp_exposed[..., None]
    gathers, reduces = steps.gathers[..., None], steps.reduces[..., None]
    ahead = jnp.minimum(gathers, 1.0) * m * part["gather"]
    behind = m * (jnp.maximum(gathers - 1, 0.0) * part["gather"])
    behind = behind + m * reduces * part["reduce"]
    sent = _sends(part["send"], steps)
    whole, work, moved, exposed = [], [], [], []
    for i, (name, weights) in enumerate((("forward", ahead), ("backward", behind))):
        alone = part[name] + tp * part[f"{name}_tp"] + part[f"{name}_ep"]
        whole.append(beside(alone, weights + part[f"{name}_cp"], c))
        within, among = part[f"{name}_tp"] / m, part[f"{name}_ep"] / m
        cp, dp = part[f"{name}_cp"] / m, weights / m
        both = jnp.where(cp + dp > 0, cp + dp, 1.0)
        over = (whole[i] - alone) / m
        work.append(part[name] / m)
        moved.append((within, sent[..., i], dp, among, cp))
        exposed.append(
            (tp * within, pp * sent[..., i], over * dp / both, among, over * cp / both)
        )
    stacks = (jnp.stack([jnp.stack(x, -1) for x in y], -2) for y in (moved, exposed))
    return MicroBatch(jnp.stack(work, -1), *stacks), whole


def _parts(times: Array, steps: Steps, c: Corrections) -> dict[str, Array]:
    """s of every part, its share between hosts included."""
    within = of_parts(times, steps)
    rate = steps.network[..., None, None] * c.plan_network
    between = jnp.where(steps.far > 0, steps.far / rate, 0.0)
    total = smooth.pnorm((within, between), _SHARP)
    total = jnp.where(steps.far > 0, total + HOP * steps.hops, within)
    return {name: total[..., i] for i, name in enumerate(PARTS)}


def beside(work: Array, moved: Array, c: Corrections) -> Array:
    """Time of computation (`work`, s) beside an exchange (`moved`, s) that takes SMs
    and memory from it:

        max_8(work + contention min(moved, work), moved)
    """
    slowed = work + c.plan_contention * jnp.minimum(moved, work)
    return jnp.where(moved > 0, smooth.pnorm((slowed, moved), _SHARP), work)


def _late(
    moved: Array, work: Array, steps: Steps, c: Corrections
) -> Float[Array, "*r k"]:
    """What a step waits for what it exchanges once: gradients beside the last
    micro-batch backward, weights beside the next one forward (`work`)."""
    over = beside(work, moved, c) - work
    return jnp.where(steps.dp_overlap[..., None] > 0, over, moved)


def _sends(send: Array, steps: Steps) -> Float[Array, "*r k 2"]:
    """s of a micro-batch from a virtual stage to the next, forward and backward, of
    which a schedule with several hides half (arXiv 2104.04473)."""
    each = jnp.max(send, axis=-1) * jnp.where(steps.virtual > 1, 0.5, 1.0)
    return each[..., None, None] * steps.ways


def _most(x: Float[Array, "*r s"], steps: Steps) -> Float[Array, "*r"]:
    """That of the GPU that takes longest."""
    return jnp.max(jnp.where(steps.count > 0, x, 0.0), axis=-1)
