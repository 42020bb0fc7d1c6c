"""Time, energy and memory of every plan from the pieces that they share."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..compiling import call_compiled
from ..corrections import Corrections
from ..nodes import Site
from ..physics import stage_time
from ..plans import (
    GATHERED_WEIGHT_BYTES,
    GRADIENT_SUM_BYTES,
    STAGE_VALUE_BYTES,
    STEP_PARTS,
    ExchangeGroup,
    Plan,
    Schedule,
    Steps,
    StepTime,
    compose_step,
    exchange_groups,
    micro_batches_in_flight,
    pipeline_layout,
    state_bytes,
    step_energy,
    step_fields,
)
from ..workload import TrainingWeights, element_bytes, pad_size
from ._pieces import BOTH, ENDS, FIRST, LAST, Maker, Pieces, key_of
from ._space import Space

_ONCE: Final = ("optimizer", "gather", "reduce", "send")
"""Parts that a step has once, however many micro-batches it has."""
KINDS: Final = 4
STAGES: Final = 5
"""Kinds of virtual stages, and of GPUs along a pipeline, of most plans: others are
filled up to them, so that one program serves."""
_MOVES: Final = {
    "gather": "all_gather",
    "reduce": "reduce_scatter",
    "send": "send_recv",
}


@dataclasses.dataclass(frozen=True)
class Ranked:
    """Figures of plans, about: time (s), energy (J of all GPUs), bytes of the fullest
    GPU. `shape`: plans, kinds of virtual stages and of GPUs that the program which
    composed them has room for; `site`: where the boards stand."""

    plans: list[Plan]
    time: Float[np.ndarray, " n"]
    energy: Float[np.ndarray, " n"]
    memory: Float[np.ndarray, " n"]
    shape: tuple[int, int, int]
    site: Site | None = None

    def values(self, objective: str) -> Float[np.ndarray, " n"]:
        """What an objective makes small: s, or J, at the wall where that is known."""
        if objective == "time":
            return self.time
        wall = wall_energy(self.site, self.plans, self.time, self.energy)
        return self.energy if wall is None else wall

    def take(self, rows: np.ndarray) -> "Ranked":
        """The plans of some rows, with their figures."""
        plans, columns = [self.plans[i] for i in rows], ("time", "energy", "memory")
        figures = {name: getattr(self, name)[rows] for name in columns}
        return dataclasses.replace(self, plans=plans, **figures)


@dataclasses.dataclass(frozen=True)
class _Stages:
    """How a pipeline divides a model, in pieces: `counts` of kinds of virtual stages,
    `members` of them in kinds of GPUs, `count` of these; `fullest`: stages of which
    one has most to keep, and the pieces of each."""

    counts: Float[np.ndarray, "k q"]
    members: Float[np.ndarray, "s k"]
    count: Float[np.ndarray, " s"]
    fullest: tuple[tuple[int, Float[np.ndarray, " q"]], ...]


@functools.lru_cache(maxsize=512)
def _stages(
    kinds: tuple[int, ...], further: int, pp: int, vp: int, both_ways: bool
) -> _Stages:
    usual: Schedule | None = "interleaved" if vp > 1 else None
    plan = Plan(pp=pp, vp=vp, schedule="dualpipe" if both_ways else usual)
    layout = pipeline_layout(kinds, plan, "the model", further)
    width = ENDS + max(kinds) + 1

    def pieces(place: int) -> tuple[float, ...]:
        row = np.zeros(width)
        row[FIRST], row[LAST] = place == 0, place == len(layout.spans) - 1
        if len(layout.spans) == 1:
            row[[FIRST, LAST, BOTH]] = 0.0, 0.0, 1.0
        np.add.at(row, ENDS + np.array(kinds[slice(*layout.spans[place])], int), 1.0)
        return tuple(row)

    each = [pieces(i) for i in range(len(layout.spans))]
    kinds_priced = list(dict.fromkeys(each))
    stages = [
        tuple(sorted(kinds_priced.index(x) for x in each[s::pp])) for s in range(pp)
    ]
    if both_ways:
        pairs = zip(stages, stages[::-1], strict=True)
        stages = [tuple(sorted(a + b)) for a, b in pairs]
    alike = list(dict.fromkeys(stages))
    members = layout.share * np.array(
        [[x.count(k) for k in range(len(kinds_priced))] for x in alike], float
    )
    count = np.array([stages.count(x) for x in alike], float)
    fullest = tuple(  # of stages that are alike the first has most in flight
        (stages.index(x), np.sum([kinds_priced[k] for k in x], axis=0)) for x in alike
    )
    return _Stages(np.array(kinds_priced), members, count, fullest)


def _pipeline(plan: Plan) -> tuple[int, int, bool]:
    """What of a plan decides which layers a GPU has."""
    return plan.pp, plan.vp, plan.order == "dualpipe"


def ranked(
    maker: Maker, pieces: Pieces, plans: Sequence[Plan], c: Corrections
) -> Ranked:
    """Figures of `plans`, whose pieces are all there."""
    space = maker.space
    at = {key: i for i, key in enumerate(pieces.keys)}
    keys = np.array([at[key_of(plan)] for plan in plans])
    further = space.model.further_layers
    stages = [_stages(pieces.kinds, further, *_pipeline(plan)) for plan in plans]
    memory = np.array(
        [
            _memory(maker, pieces, key, plan, x)
            for key, plan, x in zip(keys.tolist(), plans, stages, strict=True)
        ]
    )
    more = pad_size(len(plans)) - len(plans)  # one program for about as many
    padded = [*range(len(plans)), *[0] * more]
    batch = _Batch(
        space,
        pieces,
        [plans[i] for i in padded],
        keys[padded],
        [stages[i] for i in padded],
        maker.width,
    )
    time, energy = batch.figures(c)
    n = len(plans)
    shape = (len(padded), batch.counts.shape[1], batch.members.shape[1])
    return Ranked([*plans], time[:n], energy[:n], memory, shape, space.site)


def wall_energy(
    site: Site | None,
    plans: Sequence[Plan],
    time: Float[np.ndarray, " n"],
    energy: Float[np.ndarray, " n"],
) -> Float[np.ndarray, " n"] | None:
    """Energy of a step at the wall (J) of plans whose boards take `energy`, each at the
    mean power of its boards; None without a site."""
    if site is None:
        return None
    gpus, wall = np.array([x.gpus for x in plans], int), np.empty(len(plans))
    for number in np.unique(gpus).tolist():
        rows = gpus == number
        power = energy[rows] / time[rows] / number
        wall[rows] = time[rows] * site.power(power, number)
    return wall


def state_bytes_of(maker: Maker, plan: Plan) -> list[float]:
    """Bytes of weights, gradients and optimizer of a GPU of each of the fullest stages
    of a plan. Plans that differ by micro-batches alone share them."""
    space, key = maker.space, key_of(plan)
    same = *key[:4], *_pipeline(plan), plan.dp, plan.zero
    if same not in maker.states:
        sizes, values = maker.sizes(key), maker.values
        layer = float(sizes[ENDS:].sum(axis=1).max())
        table = space.model.vocab * space.model.hidden / plan.tp
        stages = _stages(maker.kinds, space.model.further_layers, *_pipeline(plan))

        def state(dense: float, routed: float) -> float:
            numbers = dense + routed, routed, layer, layer * element_bytes(values)
            weights = TrainingWeights(*numbers)
            return sum(state_bytes(plan, values, weights, table).values())

        rows = [(row @ sizes).tolist() for _, row in stages.fullest]
        maker.states[same] = [state(*row) for row in rows]
    return maker.states[same]


def _memory(
    maker: Maker, pieces: Pieces, key: int, plan: Plan, stages: _Stages
) -> float:
    """Bytes of the fullest GPU of a plan."""
    batches = maker.space.global_batch // (plan.dp * plan.microbatch)
    states, most = state_bytes_of(maker, plan), 0.0
    for (stage, row), state in zip(stages.fullest, states, strict=True):
        there = row > 0
        flying = micro_batches_in_flight(plan, stage, batches)
        # as in `training_memory`
        scored = flying if plan.order == "gpipe" else 1.0
        once, logits, workspace = (
            (x[key] * there).max()
            for x in (pieces.once, pieces.logits, pieces.workspace)
        )
        left = flying * (row @ pieces.each[key]) + once + scored * logits + workspace
        most = max(most, state + left)
    return most


@dataclasses.dataclass(frozen=True)
class _Batch:
    """Plans with their pieces' place and their pipelines; `columns` of parts
    [plan, kind of virtual stages, part]."""

    space: Space
    pieces: Pieces
    plans: list[Plan]
    keys: np.ndarray
    stages: list[_Stages]
    width: float
    """Bytes of an operand of the products."""

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """How many of each piece kinds of virtual stages have."""
        return _filled([x.counts for x in self.stages], KINDS)

    @functools.cached_property
    def members(self) -> np.ndarray:
        """How many of each kind of virtual stages kinds of GPUs have."""
        return _filled([x.members for x in self.stages], STAGES, self.counts.shape[1])

    @functools.cached_property
    def groups(self) -> list[dict[str, ExchangeGroup]]:
        """GPUs of every plan that meet."""
        return [exchange_groups(plan, self.space.host) for plan in self.plans]

    def column(self, name: str) -> np.ndarray:
        """A size of every plan."""
        return np.array([getattr(plan, name) for plan in self.plans], float)

    def parameters(self, of: np.ndarray) -> np.ndarray:
        """A number of each piece, summed over kinds of virtual stages."""
        return np.einsum("nkq,nq->nk", self.counts, of[self.keys])

    def figures(self, c: Corrections) -> tuple[np.ndarray, np.ndarray]:
        """(s, J) of every plan."""
        m = self.space.global_batch / (self.column("dp") * self.column("microbatch"))
        columns = {}
        for name in ("time", "host", "energy", "still", "far", "hops"):
            one = getattr(self.pieces, name)[self.keys]
            columns[name] = np.einsum("nkq,nqp->nkp", self.counts, one)
        self._dispatched(columns, c)
        for part in range(len(STEP_PARTS)):
            if STEP_PARTS[part] not in _ONCE:
                for x in columns.values():
                    x[..., part] *= m[:, None]
        self._optimizer(columns)
        self._between(columns)
        numbers = {x: columns[x] for x in ("time", "energy", "still")}
        steps, closed = self._steps(columns, m), np.full(len(m), np.nan)
        time, energy, _ = call_compiled(compose_plans, (numbers, steps, c, closed))
        return np.asarray(time), np.asarray(energy)

    def _dispatched(self, columns: dict[str, Any], c: Corrections) -> None:
        """The host beside the GPU, as in `estimate`, with what a pass costs it once."""
        gpu, host = columns["time"], columns.pop("host")
        there = np.any(self.counts, axis=-1, keepdims=True) & (gpu > 0)
        host = host + float(c.dispatch_pass) * self.pieces.eager * there
        whole = stage_time(gpu, np.maximum(host, 0.0))
        ratio = np.where(gpu > 0, whole / np.where(gpu > 0, gpu, 1.0), 1.0)
        columns["time"], columns["still"] = whole, columns["still"] * ratio

    def _optimizer(self, columns: dict[str, Any]) -> None:
        """The optimizer's share of each replica (ZeRO)."""
        at = STEP_PARTS.index("optimizer")
        dense, routed = map(self.parameters, (self.pieces.dense, self.pieces.routed))
        ranks = [[x["dp"].ranks, x["experts"].ranks] for x in self.groups]
        ranks = np.where(self.column("zero")[:, None] > 0, np.array(ranks, float), 1.0)
        sharded = dense / ranks[:, :1] + routed / ranks[:, 1:]
        share = sharded / np.where(dense + routed > 0, dense + routed, 1.0)
        for name in ("time", "energy", "still"):
            columns[name][..., at] *= share

    def _between(self, columns: dict[str, Any]) -> None:
        """Weights, gradients and what passes from stage to stage."""
        sums = np.array([GRADIENT_SUM_BYTES[plan.sums] for plan in self.plans])[:, None]
        for of, axis in ((self.pieces.dense, "dp"), (self.pieces.routed, "experts")):
            number = self.parameters(of)
            for name, each in (("gather", GATHERED_WEIGHT_BYTES), ("reduce", sums)):
                self._move(columns, name, number * each, axis)
        tokens = self.space.input_len * self.column("microbatch") / self.column("cp")
        parts = np.array([plan.model_split.parts for plan in self.plans])
        size = tokens * self.space.model.hidden * STAGE_VALUE_BYTES / parts
        size = np.where(self.column("pp") > 1, size, 0.0)[:, None]
        self._move(columns, "send", size * self.counts.any(axis=-1), "pp")

    def _move(
        self, columns: dict[str, Any], name: str, size: np.ndarray, axis: str
    ) -> None:
        """Adds a collective of `size` bytes, (n, k), among an axis to a part."""
        at, kind = STEP_PARTS.index(name), _MOVES[name]
        meet = [x[axis] for x in self.groups]
        local = np.array([x.local for x in meet])
        ranks = np.array([x.ranks for x in meet])
        for number in np.unique(local):
            rows = np.flatnonzero((local == number) & (ranks > 1))
            time, energy = self.pieces.exchange(kind, int(number), size[rows])
            columns["time"][rows, :, at] += time
            columns["energy"][rows, :, at] += energy
        far = np.array([x.far(kind, 1.0) for x in meet])[:, None] * size
        hops = np.array([x.hops for x in meet])[:, None]
        columns["far"][..., at] += far
        columns["hops"][..., at] += hops * (size > 0)

    def _steps(self, columns: dict[str, Any], m: np.ndarray) -> Steps:
        host = self.space.host
        each = [step_fields(plan, host, self.width) for plan in self.plans]
        return Steps(
            phase=np.zeros(columns["time"].shape),
            far=columns["far"],
            hops=columns["hops"],
            members=self.members,
            count=_filled([x.count[:, None] for x in self.stages], STAGES)[..., 0],
            batches=m,
            **{name: np.array([x[name] for x in each], float) for name in each[0]},
        )


