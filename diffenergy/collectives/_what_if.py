"""What if a link fails, or were faster: `disable` and `scale`, both directions."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from ..units import us
from ._bounds import second_bound
from ._demand import Demand
from ._demands import unreached
from ._greedy import Effort, greedy
from ._order import finish_time
from ._schedule import Schedule
from ._simulate import order_of
from ._symmetries import automorphisms, orbit_numbers
from ._topology import Topology

_LIMIT: Final = 1e6
"""Factor beyond which a link is no link any more."""
_PAIR: Final = re.compile(r"\s*((?:gpu|sw|nic)?\d+)\s*-\s*((?:gpu|sw|nic)?\d+)\s*")


def disable(topology: Topology, pair: str) -> Topology:
    """`topology` without the links between two nodes, in both directions.

    `pair`: "gpu0-gpu3", "0-3" for short (plain numbers are GPUs), or "gpu0-sw0". Raises
    `ValueError` if no link joins the two.

    >>> from diffenergy.collectives._topology_files import load_topology
    >>> dgx1 = load_topology("dgx1")
    >>> len(dgx1.links), len(disable(dgx1, "0-3").links)
    (32, 30)
    """
    gone = set(_between(topology, pair, "disable"))
    links = tuple(link for n, link in enumerate(topology.links) if n not in gone)
    return dataclasses.replace(topology, links=links)


def scale(topology: Topology, change: str) -> Topology:
    """`topology` with the rate between two nodes multiplied, in both directions.

    `change`: "gpu0-gpu3=0.5"; names as in `disable`. Raises `ValueError` if no link
    joins the two, and for a factor that is not above 0.
    """
    pair, equals, factor = change.partition("=")
    if not equals:
        raise ValueError(
            f"`scale` is {change!r}; allowed is a pair and a factor: gpu0-gpu3=0.5."
        )
    try:
        times = float(factor)
    except ValueError:
        times = math.nan
    if not 1 / _LIMIT <= times <= _LIMIT:
        raise ValueError(
            f"`scale` is {change!r}; allowed is a factor above 0, {1 / _LIMIT:g} to "
            f"{_LIMIT:g} (to take a link away, use `disable`)."
        )
    scaled = set(_between(topology, pair, "scale"))
    links = tuple(
        dataclasses.replace(
            link,
            rate=link.rate * times,
            origin=f"{link.origin}; rate scaled by {times:g}",
        )
        if n in scaled
        else link
        for n, link in enumerate(topology.links)
    )
    return dataclasses.replace(topology, links=links)


def _between(topology: Topology, pair: str, what: str) -> list[int]:
    """Links between two named nodes, either way."""
    match = _PAIR.fullmatch(pair.lower())
    if not match:
        raise ValueError(
            f"`{what}` is {pair!r}; allowed are two nodes such as gpu0-gpu3 or 0-3."
        )
    names = [f"gpu{end}" if end.isdigit() else end for end in match.groups()]
    for name in names:
        if name not in topology.index:
            raise ValueError(
                f"`{what}` names {name}, which is not a node of `{topology.name}`; "
                f"allowed are {topology.nodes[0].name} to {topology.nodes[-1].name}."
            )
    a, b = (topology.index[name] for name in names)
    between = topology.between
    links = [between[ends] for ends in {(a, b), (b, a)} if ends in between]
    if not links:
        near = {end for ends in between if a in ends for end in ends} - {a}
        shown = ", ".join(topology.names[n] for n in sorted(near)[:20])
        raise ValueError(
            f"`{what}` is {pair!r}, but no link of `{topology.name}` joins the two; "
            f"{names[0]} is linked with {shown or 'nothing'}."
        )
    return links


# --- How critical each link is: the finish, planned anew, when both its directions
# fail.
#
# Every plan is `greedy` at the same effort, that of the whole machine too. What is
# exact saves plans:
#
# - a plan that never uses a link is a plan without it: such a link costs nothing;
# - links that a symmetry of machine and demand moves onto each other cost the same;
# - a plan without a link is one with it, so the least of all finishes is the base.
#
# A slowdown is thus what a failure costs this planner: `bound` says how little it could
# be.


@dataclasses.dataclass(frozen=True)
class Change:
    """Effect on the finish when the links between a `pair` of nodes fail.

    `finish`: s, None where a demand is `cut_off` or the greedy finds no plan (a
    `problem`, in its words). `bound`: s, no plan is faster (None if cut off). `base`:
    finish of the whole machine's plan, s. `alike`: pairs that cost the same by
    symmetry, this one included. `used`: whether the whole machine's plan uses the pair.
    """

    pair: tuple[str, str]
    finish: float | None
    bound: float | None
    base: float
    alike: int
    used: bool
    cut_off: dict[str, Any] | None = None
    problem: str | None = None


def criticality(
    topology: Topology,
    demand: Demand,
    effort: Effort | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Change]:
    """A `Change` for each pair of linked nodes as soon as it is known, alike pairs
    together.

    `effort`: of every plan (two batches of eight restarts if not given). `progress`:
    called with how many pairs of nodes are done, and of how many.

    Raises:
        ValueError: the demand cannot be met even with all links.
    """
    effort = effort or Effort(batches=2, restarts=8)
    least = second_bound(demand, topology)
    base = greedy(topology, demand, bound=least, effort=effort)
    finish = base.last_end
    pairs = linked_pairs(topology)
    used = _used(topology, base, pairs)
    orbit = pair_orbits(topology, demand, pairs)
    done = 0
    for number in range(int(orbit.max(initial=-1)) + 1):
        members = np.flatnonzero(orbit == number)
        names = topology.names
        ends = [(names[a], names[b]) for a, b in pairs[members].tolist()]
        change = Change(ends[0], finish, least, finish, len(members), True)
        if used[members].all():
            change = _replan(topology, demand, effort, change)
        for pair, uses in zip(ends, used[members].tolist(), strict=True):
            mine = dataclasses.replace(change, pair=pair, used=uses)
            if change.cut_off is not None:  # alike, but others are cut off
                lost = cut_off(disable(topology, "-".join(pair)), demand)
                mine = dataclasses.replace(mine, cut_off=lost)
            yield mine
        done += len(members)
        if progress is not None:
            progress(done, len(pairs))


def gathered(changes: Iterable[Change]) -> tuple[list[Change], bool]:
    """The changes that came before the end or Ctrl-C, and whether they are all."""
    rows: list[Change] = []
    try:
        for change in changes:
            rows.append(change)
    except KeyboardInterrupt:
        return rows, False
    return rows, True


def criticality_rows(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Rows for JSON and tables, the most critical first: cut off, not planned, then by
    finish. `factor`: of the rate, 0 as links fail. `slowdown_pct` is against the least
    finish of all, which any machine with more could keep."""
    changes = list(changes)
    finishes = [change.finish for change in changes if change.finish is not None]
    rows = []
    for change in changes:
        base, slower = min([change.base, *finishes]), None
        if change.finish is not None:
            slower = 100 * (change.finish - base) / base if base else 0.0
        rows.append(
            {
                "link": list(change.pair),
                "factor": 0.0,
                "finish_s": change.finish,
                "base_s": base,
                "slowdown_pct": slower,
                "lower_bound_s": change.bound,
                "alike": change.alike,
                "used": change.used,
                "cut_off": change.cut_off,
                "problem": change.problem,
            }
        )
    return sorted(rows, key=_rank)


