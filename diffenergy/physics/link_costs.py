"""Fitted constants of collectives by GPU (`data/facts/collective_costs.toml`).

Made by `calibration/collective_costs.py`. A GPU that was not measured has the constants
of the one that `taken_for` names, else the mean over the measured GPUs with the same
kind of link; its own link's rate scales both.
"""

import functools
import tomllib
from pathlib import Path
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int

from ..hardware.files import corrections_rows, gpu_names, read_gpu
from ..hardware.spec import GpuSpec
from ..records import as_float, as_index
from .links import BLOCKS, KINDS, LinkCosts

FILE: Final = Path(__file__).parents[1] / "data" / "facts" / "collective_costs.toml"
_NVLINK_RATE: Final = 9e10
"""B/s of one direction from which a link counts as NVLink, below it as PCIe (one bridge
of an A30: 100 GB/s; PCIe 5: 63 GB/s)."""
_REDUCING_RATE: Final = 4e11
"""B/s from which a link is NVLink 4 or later (450 GB/s; NVLink 3: 300)."""
_REDUCING: Final = ("Hopper", "Blackwell")
_WITH_NVLINK: Final = ("Volta", "Ampere", *_REDUCING)
"""Architectures whose unknown GPUs are taken to be server boards with NVLink."""
FIELDS: Final = (
    "floor",
    "step",
    "fill",
    "relative",
    "bias",
    "bias_ranks",
    "share",
    "narrow",
)
BLOCK_OF_KIND: Final = np.array([BLOCKS.index(block) for _, block, _ in KINDS.values()])


@functools.cache
def facts() -> dict[str, Any]:
    """The file: constants by GPU or kind of link, then by collective."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def link_kind(gpu: str) -> str:
    """`nvlink` or `pcie`, of a bundled GPU or of an architecture."""
    if gpu not in gpu_names():
        return "nvlink" if gpu in _WITH_NVLINK else "pcie"
    rate = float(read_gpu(gpu).spec.link_bandwidth)
    return "nvlink" if rate >= _NVLINK_RATE else "pcie"


def switch_reduces(gpu: str) -> bool:
    """Whether the switches between GPUs of this type add up what passes."""
    if gpu not in gpu_names():
        return gpu in _REDUCING
    card = read_gpu(gpu)
    fast = float(card.spec.link_bandwidth) >= _REDUCING_RATE
    return fast and card.architecture in _REDUCING


def whose(gpu: str, block: str) -> str:
    """Table of the file that serves `gpu` in a collective: a GPU or a kind of link."""
    known = facts()
    names = (gpu, known["taken_for"].get(gpu, gpu), link_kind(gpu))
    return next(name for name in names if block in known.get(name, {}))


@functools.cache
def _table() -> dict[str, np.ndarray]:
    """Constants (row of corrections, collective, ...) and `switch` (row,)."""
    rows, known = corrections_rows(), facts()
    table = {
        field: np.array(
            [[known[whose(gpu, b)][b][field] for b in BLOCKS] for gpu in rows], float
        )
        for field in FIELDS
    }
    return table | {"switch": np.array([switch_reduces(gpu) for gpu in rows], float)}


def link_costs(gpu: GpuSpec, kind: Int[Array, " kernel"]) -> LinkCosts:
    """Constants of `gpu` for each collective; `kind`: index into `links.KINDS`."""
    row = jnp.round(gpu.corrections_row).astype(jnp.int32)
    block = as_index(BLOCK_OF_KIND)[kind]
    table = _table()
    values = {name: as_float(table[name])[row][block] for name in FIELDS}
    switch = as_float(table["switch"])[row]
    return LinkCosts(**values, switch=jnp.broadcast_to(switch, jnp.shape(kind)))
