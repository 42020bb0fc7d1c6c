"""`load_topology`: machines by name, from TOML files, from prints of `nvidia-smi`."""

import dataclasses
import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from ..files import read_named, read_toml
from ._build_topology import FILE as MEDIA_FILE
from ._build_topology import build, gpu_name
from ._families import FAMILIES, MACHINE_PARTS, expand, family
from ._topology import Topology

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
        return _with_base(tomllib.loads((_FOLDER / f"{name}.toml").read_text()))
    return None


def _with_base(table: dict[str, Any]) -> dict[str, Any]:
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
        return build(expand(_with_base(table)), name, latency)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def _read_print(path: Path, latency: float | None, gpu: str | None) -> Topology:
    from ._nvidia_smi import read_matrix

    text = read_named(path, "topology", "dgx1")
    try:
        return read_matrix(text, gpu, latency, name=path.stem)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
