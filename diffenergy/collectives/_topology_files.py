"""`load_topology`: machines by name, from TOML files, from prints of `nvidia-smi`."""

import dataclasses
import difflib
import math
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from ..files import read_named, read_toml
from ._build_topology import FILE as MEDIA_FILE
from ._build_topology import build, gpu_name
from ._topology import Topology

# --- Machines that are generated: grids and rings of any size, chassis joined by rails.


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


# --- topology files


_FOLDER: Final = MEDIA_FILE.parent
_LIKE: Final = ("gpu", "gpus", "chassis", "latency", "latency_source")
_LIKE_LISTS: Final = ("nodes", "outer_nodes", "links", "outer_links")


def topology_names() -> list[str]:
    """Names of bundled machines, then patterns of generated ones."""
    parts = {*MACHINE_PARTS, MEDIA_FILE.stem}
    files = sorted(path.stem for path in _FOLDER.glob("*.toml"))
    return [*(name for name in files if name not in parts), *FAMILIES]


def load_topology(
    name_or_path: str | os.PathLike[str] | Topology,
    latency: float | None = None,
    gpu: str | None = None,
) -> Topology:
    """A machine by name, from a .toml file, or from the text of `nvidia-smi topo -m`.

    Args:
        name_or_path: a name of `topology_names()` (case does not matter, and space, `_`
            and `-` are one), else the path of a file; a `Topology` stays as it is.
        latency: s, of the links whose latency the machine leaves open [0.7e-6].
        gpu: name of the GPU whose idle power counts [the machine's]. A print of
            `nvidia-smi` needs it, since it says neither which GPUs nor which NVLinks
            they are.

    Raises:
        ValueError: for an unknown name, for a file that cannot be read or describes no
            machine, and for a `latency` that is negative or that no link would take.

    >>> float(load_topology("dgx1").rates.sum()) / 8
    150000000000.0
    """
    if isinstance(name_or_path, Topology):
        if latency is not None:
            raise ValueError(
                f"`latency` is {latency:g} s beside a Topology, whose links have "
                f"theirs; give it to `load_topology`."
            )
        topology = name_or_path
    else:
        topology = _load(os.fspath(name_or_path), latency, gpu)
    return topology if gpu is None else dataclasses.replace(topology, gpu=gpu_name(gpu))


def _load(name: str, latency: float | None, gpu: str | None) -> Topology:
    folded = re.sub(r"[\s_-]+", "-", name.strip().lower())
    if name.lower().endswith(".toml"):
        return _read(Path(name), latency)
    if (table := _bundled(folded)) is not None:
        return build(expand(table), folded, latency)
    if Path(name).is_file():
        return _read_print(Path(name), latency, gpu)
    names = topology_names()
    near = difflib.get_close_matches(folded, names, n=3, cutoff=0.5) or names
    raise ValueError(
        f"`topology` is {name!r}, which is neither a known topology nor a file; "
        f"nearest: {', '.join(f'`{name}`' for name in near)}, or give the path of a "
        f".toml file."
    )


def _bundled(name: str) -> dict[str, Any] | None:
    """Description of a bundled or generated machine."""
    if generated := family(name):
        part, added = generated
        table = tomllib.loads((_FOLDER / f"{part}.toml").read_text())
        if "grid" in table:
            return table | {"grid": table["grid"] | added}
        return table | added
    if name in topology_names():
        return _whole(tomllib.loads((_FOLDER / f"{name}.toml").read_text()))
    return None


def _whole(table: dict[str, Any]) -> dict[str, Any]:
    """A description together with that of the machine it is like."""
    if "like" not in table:
        return table
    like = table["like"]
    base = _bundled(like) if isinstance(like, str) else None
    if base is None:
        raise ValueError(
            f"`like` is {like!r}, which is not a bundled topology; allowed are "
            f"{', '.join(topology_names())}."
        )
    base = expand(base)
    merged = {key: value for key, value in table.items() if key != "like"}
    for key in _LIKE:
        if key in base:
            merged.setdefault(key, base[key])
    for key in _LIKE_LISTS:
        if not isinstance(merged.get(key, []), list):
            continue  # said to be wrong where it is read
        if lists := [*base.get(key, []), *merged.get(key, [])]:
            merged[key] = lists
    return merged


def _read(path: Path, latency: float | None) -> Topology:
    table = read_toml(path, "topology", "dgx1")
    try:
        name = table.pop("name", path.stem)
        if not isinstance(name, str):
            raise ValueError(f"`name` is {name!r}; give text in quotes.")
        for key in ("grid", "rails"):
            if key in table:
                raise ValueError(
                    f"`{key}` is a table of bundled topologies alone; list the links "
                    f"under `[[links]]`."
                )
        return build(expand(_whole(table)), name, latency)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def _read_print(path: Path, latency: float | None, gpu: str | None) -> Topology:
    from ._nvidia_smi import read_matrix

    text = read_named(path, "topology", "dgx1")
    try:
        return read_matrix(text, gpu, latency, name=path.stem)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