def _rank(row: dict[str, Any]) -> tuple[int, float]:
    """Sort key: cut off first, then without a plan, then the slowest."""
    if row["cut_off"] is not None:
        return 0, -float(row["cut_off"]["demands"])
    if row["slowdown_pct"] is None:
        return 1, 0.0
    return 2, -row["slowdown_pct"]


def linked_pairs(topology: Topology) -> Int[np.ndarray, "pair end"]:
    """Nodes that a link joins, lower number first, either direction."""
    ends = np.stack([topology.sources, topology.targets], axis=1).reshape(-1, 2)
    return np.unique(np.sort(ends, axis=1), axis=0)


def pair_orbits(
    topology: Topology, demand: Demand, pairs: Int[np.ndarray, "pair end"]
) -> Int[np.ndarray, " pair"]:
    """Number of each pair's orbit under the automorphisms, in order of first pairs."""
    count = len(topology.nodes)
    key = pairs[:, 0] * count + pairs[:, 1]  # sorted
    maps = []
    for node_map in automorphisms(topology, demand):
        moved = np.sort(node_map[pairs], axis=1)
        maps.append(np.searchsorted(key, moved[:, 0] * count + moved[:, 1]))
    return orbit_numbers(len(key), maps)


def cut_off(topology: Topology, demand: Demand) -> dict[str, Any] | None:
    """How many pairs of GPUs have no way for what one wants of (or adds to) the other,
    `from` whom, and `to` whom; None if everything has one."""
    names, home = np.array(topology.names), demand.source
    lost = np.zeros((len(names), len(names)), bool)  # from (row) to
    unserved, stuck = (np.nonzero(bad) for bad in unreached(topology, demand))
    lost[home[unserved[0]], unserved[1]] = True
    lost[stuck[1], home[stuck[0]]] = True
    if not lost.any():
        return None
    senders, receivers = (names[lost.any(axis)].tolist() for axis in (1, 0))
    return {"demands": int(lost.sum()), "from": senders, "to": receivers}


