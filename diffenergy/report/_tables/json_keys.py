"""Keys of the JSON of `compare`, `gpus` and `models`: type, unit, meaning. What is not
known is None."""

from typing import Annotated, Any, NotRequired, TypedDict

from ...estimator._answer.json_keys import GradesJson


class ComparisonJson(TypedDict):
    """Answers of `estimate` by letter: `a`, `b`, and of more `c`, `d`, ..."""

    a: Annotated[dict[str, Any], "the first estimate"]
    b: Annotated[dict[str, Any], "the second"]
    ratio: Annotated[dict[str, float], "b / a of `time_s`, `energy_j`, `avg_power_w`"]
    ratios: NotRequired[
        Annotated[dict[str, dict[str, float]], "of more than two: of each letter to a"]
    ]


class GpuEntryJson(TypedDict):
    """A GPU in the list of all."""

    name: Annotated[str, "name"]
    architecture: Annotated[str, "name"]
    num_sms: Annotated[float, "SMs"]
    sm_clock_max_mhz: Annotated[float, "MHz", "highest clock"]
    dram_capacity: Annotated[float, "B", "memory"]
    dram_bandwidth: Annotated[float, "B/s", "of the memory"]
    tdp_w: Annotated[float, "W", "power limit"]
    grade: Annotated[str, "of predictions"]
    aliases: Annotated[list[str], "other names"]


class NumberJson(TypedDict):
    """A number of a GPU."""

    value: Annotated[float, "`unit`", "the number"]
    unit: Annotated[str, "SI"]
    source: Annotated[str | None, "where it stands"]
    quality: Annotated[str | None, "`datasheet` to `guess`"]
    year: Annotated[int | None, "of the source"]


class ExpectedJson(TypedDict):
    """Errors to expect of a kind of row; null where no group of it was left out."""

    kind: Annotated[str, "of row"]
    grades: Annotated[dict[str, str], "of time, power and energy"]
    over: Annotated[list[str], "GPUs whose rows the errors are of"]
    time_mape_pct: Annotated[float | None, "%", "mean absolute error of time"]
    time_interval_pct: Annotated[float, "%", "95th percentile above"]
    power_mape_pct: Annotated[float | None, "%", "mean absolute error of power"]
    power_interval_pct: Annotated[float, "%", "95th percentile above"]
    energy_mape_pct: Annotated[float | None, "%", "mean absolute error of energy"]
    energy_interval_pct: Annotated[float, "%", "95th percentile above"]


class ServedByJson(GradesJson):
    """The corrections that serve a GPU."""

    levels: Annotated[list[str], "from the most general on"]
    expected: Annotated[list[ExpectedJson], "errors by kind of row"]


class GpuJson(TypedDict):
    """A GPU with the source of every number."""

    name: Annotated[str, "name"]
    architecture: Annotated[str, "name"]
    mma: Annotated[str, "kind of matrix unit"]
    memory: Annotated[str, "kind of memory"]
    process_node: Annotated[str, "of the die"]
    segment: Annotated[str, "of the market"]
    aliases: Annotated[list[str], "other names"]
    mem_clocks_mhz: Annotated[list[float], "MHz", "that the memory can be set to"]
    corrections: Annotated[ServedByJson, "that serve it"]
    published: Annotated[dict[str, Any], "peaks as the vendor has them"]
    values: Annotated[dict[str, NumberJson], "by [field](gpu-fields.md)"]


class ModelEntryJson(TypedDict):
    """A model in the list of all."""

    name: Annotated[str, "name"]
    family: Annotated[str, "`model_type` of its config"]
    parameters: Annotated[float, "number"]
    layers: Annotated[float | None, "number"]
    max_positions: Annotated[int | None, "tokens", "of a sequence"]
    phase: Annotated[str, "that it runs unless asked"]


class ModelJson(ModelEntryJson):
    """A model with its sizes."""

    dtype: Annotated[str | None, "of its checkpoint; null: cannot be read"]
    weight_bytes: Annotated[dict[str, float | None], "B", "by type"]
    kv_bytes_per_token: Annotated[
        dict[str, float] | None, "B", "that a token adds for good, by type of the cache"
    ]
    kv_bytes_per_token_windowed: Annotated[
        dict[str, float] | None, "B", "the same within windows"
    ]
    state_bytes_per_request: Annotated[float | None, "B", "of recurrent layers"]
    checkpoint: Annotated[list[str], "what was read of its types, or why it was not"]
    sizes: Annotated[dict[str, Any], "of its layers"]
    defaults: Annotated[dict[str, Any], "of a request"]
