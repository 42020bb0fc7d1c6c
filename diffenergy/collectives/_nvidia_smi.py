"""A machine from the text that `nvidia-smi topo -m` prints.

The print says how many NVLinks join two GPUs (NV#), or over how much of the host PCIe
goes: one PCIe switch (PIX), several (PXB), a host bridge (PHB), the links between host
bridges of a NUMA node (NODE), the link between sockets (SYS). It says neither the rate
of a link nor what the NVLinks end at. The GPU tells the first; more NVLinks in a row of
the matrix than a GPU has are those of one switch, seen from every other GPU.
"""

import re
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from ..hardware import Generation
from ._build_topology import build
from ._topology import Topology

_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_CELL: Final = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC")
_NEAR: Final = ("PIX", "PXB")
_BRIDGE: Final = ("PHB", "NODE")


class _Card(NamedTuple):
    """GPUs by their bundled name, how many NVLinks one has, and its links."""

    name: str
    nvlinks: int
    links: Generation

    def lanes(self, pairs: str, count: int, end: str = "") -> dict[str, Any]:
        """Entry of links of `count` NVLinks each; `end`: what they lead to."""
        lane, medium = self.links.lane, self.links.link
        source = f"{count} links of {lane / 1e9:g} GB/s"
        if end:
            source, medium = f"{source} to a {end}", f"{medium}-{end}"
        return self._row(pairs, float(count * lane), medium, source)

    def x16(self, pairs: list[str], source: str) -> dict[str, Any]:
        """Entry of links over PCIe."""
        return self._row(" ".join(pairs), self.links.bus_rate, self.links.bus, source)

    def _row(self, pairs: str, rate: float, medium: str, origin: str) -> dict[str, Any]:
        source = f"nvidia-smi topo -m of a machine with {self.name}: {origin}"
        return {"pairs": pairs, "rate": rate, "medium": medium, "source": source}


def read_matrix(
    text: str, gpu: str | None, latency: float | None = None, name: str = "nvidia-smi"
) -> Topology:
    """Topology of one host from its print; NICs lead nowhere and are left out.

    NVLinks alone where they join all GPUs, else PCIe beside them. `gpu`: name of the
    GPUs; `latency`: s of every link (0.7 us if not given).

    Raises `ValueError` if the text is no such print, if `gpu` is missing or has no
    NVLink, and for a matrix that contradicts itself.
    """
    cells = _matrix(text)
    if gpu is None:
        raise ValueError(
            "`gpu` is missing, and the print does not say which NVLinks it shows; name "
            "the GPUs, for example a100-sxm-80gb."
        )
    card = _card(gpu)
    lanes = np.array(
        [[int(c[2:]) if c.startswith("NV") else 0 for c in row] for row in cells]
    )
    if lanes.any() and not card.nvlinks:
        raise ValueError(
            f"`gpu` is {gpu!r}, which has no NVLink, but the print shows NVLinks; name "
            f"the GPUs of that machine."
        )
    table: dict[str, Any] = {"gpu": gpu, "gpus": len(cells)}
    if lanes.sum(1).max() > card.nvlinks:
        table |= _switched(lanes, card)
    else:
        ends = np.argwhere(np.triu(lanes)).tolist()
        table["links"] = [card.lanes(f"{i}-{j}", int(lanes[i, j])) for i, j in ends]
        if len(_groups(lanes > 0)) > 1:
            nodes, links = _host(np.array(cells), card)
            table["outer_nodes"] = [{"names": " ".join(nodes)}]
            table["links"] += links
    return build(table, name, latency)


# --- reading


def _matrix(text: str) -> list[list[str]]:
    """Cells between GPUs, row by row."""
    lines = [_STYLE.sub("", line).split() for line in text.splitlines()]
    lines = [words for words in lines if words]
    heads = [n for n, words in enumerate(lines) if words[0] == "GPU0"]
    heads = [n for n in heads if "X" not in lines[n]]
    if not heads:
        raise ValueError(
            "`topology` is no print of `nvidia-smi topo -m` (no line GPU0, GPU1, ...); "
            "give one, or TOML in a file whose name ends in .toml."
        )
    start, head = heads[0], lines[heads[0]]
    names = [word for word in head if re.fullmatch(r"GPU\d+", word)]
    rows = {words[0]: words[1:] for words in lines[start + 1 :] if words[0] in names}
    if head[: len(names)] != names or list(rows) != names:
        raise ValueError(
            f"`topology` has columns {names[0]} to {names[-1]} but the rows "
            f"{', '.join(rows) or 'none'}; give the whole print."
        )
    cells = [rows[name][: len(names)] for name in names]
    _check_cells(names, cells)
    return cells


