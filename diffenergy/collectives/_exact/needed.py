"""`needed`: which sends of an integer search serve a wish."""

import numpy as np
from jaxtyping import Bool, Int

from .._demand.demand import Demand
from .._machine.epochs import EpochModel
from .._machine.topology import Topology


def needed(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    block: Int[np.ndarray, " send"],
    link: Int[np.ndarray, " send"],
    epoch: Int[np.ndarray, " send"],
) -> Bool[np.ndarray, " send"]:
    """Sends on the way of a block to a taker: at GPUs the first to arrive, at switches
    one that arrives in the very epoch, of each of which a switch without copy makes one
    send. A search for any solution also sends what nobody needs, even into switches
    that it never leaves."""
    there = epoch + model.hop[link]
    target, source = topology.targets[link], topology.sources[link]
    first: dict[tuple[int, int], int] = {}
    passing: dict[tuple[int, int, int], list[int]] = {}
    for send in np.argsort(there, kind="stable").tolist():
        place = int(block[send]), int(target[send])
        if topology.stores[place[1]]:
            first.setdefault(place, send)
        else:
            passing.setdefault((*place, int(there[send])), []).append(send)
    kept = np.zeros(len(block), bool)
    wishes = np.argwhere(demand.wanted).tolist()
    open_ = [first[b, n] for b, n in wishes if n != demand.source[b]]
    while open_:
        send = open_.pop()
        if kept[send]:
            continue
        kept[send] = True
        home, node = int(block[send]), int(source[send])
        if node == demand.source[home]:
            continue
        if topology.stores[node]:
            open_.append(first[home, node])
        else:
            feeds = passing[home, node, int(epoch[send])]
            open_.append(feeds[0] if topology.copies[node] else feeds.pop())
    return kept
