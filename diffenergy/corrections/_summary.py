"""Summary of a corrections file for one GPU: constants and expected errors."""

import math
from collections.abc import Mapping
from typing import Any

from ._constants import CONSTANTS, is_share
from ._levels import CorrectionsFile, Tagged, resolve
from ._priors import PRIOR_FACTORS
from ._spread import QUANTITIES


def constant_rows(card: Tagged, file: CorrectionsFile) -> list[dict[str, Any]]:
    """Every constant that serves `card`: `name`, `what`, `value`, `unit`; `built`, from
    which levels; `basis`, whether these are fitted, or were in a fit apart; `spread`,
    how well each is known: the posterior sd of a fit, else that of the prior, in ln (a
    share's own value: in logit).
    """
    names, every = card.tags, file.levels_of(card)
    served = resolve(every, names)
    posterior = file.posterior or {}
    fitted = dict(
        zip(posterior.get("parameters", ()), posterior.get("sd", ()), strict=True)
    )
    apart = {*file.fitted_on.get("apart", ())}
    rows = []
    for name, row in CONSTANTS.items():
        levels = [t for t in ("global", *names) if name in every.get(t, {})]
        fitted_levels = [f"{tag}/{name}" in {*fitted, *apart} for tag in levels]
        basis = "partly fitted" if any(fitted_levels) else "prior"
        basis = "fitted" if all(fitted_levels) else basis
        if name in apart and not any(fitted_levels):
            basis = (
                "fitted apart"  # from the rest, with sds that the file does not have
            )
        rows.append(
            {
                "name": name,
                "what": row.what,
                "value": float(served[name]),
                "unit": "" if row.unit == "-" else row.unit,
                "built": _built(name, levels, every),
                "basis": basis,
                "spread": _spread(name, levels, fitted),
            }
        )
    return rows


def _built(
    name: str, levels: list[str], values: Mapping[str, Mapping[str, float]]
) -> str:
    """Text of the global value and its factors."""
    first, *factors = levels
    text = f"{first} {values[first][name]:.4g}"
    on = " on its odds" if is_share(name) and factors else ""
    for level in factors:
        text += f" × {values[level][name]:.4g} ({level})"
    return text + on


def _spread(name: str, levels: list[str], fitted: Mapping[str, float]) -> str:
    """Text of the std of every level, fitted or prior."""
    words = []
    for level in levels:
        sd, how = fitted.get(f"{level}/{name}"), "fit"
        if sd is None:
            prior = PRIOR_FACTORS.get(level, {}).get(name)
            first = CONSTANTS[name].sd if level == "global" else None
            sd, how = prior[1] if prior else first, "prior"
        words.append(f"{level} ±{sd:.2g} ({how})" if sd else f"{level} unavailable")
    return ", ".join(words)


def expected_errors(card: Tagged, file: CorrectionsFile) -> list[dict[str, Any]]:
    """By kind of row: the error of left-out rows of this grade, None where no group of
    the kind was left out, and how far up the 95th percentile is (above 333 us)."""
    errors = []
    for kind in dict.fromkeys(key.partition(":")[0] for key in file.spread):
        trust = file.trust(card, kind)
        figures: dict[str, Any] = {"kind": kind, "grades": dict(trust.grades)}
        figures["over"] = sorted({gpu for over in trust.over.values() for gpu in over})
        for word in QUANTITIES:
            width = float(trust.half_width(word, 1.0))
            figures[f"{word}_mape_pct"] = trust.mape_pct.get(word)
            figures[f"{word}_interval_pct"] = round(100 * (math.exp(width) - 1), 1)
        errors.append(figures)
    return errors
