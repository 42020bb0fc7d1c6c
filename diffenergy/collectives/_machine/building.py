"""`build`: a topology from the tables of its file, every entry checked."""

import difflib
import itertools
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .entries import (
    MOST_NODES,
    NAMES,
    check_keys,
    count,
    expand_names,
    flag,
    is_int,
    number,
    optional_text,
    rows,
    split_name,
    subtable,
    text,
)
from .media import media
from .topology import Energy, Kind, Link, Node, Topology

DEFAULT_LATENCY: Final = 0.7e-6
"""s of a link whose latency is open: an NVLink 2 of the NDv2 model of TE-CCL."""
KEYS: Final = (
    "name", "like", "gpu", "gpus", "chassis", "relays", "buffer_gpus", "free_exit",
    "latency", "latency_source", "nodes", "outer_nodes", "links", "outer_links",
    "media",
)  # fmt: skip
_MOST_RATE: Final = 1e16
"""B/s; more is a slip of the keyboard."""
_NODE_KEYS: Final = ("names", "copy", "reduces", "chassis")
_LINK_KEYS: Final = (
    "pairs", "one_way", "rate", "latency", "latency_source", "medium", "source",
)  # fmt: skip
_MEDIUM_KEYS: Final = ("low", "typical", "high", "source")
_KINDS: Final[Mapping[str, Kind]] = {"gpu": "gpu", "sw": "switch", "nic": "nic"}
_LEAST_RATE: Final = 1e6  # B/s; below it is in GB/s or Gb/s
_MOST_LATENCY: Final = 0.1  # s; above it is in us or ns
_MOST_ENERGY: Final = 1e-6  # J/bit; above it is in pJ/bit


def build(table: Mapping[str, Any], name: str, latency: float | None) -> Topology:
    """Topology of a description; `latency` (s) is for links that leave theirs open.

    Raises `ValueError` naming the key that is unknown, missing or wrong.
    """
    check_keys("", table, KEYS)
    if latency is not None:
        _check_latency(latency)
    nodes = _nodes(table)
    links = _links(table, {node.name: n for n, node in enumerate(nodes)}, latency)
    if sum(node.kind == "gpu" for node in nodes) < 2:
        raise ValueError("`gpus` leaves fewer than two GPUs; describe at least two.")
    return Topology(
        name=name,
        nodes=nodes,
        links=links,
        buffer_gpus=_buffer_gpus(table),
        gpu=gpu_name(optional_text(table, "gpu")),
        free_exit=flag(table, "free_exit", False),
    )


def gpu_name(given: str | None) -> str | None:
    """Bundled name of a GPU; raises `ValueError` for one that is not known."""
    from ...hardware import gpu_names, read_gpu

    if given is None or given in gpu_names():
        return given
    return read_gpu(given).name  # another spelling; imports JAX


def _buffer_gpus(table: Mapping[str, Any]) -> int:
    gpus = count(table, "chassis", 1) * count(table, "gpus")
    buffer_gpus = count(table, "buffer_gpus", gpus)
    if buffer_gpus < gpus:
        raise ValueError(
            f"`buffer_gpus` is {buffer_gpus}; allowed are whole numbers from {gpus}, "
            f"the GPUs here, on."
        )
    return buffer_gpus


# --- nodes


