"""A language model in training on the GPUs of a plan: what each launches in a step,
what they exchange, and how its time follows from both."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import equinox as eqx
import numpy as np

from ..workload import Listing, Workload
from ..workload._listing import Kernel
from ..workload.models import Model, Request
from ..workload.models._network.sharding import Share, Split
from ..workload.models._shared.language_model import LanguageModel
from ..workload.models._shared.trained import TrainedModel
from ._exchange import Exchanged, Group, collective, exchanged, groups
from ._host import Host
from ._layout import Layout, layout
from ._memory import training_memory
from ._model_flop import model_flop
from ._plan import NOW, Plan
from ._steps import PARTS, Pipeline, Steps

WEIGHT: Final = 2.0
"""Bytes of a weight that replicas gather (16 bit)."""
SUMS: Final = {"fp32": 4.0, "bf16": 2.0}
"""Bytes of a gradient while replicas add it up."""
VALUE: Final = 2.0
"""Bytes of a value that passes from stage to stage (16 bit)."""
_MOST_CHUNKS: Final = 32_768
"""Micro-batches times virtual stages whose order is followed one by one."""
_DOUBLINGS: Final = 11
"""Powers of two, less one, that are tried for the GPUs of a training plan."""
_AXES: Final = ("tp", "cp", "ep")
"""Axes whose exchanges stand in the listings of a stage."""
_ATTENDS: Final = ("context_attention", "attention_backward")
_EARLY: Final = (2023.0, 2024.0)
"""Years before which training programs had no fused attention, and FlashAttention 1."""


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of a step of one kind of virtual stages."""

    name: str
    listing: Listing | None
    far: float = 0.0
    hops: float = 0.0


