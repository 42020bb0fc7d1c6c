"""A language model on the GPUs of a plan: what one of them launches and keeps; in
inference (`Inference`), and what it has in common with training (`Placed`)."""

import abc
import dataclasses
import math
from typing import Any

from ..workload import Kernel, LanguageModel, Listing, ModelShare, ModelSplit
from ..workload.models import Request
from ._exchange import exchange_groups, exchanged
from ._host import Host
from ._plan import Plan


@dataclasses.dataclass(frozen=True)
class Placed(abc.ABC):
    """`model` on the GPUs of `plan`; they are checked against each other.

    Raises `ValueError` if the model cannot be divided so.
    """

    model: LanguageModel
    plan: Plan

    def __post_init__(self):
        plan, name = self.plan, self.model.name
        if plan.ep > 1 and self.model.default_routing() is None:
            raise ValueError(
                f"`plan` has ep={plan.ep}, but {name} has no experts; leave ep out."
            )

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name

    def memory(self, request: Request) -> dict[str, float]:
        """Bytes by part of the fullest GPU."""
        memories = self.stage_memories(request)
        return max(memories, key=lambda parts: sum(parts.values()))

    def stages(self, request: Request) -> list[dict[str, int | float]]:
        """Layers and bytes of each stage."""
        memories = self.stage_memories(request)
        return [
            {"layers": layers, "memory_bytes": sum(parts.values())}
            for layers, parts in zip(self.stage_layers, memories, strict=True)
        ]

    @property
    @abc.abstractmethod
    def stage_layers(self) -> list[int]:
        """Layers of each stage."""

    @abc.abstractmethod
    def stage_memories(self, request: Request) -> list[dict[str, float]]:
        """Bytes by part of a GPU of each stage."""


@dataclasses.dataclass(frozen=True)
class Inference(Placed):
    """`model` in inference on the GPUs of `plan`, in hosts like `host` (None: one for
    all)."""

    host: Host | None = None

    def __post_init__(self):
        super().__post_init__()
        plan, name = self.plan, self.model.name
        layers = len(self.model.stack())
        if plan.pp > layers:
            raise ValueError(
                f"`plan` has pp={plan.pp}, but {name} has {layers} layers; give at "
                "most as many stages."
            )
        _ = self._all.layer_counts  # raises

    def check(self, request: Request):
        """Raises `ValueError` for a request that the plan cannot take."""
        if request.batch % self.plan.dp:
            raise ValueError(
                f"`batch` is {request.batch}, which dp={self.plan.dp} does not divide; "
                f"it is that of all replicas: give a multiple of {self.plan.dp}."
            )
        if request.stack != "serving":
            raise ValueError(
                f"`plan` is given, but `stack` is '{request.stack}'; several GPUs are "
                "known for serving alone."
            )

    def listings(self, **request: Any) -> list[Listing]:
        """Kernels of one GPU of every stage, the stages after each other."""
        batch = self.model.request(**request).batch // self.plan.dp
        listings = self._all.listings(**{**request, "batch": batch})
        return [self._between_hosts(listing) for listing in listings]

    def _between_hosts(self, listing: Listing) -> Listing:
        """A listing whose collectives of several hosts are two rows each: what passes
        within a host, then what passes the network cards of its GPUs. Those on a
        machine without one switch are as long as their schedules."""
        if self.host is None or not (self.host.network or self.host.machine):
            return listing
        rows = [part for row in listing.kernels for part in self._parts(row)]
        return dataclasses.replace(listing, kernels=tuple(rows))

    def _parts(self, row: Kernel) -> list[Kernel]:
        """The rows that stand for one row."""
        if row["op"] != "collective":
            return [row]
        assert self.host is not None
        axis = {"send_recv": "pp", "all_to_all": "ep"}.get(row["collective"], "tp")
        group = exchange_groups(self.plan, self.host)[axis]
        # sends between hosts have the network's rate already (`_all`)
        if not group.machine and (axis == "pp" or group.hosts == 1):
            return [row]
        inside = [x | {"axis": axis} for x in exchanged([row], group).rows]
        if group.hosts == 1:
            return inside
        over = {
            "collective": "send_recv",
            "bytes": group.far(row["collective"], row["bytes"]),
            "num_gpus": 2,
            "link_rate": self.host.network,
            "axis": axis,
        }
        return [*inside, row | over]

    @property
    def stage_layers(self) -> list[int]:
        """Layers of each stage."""
        number = len(self.model.stack())
        return [len(share.layers(number)) for share in self._shares]

    def stage_memories(self, request: Request) -> list[dict[str, float]]:
        """Bytes by part of a GPU of each stage, of its share of the batch."""
        batch = math.ceil(request.batch / self.plan.dp)
        one = dataclasses.replace(request, batch=batch)
        return [self.model.placed(share).memory(one) for share in self._shares]

    @property
    def _shares(self) -> list[ModelShare]:
        stages = range(self.plan.pp)
        return [ModelShare(self._split, self.plan.pp, stage) for stage in stages]

    @property
    def _split(self) -> ModelSplit:
        return ModelSplit(self.plan.tp, self.plan.ep)

    @property
    def _all(self) -> LanguageModel:
        """All stages after each other, with what they send."""
        far = self.host.far(self.plan) if self.host else 0
        rate = (self.host.network if self.host else None) or 0.0
        return self.model.placed(ModelShare(self._split, self.plan.pp, None, far, rate))
