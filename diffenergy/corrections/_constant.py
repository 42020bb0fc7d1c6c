"""`Constant`: one row of the table of fitted numbers; `constant`: it as a field.

No list says which kernel classes a constant acts on: their formulas do.
"""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import equinox as eqx
from jax import Array
from jaxtyping import Float

from ..records import Record, as_float

Number = Float[Array, "*batch"]
ANY_ROWS: Final = ("any",)
"""Rows of every kind but op `activity`."""
FREE: Final = ("global", "own")


@dataclasses.dataclass(frozen=True)
class Constant:
    """Prior, meaning and scope of one fitted number.

    - `centre`, `sd`: of the prior; the sd is that of the logarithm (of the logit of a
      `share`, a number in 0-1).
    - `what`: its meaning; `closes`: the measurement that would tell it; `source`: the
      section of `docs/physics.md` with its equation and where its figures come from.
    - `rows`: the kinds of rows that a fit lets move it, where it acts on them: `kernel`
      (rows of one op, `stream` those that pass over memory alone), `workload`
      (passes), `plan`, or `ANY_ROWS`. On which kernel classes it acts follows from
      their formulas. What rows of op `activity` move stands in `ACTIVITY_CONSTANTS`.
    - `power`: moved by power alone, and by time at a power limit.
    - `tiles`: records of products in given tiles that move it. Such products, alone in
      their rows, move nothing that does not name their record here, and their power.
    - `frees`: the rows that free a GPU's own factor of it.
    - `levels`: where a fit may free it: `global` (from nothing; without it the value is
      held), `own` (a GPU added to a fit), else tags or kinds of tags whose members
      have a factor in a fit from nothing (`mma`, `memory`, `architecture:Ada`, `gpu`).
    """

    centre: float
    sd: float
    unit: str
    what: str
    closes: str
    _: dataclasses.KW_ONLY
    source: str
    share: bool = False
    rows: tuple[str, ...] = ANY_ROWS
    power: bool = False
    tiles: tuple[str, ...] = ()
    frees: tuple[str, ...] = ANY_ROWS
    levels: tuple[str, ...] = FREE

    def __post_init__(self):
        for name in ("unit", "what", "closes", "source", "rows", "frees"):
            if not getattr(self, name):
                raise ValueError(
                    f"`{name}` of the constant '{self.what}' is empty; say it, or no "
                    "fit can move the constant and nobody knows what would."
                )


def constant(*args: Any, **kwargs: Any) -> Any:
    """Record field whose metadata is its `Constant`."""
    row = Constant(*args, **kwargs)
    return eqx.field(default=row.centre, converter=as_float, metadata={"row": row})


def constants_of(record: type[Record]) -> Mapping[str, Constant]:
    """Constants of a record class by field name."""
    return {field.name: field.metadata["row"] for field in dataclasses.fields(record)}


# --- constants that are alike: what closes them, which rows move them, at which levels

NO_PLANS: Final = ("workload", "kernel")
"""Passes and kernels; plans move their own constants, which act on top of these."""
STREAMS: Final = ("workload", "stream")
"""Rows whose streaming kernels are long; those beside attention are launches."""
TILED_RECORDS: Final = ("Xgemm", "SimtGemm")
PRODUCTS: Final = ("gemm", "clblast_gemm")
OF_MMA: Final = (*FREE, "mma")
ATTENTION: Final = (*OF_MMA, "architecture:Ada")
"""Ada runs other attention libraries than the Ampere GPU."""

# fmt: off
activity = partial(constant,
    closes="activities of core-bound and memory-bound programs at 8 SM clocks",
    source="Activity", rows=("activity",), levels=())
simt = partial(constant,
    closes="fp32 GEMM of known tile and grid, from one tile to many waves",
    source="CUDA-core tiles", tiles=("SimtGemm",), frees=("SimtGemm",))
tiled = partial(constant, closes="one fp32 GEMM in a few hundred tiles of a tuner",
    source="Hand-made tiles", tiles=("Xgemm",), frees=("Xgemm",))
moe = partial(constant, closes="bf16 MoE layers with 16 to 1024 tokens per expert",
    source="MoE", rows=NO_PLANS, frees=("moe",))
attention = partial(constant, source="Attention", rows=NO_PLANS, levels=ATTENTION)
prefill = partial(attention,
    closes="own head layouts of that attention kernel family, prefill",
    rows=ANY_ROWS, frees=("context_attention",))
decode = partial(attention,
    closes="own head layouts of that attention kernel family, decode",
    frees=("generation_attention",))
library = partial(constant, source="GEMM", rows=NO_PLANS)
choice = partial(library,
    closes="kernel names (tile, split) of the library's GEMM over many shapes",
    source="Choice")
dispatch = partial(constant, closes="small eager passes of two model families",
    source="Timeline", rows=("workload",), frees=("workload",))
energy = partial(constant, source="Power", power=True)
training = partial(constant, source="Training programs", rows=("plan",),
    frees=("plan",))
plan = partial(constant, source="Many GPUs", rows=("plan",), frees=("plan",),
    levels=FREE)
board = partial(energy, frees=("workload", "moe", *PRODUCTS))
# fmt: on
