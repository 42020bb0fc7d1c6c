"""What guessed numbers of a GPU file leave open in a figure, by propagation.

Where the voltage above its floor, the idle power or the thermal resistance are no
measurement, power is known no better than they are: core power goes with V^2, leakage
with V^4 and e-folds with the temperature. So is where a law alone says what an
operation or a byte costs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ...corrections import Corrections, Forecast
from ...hardware import GpuCard
from ...physics import LAUNCH_COMPONENTS

_SD: Final[Mapping[str, float]] = {"derived": 0.1, "recall": 0.2, "guess": 0.3}
"""Sd of the logarithm of a number by its quality; others are measured or official."""
_HALF: Final = 1.645
"""Half width of the central 90 % over the sd."""
_SLOPE: Final = 2.5
"""d ln P/d ln f at a power limit: power of a core whose voltage follows its clock."""
_OWN_RAIL: Final = ("dram", "link")
_VOLTAGE: Final = 0.2
"""Sd of ln V^2 at the top clock of an unmeasured chip (V(top)/V0: 1.25, sd 0.1)."""


def guessed_widths(
    card: GpuCard,
    c: Corrections,
    phases: Mapping[str, np.ndarray],
    capped: bool,
    laws: Sequence[Forecast] = (),
) -> dict[str, float]:
    """Half widths in ln, by quantity, from the quality of the voltage curve, idle power
    and thermal resistance of `card`, and from `laws`.

    `phases`: `energy` (J), `components` (J, [phase, component]), `voltage` (V) and
    `warmer` (K that its power heats the chip by; 0 where the temperature is given) of
    each phase. At a power limit the clock, and so the time, takes what power cannot.
    """
    weight = np.asarray(phases["energy"]) / np.sum(phases["energy"])
    power = _HALF * float(np.linalg.norm(open_terms(card, c, phases, laws) @ weight))
    return _by_quantity(power, capped)


def phase_widths(
    card: GpuCard,
    c: Corrections,
    phases: Mapping[str, np.ndarray],
    capped: np.ndarray,
    laws: Sequence[Forecast] = (),
) -> dict[str, np.ndarray]:
    """Half widths of each phase alone, as `guessed_widths` (`capped`: at its limit)."""
    power = _HALF * np.linalg.norm(open_terms(card, c, phases, laws), axis=0)
    limited, free = _by_quantity(power, True), _by_quantity(power, False)
    return {q: np.where(capped, limited[q], free[q]) for q in free}


def _by_quantity(power: Any, capped: bool) -> dict[str, Any]:
    if capped:
        return {"time": power / _SLOPE, "power": 0.0 * power, "energy": power / _SLOPE}
    return {"time": 0.0 * power, "power": power, "energy": power}


def open_terms(
    card: GpuCard,
    c: Corrections,
    phases: Mapping[str, np.ndarray],
    laws: Sequence[Forecast] = (),
) -> np.ndarray:
    """sd of ln P of each phase by voltage curve, idle power, cooling and each law,
    [term, phase]: independent of each other, one error in all phases."""
    parts = np.asarray(phases["components"])
    share = parts / np.asarray(phases["energy"])[:, None]
    columns = {x: i for i, x in enumerate(LAUNCH_COMPONENTS)}
    core = share[:, [i for x, i in columns.items() if x not in _OWN_RAIL]].sum(1)
    idle, leakage = share[:, -2], share[:, -1]
    rise = 1 - card.values["vf_floor_voltage"] / np.asarray(phases["voltage"])
    grown = np.abs(np.asarray(phases["warmer"])) / float(c.leakage_efold)
    unknown = sd_of(card, "vf_slope")
    curve = (2 * core + 4 * leakage) * rise * unknown
    if unknown == _SD["guess"] and any(x.constant == "core_energy" for x in laws):
        curve = np.maximum(curve, _VOLTAGE * core)
    of = {"core_energy": core} | {
        f"energy_{x}": share[:, columns[x]] for x in _OWN_RAIL
    }
    terms = (
        curve,
        idle * sd_of(card, "idle_constant"),
        leakage * grown * sd_of(card, "thermal_resistance"),
        *(of[law.constant] * law.sd for law in laws),
    )
    return np.array(terms)


def sd_of(card: GpuCard, field: str) -> float:
    """Sd of the logarithm of a number of a GPU by its quality; 0 of a measured one."""
    return _SD.get(card.provenance.get(field, {}).get("quality", "guess"), 0.0)