@dataclasses.dataclass(frozen=True)
class Training:
    """`model` in training on the GPUs of `plan`, in hosts like `host`, whose steps have
    `sequences` in all; its first `frozen` layers are not trained. All are checked
    against each other.

    Raises `ValueError` if the model or the sequences cannot be divided so.
    """

    model: TrainedModel
    plan: Plan
    host: Host
    sequences: int
    split: tuple[int, ...] | None = None
    """Layers of every virtual stage; None: as `layout` divides them."""
    frozen: int = 0

    def __post_init__(self):
        plan, each = self.plan, self.plan.dp * self.plan.microbatch
        if plan.ep > 1 and self.model.default_routing() is None:
            raise ValueError(
                f"`plan` has ep={plan.ep}, but {self.name} has no experts; leave ep "
                "out."
            )
        if self.sequences % each:
            raise ValueError(
                f"`global_batch` is {self.sequences}, which dp={plan.dp} x "
                f"microbatch={plan.microbatch} does not divide; give a multiple of "
                f"{each}."
            )
        if plan.order == "interleaved" and plan.vp > 1 and self.batches % plan.pp:
            raise ValueError(
                f"`plan` has pp={plan.pp} and vp={plan.vp}, but a replica has "
                f"{self.batches} micro-batches; an interleaved schedule needs a "
                f"multiple of pp: give a `global_batch` that is one of "
                f"{each * plan.pp}."
            )
        self.host.check_training(plan)
        _ = self.layout
        for chunk in range(len(self.layout.chunks)):
            _ = self.placed(chunk).layer_counts  # raises

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name

    @property
    def batches(self) -> int:
        """Micro-batches of a replica."""
        return self.sequences // (self.plan.dp * self.plan.microbatch)

    @functools.cached_property
    def layout(self) -> Layout:
        """Layers of every virtual stage."""
        further, frozen = self.model.further_layers, self.frozen
        kinds = self.model.kinds
        return layout(kinds, self.plan, self.name, further, self.split, frozen)

    def request(self, **given: Any) -> Request:
        """What one replica runs: its micro-batches."""
        plan = self.plan
        attention = given.get("attention")
        if attention is None and plan.software < _EARLY[0]:
            attention = "eager"
        given = given | {
            "batch": plan.microbatch,
            "accumulation": self.batches,
            "attention": attention,
            "checkpointing": None,
        }
        request = self.model.request(**given)
        if request.lora and plan.order == "zb-h1":
            raise ValueError(
                f"`lora` is {request.lora} beside schedule=zb-h1, which fills bubbles "
                "with gradients of weights; frozen ones have none: take another "
                "schedule."
            )
        if plan.cp > 1 and (request.input_len or 0) % (2 * plan.cp):
            raise ValueError(
                f"`input_len` is {request.input_len}, which cp={plan.cp} cannot divide "
                f"into pairs of equal parts; give a multiple of {2 * plan.cp}."
            )
        return dataclasses.replace(request, recompute=plan.recompute)

    def placed(self, chunk: int) -> TrainedModel:
        """The model as a GPU of a kind of virtual stages has it."""
        plan, found = self.plan, self.layout
        place = found.place(chunk)
        split = Split(
            plan.tp,
            plan.ep,
            cp=plan.cp,
            etp=plan.expert_parts,
            sequence=plan.tp > 1,
        )
        shares = groups(plan, self.host)
        share = Share(
            split,
            stages=plan.pp * plan.vp,
            stage=place,
            own=(found.spans[place],),
            shards=shares["dp"].ranks if plan.zero else 1,
            expert_shards=shares["experts"].ranks if plan.zero else 1,
        )
        placed = self.model.placed(share)
        assert isinstance(placed, TrainedModel)
        return placed

    def work(self, request: Request) -> tuple[list[Listing], Steps]:
        """Phases of a step (a listing each, named after kind and part), and the step
        that they make."""
        shares = groups(self.plan, self.host)
        kinds = [
            self._parts(chunk, request, shares)
            for chunk in range(len(self.layout.chunks))
        ]
        listings: list[Listing] = []
        shape = (len(kinds), len(PARTS))
        phase, far, hops = np.full(shape, -1), np.zeros(shape), np.zeros(shape)
        for i, parts in enumerate(kinds):
            for part in parts:
                at = PARTS.index(part.name)
                far[i, at], hops[i, at] = part.far, part.hops
                if part.listing is not None:
                    phase[i, at] = len(listings)
                    mode = f"{part.name}@{i}"
                    named = {"name": f"{self.name}/{mode}", "mode": mode}
                    listings.append(dataclasses.replace(part.listing, **named))
        return listings, self._steps(phase, far, hops, self._gathers(request))

    def _parts(
        self, chunk: int, request: Request, shares: dict[str, Group]
    ) -> list[Part]:
        """Parts of a step of one kind of virtual stages."""
        model = self.placed(chunk)
        found = passes_of(model, request, shares, self.plan.software)
        return [*found, *self._between(model, request, shares)]

    def _between(
        self, model: TrainedModel, request: Request, shares: dict[str, Group]
    ) -> list[Part]:
        """What replicas and stages exchange: gradients of trained weights, and these
        when they have changed; of weights that replicas divide all."""
        plan, held = self.plan, model.held(request)
        blank = model.listings_of(request)[0]
        among = shares["dp"], shares["experts"]
        trained = held.trained - held.trained_experts, held.trained_experts
        whole = held.whole - held.experts, held.experts
        divided = gathers_of(plan)[0] > 0
        sums = SUMS[plan.sums]
        gathered = [
            collective("all_gather", n * WEIGHT, g, "bf16")
            for n, g in zip(whole if divided else trained, among, strict=True)
        ]
        reduced = [
            collective("reduce_scatter", n * sums, g, plan.sums)
            for n, g in zip(trained, among, strict=True)
        ]
        found = [
            _moved("gather", blank, _together(gathered)),
            _moved("reduce", blank, _together(reduced)),
        ]
        if plan.pp > 1:
            tokens = request.batch * (request.input_len or 0) / plan.cp
            size = tokens * model.hidden * VALUE / plan.tp
            sent = collective("send_recv", size, shares["pp"], "bf16")
            found.append(_moved("send", blank, sent))
        return found

    def _gathers(self, request: Request) -> float:
        """Times that a micro-batch gathers the weights: `gathers_of`, less the frozen
        layers that no gradient passes."""
        gathers, _ = gathers_of(self.plan)
        if gathers < 2:
            return gathers
        held = self.placed(0).held(request)
        return gathers - self.frozen * held.layer / held.whole

    def _steps(
        self, phase: np.ndarray, far: np.ndarray, hops: np.ndarray, gathers: float
    ) -> Steps:
        plan, kinds = self.plan, self.layout.kinds
        members = np.zeros((len(kinds), len(self.layout.chunks)))
        for i, chunks in enumerate(kinds):
            for chunk in chunks:
                members[i, chunk] += 1
        rate = self.host.network
        return Steps(
            phase=phase,
            far=far,
            hops=hops,
            members=members,
            count=np.array(list(kinds.values()), float),
            batches=self.batches,
            virtual=plan.vp,
            abreast=plan.tp * plan.cp * plan.dp,
            network=np.inf if rate is None else rate,
            gathers=gathers,
            reduces=gathers_of(plan)[1],
            tp_overlap=float(plan.overlap == "tp+dp"),
            dp_overlap=float(plan.overlap != "none"),
            zero_bubble=float(plan.order == "zb-h1"),
        )

    @property
    def kinds(self) -> list[int]:
        """Kind of each stage, as a place in those of `work`'s steps."""
        known = list(self.layout.kinds)
        return [known.index(tuple(sorted(x))) for x in self.layout.stages]

    @property
    def order(self) -> Pipeline | None:
        """The order in which the pipeline runs; None where it has one stage, or so many
        instructions that the closed form has to do."""
        return None if self.plan.pp == 1 else self.program

    @property
    def program(self) -> Pipeline | None:
        """The same, also of one stage."""
        plan, found = self.plan, self.layout
        if plan.pp * plan.vp * self.batches > _MOST_CHUNKS:
            return None
        kinds = [found.chunks.index(x) for x in found.each]
        rows = [tuple(kinds[c * plan.pp :][: plan.pp]) for c in range(plan.vp)]
        return Pipeline(plan.order, self.batches, tuple(rows))

    def flop(self, request: Request) -> float:
        """FLOP of a step of all replicas that the model asks for."""
        whole = dataclasses.replace(request, recompute="none")
        return self.plan.dp * model_flop(*self.model.listings_of(whole))

    def memory(self, request: Request) -> dict[str, float]:
        """Bytes by part of the fullest GPU."""
        return max(self._memories(request), key=lambda parts: sum(parts.values()))

    def stages(self, request: Request) -> list[dict[str, int | float]]:
        """Layers and bytes of each stage."""
        spans = self.layout.spans
        sizes = [stop - start for start, stop in spans]
        return [
            {
                "layers": sum(sizes[stage :: self.plan.pp]),
                "memory_bytes": sum(parts.values()),
            }
            for stage, parts in enumerate(self._memories(request))
        ]

    def _memories(self, request: Request) -> list[dict[str, float]]:
        return training_memory(self.model, self.plan, request, layers=self.split)


