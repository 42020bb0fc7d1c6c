"""Where every number behind an estimate comes from."""

from collections.abc import Mapping
from typing import NamedTuple

from ...corrections import CONSTANTS, PRIOR_FACTORS, CorrectionsFile, is_share, resolve
from ...hardware._files import GpuCard


class Coefficient(NamedTuple):
    """A constant of the model as it serves one GPU."""

    name: str
    what: str
    value: float
    unit: str
    built: str  # from which levels
    basis: str  # "fitted", "partly fitted", "prior"
    spread: str  # how well each level is known


def coefficients(card: GpuCard, file: CorrectionsFile) -> list[Coefficient]:
    """Every constant that serves `card`, with what it is made of.

    A level's spread is the posterior sd of a fit, else that of the prior, in ln (a
    share's own value: in logit).
    """
    names = card.tags
    served = resolve(file.levels, names)
    posterior = file.posterior or {}
    fitted = dict(
        zip(posterior.get("parameters", ()), posterior.get("sd", ()), strict=True)
    )
    rows = []
    for name, row in CONSTANTS.items():
        levels = [t for t in ("global", *names) if name in file.levels.get(t, {})]
        known = [f"{tag}/{name}" in fitted for tag in levels]
        basis = "fitted" if all(known) else "partly fitted" if any(known) else "prior"
        rows.append(
            Coefficient(
                name=name,
                what=row.what,
                value=float(served[name]),
                unit="" if row.unit == "-" else row.unit,
                built=_built(name, levels, file.levels),
                basis=basis,
                spread=_spread(name, levels, fitted),
            )
        )
    return rows


def _built(
    name: str, levels: list[str], values: Mapping[str, Mapping[str, float]]
) -> str:
    """Global value and the factors on it."""
    first, *factors = levels
    text = f"{first} {values[first][name]:.4g}"
    on = " on its odds" if is_share(name) and factors else ""
    for tag in factors:
        text += f" × {values[tag][name]:.4g} ({tag})"
    return text + on


def _spread(name: str, levels: list[str], fitted: Mapping[str, float]) -> str:
    """Sd of every level, fitted or prior."""
    words = []
    for tag in levels:
        sd = fitted.get(f"{tag}/{name}")
        if sd is not None:
            words.append(f"{tag} ±{sd:.2g} (fit)")
            continue
        prior = PRIOR_FACTORS.get(tag, {}).get(name)
        prior_sd = CONSTANTS[name].sd if tag == "global" else None
        known = prior[1] if prior else prior_sd
        words.append(f"{tag} " + (f"±{known:.2g} (prior)" if known else "unavailable"))
    return ", ".join(words)