def _replan(
    topology: Topology, demand: Demand, effort: Effort, whole: Change
) -> Change:
    """`whole`, with the finish of a new plan for its pair's changed machine."""
    changed = disable(topology, "-".join(whole.pair))
    if cut := cut_off(changed, demand):
        return dataclasses.replace(whole, finish=None, bound=None, cut_off=cut)
    bound = second_bound(demand, changed)
    try:
        plan = greedy(changed, demand, bound=bound, effort=effort)
    except ValueError as error:
        return dataclasses.replace(whole, finish=None, bound=bound, problem=str(error))
    return dataclasses.replace(whole, finish=plan.last_end, bound=bound)


def _used(
    topology: Topology, schedule: Schedule, pairs: Int[np.ndarray, "pair end"]
) -> Bool[np.ndarray, " pair"]:
    """Whether a send passes either direction."""
    count = len(topology.nodes)
    links = np.unique(schedule.sends.link)
    ends = np.sort(np.stack([topology.sources[links], topology.targets[links]]), axis=0)
    return np.isin(pairs[:, 0] * count + pairs[:, 1], ends[0] * count + ends[1])


# --- What to buy: how the finish answers to each link's rate and latency.
#
# With T the finish of a schedule whose links keep their orders (`finish_time`),
# r a rate and a a latency:
#
# - `rate` = d ln T / d ln r: -0.3 says that 1 % more rate takes 0.3 % off the finish;
# - `latency` = d ln T / d ln a, and `rise` = dT/da, s per s: how often the last byte to
#   arrive has waited for that latency.
#
# T is the longest of many paths. The gradient is that of *one* longest path: where
# several are equally long, it shares the finish out as if that path were the only one.
# The one-sided derivatives are exact there: a link that is faster helps as far as every
# longest path passes it, one that is slower harms if any does. (`rate` above 0: a
# faster link brings data too soon to a switch, which cannot hold it; sent slower it
# would do.) Scaling all rates one way and all latencies the other scales T, so that
# over all links sum(latency) - sum(rate) = 1.

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
                nudged = finish_time(order, rates / slower, latencies)
                slope = nudged.by_rate[mine].sum() / (1 + step)
                table[row, part] = slope / base.time
            for row, wait in enumerate((late, -late), 2):
                nudged = finish_time(order, rates, latencies + wait * mine)
                table[row, part] = nudged.by_latency[mine].sum()
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


def sensitivity_rows(result: Sensitivities) -> list[dict[str, Any]]:
    """Rows for JSON and tables, those with most of the finish first.

    `rate_sensitivity` and `latency_sensitivity` are relative (% of finish per %);
    `latency_sensitivity_s_per_us` is the rise of the finish per us of latency. Rate and
    latency are null where the links of a part differ in them. To one side, null is what
    was not worked out, and a change by which the order could not be kept.
    """
    topology, exact = result.topology, result.exact
    share = result.latency - result.rate
    spare = np.zeros(len(share)) if exact is None else exact.slower
    order = np.lexsort((spare.round(6), -share.round(9)))
    columns: dict[str, Any] = {
        "rate_sensitivity": result.rate,
        "rate_sensitivity_if_faster": exact and exact.faster,
        "rate_sensitivity_if_slower": exact and exact.slower,
        "latency_sensitivity": result.latency,
        "latency_sensitivity_s_per_us": result.rise * us,
        "latency_sensitivity_if_longer_s_per_us": exact and exact.longer * us,
        "latency_sensitivity_if_shorter_s_per_us": exact and exact.shorter * us,
    }
    return [
        _label(result.names[n], members)
        | {
            "rate_bytes_per_s": _common(topology.rates[members]),
            "latency_s": _common(topology.latencies[members]),
        }
        | {
            key: None if values is None or np.isnan(values[n]) else float(values[n])
            for key, values in columns.items()
        }
        for n, members in zip(order.tolist(), result.members[order], strict=True)
    ]


def _label(name: tuple[str, ...], members: Bool[np.ndarray, " link"]) -> dict[str, Any]:
    """Label of the row of a part."""
    if len(name) == 1:
        return {"medium": name[0], "links": int(members.sum())}
    return {"link": list(name)}


def _common(values: Float[np.ndarray, " link"]) -> float | None:
    """The common value; None where they differ."""
    return float(values[0]) if np.ptp(values) == 0 else None
