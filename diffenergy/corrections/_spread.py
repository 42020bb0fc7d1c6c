"""How far readings that no fit saw lie from their predictions.

The covariance of the constants covers less than half of such readings (the form of the
model is what errs), so that intervals take their width from left-out groups alone.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

QUANTITIES: Final = ("time", "power", "energy")
DURATIONS: Final = (20e-6, 100e-6, 333e-6)
"""Limits between classes of predicted time, s: short kernels are known less well."""
NEAR: Final = 0.97
"""Share of the lowest clock of fitted passes, below which a clock lies beyond them."""
_COVERED: Final = 0.9
_FEWEST: Final = 30
"""Left-out rows below which a class of duration takes the width of all rows."""
_LEVELS: Final = 0.4
"""Sd of ln mean error from group to group, chosen after a look at programs' coverage:
lines of the accuracy table differ by 0.25 (GEMM by GPU) to 0.9 (decode by GPU)."""
_ONE_SIDED: Final = 1.28
"""Normal quantile below which 90 % lie."""
_GENERAL: Final[Mapping[str, Mapping[str, float]]] = {
    "calibrated": {"time": 0.25, "power": 0.2, "energy": 0.3},
    "transferred": {"time": 0.3, "power": 0.25, "energy": 0.35},
    "forecast": {"time": 0.4, "power": 0.3, "energy": 0.45},
    "datasheet": {"time": 0.6, "power": 0.45, "energy": 0.7},
}
"""Half widths in ln where no group of the kind was ever left out: assumed."""
GRADES: Final = tuple(_GENERAL)
"""What a prediction rests on, the best first: rows of the GPU and class, of a GPU of
its architecture, of other GPUs, none."""
_LEAST_FORECAST: Final = {"time": 0.2, "power": 0.2, "energy": 0.25}
"""Least half widths of GPUs without rows of the kind: the ones that were left out have
close relatives among the fitted ones. Of passes two architectures were left out, too
few: the assumed widths are the least."""

Spread = dict[str, dict[str, Any]]
"""Half widths in ln by `kind:grade` (kind: an op, "workload", or "class" for ops that
were left out as a whole; for a grade may stand what lies beyond the fitted rows:
"clock", "length"), then by quantity: one number for
each class of `DURATIONS`; and `rows`, `gpus`, `left_out`, `mape_pct` (by quantity and
GPU, or "all")."""


@dataclasses.dataclass(frozen=True)
class Trust:
    """Grades of a prediction and its half widths in ln (by duration), by quantity.

    `mape_pct`: mean absolute percentage error of left-out rows above 100 us, of the GPU
    or of all; nothing where none were left out. `over`: the GPUs of those rows.
    """

    grades: Mapping[str, str]
    widths: Mapping[str, Sequence[float]]
    mape_pct: Mapping[str, float] = dataclasses.field(default_factory=dict)
    over: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    @property
    def grade(self) -> str:
        """The worst of the grades of all quantities."""
        return least_grade(self.grades.values())

    def to_json(self) -> dict[str, Any]:
        """Grades in the JSON of a summary."""
        return {"grade": self.grade, "grades": dict(self.grades)}

    def widened(self, more: Mapping[str, float]) -> "Trust":
        """Adds independent errors as squares; `more`: half widths (ln) by quantity."""
        widths = {
            q: np.hypot(np.asarray(width), more.get(q, 0.0)).tolist()
            for q, width in self.widths.items()
        }
        return dataclasses.replace(self, widths=widths)

    def half_width(self, quantity: str, time: Any) -> np.ndarray:
        """Half width of ln `quantity` for predictions that take `time` s."""
        place = np.searchsorted(DURATIONS, np.asarray(time, float))
        return np.asarray(np.take(self.widths[quantity], place))

    def interval(self, quantity: str, value: Any, time: Any) -> tuple[Any, Any]:
        """5th and 95th percentile around a predicted `value`."""
        factor = np.exp(self.half_width(quantity, time))
        return value / factor, value * factor


def least_grade(grades: Iterable[str]) -> str:
    """The worst of the grades."""
    return max(grades, key=GRADES.index)


def trust(
    spread: Spread,
    kind: str,
    grades: Mapping[str, str],
    gpu: str,
    beyond: Sequence[str] = (),
) -> Trust:
    """Widths of a kind of row by the grade of each quantity, and no less than those of
    rows that lay `beyond` the fitted ones; grades without a left-out group of their own
    take the widest of the better grades' widths and the general ones: of a kernel class
    those of classes that were left out as a whole (`class`), where any were."""
    widths, errors, over = {}, {}, {}
    for q, grade in grades.items():
        spreads = [spread.get(f"{kind}:{x}", {}) for x in GRADES]
        place = GRADES.index(grade)
        unknown = {} if kind == "workload" else spread.get(f"class:{grade}", {})
        general = unknown.get(q, [_GENERAL[grade][q]] * (len(DURATIONS) + 1))
        better = [by_quantity[q] for by_quantity in spreads[:place] if q in by_quantity]
        width = np.max([spreads[place].get(q, general), *better], axis=0)
        if grade == "forecast":
            passes = kind == "workload"
            width = np.maximum(
                width, _GENERAL[grade][q] if passes else _LEAST_FORECAST[q]
            )
        far = [spread.get(f"{kind}:{x}", {}).get(q, width) for x in beyond]
        widths[q] = np.max([width, *far], axis=0).tolist()
        by_gpu = spreads[place].get("mape_pct", {}).get(q, {})
        if by_gpu:
            errors[q] = by_gpu.get(gpu, by_gpu["all"])
            over[q] = [gpu] if gpu in by_gpu else spreads[place].get("gpus", [])
    return Trust(grades, widths, errors, over)


def widths(
    time: np.ndarray, ratios: Mapping[str, np.ndarray], groups: np.ndarray
) -> dict[str, list[float]]:
    """Half widths that cover 90 % of left-out rows: of `ratios` (ln of read / predicted
    by quantity, NaN where not read) by class of the predicted `time`.

    Quantiles of all rows, as much wider as those of all other `groups` (what was left
    out together, such as a model family) would have to be to cover 90 % of each one's,
    and wider again where few groups tell how much the next one may differ.
    """
    place = np.searchsorted(DURATIONS, time)
    half_widths = {}
    for quantity, ratio in ratios.items():
        finite = np.isfinite(ratio)
        if finite.sum() < _FEWEST:
            continue
        rows = np.abs(ratio[finite]), place[finite]
        wider = _wider(*rows, groups[finite]) * _unseen(len(np.unique(groups[finite])))
        half_widths[quantity] = [round(wider * float(x), 4) for x in _quantiles(*rows)]
    return half_widths


def _quantiles(size: np.ndarray, place: np.ndarray) -> np.ndarray:
    """90 % quantile of the sizes of each class of duration."""
    whole = np.quantile(size, _COVERED)
    classes = [size[place == i] for i in range(len(DURATIONS) + 1)]
    return np.array(
        [np.quantile(x, _COVERED) if len(x) >= _FEWEST else whole for x in classes]
    )


def _unseen(groups: int) -> float:
    """Factor on widths for an unseen group.

    Mean errors of groups are a sample of `groups` from a normal distribution of std
    `_LEVELS` in ln.
    """
    return float(np.exp(_LEVELS * _ONE_SIDED * (np.sqrt(1 + 1 / groups) - 1)))


def _wider(size: np.ndarray, place: np.ndarray, groups: np.ndarray) -> float:
    """Factor by which quantiles of the other groups cover 90 % of a group's rows.

    At least 1; 1 where there is no other group.
    """
    share = np.full(len(size), np.nan)
    for group in np.unique(groups):
        left = groups == group
        if (~left).sum() >= _FEWEST:
            others = _quantiles(size[~left], place[~left])[place[left]]
            positive = others > 0
            share[left] = np.where(
                positive, size[left] / np.where(positive, others, 1), 1.0
            )
    if not np.isfinite(share).any():
        return 1.0
    return max(1.0, float(np.nanquantile(share, _COVERED)))
