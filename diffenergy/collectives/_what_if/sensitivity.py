"""What to buy: how the finish answers to each link's rate and latency.

With T the finish of a schedule whose links keep their orders (`finish_time`),
r a rate and a a latency:

- `rate` = d ln T / d ln r: -0.3 says that 1 % more rate takes 0.3 % off the finish;
- `latency` = d ln T / d ln a, and `rise` = dT/da, s per s: how often the last byte to
  arrive has waited for that latency.

T is the longest of many paths. The gradient is that of *one* longest path: where
several are equally long, it shares the finish out as if that path were the only one.
The one-sided derivatives are exact there: a link that is faster helps as far as every
longest path passes it, one that is slower harms if any does. (`rate` above 0: a faster
link brings data too soon to a switch, which cannot hold it; sent slower it would do.)
Scaling all rates one way and all latencies the other scales T, so that over all links
sum(latency) - sum(rate) = 1.
"""

import dataclasses
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Bool, Float

from ...units import us
from .._machine.topology import Topology
from .._schedule.finish_time import finish_time
from .._schedule.schedule import Schedule
from .._schedule.simulate import order_of

_FASTER: Final = 1e-7
"""Step in s per byte that prefers some of the longest paths to others: paths whose
lengths differ by less than that share of a part's time count as equal."""
_LATER: Final = 1e-9
"""The same for latencies, as a share of the finish."""
_MOST: Final = 1e8
"""Sends times cases beyond which derivatives to one side take minutes."""


@dataclasses.dataclass(frozen=True)
class OneSided:
    """Exact derivatives to one side, also where longest paths tie; as `rate` and `rise`
    of `Sensitivities`, of a rate that grows or shrinks, a latency that does."""

    faster: Float[np.ndarray, " part"]
    slower: Float[np.ndarray, " part"]
    longer: Float[np.ndarray, " part"]
    shorter: Float[np.ndarray, " part"]


@dataclasses.dataclass(frozen=True)
class Sensitivities:
    """How the `finish` (s, each send as early as the order allows) answers to the links
    of a part, on one longest path; `exact` to one side unless that takes minutes.
    `names` of the parts: two nodes or a medium; `members`: which links they have."""

    topology: Topology
    names: tuple[tuple[str, ...], ...]
    members: Bool[np.ndarray, "part link"]
    finish: float
    rate: Float[np.ndarray, " part"]
    latency: Float[np.ndarray, " part"]
    rise: Float[np.ndarray, " part"]
    exact: OneSided | None


def sensitivities(schedule: Schedule, by: Literal["link", "medium"]) -> Sensitivities:
    """How the finish answers to rates and latencies, the order of sends kept: of each
    direction between two nodes, or of all links of a medium at once, in order of their
    first link. The exact derivatives to either side take four finishes a part.

    Raises `ValueError` for a schedule without sends.
    """
    topology = schedule.topology
    number: dict[tuple[str, ...], int] = {}
    which = []
    for link in topology.links:
        ends = topology.names[link.source], topology.names[link.target]
        part = (link.medium,) if by == "medium" else ends
        which.append(number.setdefault(part, len(number)))
    members = np.arange(len(number))[:, None] == np.array(which, int)
    rates, latencies = topology.rates, topology.latencies
    order, count = order_of(schedule), len(number)
    base = finish_time(order, rates, latencies)
    exact = None
    if 4 * count * len(schedule.sends) <= _MOST:
        # The paths that a small step prefers are the longest ones there, and T is
        # piecewise linear in latencies and in s per byte: the gradient after the step
        # is the derivative at its beginning.
        late = _LATER * schedule.last_end
        used = np.isin(np.arange(len(rates)), schedule.sends.link)
        table = np.zeros((4, count))  # links that nothing passes: 0
        for part in np.flatnonzero(members[:, used].any(1)).tolist():
            mine = members[part]
            for row, step in enumerate((-_FASTER, _FASTER)):
                slower = 1 + step * mine
                found = finish_time(order, rates / slower, latencies)
                slope = found.by_rate[mine].sum() / (1 + step)
                table[row, part] = slope / base.time
            for row, wait in enumerate((late, -late), 2):
                found = finish_time(order, rates, latencies + wait * mine)
                table[row, part] = found.by_latency[mine].sum()
        exact = OneSided(*table)
    return Sensitivities(
        topology,
        tuple(number),
        members,
        base.time,
        members @ base.by_rate / base.time,
        members @ (base.by_latency * latencies) / base.time,
        members @ base.by_latency,
        exact,
    )


def sensitivity_rows(found: Sensitivities) -> list[dict[str, Any]]:
    """Rows for JSON and tables, those with most of the finish first.

    `rate_sensitivity` and `latency_sensitivity` are relative (% of finish per %);
    `latency_sensitivity_s_per_us` is the rise of the finish per us of latency. Rate and
    latency are null where the links of a part differ in them. To one side, null is what
    was not worked out, and a change by which the order could not be kept.
    """
    topology, exact = found.topology, found.exact
    share = found.latency - found.rate
    spare = np.zeros(len(share)) if exact is None else exact.slower
    order = np.lexsort((spare.round(6), -share.round(9)))
    columns: dict[str, Any] = {
        "rate_sensitivity": found.rate,
        "rate_sensitivity_if_faster": exact and exact.faster,
        "rate_sensitivity_if_slower": exact and exact.slower,
        "latency_sensitivity": found.latency,
        "latency_sensitivity_s_per_us": found.rise * us,
        "latency_sensitivity_if_longer_s_per_us": exact and exact.longer * us,
        "latency_sensitivity_if_shorter_s_per_us": exact and exact.shorter * us,
    }
    return [
        _label(found.names[n], members)
        | {
            "rate_bytes_per_s": _common(topology.rates[members]),
            "latency_s": _common(topology.latencies[members]),
        }
        | {
            key: None if values is None or np.isnan(values[n]) else float(values[n])
            for key, values in columns.items()
        }
        for n, members in zip(order.tolist(), found.members[order], strict=True)
    ]


def _label(name: tuple[str, ...], members: Bool[np.ndarray, " link"]) -> dict[str, Any]:
    """What the row of a part is called."""
    if len(name) == 1:
        return {"medium": name[0], "links": int(members.sum())}
    return {"link": list(name)}


def _common(values: Float[np.ndarray, " link"]) -> float | None:
    """The value that all have."""
    return float(values[0]) if np.ptp(values) == 0 else None