def gathers_of(plan: Plan) -> tuple[float, float]:
    """How often a micro-batch gathers the weights, and reduces its gradients (0: once a
    step). In a pipeline weights stay gathered until the last micro-batch."""
    sharded = plan.pp == 1 and plan.zero >= 2
    return ({3: 2.0, 2: 1.0}.get(plan.zero, 0.0), 1.0) if sharded else (0.0, 0.0)


def passes_of(
    model: LanguageModel, request: Request, shares: Mapping[str, Group], software: float
) -> list[Part]:
    """Computation and exchanges of a step on a GPU that has `model` as it is placed,
    among the groups of its axes, with the kernels of a `software` year."""
    early = {"family": "fa1"} if software < _EARLY[1] else {}
    found: list[Part] = []
    for made in model.listings_of(request):
        listing = dataclasses.replace(made, age=NOW - software)
        rows = [
            row | (early if row["op"] in _ATTENDS else {}) for row in listing.kernels
        ]
        inside = [row for row in rows if not row.get("axis")]
        mode = str(listing.mode)
        found.append(Part(mode, _with(listing, inside)))
        for axis in _AXES:
            moved = [row for row in rows if row.get("axis") == axis]
            if moved:
                passed = exchanged(moved, shares[axis])
                found.append(_moved(f"{mode}_{axis}", listing, passed))
    return found


