"""What if a link fails, or were faster: `disable` and `scale`, both directions."""

import dataclasses
import math
import re
from typing import Final

from .._machine.topology import Topology

_MOST: Final = 1e6
"""Factor beyond which a link is no link any more."""
_PAIR: Final = re.compile(r"\s*((?:gpu|sw|nic)?\d+)\s*-\s*((?:gpu|sw|nic)?\d+)\s*")


def disable(topology: Topology, pair: str) -> Topology:
    """`topology` without the links between two nodes, in both directions.

    `pair`: "gpu0-gpu3", "0-3" for short (plain numbers are GPUs), or "gpu0-sw0". Raises
    `ValueError` if no link joins the two.

    >>> from diffenergy.collectives._machine.topology_files import load_topology
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
    if not 1 / _MOST <= times <= _MOST:
        raise ValueError(
            f"`scale` is {change!r}; allowed is a factor above 0, {1 / _MOST:g} to "
            f"{_MOST:g} (to take a link away, use `disable`)."
        )
    found = set(_between(topology, pair, "scale"))
    links = tuple(
        dataclasses.replace(
            link,
            rate=link.rate * times,
            origin=f"{link.origin}; rate scaled by {times:g}",
        )
        if n in found
        else link
        for n, link in enumerate(topology.links)
    )
    return dataclasses.replace(topology, links=links)


def _between(topology: Topology, pair: str, what: str) -> list[int]:
    """Links between two named nodes, either way."""
    found = _PAIR.fullmatch(pair.lower())
    if not found:
        raise ValueError(
            f"`{what}` is {pair!r}; allowed are two nodes such as gpu0-gpu3 or 0-3."
        )
    names = [f"gpu{end}" if end.isdigit() else end for end in found.groups()]
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
