"""`Passage`: a way from GPU to GPU that passes no third GPU, and what it costs."""

import dataclasses

import numpy as np
from jaxtyping import Float

from .routes import routes, second_clock
from .topology import Topology


@dataclasses.dataclass(frozen=True)
class Passage:
    """Links to the GPU `target` for blocks of one size: `price` J; `last`: s from the
    start on the last link until all is there; `fans`: the relays on it copy."""

    target: int
    links: tuple[int, ...]
    last: float
    price: float
    fans: bool


def passages(
    topology: Topology, prices: Float[np.ndarray, " link"], size: float
) -> list[list[Passage]]:
    """Ways out of each node for blocks of `size` B, cheapest first (`prices` in J/B of
    each link); none out of switches."""
    found: list[list[Passage]] = [[] for _ in topology.nodes]
    table = routes(topology, second_clock(topology, size))
    for row, source in enumerate(table.source.tolist()):
        links = tuple(int(link) for link in table.links[row] if link >= 0)
        passage = Passage(
            int(table.target[row]),
            links,
            float(table.arrive[row] - table.offset[row, len(links) - 1]),
            size * float(prices[list(links)].sum()),
            len(links) > 1 and bool(table.fans[row]),
        )
        found[source].append(passage)
    for ways in found:
        ways.sort(key=lambda way: (way.price, way.last, way.links))
    return found
