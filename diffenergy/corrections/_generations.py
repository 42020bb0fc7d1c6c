"""Generations of GPUs (`data/facts/generations.toml`): links, hosts, machines."""

from typing import Final, NamedTuple

from ..files import facts

NVLINK_RATE: Final = 9e10
"""B/s of one direction from which a link counts as NVLink, below it as PCIe (one bridge
of an A30: 100 GB/s; PCIe 5: 63 GB/s)."""
REDUCING_RATE: Final = 4e11
"""B/s from which a link is NVLink 4 or later (450 GB/s; NVLink 3: 300)."""


class Generation(NamedTuple):
    """What boards of an architecture share, as the file explains it. `taken_for`: the
    generation whose facts these are; "" of one that has its own. `like`: the one whose
    facts, and fitted rates, it has where its own are not known."""

    order: int
    vendor: str
    mma: str
    source: str
    link: str = ""
    lane: float = 0.0  # B/s
    bus: str = ""
    reduces: bool = False
    host: int = 2020
    gpus: int = 8  # usual servers
    network: float | None = None  # B/s
    taken_for: str = ""
    like: str = ""

    def medium(self, rate: float) -> str:
        """What links of `rate` B/s are made of; "" where it is not known."""
        return self.link if rate >= NVLINK_RATE else self.bus

    @property
    def bus_rate(self) -> float:
        """B/s of x16."""
        return facts("memories")["medium"][self.bus]["rate"]


def generations() -> tuple[str, ...]:
    """Names of those known, the oldest first."""
    return tuple(facts("generations"))


def generation(architecture: str, mma: str = "mma.sync") -> Generation:
    """Generation of an `architecture`; of an unknown one the newest with its `mma`.

    >>> generation("Rubin").mma, generation("Feynman", "wgmma").taken_for
    ('tcgen05', 'Hopper')
    """
    rows = facts("generations")
    if architecture not in rows:
        kin = [x for x in rows if generation(x).mma == mma]
        newest = max(kin, key=lambda x: rows[x]["order"])
        return generation(newest)._replace(taken_for=newest)
    row = rows[architecture]
    base = generation(row["like"])._asdict() if "like" in row else {}
    return Generation(**base | row)