def _with(listing: Listing, rows: Sequence[Kernel]) -> Listing | None:
    return dataclasses.replace(listing, kernels=tuple(rows)) if rows else None


def _moved(name: str, blank: Listing, passed: Exchanged) -> Part:
    """A part that is exchanges alone, which no host dispatches one by one."""
    listing = _with(blank, passed.rows)
    if listing is not None:
        listing = dataclasses.replace(listing, module_calls=0, dispatch="graph")
    return Part(name, listing, passed.far, passed.hops)


def _together(parts: Sequence[Exchanged]) -> Exchanged:
    """Several exchanges as one part."""
    return Exchanged(
        tuple(row for part in parts for row in part.rows),
        sum(part.far for part in parts),
        sum(part.hops for part in parts),
    )


class TrainingStep(eqx.Module):
    """A training step of a plan: what its GPUs launch, and how that makes a step.

    `de.estimate(step, gpu, point)` is its time and energy, differentiable in every
    number; `steps.network` (B/s of a network card) is one.
    """

    workload: Workload
    steps: Steps
    order: Pipeline | None = eqx.field(static=True, default=None)


def least_training(
    model: Model, request: Request, plan: Plan, host: Host, capacity: float
) -> Plan | None:
    """The plan with the least GPUs, powers of two beyond those of `plan`, with which a
    training step fits GPUs of `capacity` bytes: FSDP, else tensor parallelism within a
    host and a pipeline behind it; None if none does."""
    if not isinstance(model, TrainedModel) or not model.trains:
        return None
    frozen = request.frozen_layers or 0
    for number in (2**n for n in range(1, _DOUBLINGS)):
        if number <= plan.gpus:
            continue
        tp = min(number, host.size)
        for changed in (
            dataclasses.replace(plan, tp=1, pp=1, vp=1, cp=1, dp=number, zero=3),
            dataclasses.replace(plan, tp=tp, pp=number // tp, vp=1, cp=1, dp=1),
        ):
            changed = dataclasses.replace(changed, ep=1, etp=None, schedule=None)
            try:
                sequences = number * plan.microbatch
                placed = Training(model, changed, host, sequences, frozen=frozen)
                parts = placed.memory(request)
            except ValueError:  # it does not divide the model, or the hosts
                continue
            if sum(parts.values()) <= capacity:
                return changed
    return None


def training_of(
    model: Model,
    plan: Plan,
    host: Host,
    global_batch: int | None,
    split: tuple[int, ...] | None = None,
    frozen: int = 0,
) -> Training:
    """A model in training on the GPUs of a plan, its layers divided by `split`, its
    first `frozen` ones not trained.

    Raises `ValueError` if it is no language model, or what `Training` raises.
    """
    if not isinstance(model, LanguageModel):
        raise ValueError(
            f"`plan` is {plan.text}, but {model.name} is no language model; leave it "
            "out."
        )
    if not isinstance(model, TrainedModel) or not model.trains:
        raise ValueError(
            f"`phase` is 'train', but training is not known of {model.name}."
        )
    sequences = plan.dp * plan.microbatch if global_batch is None else global_batch
    return Training(model, plan, host, sequences, split, frozen)
