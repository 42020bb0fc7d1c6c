"""`baselines`: standard algorithms as verified schedules on a machine, to compare with.

- `ring`: every block goes round a ring through all GPUs (`ring_order`): in one
  direction; where the directions share no link, in both if that is faster; where
  chassis have several ways out, round several rings in turn if that is faster.
- `recursive_doubling` (all-gather), `recursive_halving` (reduce-scatter),
  `recursive_halving_doubling` (all-reduce): GPUs whose numbers differ in one bit
  exchange what they have; for a power of two of GPUs.
- `tree`: with one root a binomial or two binary trees, whichever is faster; else each
  block has a binomial tree of its own, from its source or to where it is added up, so
  that no root is in everybody's way.
- `direct`: every GPU straight to every taker over a quickest path.
- `switch`: an all-reduce in one switch that adds up and copies (`_switch_pipeline`).

All are pipelined: a block goes on as soon as it is there, not when a step is over.
GPUs that are no neighbours are joined by a quickest path, chassis being left as seldom
as can be. A GPU on the way keeps what it passes on, and a sum takes its summand along,
so that nothing comes to a GPU twice: `direct` is a tree of quickest paths where GPUs
relay. Steps that meet on a link go one after the other (`tree_schedule`).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Final

import numpy as np

from . import _algorithms as algorithms
from ._algorithms import EXCHANGES, Task, Variant
from ._demand import Demand
from ._demands import check_reachable
from ._schedule import Schedule, Sends
from ._topology import Topology
from ._trees import Course, Tree, course, grown, pruned, tree_schedule
from ._verify import Violation, verify

MOST_SENDS: Final = 100_000
"""Sends above which an algorithm is left out (some 20 us each)."""
_FROM_ONE: Final = ("broadcast", "reduce", "scatter")
_TO_ALL: Final = ("all_gather", "broadcast", "reduce_scatter", "reduce", "all_reduce")


@dataclasses.dataclass(frozen=True)
class Baseline:
    """A standard algorithm on this machine: s until all have what they want, the
    verified schedule, and which variant of the algorithm it is."""

    finish: float
    schedule: Schedule
    variant: str


@dataclasses.dataclass(frozen=True)
class Baselines:
    """Algorithms by name: those that meet the demand, and why others do not."""

    algorithms: dict[str, Baseline]
    unfit: dict[str, str]


def baselines(
    topology: Topology, demand: Demand, most_sends: int = MOST_SENDS
) -> Baselines:
    """Schedules of the standard algorithms for `demand`, the fastest variant of each.

    Those that are not made for the demand, or take more than `most_sends` sends, are
    in `unfit`, with the reason. Raises `ValueError` if a block cannot reach a taker.
    """
    check_reachable(topology, demand)
    task = Task(topology, demand)
    exchanges = EXCHANGES.get(demand.collective, "recursive_doubling")
    makers: dict[str, Callable[[Task], list[Variant] | str]] = {
        "ring": algorithms.ring,
        exchanges: algorithms.exchanges,
        "tree": algorithms.tree,
        "direct": algorithms.direct,
    }
    # One send to each taker of a block, one from each other GPU that adds to it.
    arrivals = demand.wanted.astype(int) + demand.parts
    arrivals[np.arange(len(arrivals)), demand.source] = 0
    if arrivals.sum() > most_sends:
        return Baselines({}, dict.fromkeys(makers, _too_many(most_sends)))
    odd = _irregular(task)
    fitting: dict[str, Baseline] = {}
    unfit: dict[str, str] = {}
    for name, maker in makers.items():
        variants = odd if odd and name != "direct" else maker(task)
        if not isinstance(variants, str):
            variants = _fastest(task, variants, most_sends)
        if isinstance(variants, str):
            unfit[name] = variants
        else:
            fitting[name] = variants
    if demand.collective == "all_reduce":
        piped = _switch_pipeline(topology, demand)
        if isinstance(piped, str):
            unfit["switch"] = piped
        else:
            fitting["switch"] = Baseline(verify(piped), piped, "both halves at once")
    return Baselines(fitting, unfit)


def _too_many(most_sends: int) -> str:
    return f"takes more than {most_sends} sends, above which it is left out"


def _irregular(task: Task) -> str:
    """Why only `direct` is for this demand; empty if it is a plain collective."""
    demand, team = task.demand, np.array(task.team)
    if demand.collective == "custom":
        return "made for collectives; this is a list of blocks"
    if np.ptp(demand.size) > 1e-9 * demand.size.max():
        return "made for blocks of one size; these differ"
    pairs = np.zeros((len(task.topology.nodes),) * 2, int)
    np.add.at(pairs, demand.source, demand.wanted | demand.parts)
    np.fill_diagonal(pairs, 0)
    pairs = pairs[np.ix_(team, team)]
    sources, ends = np.flatnonzero(pairs.any(1)), np.flatnonzero(pairs.any(0))
    alike = pairs[np.ix_(sources, ends)][sources[:, None] != ends]
    kind, few = demand.collective, len(team) < 3
    one_source, one_end = len(sources) == 1, len(ends) == 1
    if (
        np.ptp(alike)
        or (one_source != (kind in _FROM_ONE) and not few)
        or (one_end != (kind == "gather") and not few)
        or (kind in _TO_ALL and alike.sum() != len(demand.size) * (len(team) - 1))
    ):
        return "made for one group of GPUs; here several share the machine"
    if not np.isfinite(task.paths.away[np.ix_(team, team)]).all():
        return "made for GPUs that reach each other; here some do not"
    return ""


def _fastest(task: Task, variants: list[Variant], most_sends: int) -> Baseline | str:
    """The variant that finishes first, verified; else why there is none."""
    choices: list[tuple[float, list[Course], str]] = []
    for variant in variants:
        courses = _courses(task, variant, most_sends)
        if courses is None:
            return _too_many(most_sends)
        choices.append((_busiest(task, courses), courses, variant.name))
    best, finish, name = None, np.inf, ""
    for least, courses, variant_name in sorted(choices, key=lambda choice: choice[0]):
        if least >= finish:
            break
        schedule = tree_schedule(task.topology, task.demand, task.paths, courses)
        if schedule.last_end < finish:
            best, finish, name = schedule, schedule.last_end, variant_name
    if best is None:
        return "has nothing to send"
    try:
        return Baseline(verify(best), best, name)
    except Violation as error:
        return f"has no schedule that verifies: {error}"


def _busiest(task: Task, courses: list[Course]) -> float:
    """Time that the busiest link needs for its bytes (s)."""
    hops = np.concatenate([np.array(one.hop, int) for one in courses])
    size = np.repeat(task.demand.size, [len(one.hop) for one in courses])
    links = task.paths.links[hops]
    used = links >= 0
    busy = size[:, None] / task.topology.rates[links]
    return float(np.bincount(links[used], busy[used]).max(initial=0.0))


def _courses(task: Task, variant: Variant, most_sends: int) -> list[Course] | None:
    """Course of each block; blocks of one tree share it. None above `most_sends`."""
    demand, paths = task.demand, task.paths

    @functools.cache
    def whole(root: int, lane: int, inward: bool) -> Tree:
        along = paths.by_hops if variant.by_hops else paths
        before = along.after if inward else along.before
        return grown(root, variant.edges(root, lane, inward), before)

    by_tree: dict[tuple[int, int, bytes, bytes], Course] = {}
    courses: list[Course] = []
    sends, links = 0, (paths.links >= 0).sum(1).tolist()
    lanes = task.lane(variant.lanes).tolist()
    for block, root in enumerate(demand.source.tolist()):
        lane, parts, wanted = lanes[block], demand.parts[block], demand.wanted[block]
        key = root, lane, parts.tobytes(), wanted.tobytes()
        if key not in by_tree:
            inward = outward = None
            if parts.any():
                inward = pruned(whole(root, lane, True), np.flatnonzero(parts).tolist())
            takers = [node for node in np.flatnonzero(wanted).tolist() if node != root]
            if takers:
                outward = pruned(whole(root, lane, False), takers)
            by_tree[key] = course(paths, inward, outward)
        courses.append(by_tree[key])
        sends += sum(links[hop] for hop in courses[-1].hop)
        if sends > most_sends:
            return None
    return courses


def _switch_pipeline(topology: Topology, demand: Demand) -> Schedule | str:
    """All-reduce in one switch that adds up and copies, both halves at once; or why
    that does not fit.

    Blocks in turn of their homes, in slots of b / r: in slot k all send block k into
    the switch, which passes the sum on to its home; in slot k + N (N GPUs) the home
    sends the sum back and the switch copies it to the others. Whoever is home to a
    block neither sends it up nor gets the copy, so that its links are free for the
    other half: every link is busy in every slot between the first and the last N,
    (C + 1) N slots in all.
    """
    team = np.flatnonzero(demand.wanted.any(0))
    links = _star(topology, team)
    if links is None:
        return "needs one switch that reduces and copies, with equal links to all GPUs."
    homes = np.unique(demand.source)
    count, ranks = len(team), demand.chunk
    whole = bool(demand.parts[:, team].all() and demand.wanted[:, team].all())
    if not (whole and np.array_equal(homes, team)) or np.ptp(demand.size) > 0:
        return "needs equal blocks that all GPUs add up, as many at each."
    up, down = links
    rate, latency = topology.rates[up[0]], topology.latencies[up[0]]
    took = demand.size[0] / rate
    if (count - 1) * took < 2 * latency:
        return "needs blocks that take longer than the latency of the switch."
    order = np.lexsort((demand.source, ranks))
    slot = np.empty(len(order))
    slot[order] = np.arange(len(order))
    home = np.searchsorted(team, demand.source)
    block, other = np.nonzero(home[:, None] != np.arange(count))
    each = np.arange(len(order))
    first, back = slot * took, (slot + count) * took

    def sends(block: np.ndarray, link: np.ndarray, start: np.ndarray, phase: int):
        end, size = start + took + latency, demand.size[block]
        return Sends(block, link, start, end, size, np.full(len(block), phase))

    rows = (
        sends(block, up[other], first[block], 0),
        sends(each, down[home], first + latency, 0),
        sends(each, up[home], back, 1),
        sends(block, down[other], back[block] + latency, 1),
    )
    return Schedule(topology, demand, Sends.joined(rows))


def _star(topology: Topology, team: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Links of each GPU into the one switch and out of it."""
    nodes = topology.nodes
    switches = [
        n for n, node in enumerate(nodes) if node.kind == "switch" and node.reduces
    ]
    if len(switches) != 1 or not nodes[switches[0]].copy:
        return None
    (switch,) = switches
    number = topology.between
    up = np.array([number.get((gpu, switch), -1) for gpu in team.tolist()])
    down = np.array([number.get((switch, gpu), -1) for gpu in team.tolist()])
    both = np.append(up, down)
    if (
        both.min() < 0
        or np.ptp(topology.rates[both])
        or np.ptp(topology.latencies[both])
    ):
        return None
    return up, down
