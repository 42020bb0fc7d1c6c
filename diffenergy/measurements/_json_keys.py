"""Keys of the JSON of `evaluate`: type, unit, meaning. What is not known is None."""

from typing import Annotated, Any, TypedDict


class ErrorsJson(TypedDict):
    """Errors of predictions in % of the measured value; null: not measured."""

    rows: Annotated[int, "that were read"]
    skipped: Annotated[int, "of them that the model cannot predict"]
    time_rows: Annotated[int, "with a time"]
    time_mape_pct: Annotated[float | None, "%", "mean absolute error"]
    time_median_pct: Annotated[float | None, "%", "median absolute error"]
    time_bias_pct: Annotated[float | None, "%", "mean; above 0: predicted too high"]
    time_p90_pct: Annotated[float | None, "%", "90th percentile"]
    power_rows: Annotated[int, "with a power"]
    power_mape_pct: Annotated[float | None, "%", "mean absolute error"]
    power_median_pct: Annotated[float | None, "%", "median absolute error"]
    power_bias_pct: Annotated[float | None, "%", "mean"]
    power_p90_pct: Annotated[float | None, "%", "90th percentile"]
    energy_rows: Annotated[int, "with an energy"]
    energy_mape_pct: Annotated[float | None, "%", "mean absolute error"]
    energy_median_pct: Annotated[float | None, "%", "median absolute error"]
    energy_bias_pct: Annotated[float | None, "%", "mean"]
    energy_p90_pct: Annotated[float | None, "%", "90th percentile"]


class EvaluateJson(ErrorsJson):
    """Of tables of measurements."""

    groups: Annotated[
        list[dict[str, Any]], "with `--by`: the same keys beside the columns named"
    ]


class TraceErrorsJson(TypedDict):
    """Of the launches of a trace that have a shape, time alone."""

    source: Annotated[str, "name of the file"]
    gpu: Annotated[str, "name"]
    grade: Annotated[str, "of predictions"]
    class_share: Annotated[float, "share of the time whose class is known"]
    shape_share: Annotated[float, "share of the time whose shapes are known"]
    rows: Annotated[float, "launches"]
    skipped: Annotated[float, "of them without a shape"]
    time_rows: Annotated[int, "launches that are compared"]
    time_mape_pct: Annotated[float | None, "%", "mean absolute error"]
    time_median_pct: Annotated[float | None, "%", "median absolute error"]
    time_bias_pct: Annotated[float | None, "%", "mean; above 0: predicted too high"]
    time_p90_pct: Annotated[float | None, "%", "90th percentile"]
    long_rows: Annotated[int, "launches over 20 us"]
    long_median_pct: Annotated[float | None, "%", "median absolute error of those"]
    power_mape_pct: Annotated[None, "a trace has none"]
    energy_mape_pct: Annotated[None, "a trace has none"]
    predicted_us: Annotated[float, "us", "of all that are compared"]
    traced_us: Annotated[float, "us", "of all that are compared"]
    whole_ratio: Annotated[float | None, "of these two"]
    groups: Annotated[
        list[dict[str, Any]], "with `--by`: the same keys beside the columns named"
    ]
    notes: Annotated[list[str], "sentences"]
