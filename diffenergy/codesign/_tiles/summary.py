"""The JSON of tuned tiles, which tables and pictures show."""

from typing import Any, Final

from .tiles import FIELDS
from .tuning import Tuned, Tuning

_SHAPE: Final = ("op", "batch", "m", "n", "k", "dtype")


def tiles_json(found: Tuning) -> dict[str, Any]:
    """Summary of `tune`: totals, and one entry a matrix product (one launch, SI).

    `default_costs_more_pct`: by how much the library's choice costs more of what was
    asked for (`goal`).
    """
    return {
        "goal": found.goal,
        "time_s": found.time,
        "energy_j": found.energy,
        "default_time_s": found.default_time,
        "default_energy_j": found.default_energy,
        "tiles_tried": found.tried,
        "gemms": [_entry(tuned, found.goal) for tuned in found.products],
    }


def _entry(tuned: Tuned, goal: str) -> dict[str, Any]:
    kernel = tuned.product.kernel
    costs = {
        "time_s": tuned.time,
        "energy_j": tuned.energy,
        "default_time_s": tuned.default_time,
        "default_energy_j": tuned.default_energy,
    }
    key = "time_s" if goal == "time" else "energy_j"
    more = 100 * (costs[f"default_{key}"] / costs[key] - 1)
    return {
        **{name: kernel[name] for name in _SHAPE},
        "count": tuned.product.count,
        **{name: int(tuned.tile[name]) for name in FIELDS},
        **costs,
        "default_costs_more_pct": more,
    }
