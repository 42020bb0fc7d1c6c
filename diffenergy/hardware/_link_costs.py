"""Fitted constants of collectives by GPU (`data/facts/collective_costs.toml`).

Made by `calibration/studies/collective_costs.py`. A GPU that was not measured has the
constants of the one that `taken_for` names, else the mean over the measured GPUs with
the same kind of link; its own link's rate scales both.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from jax import Array
from jaxtyping import Float

from ..files import facts
from ..records import Record, as_float

BLOCKS: Final = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv",
    "custom_all_reduce",
)  # fmt: skip
"""Collectives with constants of their own."""
_NVLINK_RATE: Final = 9e10
"""B/s of one direction from which a link counts as NVLink, below it as PCIe (one bridge
of an A30: 100 GB/s; PCIe 5: 63 GB/s)."""
_REDUCING_RATE: Final = 4e11
"""B/s from which a link is NVLink 4 or later (450 GB/s; NVLink 3: 300)."""
_REDUCING: Final = ("Hopper", "Blackwell")
_WITH_NVLINK: Final = ("Volta", "Ampere", *_REDUCING)
"""Architectures whose unknown GPUs are taken to be server boards with NVLink."""


class LinkCosts(Record):
    """Constants of a collective on a GPU type; last axis: candidates."""

    floor: Float[Array, "*b slot"]  # s
    step: Float[Array, "*b slot"]  # s
    fill: Float[Array, "*b slot"]  # s^0.5
    relative: Float[Array, "*b slot"]  # rate / that of the third candidate
    bias: Float[Array, "*b slot"]  # in ln t; of the believed times
    bias_ranks: Float[Array, "*b slot"]  # the same, per ln(n/4)
    share: Float[Array, "*b rank"]  # of the link's rate, at `links.MEASURED_RANKS`
    narrow: Float[Array, "*b"]  # extra time of a byte of 8-bit reductions
    switch: Float[Array, "*b"]  # 1 where switches reduce (NVLink 4 and later), else 0


FIELDS: Final = tuple(
    field.name for field in dataclasses.fields(LinkCosts) if field.name != "switch"
)
"""Those that the file holds."""


def link_kind(rate: float) -> str:
    """`nvlink` or `pcie`, of a link of `rate` B/s in one direction."""
    return "nvlink" if rate >= _NVLINK_RATE else "pcie"


def known_links(gpu: str, architecture: str, rate: float) -> LinkCosts:
    """Constants of a bundled GPU by collective, in the order of `BLOCKS`: its own, else
    those of the GPU that it is taken for, else those of its kind of link."""
    costs = facts("collective_costs")
    names = (gpu, costs["taken_for"].get(gpu, gpu), link_kind(rate))
    known = [costs.get(name, {}) for name in names]
    rows = [next(own[block] for own in known if block in own) for block in BLOCKS]
    return _costs(rows, rate >= _REDUCING_RATE and architecture in _REDUCING)


def usual_links(architecture: str) -> LinkCosts:
    """Constants of a GPU of which nothing but its architecture is known."""
    kind = "nvlink" if architecture in _WITH_NVLINK else "pcie"
    rows = [facts("collective_costs")[kind][block] for block in BLOCKS]
    return _costs(rows, architecture in _REDUCING)


def _costs(rows: list[Mapping[str, Any]], reduces: bool) -> LinkCosts:
    """`reduces`: switches between the GPUs add up what passes."""
    columns = {
        field: as_float(np.array([row[field] for row in rows])) for field in FIELDS
    }
    return LinkCosts(**columns, switch=as_float(np.full(len(rows), float(reduces))))
