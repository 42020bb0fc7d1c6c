"""Keys of the JSON of `fit`: type, unit, meaning. What is not known is None."""

from typing import Annotated, TypedDict


class MeanErrorsJson(TypedDict):
    """Mean absolute errors in % of the measured value; null: not measured."""

    rows: Annotated[int, "number"]
    time_mape_pct: Annotated[float | None, "%", "of time"]
    power_mape_pct: Annotated[float | None, "%", "of power"]
    energy_mape_pct: Annotated[float | None, "%", "of energy"]


class FlagJson(TypedDict):
    """A row that cannot be true and is left out."""

    file: Annotated[str, "its file"]
    row: Annotated[int, "of the file"]
    column: Annotated[str, "that is wrong"]
    value: Annotated[float, "that it has"]
    reason: Annotated[str, "a sentence"]


class FitGroupJson(MeanErrorsJson):
    """Rows of a file, GPU and op, fitted or held out."""

    file: Annotated[str, "name"]
    gpu: Annotated[str, "name"]
    op: Annotated[str, "kind of kernel, or `workload`"]
    held_out: Annotated[bool, "whether they were held out"]


class ConstantJson(TypedDict):
    """A free number after the fit; sds in fitted space."""

    level: Annotated[str, "of the corrections"]
    constant: Annotated[str, "name"]
    value: Annotated[float, "`unit`", "in natural units, or the factor of a level"]
    unit: Annotated[str, "of the value"]
    prior_sd: Annotated[float, "before"]
    posterior_sd: Annotated[float, "after"]
    ratio: Annotated[float, "posterior over prior sd"]
    shift: Annotated[float, "from the prior centre, in prior sds"]
    left_prior: Annotated[bool, "whether it contradicts the prior"]
    status: Annotated[str, "`measured`, `partly` or `open`"]
    measurement: Annotated[str, "what would close it"]


class DirectionJson(TypedDict):
    """Constants that the rows touch but cannot tell apart."""

    constants: Annotated[list[str], "level/constant"]
    weights: Annotated[list[float], "unit vector, in prior sds"]
    ratio: Annotated[float, "posterior over prior sd along it"]
    text: Annotated[str, "a sentence"]
    measurement: Annotated[str, "what would close it"]


class FitJson(MeanErrorsJson):
    """A fit; errors are over rows that were neither flagged nor held out."""

    fitted_rows: Annotated[int, "drawn for the fit"]
    flagged: Annotated[list[FlagJson], "left out"]
    held_out: Annotated[MeanErrorsJson | None, "with `--holdout`"]
    groups: Annotated[list[FitGroupJson], "by file, GPU and op"]
    parameters: Annotated[int, "free numbers"]
    steps: Annotated[int, "evaluations of all rows"]
    cost: Annotated[float, "at the end"]
    constants: Annotated[list[ConstantJson], "every free number"]
    open_directions: Annotated[list[DirectionJson], "that are left open"]


class StoppedFitJson(TypedDict):
    """A fit that Ctrl-C ended; the best constants so far are kept."""

    interrupted: Annotated[bool, "true"]
    steps: Annotated[int, "evaluations of all rows"]
