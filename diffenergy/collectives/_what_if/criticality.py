"""How critical each link is: the finish, planned anew, when both its directions fail.

Every plan is `greedy` at the same effort, that of the whole machine too. What is
exact saves plans:

- a plan that never uses a link is a plan without it: such a link costs nothing;
- links that a symmetry of machine and demand moves onto each other cost the same;
- a plan without a link is one with it, so the least of all finishes is the base.

A slowdown is thus what a failure costs this planner: `bound` says how little it could
be.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from .._bounds.bounds import second_bound
from .._demand.automorphisms import automorphisms, orbit_numbers
from .._demand.demand import Demand
from .._demand.demands import unreached
from .._listing.greedy import Effort, greedy
from .._machine.topology import Topology
from .._schedule.schedule import Schedule
from .what_if import disable


@dataclasses.dataclass(frozen=True)
class Change:
    """What becomes of the finish when the links between a `pair` of nodes fail.

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
            change = _planned(topology, demand, effort, change)
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
    found: list[Change] = []
    try:
        for change in changes:
            found.append(change)
    except KeyboardInterrupt:
        return found, False
    return found, True


def criticality_rows(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Rows for JSON and tables, the most critical first: cut off, not planned, then by
    finish. `factor`: of the rate, 0 as links fail. `slowdown_pct` is against the least
    finish of all, which any machine with more could keep."""
    found = list(changes)
    known = [change.finish for change in found if change.finish is not None]
    rows = []
    for change in found:
        base, slower = min([change.base, *known]), None
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
    """Cut off, no plan, slowest."""
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


def _planned(
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
