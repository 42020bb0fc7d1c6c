"""Node files (`data/nodes/*.toml`): any subset of the keys of `NodeFile`; what a file
leaves out is built up from its parts, and parts from the GPU (`data/facts/hosts.toml`,
which names the sources)."""

import difflib
import functools
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from ..corrections import generation
from ..files import facts, read_toml
from ..hardware import GpuCard, idle_power, read_gpu
from ..schema import Count, Finite, NotNegative, Positive, Table, Text, fitted
from ._names import FOLDER, node_names
from ._node import Node

_MODULE_TDP: Final = 500.0
"""W from which a data-centre GPU is taken for a module (SXM, OAM), not for a card."""
_TITANIUM_TDP: Final = 700.0
"""W of a board from which servers have supplies of the better class."""
_MARGIN: Final = 2.0
"""Rated power of all supplies / full load: every second one is a spare."""
_HOST_PEAK: Final = 1.5
"""Full load of a host / the sum of its parts at idle."""

Gain = Annotated[
    float, Meta(ge=-0.1, le=1.0, description="allowed are numbers from -0.1 to 1")
]
Parts = Annotated[int, Meta(ge=0, description="give a whole number from 0 on")]


class NodeFile(Table, frozen=True):
    """Keys of a node file, in W, s, kg and GB.

    `gpu`: the GPUs that it may house, its own first. `idle_wall_w`: the wall power of
    the idle node, of which `host_idle_w` follows. `fans_w`: of all fans while idle.
    """

    name: Text
    gpu: list[Text] = []
    gpus: Count | None = None
    grade: Literal["calibrated", "transferred", "datasheet"] | None = None
    cooling: Literal["air", "water", "immersion"] = "air"
    form: Literal["module", "slot"] | None = None
    cpu: Text | None = None
    cpus: Parts | None = None
    dram_gb: NotNegative | None = None
    nic: Text | None = None
    nics: Parts | None = None
    nvmes: Parts | None = None
    switch: Text | None = None
    switches: Parts = 1
    retimers: Parts | None = None
    board: Text | None = None
    boards: Parts = 1
    fans_w: NotNegative | None = None
    host_idle_w: NotNegative | None = None
    idle_wall_w: Positive | None = None
    host_idle_sd: NotNegative | None = None
    gain: Gain | None = None
    gain_sd: NotNegative | None = None
    psu: Literal["titanium", "platinum"] | None = None
    psu_loss: list[Finite] | None = None
    psu_total_w: Positive | None = None
    lag_s: NotNegative | None = None
    embodied_kg: Positive | None = None
    life_years: Positive = 4.0
    provenance: dict[str, Any] = {}


def load_node(name: str, gpu: str | GpuCard | None = None) -> Node:
    """A node by bundled name, by path ending in .toml, or `default`: the usual one of
    the GPU. `gpu`: what it houses [its own].

    Raises `ValueError` in one sentence for an unknown name, and for a file that is
    missing or holds what cannot be.

    >>> node = load_node("dgx-h200")
    >>> node.gpus, node.host_idle, round(node.power(495.0, 71.0).wall)
    (8, 1657.0, 6108)
    """
    file, card, where = read_node(name, gpu)
    try:
        return build_node(file, card)
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None


def foreign_gpu(name: str, card: GpuCard) -> str | None:
    """The GPU that a node was built for, where it is not known to house this one."""
    file, _ = _read(name, card)
    return file.gpu[0] if _other(file, card) else None


def read_node(
    name: str, gpu: str | GpuCard | None = None
) -> tuple[NodeFile, GpuCard, str]:
    """Keys of a node's file, the GPU that it houses, and what a refusal of the file
    begins with; see `load_node`."""
    card = read_gpu(gpu) if isinstance(gpu, str) else gpu
    file, where = _read(name, card)
    if card is None:
        if not file.gpu:
            raise ValueError(f"{where}`gpu` is missing; give the GPU that it houses.")
        card = read_gpu(file.gpu[0])
    return file, card, where


