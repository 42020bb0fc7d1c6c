"""Fitted constants of collectives by GPU (`data/facts/collective_costs.toml`).

Made by `calibration/studies/collective_costs.py`. A GPU that was not measured has the
constants of the one that its file names in `links`, else the mean over the measured
GPUs with the same kind of link; its own link's rate scales both.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from jax import Array
from jaxtyping import Float

from ..corrections import NVLINK_RATE, REDUCING_RATE, Generation
from ..files import facts
from ..records import Record, as_float

COSTED_COLLECTIVES: Final = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv",
    "custom_all_reduce",
)  # fmt: skip
"""Collectives with constants of their own."""


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
    return "nvlink" if rate >= NVLINK_RATE else "pcie"


def link_costs(
    names: tuple[str, str], generation: Generation, rate: float
) -> LinkCosts:
    """Constants by collective, in the order of `COSTED_COLLECTIVES`, of a GPU of a
    generation with links of `rate` B/s: those of the bundled GPUs `names` ("" of a GPU
    that is none), else those of its kind of link. Switches of an unbundled one reduce
    where those of its generation do; of an unknown generation also where links are
    fast."""
    costs = facts("collective_costs")
    tables = [costs.get(name, {}) for name in (*names, link_kind(rate))]
    rows = [
        next(table[block] for table in tables if block in table)
        for block in COSTED_COLLECTIVES
    ]
    fast = rate >= REDUCING_RATE
    can_reduce = generation.reduces and (fast or not names[0])
    return _costs(rows, can_reduce or bool(generation.taken_for) and fast)


def _costs(rows: list[Mapping[str, Any]], reduces: bool) -> LinkCosts:
    """`reduces`: switches between the GPUs add up what passes."""
    columns = {
        field: as_float(np.array([row[field] for row in rows])) for field in FIELDS
    }
    return LinkCosts(**columns, switch=as_float(np.full(len(rows), float(reduces))))
