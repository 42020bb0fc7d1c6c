"""A machine from the text that `nvidia-smi topo -m` prints.

The print says how many NVLinks join two GPUs (NV#), or over how much of the host PCIe
goes: one PCIe switch (PIX), several (PXB), a host bridge (PHB), the links between host
bridges of a NUMA node (NODE), the link between sockets (SYS). It says neither the rate
of a link nor what the NVLinks end at. The GPU tells the first; more NVLinks in a row of
the matrix than a GPU has are those of one switch, seen from every other GPU.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Int

from .building import build
from .topology import Topology

_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_CELL: Final = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC")
_NEAR: Final = ("PIX", "PXB")
_BRIDGE: Final = ("PHB", "NODE")


class _Generation(NamedTuple):
    """NVLink and PCIe of an architecture: B/s of one NVLink, then of x16, and media."""

    lane: float
    nvlink: str
    pcie: float
    bus: str


_GENERATIONS: Final[Mapping[str, _Generation]] = {
    "Pascal": _Generation(20e9, "nvlink1", 15.75e9, "pcie3"),
    "Volta": _Generation(25e9, "nvlink2", 15.75e9, "pcie3"),
    "Turing": _Generation(25e9, "nvlink2", 15.75e9, "pcie3"),
    "Ampere": _Generation(25e9, "nvlink3", 31.5e9, "pcie4"),
    "Ada": _Generation(0.0, "", 31.5e9, "pcie4"),
    "Hopper": _Generation(25e9, "nvlink4", 63e9, "pcie5"),
    "Blackwell": _Generation(50e9, "nvlink5", 63e9, "pcie5"),
}
"""NVLink: NVIDIA's figures a direction; PCIe: transfers x 16 lanes x 128/130 / 8."""
_LANES: Final = {"a40": 14.0625e9, "rtx-a6000": 14.0625e9}
"""B/s of one NVLink of GPUs that differ from their architecture (deviceQuery)."""


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
    card, generation, most = _known(gpu)
    lanes = np.array(
        [[int(c[2:]) if c.startswith("NV") else 0 for c in row] for row in cells]
    )
    if lanes.any() and not most:
        raise ValueError(
            f"`gpu` is {gpu!r}, which has no NVLink, but the print shows NVLinks; name "
            f"the GPUs of that machine."
        )
    table: dict[str, Any] = {"gpu": card, "gpus": len(cells)}
    source = f"nvidia-smi topo -m of a machine with {card}"
    if lanes.sum(1).max() > most:
        table |= _switched(lanes, most, card, generation, source)
    else:
        table["links"] = _direct(lanes, generation, source)
        if not _joined(lanes):
            nodes, links = _host(cells, generation, source)
            table["outer_nodes"] = nodes
            table["links"] += links
    return build(table, name, latency)


# --- reading


def _matrix(text: str) -> list[list[str]]:
    """Cells between GPUs, row by row."""
    lines = [_STYLE.sub("", line).split() for line in text.splitlines()]
    lines = [words for words in lines if words]
    start = next((n for n, words in enumerate(lines) if _is_header(words)), None)
    if start is None:
        raise ValueError(
            "`topology` is no print of `nvidia-smi topo -m` (no line GPU0, GPU1, ...); "
            "give one, or TOML in a file whose name ends in .toml."
        )
    head = lines[start]
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


def _is_header(words: list[str]) -> bool:
    return words[0] == "GPU0" and "X" not in words


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


def _known(gpu: str) -> tuple[str, _Generation, int]:
    """Bundled name, links, and how many NVLinks the GPU has."""
    from ...hardware import read_gpu

    card = read_gpu(gpu)
    if card.architecture not in _GENERATIONS:
        raise ValueError(
            f"`gpu` is {gpu!r}, of an architecture ({card.architecture}) whose links "
            f"are not known; allowed are {', '.join(_GENERATIONS)}."
        )
    links = _GENERATIONS[card.architecture]
    links = links._replace(lane=_LANES.get(card.name, links.lane))
    rate = card.values["link_bandwidth"]
    has_nvlink = links.lane and rate > 1.01 * links.pcie
    return card.name, links, round(rate / links.lane) if has_nvlink else 0


