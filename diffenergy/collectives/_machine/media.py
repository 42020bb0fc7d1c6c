"""Energy of a bit on a link by what the link is made of (`data/topologies/media.toml`).

A medium is the sum of its parts: both ends of a link, a port of a switch, a NIC.
"""

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .topology import Energy

FILE: Final = Path(__file__).parents[2] / "data" / "topologies" / "media.toml"


@functools.cache
def media() -> Mapping[str, Energy]:
    """Every bundled medium by its name; J/bit.

    >>> media()["nvlink3"].low, media()["nvlink3"].high
    (5e-12, 1e-11)
    """
    table = tomllib.loads(FILE.read_text())
    return {
        name: _sum([table["part"][part] for part in row["parts"]])
        for name, row in table["media"].items()
    }


def _sum(parts: list[dict[str, Any]]) -> Energy:
    low = sum(part["low"] for part in parts)
    high = sum(part["high"] for part in parts)
    said = dict.fromkeys(
        f"{part['source']} [{part['quality']}, {part['year']}]" for part in parts
    )
    return Energy((low + high) / 2, low, high, "; ".join(said))