def _read(name: str, card: GpuCard | None) -> tuple[NodeFile, str]:
    """A file's keys, and what a refusal of it begins with."""
    if name.lower().endswith(".toml"):
        path = Path(name)
        where = f"{path.name}: "
        return fitted(read_toml(path, "node", "dgx-h100"), NodeFile, where), where
    if name == "default" and card is not None:
        return _default(card), ""
    folded = name.strip().lower().replace("_", "-").replace(" ", "-")
    if folded not in node_names():
        near = difflib.get_close_matches(folded, node_names(), n=3, cutoff=0.4)
        names = ", ".join(f"`{x}`" for x in near or node_names())
        raise ValueError(
            f"`node` is '{name}', which is not a known node; nearest: {names}; or give "
            "the path of a .toml file, `default` or `none`."
        )
    return _bundled(folded), ""


@functools.cache
def _bundled(name: str) -> NodeFile:
    return fitted(read_toml(FOLDER / f"{name}.toml", "node", "dgx-h100"), NodeFile)


def _default(card: GpuCard) -> NodeFile:
    """The bundled node whose own GPU it is, else the first that may house it, else one
    of its form factor, built up."""
    files = [_bundled(name) for name in node_names()]
    names = (card.name, card.served_as)
    housing = [x for x in files if {*names} & {*x.gpu}]
    # those that were measured before others, large ones before small ones
    grades = ("calibrated", "transferred", "datasheet", None)
    housing.sort(
        key=lambda x: (x.gpu[0] not in names, grades.index(x.grade), -(x.gpus or 0))
    )
    if housing:
        return housing[0]
    return NodeFile(name="module8" if _is_module(card) else "slot8", gpus=8)


def _is_module(card: GpuCard) -> bool:
    large = card.segment == "datacenter" and card.values["tdp"] >= _MODULE_TDP
    return large or "-sxm" in card.name


def build_node(file: NodeFile, card: GpuCard) -> Node:
    """The node with what its file leaves out."""
    known, spread = facts("hosts"), facts("hosts")["spread"]
    module = file.form == "module" if file.form else _is_module(card)
    gpus, tdp = file.gpus or 8, card.values["tdp"]
    idle = float(idle_power(card.spec, card.spec.sm_clock_min))
    parts = sum(_parts(file, card, gpus, module).values())
    loss = (
        file.psu_loss
        or known["psu"][
            file.psu or ("titanium" if tdp >= _TITANIUM_TDP else "platinum")
        ]
    )
    if len(loss) != 3:
        raise ValueError(
            f"`psu_loss` is {loss}; give three numbers: constant, linear and quadratic."
        )
    total = file.psu_total_w or _MARGIN * (gpus * tdp + _HOST_PEAK * parts)
    host, host_sd = _host(file, parts, gpus, idle, loss, total)
    gain, gain_sd = known["gain"]["sxm" if module else "slot"]
    if file.gain is not None:
        gain, gain_sd = file.gain, spread["gain_measured"]
    node = Node(
        name=file.name,
        gpu=card.name,
        gpus=gpus,
        host_idle=host,
        gain=gain,
        psu_loss=(loss[0], loss[1], loss[2]),
        psu_total=total,
        cooling=file.cooling,
        lag=(100.0 if file.cooling == "air" else 0.0)
        if file.lag_s is None
        else file.lag_s,
        embodied=file.embodied_kg,
        life_years=file.life_years,
        grade=_grade(file, card),
        host_idle_sd=host_sd if file.host_idle_sd is None else file.host_idle_sd,
        gain_sd=gain_sd if file.gain_sd is None else file.gain_sd,
        loss_sd=spread["loss"],
        node_sd=spread["node_air" if file.cooling == "air" else "node_liquid"],
        provenance=file.provenance,
    )
    if (need := node.power(tdp, idle).dc) > total:
        raise ValueError(
            f"`psu_total_w` is {total:g}; a node of {gpus} x {tdp:g} W draws "
            f"{need:.0f} W behind them: give the rated power of all supplies together."
        )
    return node


