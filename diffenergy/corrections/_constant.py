"""`Constant`: one row of the table of fitted numbers; `constant`: it as a field."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import equinox as eqx
from jax import Array
from jaxtyping import Float

from ..records import Record, as_float

Number = Float[Array, "*batch"]
ANY: Final = ("any",)
"""Rows of every kind but op `activity`."""
FREE: Final = ("global", "own")


@dataclasses.dataclass(frozen=True)
class Constant:
    """Everything that is said of one fitted number.

    - `centre`, `sd`: of the prior; the sd is that of the logarithm (of the logit of a
      `share`, a number in 0-1).
    - `what`: its meaning; `closes`: the measurement that would tell it; `source`: the
      section of `docs/physics.md` with its equation and where its figures come from.
    - `rows`: the kinds of rows that a fit lets move it, where it acts on them: `kernel`
      (rows of one op, `stream` those that pass over memory alone), `workload`
      (passes), `plan`, or `ANY`. On which kernel classes it acts follows from their
      formulas. What rows of op `activity` move stands in `ACTIVITY_CONSTANTS`.
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
    rows: tuple[str, ...] = ANY
    power: bool = False
    tiles: tuple[str, ...] = ()
    frees: tuple[str, ...] = ANY
    levels: tuple[str, ...] = FREE

    def __post_init__(self):
        for name in ("unit", "what", "closes", "source", "rows", "frees"):
            if not getattr(self, name):
                raise ValueError(
                    f"`{name}` of the constant '{self.what}' is empty; say it, or no "
                    "fit can move the constant and nobody knows what would."
                )


def constant(*args: Any, **kwargs: Any) -> Any:
    """Field of a record, with its `Constant`."""
    row = Constant(*args, **kwargs)
    return eqx.field(default=row.centre, converter=as_float, metadata={"row": row})


def table(record: type[Record]) -> Mapping[str, Constant]:
    """The constants of a record by name."""
    return {field.name: field.metadata["row"] for field in dataclasses.fields(record)}
