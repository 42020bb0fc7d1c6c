"""`Share`: a limit relative to the design that a search starts from."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Share:
    """At most this share of what the start design has of a metric.

    `share`: above 0; 1.1 allows a tenth more.

    Raises `ValueError` for any other number.
    """

    share: int | float

    def __post_init__(self):
        if not (math.isfinite(self.share) and self.share > 0):
            raise ValueError(
                f"`share` is {self.share:g}; allowed is a number above 0, such as 1.1."
            )
