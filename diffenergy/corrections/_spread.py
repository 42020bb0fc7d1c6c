"""How far readings that no fit saw lie from their predictions.

The covariance of the constants covers less than half of such readings (the form of the
model is what errs), so that intervals take their width from left-out groups alone.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

QUANTITIES: Final = ("time", "power", "energy")
DURATIONS: Final = (20e-6, 100e-6, 333e-6)
"""Limits between classes of predicted time, s: short kernels are known less well."""
_COVERED: Final = 0.9
_FEWEST: Final = 30
"""Left-out rows below which a class of duration takes the width of all rows."""
_GENERAL: Final[Mapping[str, Mapping[str, float]]] = {
    "calibrated": {"time": 0.25, "power": 0.2, "energy": 0.3},
    "forecast": {"time": 0.4, "power": 0.3, "energy": 0.45},
    "datasheet": {"time": 0.6, "power": 0.45, "energy": 0.7},
}
"""Half widths in ln where no group of the kind was ever left out: assumed."""
_LEAST_FORECAST: Final = {"time": 0.2, "power": 0.2, "energy": 0.25}
"""Least half widths of GPUs without rows of the kind: the ones that were left out have
close relatives among the fitted ones."""

Spread = dict[str, dict[str, Any]]
"""Half widths in ln by `kind:grade` (kind: an op, or "workload"), then by quantity: one
number for each class of `DURATIONS`; and `rows`, `left_out`, `mape_pct`."""


@dataclasses.dataclass(frozen=True)
class Trust:
    """Grade of a prediction and its half widths in ln, by quantity and duration.

    `mape_pct`: mean absolute percentage error of left-out rows above 100 us, by
    quantity; empty where none were left out.
    """

    grade: str
    widths: Mapping[str, Sequence[float]]
    mape_pct: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def half_width(self, quantity: str, time: Any) -> np.ndarray:
        """Half width of ln `quantity` for predictions that take `time` s."""
        place = np.searchsorted(DURATIONS, np.asarray(time, float))
        return np.asarray(np.take(self.widths[quantity], place))

    def interval(self, quantity: str, value: Any, time: Any) -> tuple[Any, Any]:
        """5th and 95th percentile around a predicted `value`."""
        factor = np.exp(self.half_width(quantity, time))
        return value / factor, value * factor


def trust(spread: Spread, kind: str, grade: str) -> Trust:
    """Widths of a kind of row; grades without a left-out group of their own take the
    widest of the better grades' widths and the general ones."""
    general = {q: [_GENERAL[grade][q]] * (len(DURATIONS) + 1) for q in QUANTITIES}
    own = spread.get(f"{kind}:{grade}", {})
    grades = list(_GENERAL)  # the best first
    better = [spread.get(f"{kind}:{x}", {}) for x in grades[: grades.index(grade)]]
    widths = {}
    for q in QUANTITIES:
        least = [general[q], *(found[q] for found in better if q in found)]
        widths[q] = own.get(q) or np.max(least, axis=0).tolist()
        if grade == "forecast":
            widths[q] = list(np.maximum(widths[q], _LEAST_FORECAST[q]))
    return Trust(grade, widths, own.get("mape_pct", {}))


def widths(
    time: np.ndarray, ratios: Mapping[str, np.ndarray]
) -> dict[str, list[float]]:
    """Half widths that cover 90 % of left-out rows: of `ratios` (ln of read / predicted
    by quantity, NaN where not read) by class of the predicted `time`."""
    place = np.searchsorted(DURATIONS, time)
    found = {}
    for quantity, ratio in ratios.items():
        size = np.abs(ratio)
        known = np.isfinite(size)
        if known.sum() < _FEWEST:
            continue
        whole = float(np.quantile(size[known], _COVERED))
        classes = [size[known & (place == i)] for i in range(len(DURATIONS) + 1)]
        found[quantity] = [
            round(float(np.quantile(x, _COVERED)) if len(x) >= _FEWEST else whole, 4)
            for x in classes
        ]
    return found