def _grade(file: NodeFile, card: GpuCard) -> str:
    """What a node rests on; readings with other GPUs are transferred."""
    measured = file.host_idle_w is not None or file.idle_wall_w is not None
    grade = file.grade or ("transferred" if measured else "datasheet")
    return "transferred" if _other(file, card) and grade == "calibrated" else grade


def _other(file: NodeFile, card: GpuCard) -> bool:
    """Whether a node with this GPU is not one of those that the file is of."""
    return bool(file.gpu) and not {card.name, card.served_as} & {*file.gpu}


def _host(
    file: NodeFile,
    parts: float,
    gpus: int,
    idle: float,
    loss: list[float],
    total: float,
) -> tuple[float, float]:
    """Idle power of the host (W, DC) and the standard deviation of its ln."""
    known = facts("hosts")
    if file.host_idle_w is not None:
        return file.host_idle_w, known["spread"]["host_idle_measured"]
    if file.idle_wall_w is None:
        return known["scale"] * parts, known["scale_sd"]
    # wall = dc + S (a + b x + c x^2), solved for dc
    a, b, c = loss
    wall = file.idle_wall_w - a * total
    root = ((1 + b) ** 2 + 4 * c * wall / total) ** 0.5 if c else 0.0
    dc = (root - 1 - b) * total / (2 * c) if c else wall / (1 + b)
    if dc < gpus * idle:
        raise ValueError(
            f"`idle_wall_w` is {file.idle_wall_w:g}, less than its {gpus} idle GPUs "
            f"draw ({gpus * idle:.0f} W); give the reading of the whole node."
        )
    return dc - gpus * idle, known["spread"]["host_idle_measured"]


def _parts(file: NodeFile, card: GpuCard, gpus: int, module: bool) -> dict[str, float]:
    """W (DC) of the idle host by part."""
    known = facts("hosts")
    recent = card.generation.order >= generation(known["recent_from"]).order
    large = module and gpus >= 8

    def watts(table: str, key: str, word: str | None, usual: str) -> float:
        name = (word or usual).lower()
        if table == "cpu":
            name = known["cpu_models"].get(name, name)
        if name not in known[table]:
            words = ", ".join([*known[table], *known.get(f"{table}_models", ())])
            raise ValueError(f"`{key}` is '{word}'; allowed are {words}.")
        return float(known[table][name])

    def number(value: float | None, usual: float) -> float:
        return usual if value is None else value

    year = "2022" if recent else "2020"
    switch = {"Ampere": "nvswitch2", "Hopper": "nvswitch3", "Blackwell": "nvswitch4"}
    fabric = switch.get(card.architecture, "none") if large else "none"
    fans = known["fans"]
    air = (
        fans[f"air-{year}"] * min(1.0, gpus / 8)
        if module
        else (fans["slots"] + fans["slot"] * gpus)
    )
    draught = air if file.cooling == "air" else fans[file.cooling]
    cpu = watts("cpu", "cpu", file.cpu, "server-2023" if recent else "server-2020")
    nic = watts("nic", "nic", file.nic, "400g" if recent else "200g")
    board = watts("board", "board", file.board, "server" if gpus > 1 else "small")
    return {
        "cpus": cpu * number(file.cpus, 2),
        "dram": known["dram_per_64gb"]
        * number(file.dram_gb, 2048 if large else 1024)
        / 64,
        "nics": nic * number(file.nics, 10 if large else 1),
        "nvmes": known["nvme"] * number(file.nvmes, 8 if large else 2),
        "switches": watts("switch", "switch", file.switch, fabric) * file.switches,
        "retimers": known["retimer"]
        * number(file.retimers, gpus if recent and module else 0),
        "boards": board * file.boards,
        "fans": number(file.fans_w, draught),
    }
