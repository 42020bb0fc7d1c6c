"""`Predictions`: what the model says about each row of a measurement table."""

import dataclasses

import numpy as np
from jaxtyping import Float, Shaped


@dataclasses.dataclass(frozen=True, eq=False)
class Predictions:
    """Predicted readings, one a row of a `MeasurementTable`, NaN on skipped rows.

    `_p5` and `_p95` bound the central 90 % of a prediction; None while there is no
    interval. `grade` is `calibrated`, `forecast`, `datasheet` or "". `skipped` is the
    reason why a row was not predicted, "" if it was.
    """

    time_s: Float[np.ndarray, " row"]
    energy_j: Float[np.ndarray, " row"]
    avg_power_w: Float[np.ndarray, " row"]
    grade: Shaped[np.ndarray, " row"]
    skipped: Shaped[np.ndarray, " row"]
    time_s_p5: Float[np.ndarray, " row"] | None = None
    time_s_p95: Float[np.ndarray, " row"] | None = None
    energy_j_p5: Float[np.ndarray, " row"] | None = None
    energy_j_p95: Float[np.ndarray, " row"] | None = None
    avg_power_w_p5: Float[np.ndarray, " row"] | None = None
    avg_power_w_p95: Float[np.ndarray, " row"] | None = None
