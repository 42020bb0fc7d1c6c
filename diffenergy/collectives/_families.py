"""Machines that are generated: grids and rings of any size, chassis joined by rails.

A file of its own, without NumPy: completion of names loads it.
"""

import math
import re
from typing import Any, Final

MOST: Final = 20_000
"""GPUs that a generated machine may have."""
_GRIDS: Final = {
    "mesh": re.compile(r"mesh-(\d+)"),
    "torus": re.compile(r"torus-(\d+)x(\d+)(?:x(\d+))?"),
    "ring": re.compile(r"ring-(\d+)"),
}
_RAILED: Final = re.compile(r"(dgx-(?:[ah]100|b200))-(\d+)")
FAMILIES: Final = (
    "mesh-N", "torus-AxB", "torus-AxBxC", "ring-N", "dgx-a100-N", "dgx-h100-N",
    "dgx-b200-N",
)  # fmt: skip
"""How names of generated machines read."""
MACHINE_PARTS: Final = tuple(_GRIDS)
"""Bundled files that describe a part of a machine and no machine."""


def family(name: str) -> tuple[str, dict[str, Any]] | None:
    """Bundled file that a generated machine is described by, and what its name adds.

    None for a name of no family. Raises `ValueError` for sizes that make no machine.

    >>> family("torus-2x4")
    ('torus', {'sizes': [2, 4]})
    >>> family("dgx-h100-4")
    ('dgx-h100', {'chassis': 4})
    """
    for part, pattern in _GRIDS.items():
        if match := pattern.fullmatch(name):
            sizes = [int(size) for size in match.groups() if size]
            sizes = sizes * 2 if part == "mesh" else sizes
            if min(sizes) < 1 or not 2 <= math.prod(sizes) <= MOST:
                raise ValueError(
                    f"`topology` is {name!r}, of {math.prod(sizes)} GPUs; allowed are "
                    f"sizes of at least 1 that make 2 to {MOST} GPUs."
                )
            return part, {"sizes": sizes}
    if match := _RAILED.fullmatch(name):
        chassis = int(match[2])
        if not 2 <= chassis <= MOST // 8:
            raise ValueError(
                f"`topology` is {name!r}; allowed are 2 to {MOST // 8} chassis (one is "
                f"`{match[1]}`)."
            )
        return match[1], {"chassis": chassis}
    return None


def expand(table: dict[str, Any]) -> dict[str, Any]:
    """A description with its tables `grid` and `rails` written out as links.

    `grid`: GPUs in rows and columns, each linked with its neighbours; with `wrap` the
    ends are neighbours too. `rails`: NIC k of every chassis behind its GPU k and linked
    with leaf switch k; used where there are several chassis.
    """
    table = dict(table)
    if grid := table.pop("grid", None):
        table |= _grid(dict(grid))
    rails = table.pop("rails", None)
    if rails and table.get("chassis", 1) > 1:
        table |= _rails(table, rails)
    return table


def _grid(grid: dict[str, Any]) -> dict[str, Any]:
    sizes, wrap = grid.pop("sizes"), grid.pop("wrap", False)
    count, pairs = math.prod(sizes), []
    for here in range(count):
        stride = count
        for size in sizes:  # the neighbour one step up in each dimension
            stride //= size
            if here // stride % size < size - 1:
                pairs.append(f"{here}-{here + stride}")
            elif wrap and size > 2:
                pairs.append(f"{here}-{here - (size - 1) * stride}")
    return {"gpus": count, "links": [grid | {"pairs": " ".join(pairs)}]}


def _rails(table: dict[str, Any], rails: dict[str, Any]) -> dict[str, Any]:
    gpus, chassis = table["gpus"], table["chassis"]
    leaf = chassis  # the first number after the switches of the chassis
    numbers = range(chassis * gpus)
    pcie = " ".join(f"{n}-nic{n}" for n in numbers)
    network = " ".join(f"nic{n}-sw{leaf + n % gpus}" for n in numbers)
    nics = [
        {"names": f"nic{c * gpus}..{(c + 1) * gpus - 1}", "chassis": c}
        for c in range(chassis)
    ]
    leaves = {"names": f"sw{leaf}..{leaf + gpus - 1}"}
    return {
        "outer_nodes": [*table.get("outer_nodes", []), leaves, *nics],
        "outer_links": [
            *table.get("outer_links", []),
            rails["pcie"] | {"pairs": pcie},
            rails["network"] | {"pairs": network},
        ],
    }
