"""All-reduce in one switch that adds up and copies, both halves at once.

Blocks in turn of their homes, in slots of b / r: in slot k all send block k into the
switch, which passes the sum on to its home; in slot k + N (N GPUs) the home sends the
sum back and the switch copies it to the others. Whoever is home to a block neither
sends it up nor gets the copy, so that its links are free for the other half: every
link is busy in every slot between the first and the last N, (C + 1) N slots in all.
"""

import numpy as np

from .._demand.demand import Demand
from .._machine.topology import Topology
from .._schedule.schedule import Schedule, Sends


def switch_pipeline(topology: Topology, demand: Demand) -> Schedule | str:
    """The schedule, or why it does not fit."""
    if demand.collective != "all_reduce":
        return "is made for all_reduce."
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
    columns = (  # block, link, start, phase
        (block, up[other], first[block], 0),
        (each, down[home], first + latency, 0),
        (each, up[home], back, 1),
        (block, down[other], back[block] + latency, 1),
    )
    blocks = np.concatenate([c[0] for c in columns])
    start = np.concatenate([c[2] for c in columns])
    sends = Sends(
        blocks,
        np.concatenate([c[1] for c in columns]),
        start,
        start + took + latency,
        demand.size[blocks],
        np.concatenate([np.full(len(c[0]), c[3]) for c in columns]),
    )
    return Schedule(topology, demand, sends)


def _star(topology: Topology, team: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Links of each GPU into the one switch and out of it."""
    nodes = topology.nodes
    switches = [
        n for n, node in enumerate(nodes) if node.kind == "switch" and node.reduces
    ]
    if len(switches) != 1 or not nodes[switches[0]].copy:
        return None
    (switch,) = switches
    number = {(link.source, link.target): n for n, link in enumerate(topology.links)}
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
