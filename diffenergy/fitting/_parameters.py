"""Free constants of a fit: names, transforms, priors."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..corrections import (
    CONSTANTS,
    PRIOR_FACTORS,
    Constant,
    Corrections,
    Levels,
    Tagged,
    constants_of,
    is_share,
    law_of,
    levels_of,
    prior_levels,
    resolve,
    with_laws,
)
from ..records import Record, as_float

FACTOR_SD: Final = 0.25
"""Sd of the log of a factor that no prior names (a GPU's offset from its relatives);
no wider than the prior of the constant itself."""


UNREAD_SD: Final = 0.1
"""The most of such a sd for what power alone moves where no GPU of the level has a
power reading: times at a power limit are none."""
SENSOR: Final = "sensor:"
"""Start of the tags whose constants are those of a campaign's meter."""


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One free number: a global constant, its factor for a tag, or a constant of a
    campaign's meter (`of`: what is said of this)."""

    tag: str
    constant: str
    of: Constant | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def row(self) -> Constant:
        """Prior, unit and meaning of the constant."""
        return self.of or CONSTANTS[self.constant]

    @property
    def share(self) -> bool:
        """Whether it lives in (0, 1) and is fitted as a logit; else as a logarithm
        (factors of shares act on their odds)."""
        return self.tag == "global" and is_share(self.constant)

    @property
    def sd(self) -> float:
        """Prior sd in fitted space."""
        width = self.row.sd
        if self.tag == "global" or self.tag.startswith(SENSOR):
            return width
        prior = PRIOR_FACTORS.get(self.tag, {}).get(self.constant)
        if prior:
            return prior[1]
        law = law_of(self.tag, prior_levels())
        if law and law.constant == self.constant:
            return law.sd
        return min(FACTOR_SD, width)

    def __str__(self) -> str:
        return f"{self.tag}/{self.constant}"


@dataclasses.dataclass(frozen=True)
class Parameters:
    """Free parameters around starting levels, whose values are the prior centres;
    `unread`: tags that no GPU has of which power was read."""

    free: tuple[Parameter, ...]
    start: Levels
    unread: tuple[str, ...] = ()

    def centre(self) -> Float[np.ndarray, " p"]:
        """Prior centres in fitted space."""
        centres = []
        for p in self.free:
            default = p.row.centre if p.tag.startswith(SENSOR) else 1.0
            levels = self.start
            if p.tag not in levels and (law := law_of(p.tag, levels)):
                levels = with_laws(levels, [law])
            value = levels.get(p.tag, {}).get(p.constant, default)
            centres.append(np.log(value / (1 - value)) if p.share else np.log(value))
        return np.array(centres)

    def sd(self) -> Float[np.ndarray, " p"]:
        """Prior sd in fitted space."""
        return np.array(
            [
                min(p.sd, UNREAD_SD) if p.row.power and p.tag in self.unread else p.sd
                for p in self.free
            ]
        )

    def fitted(self, z: Float[np.ndarray, " p"]) -> Levels:
        """Levels with the free numbers at `z`."""
        levels = {tag: dict(values) for tag, values in self.start.items()}
        for p, x in zip(self.free, z, strict=True):
            value = 1 / (1 + np.exp(-x)) if p.share else np.exp(x)
            levels.setdefault(p.tag, {})[p.constant] = float(value)
        return levels

    def serving(self, names: Sequence[str], card: Tagged | None = None) -> "Serving":
        """How the free numbers enter the constants of a GPU with tags `names`; `card`:
        it, for the laws of what no level says."""
        start = levels_of(self.start, card) if card else self.start
        fixed_levels = {
            tag: dict(values)
            for tag, values in start.items()
            if not tag.startswith(SENSOR)
        }
        for p in self.free:  # at a logarithm or logit of 0
            if p.constant in fixed_levels.get(p.tag, ()):
                fixed_levels[p.tag][p.constant] = 0.5 if p.share else 1.0
        constants = list(CONSTANTS)
        resolved = resolve(fixed_levels, names)
        fixed = np.array([resolved[name] for name in constants])
        shares = np.array([is_share(name) for name in constants])
        offset = np.log(np.where(shares, fixed / np.where(shares, 1 - fixed, 1), fixed))
        matrix = self._entries(constants, ("global", *names))
        return Serving(
            as_float(matrix), as_float(offset), as_float(shares), Corrections
        )

    def sensing(self, tag: str, meter: type[Record]) -> "Serving":
        """How the free numbers enter the constants of a `meter` under a `tag`."""
        values = {name: c.centre for name, c in constants_of(meter).items()}
        names = list(values)
        values |= self.start.get(tag, {})
        matrix = self._entries(names, (tag,))
        offset = np.log(np.array([values[name] for name in names]))
        offset = np.where(matrix.any(axis=1), 0.0, offset)
        return Serving(
            as_float(matrix), as_float(offset), as_float(np.zeros(len(names))), meter
        )

    def _entries(self, constants: Sequence[str], tags: Sequence[str]) -> np.ndarray:
        """Matrix: 1 where a free number (column) is a constant (row) of the tags."""
        matrix = np.zeros((len(constants), len(self.free)))
        for column, p in enumerate(self.free):
            if p.tag in tags:
                matrix[constants.index(p.constant), column] = 1.0
        return matrix


class Serving(eqx.Module):
    """Constants (a `record`) as a function of the free numbers z: `matrix` z + `offset`
    is the logarithm of a constant, or the logit where `share` is 1."""

    matrix: Float[Array, "c p"]
    offset: Float[Array, " c"]
    share: Float[Array, " c"]
    record: type[Record] = eqx.field(static=True)

    def __call__(self, z: Float[Array, " p"]) -> Any:
        """Constants at `z`."""
        x = self.matrix @ z + self.offset
        values = jnp.where(self.share > 0, jax.nn.sigmoid(x), jnp.exp(x))
        fields = dataclasses.fields(self.record)
        return self.record(
            **{field.name: v for field, v in zip(fields, values, strict=True)}
        )