# --- links


def _direct(
    lanes: Int[np.ndarray, "gpu gpu"], links: _Generation, source: str
) -> list[dict[str, Any]]:
    """NVLinks from GPU to GPU."""
    return [
        {
            "pairs": f"{i}-{j}",
            "rate": float(lanes[i, j] * links.lane),
            "medium": links.nvlink,
            "source": f"{source}: {lanes[i, j]} links of {links.lane / 1e9:g} GB/s",
        }
        for i, j in zip(*np.nonzero(np.triu(lanes)), strict=True)
    ]


def _switched(
    lanes: Int[np.ndarray, "gpu gpu"],
    most: int,
    card: str,
    links: _Generation,
    source: str,
) -> dict[str, Any]:
    """NVLinks to one switch that never blocks; one of Hopper and later can reduce."""
    width = int(lanes.max())
    others = lanes[~np.eye(len(lanes), dtype=bool)]
    if (others != width).any() or width > most:
        raise ValueError(
            f"`topology` shows up to {lanes.sum(1).max()} NVLinks at a GPU, but "
            f"{card} has {most} and not all pairs are alike, as behind a switch; name "
            f"the GPUs of that machine."
        )
    reduces = links.nvlink in ("nvlink4", "nvlink5")
    rate = width * links.lane
    said = f"{source}: {width} links of {links.lane / 1e9:g} GB/s to a switch"
    return {
        "nodes": [{"names": "sw0", "copy": reduces, "reduces": reduces}],
        "links": [
            {
                "pairs": f"0..{len(lanes) - 1}-sw0",
                "rate": rate,
                "medium": f"{links.nvlink}-switch",
                "source": said,
            }
        ],
    }


def _host(
    cells: list[list[str]], links: _Generation, source: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """PCIe: GPUs behind PCIe switches, those behind host bridges, those joined.

    Every link has the rate of x16; that of the link between sockets is a guess. GPUs
    that NVLinks join count as behind one bridge, since NV# hides what PCIe is below.
    """
    kinds = [["NV" if c.startswith("NV") else c for c in row] for row in cells]
    near, bridged = _groups(kinds, _NEAR), _groups(kinds, (*_NEAR, *_BRIDGE, "NV"))
    nodes, pairs, between = [], [], []
    for number in range(len(bridged)):
        nodes.append(f"sw{number}")
        between += [f"sw{other}-sw{number}" for other in range(number)]
    for group in near:
        bridge = next(n for n, wide in enumerate(bridged) if group[0] in wide)
        up = f"sw{bridge}"
        if len(group) > 1:
            nodes.append(f"sw{len(nodes)}")
            pairs.append(f"{nodes[-1]}-{up}")
            up = nodes[-1]
        pairs += [f"{gpu}-{up}" for gpu in group]
    x16 = {"rate": links.pcie, "medium": links.bus}
    rows = [x16 | {"pairs": " ".join(pairs), "source": f"{source}: x16"}]
    if between:
        said = f"{source}: between sockets, rate a guess, that of x16"
        rows.append(x16 | {"pairs": " ".join(between), "source": said})
    return [{"names": " ".join(nodes), "copy": False}], rows


def _groups(cells: list[list[str]], kinds: tuple[str, ...]) -> list[list[int]]:
    """GPUs that cells of these kinds join, directly or over others."""
    left, groups = list(range(len(cells))), []
    while left:
        group = [left.pop(0)]
        for gpu in group:
            near = [other for other in left if cells[gpu][other] in kinds]
            group += near
            left = [other for other in left if other not in near]
        groups.append(sorted(group))
    return groups


def _joined(lanes: Int[np.ndarray, "gpu gpu"]) -> bool:
    """Whether NVLinks alone lead from every GPU to every other."""
    names = np.where(lanes > 0, "NV", "-").tolist()
    return len(_groups(names, ("NV",))) == 1
