"""Levels of the corrections: global values, factors by tag, the GPUs they serve;
reading and writing of corrections files.

Each constant has one global value and factors for tags of a GPU (`mma:wgmma`,
`memory:HBM3`, `node:4N`, `gpu:a10`, ...): an unseen GPU falls back to the tags that it
shares with fitted ones.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from ..schema import Positive, fitted
from ._constants import CONSTANTS, Corrections, is_share
from ._generations import generation
from ._law import Factors, Forecast, forecasts, with_laws
from ._priors import NEWER_HOST, PRIOR_FACTORS
from ._spread import Spread, Trust, least_grade, trust

SCHEMA: Final = 1
Levels = dict[str, dict[str, Positive]]
REFERENCE_TAGS: Final = ("mma:mma.sync", "memory:HBM2", "architecture:Ampere")
"""The oldest of each kind, without factors."""


@runtime_checkable
class Tagged(Protocol):
    """The part of a GPU (`hardware.GpuCard`) that corrections need."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Names of the levels that apply, general ones first."""
        ...

    @property
    def served_as(self) -> str:
        """Name of the GPU in the provenance of fits."""
        ...

    @property
    def corrections(self) -> str | None:
        """Bundled GPU whose fitted constants apply, if any."""
        ...


def prior_levels() -> Levels:
    """Levels with every constant at its prior centre."""
    levels = {"global": {name: c.centre for name, c in CONSTANTS.items()}}
    for tag, factors in PRIOR_FACTORS.items():
        levels[tag] = {name: middle for name, (middle, _) in factors.items()}
    return levels


def resolve(
    levels: Mapping[str, Mapping[str, float]], names: Sequence[str]
) -> dict[str, float]:
    """Constants for a GPU with tags `names`: global values times the tags' factors.

    A factor of a share x acts on its odds x/(1 - x), so that it stays a share.
    """
    values = dict(levels["global"])
    for tag in names:
        for constant, factor in levels.get(tag, {}).items():
            value = values[constant]
            if is_share(constant):
                odds = value / (1 - value) * factor
                values[constant] = odds / (1 + odds)
            else:
                values[constant] = value * factor
    return values


def levels_of(levels: Factors, card: Tagged) -> Factors:
    """Levels for a GPU: `levels`, completed by scaling laws.

    Times of a GPU that was not fitted, in an architecture without a level, are those of
    the architecture that this one is like.
    """
    laws, (design, *tags) = _laws(levels, card), card.tags
    mma = [x.removeprefix("mma:") for x in tags if x.startswith("mma:")][-1]
    shared = generation(design.partition(":")[2], mma)
    if design not in levels:
        newer = NEWER_HOST if shared.host >= 2022 else {}
        new = card.corrections is None and not shared.taken_for
        near = shared.like if new else ""
        like = levels.get(f"architecture:{near}", {})
        times = {name: x for name, x in like.items() if not CONSTANTS[name].power}
        factors = {name: centre for name, (centre, _) in newer.items()} | times
        levels = {**levels, design: factors} if factors else levels
    return with_laws(levels, laws) if laws else levels


def _laws(levels: Factors, card: Tagged) -> list[Forecast]:
    """Scaling laws that apply to a GPU."""
    design = card.tags[0]
    fitted = design in REFERENCE_TAGS or "core_energy" in levels.get(design, {})
    foreign = not fitted and card.tags[-1] not in levels
    stranger = card.corrections is None and not fitted
    return forecasts(levels, card.tags, stranger, stranger or foreign)


