"""Tables of a topology file, and the names of nodes in them."""

import re
from typing import Annotated, Final

from msgspec import Meta

from ...schema import Count, Finite, Flag, Table, Text

NAMES: Final = re.compile(r"(gpu|sw|nic)?(\d+)(?:\.\.(?:(gpu|sw|nic))?(\d+))?")
"""A node, or a range of them: gpu0, 0, sw1..8; plain numbers are GPUs."""
MOST_NODES: Final = 200_000
_Rate = Annotated[Finite, Meta(description="give a finite number (B/s above zero)")]
_Seconds = Annotated[Finite, Meta(description="give a finite number (s)")]
_Energy = Annotated[Finite, Meta(description="give a finite number (J/bit)")]
_Place = Annotated[int, Meta(ge=-1, description="give its number, from 0")]


class Nodes(Table, frozen=True):
    """Switches or NICs of a chassis."""

    names: Text
    copy: Flag = False
    reduces: Flag = False

    @property
    def expanded(self) -> list[str]:
        """Each of them."""
        return expand_names(self.names, "names")


class OuterNodes(Nodes, frozen=True):
    """The same in the whole machine; -1: in no chassis."""

    chassis: _Place = -1


class Links(Table, frozen=True):
    """Links that are alike; `latency` may be open."""

    pairs: Text | None = None
    one_way: Text | None = None
    rate: _Rate | None = None
    latency: _Seconds | None = None
    latency_source: Text | None = None
    medium: Text | None = None
    source: Text | None = None


class Medium(Table, frozen=True):
    """Energy of a bit, J."""

    low: _Energy
    typical: _Energy
    high: _Energy
    source: Text


class Machine(Table, frozen=True):
    """A whole file; `nodes` and `links` stand in every chassis."""

    gpus: Count
    name: Text | None = None
    like: Text | None = None
    gpu: Text | None = None
    chassis: Count = 1
    relays: Text | None = None
    buffer_gpus: Count | None = None
    free_exit: Flag = False
    latency: _Seconds | None = None
    latency_source: Text | None = None
    nodes: list[Nodes] = []
    outer_nodes: list[OuterNodes] = []
    links: list[Links] = []
    outer_links: list[Links] = []
    media: dict[str, Medium] = {}


def expand_names(text: str, key: str) -> list[str]:
    """ "sw0..2 5" -> sw0, sw1, sw2, gpu5."""
    names = []
    for word in text.split():
        found = NAMES.fullmatch(word)
        prefix = (found[1] or "gpu") if found else ""
        if not found or found[3] not in (None, prefix):
            raise ValueError(
                f"`{key}` has {word!r}; allowed are names such as gpu0, sw0, nic0..7."
            )
        first = int(found[2])
        last = int(found[4] or first)
        if not first <= last < MOST_NODES:
            raise ValueError(
                f"`{key}` has {word!r}; a range rises, below {MOST_NODES}."
            )
        names += [f"{prefix}{number}" for number in range(first, last + 1)]
    return names


def split_name(name: str) -> tuple[str, int]:
    """ "sw3" -> sw, 3."""
    prefix = name.rstrip("0123456789")
    return prefix, int(name[len(prefix) :])