def _check_cells(names: list[str], cells: list[list[str]]) -> None:
    for i, row in enumerate(cells):
        if len(row) < len(names):
            raise ValueError(
                f"`topology` has {len(row)} cells in the row {names[i]}; allowed are "
                f"{len(names)} and more; give the whole print."
            )
        for j, cell in enumerate(row):
            if not _CELL.fullmatch(cell) or (cell == "X") != (i == j):
                raise ValueError(
                    f"`topology` has {cell!r} between {names[i]} and {names[j]}; "
                    f"allowed are X for a GPU itself, else NV#, PIX, PXB, PHB, NODE "
                    f"and SYS."
                )
            if cells[j][i : i + 1] != [cell]:
                raise ValueError(
                    f"`topology` has {cell} from {names[i]} to {names[j]} but not the "
                    f"same way back; give the print as it was."
                )


def _card(gpu: str) -> _Card:
    from ..hardware import read_gpu

    card = read_gpu(gpu)
    links, rate = card.generation, card.values["link_bandwidth"]
    if not links.bus:
        raise ValueError(
            f"`gpu` is {gpu!r}, of an architecture ({card.architecture}) whose links "
            "are not known; allowed are those of NVIDIA from Pascal on."
        )
    has_nvlink = links.lane and rate > 1.01 * links.bus_rate
    return _Card(card.name, round(rate / links.lane) if has_nvlink else 0, links)


# --- links


def _switched(lanes: Int[np.ndarray, "gpu gpu"], card: _Card) -> dict[str, Any]:
    """NVLinks to one switch that never blocks; one of Hopper and later can reduce."""
    width = int(lanes.max())
    others = lanes[~np.eye(len(lanes), dtype=bool)]
    if (others != width).any() or width > card.nvlinks:
        raise ValueError(
            f"`topology` shows up to {lanes.sum(1).max()} NVLinks at a GPU, but "
            f"{card.name} has {card.nvlinks} and not all pairs are alike, as behind a "
            f"switch; name the GPUs of that machine."
        )
    reduces = card.links.reduces
    return {
        "nodes": [{"names": "sw0", "copy": reduces, "reduces": reduces}],
        "links": [card.lanes(f"0..{len(lanes) - 1}-sw0", width, "switch")],
    }


def _host(cells: np.ndarray, card: _Card) -> tuple[list[str], list[dict[str, Any]]]:
    """PCIe: GPUs behind PCIe switches, those behind host bridges, those joined.

    Every link has the rate of x16; that of the link between sockets is a guess. GPUs
    that NVLinks join count as behind one bridge, since NV# hides what PCIe is below.
    """
    close = np.isin(cells, _NEAR)
    linked = np.char.startswith(cells, "NV") | np.isin(cells, _BRIDGE)
    bridged = _groups(close | linked)
    nodes, pairs = [f"sw{number}" for number in range(len(bridged))], []
    between = [f"{a}-{b}" for n, b in enumerate(nodes) for a in nodes[:n]]
    for group in _groups(close):
        bridge = next(n for n, wide in enumerate(bridged) if group[0] in wide)
        up = f"sw{bridge}"
        if len(group) > 1:
            nodes.append(f"sw{len(nodes)}")
            pairs.append(f"{nodes[-1]}-{up}")
            up = nodes[-1]
        pairs += [f"{gpu}-{up}" for gpu in group]
    rows = [card.x16(pairs, "x16")]
    if between:
        rows.append(card.x16(between, "between sockets, rate a guess, that of x16"))
    return nodes, rows


def _groups(near: Bool[np.ndarray, "gpu gpu"]) -> list[list[int]]:
    """GPUs that are near each other, directly or over others."""
    from scipy.sparse.csgraph import connected_components

    count, group = connected_components(near, directed=False)
    return [np.flatnonzero(group == n).tolist() for n in range(count)]
