"""Keys of the JSON of `plan`: type, unit, meaning. What is not known is None."""

from typing import Annotated, TypedDict

from ...estimator._answer.json_keys import EstimateJson


class PricedPlanJson(TypedDict):
    """A plan with its figures, of all GPUs unless a key says otherwise."""

    plan: Annotated[str, "as `--plan` takes it"]
    num_gpus: Annotated[int, "GPUs in all"]
    step_time_s: Annotated[float, "s", "of a step"]
    energy_j: Annotated[float, "J", "of a step"]
    memory_per_gpu_bytes: Annotated[float, "B", "of the fullest GPU"]
    power_total_w: Annotated[float, "W", "mean over a step"]
    sm_clock_mhz: Annotated[float, "MHz", "asked for"]


class SlopeJson(TypedDict):
    """A derivative of the best step; null for what is not there."""

    value: Annotated[float | None, "SI", "of the field"]
    per_unit: Annotated[float | None, "SI", "change of the metric by one unit of it"]
    per_percent: Annotated[float | None, "%", "of the metric by one more % of it"]


class PlanJson(TypedDict):
    """The best plan with which GPUs train a model."""

    model: Annotated[str, "name"]
    gpu: Annotated[str, "name"]
    num_gpus: Annotated[int, "GPUs in all, of several numbers the best"]
    global_batch: Annotated[int, "sequences of a step"]
    objective: Annotated[str, "`time` or `energy`"]
    plan: Annotated[str, "the best, as `--plan` takes it"]
    sm_clock_mhz: Annotated[
        float, "MHz", "below `highest_sm_clock_mhz` where a limit of power lowers it"
    ]
    highest_sm_clock_mhz: Annotated[float, "MHz", "asked for"]
    best: Annotated[EstimateJson, "its answer"]
    second: Annotated[PricedPlanJson | None, "the next whose objective differs"]
    considered: Annotated[int, "legal plans"]
    fitting: Annotated[int, "those that keep the limit of memory"]
    max_memory_bytes: Annotated[float, "B", "limit of a GPU"]
    max_power_w: Annotated[float | None, "W", "limit of all GPUs; null without one"]
    sensitivities: Annotated[
        dict[str, dict[str, SlopeJson]],
        "with `--sensitivity`: of `step_time_s` and `energy_j` by each field",
    ]
    frontier: Annotated[
        list[PricedPlanJson],
        "that no other beats in time, energy and memory at once, by time",
    ]
