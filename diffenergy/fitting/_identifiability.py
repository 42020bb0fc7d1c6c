"""Identifiability of fitted constants: which the data measure, which stay at their
prior, which combinations stay open, and which measurement would close them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Float

from ._parameters import SENSOR, Parameter, Parameters

Status = Literal["measured", "partly", "open"]

_MEASURED, _OPEN = 0.3, 0.8
"""Posterior over prior sd: below, data outweigh the prior by ten; above, they say next
to nothing."""
_LEFT: Final = 3.0
"""Prior sds from which on a value contradicts its prior."""
_UNDECIDED: Final = 0.5
"""Share of the prior variance that an open combination keeps."""
_INFLATION, _WEIGHT, _MEMBERS = 2.0, 0.2, 4
"""An open combination: least growth of a member's variance by not knowing the others,
least weight of a member, most members."""

_LEADS: Final[Mapping[str, str]] = {
    "J": "energy: ",
    "J/B": "energy per byte: ",
    "J/FLOP": "energy per FLOP: ",
    "J/cycle": "energy per cycle: ",
}
_ADDED: Final = ({*_LEADS, "1/TDP"}, {"s", "cycles"})
"""Units of constants that add up, to an energy or to a time."""


@dataclasses.dataclass(frozen=True)
class ConstantReport:
    """Report on one free number after a fit.

    `value`: in natural units, or the factor of a tag (x; of the odds for a share).
    `prior_sd`, `posterior_sd`: in fitted space; `ratio`: posterior over prior.
    `shift`: distance from the prior centre in prior sds; `left_prior`: it contradicts
    the prior. `measurement`: what would close it.
    """

    parameter: Parameter
    value: float
    unit: str
    prior_sd: float
    posterior_sd: float
    ratio: float
    shift: float
    left_prior: bool
    status: Status
    measurement: str


@dataclasses.dataclass(frozen=True)
class Direction:
    """Constants that the data touch but cannot tell apart.

    `weights`: unit vector, in prior sds, along which the readings stay the same;
    `ratio`: posterior over prior sd along it. `measurement`: what would close it.
    """

    parameters: tuple[Parameter, ...]
    weights: tuple[float, ...]
    ratio: float
    text: str
    measurement: str


@dataclasses.dataclass(frozen=True)
class Identifiability:
    """Identifiability of each free number and of their combinations."""

    constants: tuple[ConstantReport, ...]
    directions: tuple[Direction, ...]

    def lines(self) -> list[str]:
        """Sentences for a terminal: counts, contradicted priors, open combinations,
        other constants left at their prior."""
        counts = [
            f"{sum(c.status == status for c in self.constants)} {status}"
            for status in ("measured", "partly", "open")
        ]
        left = [_left(c) for c in self.constants if c.left_prior]
        traded = [f"{d.text}; {d.measurement} would close it" for d in self.directions]
        named = {p for d in self.directions for p in d.parameters}
        by_measurement: dict[str, list[str]] = {}
        for c in self.constants:
            if c.status == "open" and c.parameter not in named:
                by_measurement.setdefault(c.measurement, []).append(_words(c.parameter))
        still = [
            f"left at the prior: {'; '.join(names)}: {measurement} would close "
            + ("it" if len(names) == 1 else "them")
            for measurement, names in by_measurement.items()
        ]
        return [f"constants: {', '.join(counts)}", *left, *traded, *still]

    def to_json(self) -> dict[str, Any]:
        """Plain lists and dicts; `open_directions` name constants as level/constant."""
        constants, directions = [], []
        for c in self.constants:
            plain = dataclasses.asdict(c)
            p = plain.pop("parameter")
            constants.append({"level": p["tag"], "constant": p["constant"], **plain})
        for d in self.directions:
            plain = dataclasses.asdict(d) | {"weights": list(d.weights)}
            del plain["parameters"]
            directions.append({"constants": [str(p) for p in d.parameters], **plain})
        return {"constants": constants, "open_directions": directions}


def report(
    parameters: Parameters,
    z: Float[np.ndarray, " p"],
    covariance: Float[np.ndarray, "p p"],
) -> Identifiability:
    """Reports which free numbers and combinations the data determine.

    `z`, `covariance`: mode and covariance of the posterior in fitted space, prior
    included: covariance = (JᵀJ + diag(1/sd²))⁻¹.
    """
    sd = parameters.sd()
    numbers = zip(
        parameters.free,
        z.tolist(),
        parameters.centre().tolist(),
        np.sqrt(np.diag(covariance)).tolist(),
        strict=True,
    )
    scaled = covariance / np.outer(sd, sd)
    return Identifiability(
        tuple(_constant(*number) for number in numbers),
        tuple(_direction(parameters.free, scaled, g) for g in _groups(scaled)),
    )


def _constant(p: Parameter, z: float, centre: float, sd: float) -> ConstantReport:
    ratio, shift = sd / p.sd, (z - centre) / p.sd
    factor = p.tag != "global" and not p.tag.startswith(SENSOR)
    return ConstantReport(
        parameter=p,
        value=float(1 / (1 + np.exp(-z)) if p.share else np.exp(z)),
        unit="x" if factor else p.row.unit,
        prior_sd=p.sd,
        posterior_sd=sd,
        ratio=ratio,
        shift=shift,
        left_prior=abs(shift) > _LEFT,
        status=_status(ratio),
        measurement=_closing(p),
    )


def _status(ratio: float) -> Status:
    if ratio < _MEASURED:
        return "measured"
    return "partly" if ratio < _OPEN else "open"


def _closing(p: Parameter) -> str:
    if p.tag.startswith(SENSOR):
        return f"{p.row.closes}, {_level(p)}"
    where = "" if p.tag == "global" else f", on a GPU of {p.tag}"
    return p.row.closes + where


def _words(p: Parameter) -> str:
    what = _LEADS.get(p.row.unit, "") + p.row.what.partition(";")[0]
    level = "" if p.tag == "global" else f", {_level(p)}"
    return f"{what} ({p.constant}{level})"


def _level(p: Parameter) -> str:
    if p.tag.startswith(SENSOR):
        return f"as {p.tag.removeprefix(SENSOR)} was read"
    return f"factor of {p.tag}"


def _left(c: ConstantReport) -> str:
    side = "above" if c.shift > 0 else "below"
    return (
        f"left its prior: {_words(c.parameter)} is {c.value:.3g} {c.unit}, "
        f"{abs(c.shift):.1f} prior sds {side} the centre"
    )


def _groups(scaled: Float[np.ndarray, "p p"]) -> list[tuple[int, ...]]:
    """Members of each open combination; `scaled`: covariance in prior sds.

    They are groups of constants, none measured alone, of which data measure one
    combination and leave another open. Groups that overlap are joined if that is again
    such a group; else a group that shares two members is dropped.
    """
    blurred = np.flatnonzero(np.sqrt(np.diag(scaled)) >= _MEASURED)
    c = scaled[np.ix_(blurred, blurred)]
    candidates = {g for seed in range(len(c)) if (g := _partners(c, seed))}

    def openness(g: Sequence[int]) -> float:
        return _open_line(c[np.ix_(g, g)])[1]

    groups: list[tuple[int, ...]] = []
    for g in sorted(candidates, key=lambda g: (-round(openness(g), 1), len(g), g)):
        for other in [o for o in groups if set(o) & set(g)]:
            union = tuple(sorted({*other, *g}))
            if len(union) <= _MEMBERS and _traded(c[np.ix_(union, union)]):
                groups.remove(other)
                g = union
        if all(len(set(o) & set(g)) < 2 for o in groups):
            groups.append(g)
    undecided = [g for g in groups if openness(g) ** 2 > _UNDECIDED]
    return [tuple(int(i) for i in blurred[list(g)]) for g in undecided]


def _partners(c: Float[np.ndarray, "p p"], seed: int) -> tuple[int, ...] | None:
    """Fewest constants, the seed among them, that trade against one another.

    Partners are those whose knowledge would narrow the seed most (forward selection).
    """
    members, left = [seed], c
    while len(members) < min(_MEMBERS, len(c)):
        gain = left[seed] ** 2 / np.maximum(np.diag(left), 1e-12)
        gain[members] = -1.0
        j = int(np.argmax(gain))
        members.append(j)
        if _traded(c[np.ix_(members, members)]):
            return tuple(sorted(members))
        left = left - np.outer(left[:, j], left[j]) / max(left[j, j], 1e-12)
    return None


def _traded(block: Float[np.ndarray, "m m"]) -> bool:
    """Whether data measure a combination of the members, to which each belongs."""
    return bool(
        np.linalg.eigvalsh(block)[0] < _MEASURED**2
        and np.all(_inflation(block) >= _INFLATION)
        and np.all(np.abs(_open_line(block)[0]) >= _WEIGHT)
    )


def _inflation(block: Float[np.ndarray, "m m"]) -> Float[np.ndarray, " m"]:
    """Variance of each number over its variance with the others known (variance
    inflation; Belsley, Kuh, Welsch, Regression Diagnostics, 1980, chapter 3)."""
    return np.diag(block) * np.diag(np.linalg.inv(block))


def _open_line(
    block: Float[np.ndarray, "m m"],
) -> tuple[Float[np.ndarray, " m"], float]:
    """Unit vector along which all move with the one that the others blur most, and the
    posterior over the prior sd along it.

    Unlike the last eigenvector it is defined where several combinations are open.
    """
    line = block[np.argmax(np.round(_inflation(block), 6))]
    line = line / np.linalg.norm(line) * (-1.0 if line[0] < 0 else 1.0)
    return line, float(np.sqrt(line @ block @ line))


def _direction(
    free: Sequence[Parameter], scaled: Float[np.ndarray, "p p"], group: Sequence[int]
) -> Direction:
    members, block = [free[i] for i in group], scaled[np.ix_(group, group)]
    line, ratio = _open_line(block)
    names = " against ".join(_words(p) for p in members)
    text = f"not told apart: {names}: {_known_combination(members, block, line)}"
    if len({p.constant for p in members}) == 1:  # a factor against what it multiplies
        where = f"on a GPU that is not of {members[-1].tag}"
        measurements = [f"{members[0].row.closes}, {where},"]
    else:  # as many members as there are open combinations, the widest
        undecided = int(np.sum(np.linalg.eigvalsh(block) > _UNDECIDED))
        widest = np.argsort(-np.round(np.diag(block), 6), kind="stable")
        measurements = [_closing(members[i]) for i in widest[:undecided]]
    measurement = " and ".join(dict.fromkeys(measurements))
    return Direction(tuple(members), tuple(line.tolist()), ratio, text, measurement)


def _known_combination(
    members: Sequence[Parameter],
    block: Float[np.ndarray, "m m"],
    line: Float[np.ndarray, " m"],
) -> str:
    """Sentence on the combination of the members that the data determine."""
    spread, axes = np.linalg.eigh(block)
    if spread[1] >= _MEASURED**2 and abs(np.sum(np.sign(axes[:, 0]))) == len(members):
        units = {p.row.unit for p in members}
        if len({p.constant for p in members}) == 1:
            return "the data hold their product"
        if any(units <= kind for kind in _ADDED):
            return "the data hold their sum"
    names = [p.constant if p.tag == "global" else str(p) for p in members]
    signs = ["more" if w > 0 else "less" for w in line]
    moves = [f"{sign} {name}" for sign, name in zip(signs, names, strict=True)]
    return f"{' and '.join(moves)} give the same readings"