def compose_plans(
    columns: dict[str, Any], steps: Steps, c: Corrections, span: Float[Any, " r"]
) -> tuple[Array, Array, Float[Array, "r k 2"]]:
    """(s, J) of steps whose pipelines take `span` (s; NaN: as the closed form says),
    and s of a micro-batch forward and backward in each kind of virtual stages, its way
    to the next included. `columns`: see `_flat`."""
    steps, time, work, static = _flat(columns, steps)
    alone = compose_step(time, steps, c)
    composed = compose_step(
        time, steps, c, jnp.where(jnp.isnan(span), alone.pipeline, span)
    )
    energy = step_energy(time, work, static, composed, steps).energy
    return composed.time, energy, alone.micro.work + alone.micro.exposed.sum(axis=-1)


def compose_powers(
    columns: dict[str, Any], steps: Steps, c: Corrections, span: Float[Any, " r"]
) -> tuple[StepTime, Float[Array, "r s"]]:
    """Time of steps and mean power of a GPU of each kind (W); see `compose_plans`."""
    steps, time, work, static = _flat(columns, steps)
    closed = compose_step(time, steps, c).pipeline
    span = jnp.where(jnp.isnan(span), closed, span)
    composed = compose_step(time, steps, c, span)
    return composed, step_energy(time, work, static, composed, steps).stage_power


def _flat(
    columns: dict[str, Float[Any, "r k p"]], steps: Steps
) -> tuple[Steps, Float[Array, " i"], Float[Array, " i"], Float[Array, " i"]]:
    """Steps whose parts are one phase each, with s, J beyond static power, and W of it,
    of these; `columns`: `time`, `energy` and `still` (J of static power, 0 where it is
    not known: then as usual) of parts."""
    time, energy, still = (jnp.ravel(columns[x]) for x in ("time", "energy", "still"))
    stated = still > 0
    usual = jnp.sum(still) / jnp.sum(jnp.where(stated, time, 0.0))
    static = jnp.where(stated, still / jnp.where(stated, time, 1.0), usual)
    phase = jnp.arange(time.size).reshape(steps.far.shape)
    return dataclasses.replace(steps, phase=phase), time, energy, static


def _filled(
    parts: Sequence[np.ndarray], least: int, width: int | None = None
) -> np.ndarray:
    """Tables of different sizes as one array, filled up with zeros."""
    rows = max(least, *(len(x) for x in parts))
    filled = np.zeros((len(parts), rows, width or parts[0].shape[1]))
    for i, x in enumerate(parts):
        filled[i, : x.shape[0], : x.shape[1]] = x
    return filled