@dataclasses.dataclass(frozen=True)
class CorrectionsFile:
    """Contents of a corrections file: levels, instruments and what they rest on.

    `instruments`: what was fitted of how a campaign's rows were read, for its `Meter`.
    `posterior`: names of the fitted numbers (`parameters`), their `sd` in fitted space
    and their `correlation`: the lower triangle with its diagonal, row after row;
    `fitted_on["apart"]`: constants of a later fit, of which it says nothing; of one
    level, as `tag/constant`.
    `continues`: in the file of an interrupted fit, what that fit started from.
    `spread`: how far left-out readings lie from their predictions. `engines`: constants
    of serving engines (`serving._engine.levels`), by `engine` and by `host`.
    """

    levels: Levels
    instruments: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    fitted_on: dict[str, Any] = dataclasses.field(default_factory=dict)
    posterior: dict[str, Any] | None = None
    continues: "CorrectionsFile | None" = None
    spread: Spread = dataclasses.field(default_factory=dict)
    engines: dict[str, Any] = dataclasses.field(default_factory=dict)

    def serve(self, card: Tagged) -> Corrections:
        """Constants for one GPU."""
        return Corrections(**resolve(self.levels_of(card), card.tags))  # pyright: ignore[reportArgumentType]

    def levels_of(self, card: Tagged) -> Factors:
        """Levels of the file for a GPU, completed by scaling laws."""
        return levels_of(self.levels, card)

    def forecasts(self, card: Tagged) -> list[Forecast]:
        """Laws that replace missing fits of a GPU; none once its power was fitted."""
        gpu_level = self.levels.get(card.tags[-1], {})
        read = card.corrections is None and {"core_energy", "dynamic_energy"} & {
            *gpu_level
        }
        return [] if read else _laws(self.levels, card)

    def grade(self, card: Tagged, kind: str, quantity: str) -> str:
        """What predictions of `quantity` ("time", "power") of a kind of rows (an op, or
        "workload") rest on: `calibrated` where such rows of this GPU were fitted, be it
        inside passes, `transferred` where those of a GPU of its architecture were,
        `forecast` where only others were, `datasheet` where nothing was. Of systolic
        arrays nothing was measured: `forecast` at best, whatever serves them."""
        if not self.fitted_on.get("rows"):
            return "datasheet"
        fitted = self._fitted.get((kind, quantity), set())
        if "mma:systolic" in card.tags:
            return "forecast"
        if card.served_as in fitted:
            return "calibrated"
        architectures = self.fitted_on.get("architectures", {})
        near = any(architectures.get(gpu) in card.tags for gpu in fitted)
        return "transferred" if near else "forecast"

    @functools.cached_property
    def _fitted(self) -> dict[tuple[str, str], set[str]]:
        """GPUs of which rows were fitted, by kind of rows or op inside and quantity."""
        gpus = dict[tuple[str, str], set[str]]()
        for label, counts in self.fitted_on["rows"].items():
            gpu, _, kind = label.partition(":")
            # earlier files count rows alone
            by: dict[str, Any] = {"time": counts} if isinstance(counts, int) else counts
            for name in (kind, *by.get("ops", ())):
                for quantity in filter(by.get, ("time", "power")):
                    gpus.setdefault((name, quantity), set()).add(gpu)
        return gpus

    def trust(
        self,
        card: Tagged,
        kind: str = "workload",
        new: bool = False,
        holds: Iterable[str] = (),
        beyond: Sequence[str] = (),
    ) -> Trust:
        """Grades and interval widths of one kind of rows (an op, or "workload") on a
        GPU. `new`: nobody measured the like, the best grade is `forecast`; `holds`: ops
        inside, the least known of which decides; `beyond`: in what it lies beyond the
        fitted rows ("clock", "length")."""
        holds, beyond = tuple(holds), tuple(beyond)
        key = (card.tags, card.served_as, kind, new, holds, beyond)
        if key in self._trusts:
            return self._trusts[key]
        grades = {}
        for q in ("time", "power"):
            grades_of_ops = [self.grade(card, op, q) for op in (kind, *holds)]
            grades[q] = least_grade(
                [*grades_of_ops, "forecast"] if new else grades_of_ops
            )
        grades["energy"] = least_grade(grades.values())
        result = trust(self.spread, kind, grades, card.served_as, beyond)
        return self._trusts.setdefault(key, result)

    @functools.cached_property
    def _trusts(self) -> dict[Any, Trust]:
        """What `trust` has answered."""
        return {}


def prior_file() -> CorrectionsFile:
    """Corrections at the prior centres, with nothing fitted."""
    return CorrectionsFile(prior_levels())


def read_corrections(path: str | Path | None = None) -> CorrectionsFile:
    """Corrections file at `path`, or the shipped one.

    Raises `ValueError` in one sentence that names what is wrong.
    """
    if path is None:
        return _shipped()
    path = Path(path)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"corrections file '{path}' cannot be read ({error.strerror}); give a file "
            "that `diffenergy fit` wrote."
        ) from None
    except ValueError as error:
        raise ValueError(
            f"corrections file '{path}' is no JSON ({error}); give a file that "
            "`diffenergy fit` wrote."
        ) from None
    return _parse(raw, str(path))


def write_corrections(file: CorrectionsFile) -> str:
    """JSON text of a corrections file."""
    units = {name: c.unit for name, c in CONSTANTS.items()}
    body = {"schema": SCHEMA, **_body(file), "units": units}
    if file.continues is not None:
        body["continues"] = _body(file.continues)
    text = json.dumps(body, indent=1)
    if file.posterior is not None:  # thousands of numbers: one line
        text = f'{text[:-2]},\n "posterior": {json.dumps(file.posterior)}\n}}'
    return text + "\n"


def _body(file: CorrectionsFile) -> dict[str, Any]:
    names = ("levels", "instruments", "fitted_on", "spread")
    body = {name: getattr(file, name) for name in names}
    priors = prior_levels()  # `_checked` fills in those of tags without a fit
    body["levels"] = {
        tag: x
        for tag, x in file.levels.items()
        if tag == "global" or x != priors.get(tag)
    }
    return body | ({"engines": file.engines} if file.engines else {})


def _parse(raw: Any, where: str) -> CorrectionsFile:
    schema = raw.get("schema") if isinstance(raw, dict) else type(raw).__name__
    if schema != SCHEMA:
        raise ValueError(
            f"`schema` of '{where}' is {schema}; this version reads {SCHEMA}."
        )
    return _checked(fitted(raw, CorrectionsFile, f"'{where}': "), where)


def _checked(file: CorrectionsFile, where: str) -> CorrectionsFile:
    """The file with missing constants at their priors.

    Raises `ValueError` for unknown constants and for shares outside (0, 1).
    """
    if "global" not in file.levels:
        raise ValueError(f"`levels.global` is missing in '{where}'.")
    for tag, values in file.levels.items():
        for name, value in values.items():
            if name not in CONSTANTS:
                raise ValueError(
                    f"`{tag}.{name}` in '{where}' is no constant of this version."
                )
            if tag == "global" and is_share(name) and value >= 1:
                raise ValueError(
                    f"`{tag}.{name}` in '{where}' is {value}; allowed are numbers "
                    "between 0 and 1."
                )
    priors = prior_levels()
    whole = {**priors["global"], **file.levels["global"]}
    before = file.continues and _checked(file.continues, f"{where}, continues")
    levels = {**priors, **file.levels, "global": whole}
    return dataclasses.replace(file, levels=levels, continues=before)


@functools.cache
def _shipped() -> CorrectionsFile:
    path = resources.files("diffenergy") / "data" / "corrections" / "default.json"
    return _parse(json.loads(path.read_text(encoding="utf-8")), "default.json")