def _nodes(table: Mapping[str, Any]) -> tuple[Node, ...]:
    chassis, gpus = count(table, "chassis", 1), count(table, "gpus")
    if chassis * gpus > MOST_NODES:
        raise ValueError(
            f"`gpus` is {gpus} in {chassis} chassis; allowed are {MOST_NODES} in all."
        )
    relays = set(expand_names(optional_text(table, "relays") or "", "relays"))
    found = []
    for n in range(chassis * gpus):
        kind = "switch" if f"gpu{n}" in relays else "gpu"
        found.append(Node(f"gpu{n}", kind, chassis=n // gpus))
    inner = [_node(row, "nodes") for row in rows(table, "nodes")]
    counts = Counter(split_name(name)[0] for names, _ in inner for name in names)
    for c, (names, node) in itertools.product(range(chassis), inner):
        for prefix, n in map(split_name, names):
            if n >= counts[prefix]:
                raise ValueError(
                    f"`nodes` has {prefix}{n}, but {counts[prefix]} of them; number "
                    f"them from {prefix}0."
                )
            name = f"{prefix}{c * counts[prefix] + n}"
            found.append(Node(name, _KINDS[prefix], *node[:2], c))
    for row in rows(table, "outer_nodes"):
        names, node = _node(row, "outer_nodes")
        found += [Node(name, _KINDS[split_name(name)[0]], *node) for name in names]
    _check_unknown(relays, found)
    order = {"gpu": 0, "sw": 1, "nic": 2}
    found.sort(
        key=lambda node: (order[split_name(node.name)[0]], split_name(node.name)[1])
    )
    for before, after in itertools.pairwise(found):
        if before.name == after.name:
            raise ValueError(f"`nodes` has {after.name} twice; give each its number.")
    return tuple(found)


def _node(
    row: Mapping[str, Any], where: str
) -> tuple[list[str], tuple[bool, bool, int]]:
    """Names of an entry, and its copy, reduces and chassis."""
    check_keys(where, row, _NODE_KEYS[: 3 if where == "nodes" else 4])
    names = expand_names(text(row, "names"), "names")
    if any(name.startswith("gpu") for name in names):
        raise ValueError(
            f"`names` is {row['names']!r}; allowed are switches and NICs (sw0, nic0): "
            f"GPUs are counted by `gpus`."
        )
    chassis = row.get("chassis", -1)
    if not is_int(chassis) or chassis < -1:
        raise ValueError(f"`chassis` is {chassis!r}; give its number, from 0.")
    return names, (flag(row, "copy", False), flag(row, "reduces", False), chassis)


def _check_unknown(relays: set[str], nodes: list[Node]) -> None:
    if unknown := sorted(relays - {n.name for n in nodes if n.name.startswith("gpu")}):
        raise ValueError(f"`relays` names {unknown[0]}, which is not a GPU here.")


# --- links


class _Medium(NamedTuple):
    name: str
    energy: Energy


def _links(
    table: Mapping[str, Any], index: Mapping[str, int], latency: float | None
) -> tuple[Link, ...]:
    chassis = count(table, "chassis", 1)
    size = _sizes(table)
    known = {**media(), **_own_media(table)}
    inner = [(row, "links") for row in rows(table, "links")]
    outer = [(row, "outer_links") for row in rows(table, "outer_links")]
    if not inner and not outer:
        raise ValueError("`links` is missing; add a table `[[links]]`.")
    found, taken = [], False
    for row, where in (*inner, *outer):
        check_keys(where, row, _LINK_KEYS)
        ends = _ends(row, where)
        rate, medium = _rate(row, where), _medium(row, known)
        own, origin, open_ = _latency(row, table, latency)
        taken |= open_
        for c in range(chassis if where == "links" else 1):
            for source, target in ends:
                pair = [_moved(end, c, size) for end in (source, target)]
                a, b = (_at(end, index, where) for end in pair)
                found.append(Link(a, b, rate, own, medium.name, medium.energy, origin))
    if latency is not None and not taken:
        raise ValueError(
            f"`latency` is {latency:g}, but this topology states the latency of every "
            f"link; leave it out."
        )
    _check_once(found, index)
    return tuple(found)


def _sizes(table: Mapping[str, Any]) -> dict[str, int]:
    """GPUs, switches and NICs in a chassis."""
    names = [
        name
        for row in rows(table, "nodes")
        for name in expand_names(text(row, "names"), "names")
    ]
    return {"gpu": count(table, "gpus")} | dict(
        Counter(split_name(n)[0] for n in names)
    )


def _moved(name: str, chassis: int, size: Mapping[str, int]) -> str:
    """Name in the whole machine of a node that is counted within a chassis."""
    if chassis == 0:
        return name
    prefix, n = split_name(name)
    return f"{prefix}{n + chassis * size.get(prefix, 0)}"


def _at(name: str, index: Mapping[str, int], where: str) -> int:
    if name not in index:
        raise ValueError(
            f"`{where}` names {name}, which is not a node of this topology; add it "
            f"under `[[nodes]]` or raise `gpus`."
        )
    return index[name]


def _ends(row: Mapping[str, Any], where: str) -> list[tuple[str, str]]:
    """Links of an entry by the names at their ends."""
    ends = []
    for key, sign in (("pairs", "-"), ("one_way", "->")):
        for word in (optional_text(row, key) or "").split():
            sides = word.split(sign)
            if len(sides) != 2 or not all(map(NAMES.fullmatch, sides)):
                raise ValueError(
                    f"`{key}` has {word!r}; allowed are two nodes, such as "
                    f"gpu0{sign}gpu1, 0{sign}1 or 0..7{sign}sw0."
                )
            near, far = (expand_names(side, key) for side in sides)
            if len(near) * len(far) > MOST_NODES:
                raise ValueError(
                    f"`{key}` has {word!r}, which makes {len(near) * len(far)} links; "
                    f"allowed are {MOST_NODES}."
                )
            for a, b in itertools.product(near, far):
                ends += [(a, b)] if sign == "->" else [(a, b), (b, a)]
    if not ends:
        raise ValueError(f"`{where}` has an entry with neither `pairs` nor `one_way`.")
    return ends


def _rate(row: Mapping[str, Any], where: str) -> float:
    which = row.get("pairs") or row.get("one_way")
    if "rate" not in row:
        raise ValueError(
            f"`rate` is missing for the {where} {str(which).strip()[:40]!r}; give the "
            f"B/s of one direction."
        )
    rate = number("rate", row["rate"], "B/s above zero")
    if not rate > 0:
        raise ValueError(f"`rate` is {rate:g}; allowed is any number of B/s above 0.")
    if rate > _MOST_RATE:
        raise ValueError(
            f"`rate` is {rate:g} B/s, which no link has; allowed are {_MOST_RATE:g}."
        )
    if rate < _LEAST_RATE:
        raise ValueError(
            f"`rate` is {rate:g}, which looks like GB/s; topology files are in B/s, "
            f"convert it."
        )
    return rate


def _latency(
    row: Mapping[str, Any], table: Mapping[str, Any], given: float | None
) -> tuple[float, str, bool]:
    """Latency (s), where rate and latency are from, and whether it was open."""
    source = optional_text(row, "source") or "rate: the file"
    for holder in (row, table):
        if "latency" in holder:
            latency = number("latency", holder["latency"], "s")
            _check_latency(latency)
            said = optional_text(holder, "latency_source")
            return latency, f"{source}; latency: {said or 'the same'}", False
    if given is not None:
        return float(given), f"{source}; latency: given by the caller", True
    said = "default, an NVLink of the NDv2 model of TE-CCL"
    return DEFAULT_LATENCY, f"{source}; latency: {said}", True


def _check_latency(latency: float) -> None:
    if not (math.isfinite(latency) and latency >= 0):
        raise ValueError(
            f"`latency` is {latency:g}; allowed is any number of s from 0 on."
        )
    if latency > _MOST_LATENCY:
        raise ValueError(
            f"`latency` is {latency:g}, which looks like us or ns; give it in s."
        )


def _check_once(links: list[Link], index: Mapping[str, int]) -> None:
    names = list(index)
    seen = set()
    for link in links:
        ends = link.source, link.target
        shown = f"{names[ends[0]]}->{names[ends[1]]}"
        if ends[0] == ends[1]:
            raise ValueError(f"`links` has {shown}; a link joins two nodes.")
        if ends in seen:
            raise ValueError(
                f"`links` has {shown} twice; write one link with the rates added up."
            )
        seen.add(ends)


# --- media


def _medium(row: Mapping[str, Any], known: Mapping[str, Energy]) -> _Medium:
    name = text(row, "medium")
    if name not in known:
        near = difflib.get_close_matches(name, list(known), n=3) or list(known)
        raise ValueError(
            f"`medium` is {name!r}, which is not known; nearest: {', '.join(near)}; or "
            f"add a table `[media.{name}]` with low, typical, high (J/bit) and source."
        )
    return _Medium(name, known[name])


def _own_media(table: Mapping[str, Any]) -> dict[str, Energy]:
    found = {}
    for name, row in subtable(table, "media").items():
        values = subtable({name: row}, name)
        check_keys(f"media.{name}", values, _MEDIUM_KEYS)
        low, typical, high = [
            number(key, values.get(key), "J/bit") for key in ("low", "typical", "high")
        ]
        if not 0 <= low <= typical <= high <= _MOST_ENERGY:
            raise ValueError(
                f"`media.{name}` has {low:g}, {typical:g}, {high:g}; allowed are low, "
                f"typical, high in J/bit, rising, from 0 to {_MOST_ENERGY:g}."
            )
        found[name] = Energy(typical, low, high, text(values, "source"))
    return found
