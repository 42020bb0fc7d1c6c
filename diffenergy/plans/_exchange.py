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


def reached_groups(experts: Number, groups: Number, chosen: int) -> float:
    """Mean number of equal `groups` of experts that hold at least one of those `chosen`
    at random:

        n (1 - C(E - E/n, k) / C(E, k))

    >>> round(reached_groups(256, 8, 8), 2)
    5.3
    """
    none = 1.0
    for i in range(chosen):
        none *= max(experts - experts / groups - i, 0.0) / (experts - i)
    return groups * (1 - none)


@dataclasses.dataclass(frozen=True)
class Dispatch:
    """How a token's rows reach `chosen` of `experts`: once to each host that has one
    of them, at most `limit` hosts (0: any), then once to each such GPU there; values
    have `width` bytes, mean of the way there and back."""

    experts: int
    chosen: int
    limit: int
    width: float

    def shares(self, ranks: int, hosts: int) -> tuple[float, float]:
        """Bytes within a host and between hosts over those of an all-to-all of 16-bit
        rows to each expert, whose share within a host is 1 / `hosts`."""
        allowed = min(self.limit, hosts) if self.limit else hosts
        part = allowed / hosts
        near = reached_groups(self.experts * part, ranks * part, self.chosen)
        far = reached_groups(self.experts * part, allowed, self.chosen)
        each = self.width / _WIDTH / self.chosen
        return near * each * hosts, far * each


_WIDTH: Final = 2.0
"""Bytes of a value of the rows that a plain all-to-all sends to each expert."""


@dataclasses.dataclass(frozen=True)
class ExchangeGroup:
    """`ranks` GPUs that meet, `local` of them in one host; in a `machine` without one
    switch all `teams` at the same time. `dispatch`: of an all-to-all that sends no row
    twice to a host or GPU."""

    ranks: int
    local: int
    machine: str = ""
    teams: Teams = ()
    dispatch: Dispatch | None = None

    @property
    def hosts(self) -> int:
        """Hosts that they are in."""
        return math.ceil(self.ranks / self.local)

    def far(self, kind: str, size: Number) -> float:
        """Bytes of a collective of `size` bytes over the network card of each GPU."""
        if self.hosts == 1:
            return 0.0
        if kind == "all_to_all":
            return size * (self.ranks - self.local) / self.ranks * self._shares[1]
        if kind == _SENDS:
            return size
        once = size * (self.hosts - 1) / self.hosts / self.local
        return 2 * once if kind in _TWICE else once

    @property
    def _shares(self) -> tuple[float, float]:
        """Bytes of an all-to-all within a host and between hosts, over plain ones."""
        if self.dispatch is None:
            return 1.0, 1.0
        return self.dispatch.shares(self.ranks, self.hosts)

    @property
    def near(self) -> float:
        """Bytes of an all-to-all within a host, over those of all."""
        return self.local / self.ranks * self._shares[0]

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
        size *= group.near if kind == "all_to_all" else 1.0
        latency, each = line(group.machine, kind, group.teams)
        once = 1.0 if kind == _SENDS else 1 - 1 / group.ranks
        sent = size * once * (2 if kind in _TWICE else 1)
        rate = sent / (latency + each * size)
        return {"collective": _SENDS, "bytes": sent, "num_gpus": 2, "link_rate": rate}
    share = group.near if row["collective"] == "all_to_all" else 1.0
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
