"""What the GPUs of a plan exchange: within a host as rows of the kernel model, between
hosts as bytes over the network card of a GPU.

GPUs are numbered tp first, then cp, dp and last pp, as training programs do, so that
`n` of them that meet, one every `stride`, are `local` = min(n, size / stride) in one
host. A collective of S bytes among them takes

    max_8(that of the local ones, S (hosts - 1)/hosts / (local rate))
        + 20 us log2(hosts + 1)

(all-reduce: twice the second; all-to-all: S (n - local)/n / rate): the network's part
uses the cards of all local GPUs at once (docs/plans.md, Machines). On a machine that is
not one switch they take as long as a schedule, which stands as a send at its rate.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

from ..workload import Kernel, Number
from ._host import Host, Teams, line, pairs, teams
from ._plan import Plan

_TWICE: Final = ("all_reduce", "custom_all_reduce")
_SENDS: Final = "send_recv"


@dataclasses.dataclass(frozen=True)
class ExchangeGroup:
    """`ranks` GPUs that meet, `local` of them in one host; in a `machine` without one
    switch all `teams` at the same time."""

    ranks: int
    local: int
    machine: str = ""
    teams: Teams = ()

    @property
    def hosts(self) -> int:
        """Hosts that they are in."""
        return math.ceil(self.ranks / self.local)

    def far(self, kind: str, size: Number) -> float:
        """Bytes of a collective of `size` bytes over the network card of each GPU."""
        if self.hosts == 1:
            return 0.0
        if kind == "all_to_all":
            return size * (self.ranks - self.local) / self.ranks
        if kind == _SENDS:
            return size
        once = size * (self.hosts - 1) / self.hosts / self.local
        return 2 * once if kind in _TWICE else once

    @property
    def hops(self) -> float:
        """log2(hosts + 1) of more than one host, else 0."""
        return math.log2(self.hosts + 1) if self.hosts > 1 else 0.0


def group(ranks: int, stride: int, size: int) -> ExchangeGroup:
    """Some of the GPUs of hosts of `size`, one every `stride`.

    >>> group(16, 2, 8).local
    4
    """
    return ExchangeGroup(ranks, min(ranks, max(size // stride, 1)))


def exchange_groups(plan: Plan, host: Host) -> dict[str, ExchangeGroup]:
    """Those that meet, by axis: tp, cp, ep, pp (two stages), dp (all that share the
    weights of a stage), experts (the same of an expert)."""
    shared = plan.ep * plan.expert_parts
    stage = plan.tp * plan.cp * plan.dp
    strides = {
        "tp": (plan.tp, 1),
        "cp": (plan.cp, plan.tp),
        "ep": (plan.ep, plan.expert_parts),
        "dp": (plan.dp * plan.cp, plan.tp),
        "experts": (max(stage // shared, 1), shared),
    }
    if host.machine:
        groups = {
            axis: ExchangeGroup(
                ranks, ranks, host.machine, teams(plan.gpus, ranks, stride)
            )
            for axis, (ranks, stride) in strides.items()
        }
        return groups | {
            "pp": ExchangeGroup(2, 2, host.machine, pairs(plan.gpus, stage))
        }
    groups = {axis: group(*x, host.size) for axis, x in strides.items()}
    return groups | {"pp": ExchangeGroup(2, 2 if plan.gpus <= host.size else 1)}


@dataclasses.dataclass(frozen=True)
class Exchanged:
    """Collectives of one part of a step: `rows` of what passes within a host; bytes
    (`far`) and latencies (`hops`) of what passes between hosts."""

    rows: tuple[Kernel, ...] = ()
    far: float = 0.0
    hops: float = 0.0


def exchanged(rows: Sequence[Kernel], group: ExchangeGroup) -> Exchanged:
    """Rows of collectives among the GPUs of a group, divided by where they pass."""
    inside = [dict(row) | _within(row, group) for row in rows if group.local > 1]
    far = sum(row["count"] * group.far(row["collective"], row["bytes"]) for row in rows)
    hops = sum(row["count"] for row in rows) * group.hops
    return Exchanged(tuple(inside), far, hops)


def _within(row: Kernel, group: ExchangeGroup) -> Kernel:
    """What is different of the part within a host."""
    if group.machine:
        kind, size = row["collective"], row["bytes"]
        latency, each = line(group.machine, kind, group.teams)
        once = 1.0 if kind == _SENDS else 1 - 1 / group.ranks
        sent = size * once * (2 if kind in _TWICE else 1)
        rate = sent / (latency + each * size)
        return {"collective": _SENDS, "bytes": sent, "num_gpus": 2, "link_rate": rate}
    share = group.local / group.ranks if row["collective"] == "all_to_all" else 1.0
    return {"num_gpus": group.local, "bytes": row["bytes"] * share}


def collective_row(
    kind: str, size: Number, group: ExchangeGroup, dtype: str
) -> Exchanged:
    """One collective of `size` bytes; none of one GPU, or of nothing."""
    if group.ranks == 1 or size <= 0:
        return Exchanged()
    row: Kernel = dict(
        op="collective",
        collective=kind,
        bytes=size,
        num_gpus=group.ranks,
        dtype=dtype,
        count=1,
    )
    return exchanged([row], group)
