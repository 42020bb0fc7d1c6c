"""The parts of a training step: what one GPU launches in them, what it exchanges with
others, and the FLOP that the model asks for."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from ..workload import LanguageModel, Listing, TrainedModel
from ..workload.models import Request
from ._exchange import Dispatch, Exchanged, ExchangeGroup, collective_row, exchanged
from ._plan import NOW, Plan

GATHERED_WEIGHT_BYTES: Final = 2.0
"""Bytes of a weight that replicas gather (16 bit)."""
GRADIENT_SUM_BYTES: Final = {"fp32": 4.0, "bf16": 2.0}
"""Bytes of a gradient while replicas add it up."""
STAGE_VALUE_BYTES: Final = 2.0
"""Bytes of a value that passes from stage to stage (16 bit)."""
_AXES: Final = ("tp", "cp", "ep")
"""Axes whose exchanges stand in the listings of a stage."""
_ATTENDS: Final = ("context_attention", "attention_backward")
_DISPATCHED_BYTES: Final = {"bf16": 2.0, "fp8": 1 + 4 / 128}
"""Bytes of a value that a row has on its way to experts; fp8 with a 4-byte scale for
every 128 values. Back it has 16 bits."""
_GROUPED: Final = 2024.9
"""Year from which programs route tokens to some groups of experts (DeepSeek-V3)."""
_FLASH2: Final = 2024.0
"""Year before which training programs had FlashAttention 1."""


@dataclasses.dataclass(frozen=True)
class StepPart:
    """One part of a step of one kind of virtual stages."""

    name: str
    listing: Listing | None
    far: float = 0.0
    hops: float = 0.0


def gathers_of(plan: Plan) -> tuple[float, float]:
    """How often a micro-batch gathers the weights, and reduces its gradients (0: once a
    step). In a pipeline weights stay gathered until the last micro-batch."""
    sharded = plan.pp == 1 and plan.zero >= 2
    return ({3: 2.0, 2: 1.0}.get(plan.zero, 0.0), 1.0) if sharded else (0.0, 0.0)


def passes_of(
    model: LanguageModel,
    listings: Sequence[Listing],
    shares: Mapping[str, ExchangeGroup],
    plan: Plan,
) -> list[StepPart]:
    """Computation and exchanges of a step on a GPU that has `model` as it is placed and
    launches `listings`, among the groups of its axes, with the kernels of the year of
    the plan's software."""
    early = {"family": "fa1"} if plan.software < _FLASH2 else {}
    parts: list[StepPart] = []
    shares = {**shares, "ep": _dispatched(model, listings, shares["ep"], plan)}
    for each in listings:
        listing = dataclasses.replace(each, age=NOW - plan.software)
        rows = [
            row | (early if row["op"] in _ATTENDS else {}) for row in listing.kernels
        ]
        inside = [row for row in rows if not row.get("axis")]
        mode = str(listing.mode)
        whole = dataclasses.replace(listing, kernels=tuple(inside)) if inside else None
        parts.append(StepPart(mode, whole))
        for axis in _AXES:
            moved = [row for row in rows if row.get("axis") == axis]
            if moved:
                passed = exchanged(moved, shares[axis])
                parts.append(_moved(f"{mode}_{axis}", listing, passed))
    return parts


def _dispatched(
    model: LanguageModel, listings: Sequence[Listing], group: ExchangeGroup, plan: Plan
) -> ExchangeGroup:
    """The GPUs that share the experts of `listings`, as the plan's program sends rows
    to them."""
    rows = (row for listing in listings for row in listing.kernels)
    mixed = next((row for row in rows if row["op"] == "moe"), None)
    if plan.dispatcher == "plain" or group.ranks == 1 or mixed is None:
        return group
    there = _DISPATCHED_BYTES[plan.dispatcher]
    return dataclasses.replace(
        group,
        dispatch=Dispatch(
            int(mixed["num_experts"]),
            int(mixed["topk"]),
            _hosts(model, group, plan),
            (there + _DISPATCHED_BYTES["bf16"]) / 2,
        ),
    )


def _hosts(model: LanguageModel, group: ExchangeGroup, plan: Plan) -> int:
    """Hosts that the experts of a token are in at most; 0: any."""
    if plan.hosts is not None:
        if plan.hosts > group.hosts or (plan.hosts and group.hosts % plan.hosts):
            raise ValueError(
                f"`plan` has hosts={plan.hosts}, but the ep={plan.ep} GPUs that share "
                f"experts are in {group.hosts} hosts; give a number that divides them, "
                "or 0 for any."
            )
        return plan.hosts
    groups, chosen = model.expert_groups
    # Only where no host has several groups is their number one of hosts.
    if plan.software < _GROUPED or group.hosts < groups or group.hosts % groups:
        return 0
    return chosen * group.hosts // groups


def between(
    model: TrainedModel,
    request: Request,
    blank: Listing,
    shares: Mapping[str, ExchangeGroup],
    plan: Plan,
) -> list[StepPart]:
    """What replicas and stages exchange, in listings like `blank`: gradients of trained
    weights, and these when they have changed; of weights that replicas divide all."""
    weights = model.training_weights(request)
    trained = weights.trained - weights.trained_experts, weights.trained_experts
    frozen = weights.frozen - weights.frozen_experts, weights.frozen_experts
    also = gathers_of(plan)[0] > 0  # frozen weights are divided, too
    gathered = [
        GATHERED_WEIGHT_BYTES * n + b * also
        for n, b in zip(trained, frozen, strict=True)
    ]
    reduced = [GRADIENT_SUM_BYTES[plan.sums] * n for n in trained]
    parts = []
    for name, kind, sizes, dtype in (
        ("gather", "all_gather", gathered, "bf16"),
        ("reduce", "reduce_scatter", reduced, plan.sums),
    ):
        among = zip(sizes, (shares["dp"], shares["experts"]), strict=True)
        passed = [collective_row(kind, size, group, dtype) for size, group in among]
        parts.append(_moved(name, blank, *passed))
    if plan.pp > 1:
        tokens = request.batch * (request.input_len or 0) / plan.cp
        size = tokens * model.hidden * STAGE_VALUE_BYTES / plan.model_split.parts
        sent = collective_row("send_recv", size, shares["pp"], "bf16")
        parts.append(_moved("send", blank, sent))
    return parts


def _moved(name: str, blank: Listing, *passed: Exchanged) -> StepPart:
    """A part that is exchanges alone, which no host dispatches one by one."""
    rows = tuple(row for x in passed for row in x.rows)
    alone = dataclasses.replace(blank, kernels=rows, module_calls=0, dispatch="graph")
    far, hops = sum(x.far for x in passed), sum(x.hops for x in passed)
    return StepPart(name, alone if rows else None, far, hops)


def model_flop(*passes: Listing) -> float:
    """FLOP of the passes of a training step, forward and backward: 6 a trained weight
    and token (4 a frozen one, 2 where backward stops above it), and attention over the
    pairs that a causal mask leaves (6 q s a layer and token; sources that count the
    full square have 12).
    """
    from ..kernels import ops  # the kernel classes load JAX

    rows = (row for listing in passes for row in listing.kernels)
    return sum(row["count"] * ops()[row["op"]][0].model_flop(row) for row in rows)
