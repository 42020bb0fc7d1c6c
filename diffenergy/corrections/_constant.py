"""`constant`: a fitted number as a field of a record, with its prior."""

from typing import Any, Literal

import equinox as eqx

from ..records import as_float

Transform = Literal["positive", "share"]


def constant(
    centre: float, sd: float, unit: str, what: str, transform: Transform = "positive"
) -> Any:
    """Field with a prior: centre, sd of the log (of the logit for a share)."""
    return eqx.field(
        default=centre,
        converter=as_float,
        metadata={"sd": sd, "unit": unit, "what": what, "transform": transform},
    )
