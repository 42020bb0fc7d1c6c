"""Keys of the JSON of `plan --stage-clocks`: type, unit, meaning."""

from typing import Annotated, TypedDict

from ...estimator._answer.json_keys import GradesJson, Interval, MemoryJson, RequestJson


class StepTotalJson(TypedDict):
    """A step of all GPUs."""

    step_time_s: Annotated[float, "s", "length"]
    energy_j: Annotated[float, "J", "of all GPUs"]
    power_total_w: Annotated[float, "W", "of all GPUs, mean"]


class OneClockJson(StepTotalJson):
    """The fastest clock for all that keeps the hosts' limit."""

    sm_clock_mhz: Annotated[float, "MHz", "of all GPUs"]


class NodePowerJson(TypedDict):
    """Power of the GPUs of a host together (`--node-power`)."""

    limit_w: Annotated[float, "W", "that is allowed"]
    mean_w: Annotated[float, "W", "of the fullest host"]
    one_clock: Annotated[OneClockJson | None, "for all; null: none keeps the limit"]


class InstructionJson(TypedDict):
    """Passes of one kind at a stage; means of a GPU."""

    instruction: Annotated[str, "`forward`, `backward` or a part of it"]
    count: Annotated[int, "in a step"]
    sm_clock_mhz: Annotated[float, "MHz", "mean"]
    sm_clock_min_mhz: Annotated[float, "MHz", "least"]
    sm_clock_max_mhz: Annotated[float, "MHz", "largest"]
    time_s: Annotated[float, "s", "of one"]
    energy_j: Annotated[float, "J", "of one"]
    usual_time_s: Annotated[float, "s", "at the usual clock"]
    usual_energy_j: Annotated[float, "J", "at the usual clock"]


class StageClocksStageJson(TypedDict):
    """A stage of the pipeline with its clocks."""

    layers: Annotated[int, "of the model"]
    power_w: Annotated[float, "W", "of a GPU, mean over the step"]
    busy: Annotated[float, "share of the step"]
    wait_power_w: Annotated[float, "W", "of a GPU that waits"]
    switches: Annotated[int, "changes of clock a step"]
    instructions: Annotated[list[InstructionJson], "by kind"]


class StragglerJson(TypedDict):
    """GPUs of a stage of one replica that are slow."""

    stage: Annotated[int, "from 0"]
    slower_pct: Annotated[float, "%", "how much longer they take"]


class StageClocksJson(RequestJson, GradesJson):
    """A clock for every stage of a pipeline."""

    split: Annotated[list[int], "layers of each virtual stage"]
    micro_batches: Annotated[int, "of a replica in a step"]
    instructions: Annotated[int, "passes of a replica in a step"]
    baseline: Annotated[StepTotalJson, "every pass at the usual clock"]
    best: Annotated[StepTotalJson, "at the chosen clocks"]
    saving_pct: Annotated[float, "%", "energy of `best` below `baseline`"]
    saving_pct_p5_p95: Annotated[
        Interval | None, "%", "5 to 95 % interval, with `--interval`"
    ]
    slowdown_pct: Annotated[float, "%", "time of `best` beyond `baseline`"]
    lower_bound_j: Annotated[
        float, "J", "that no clocks go below in a step no longer than allowed, proven"
    ]
    bound_saving_pct: Annotated[float, "%", "saving at the bound"]
    gap_pct: Annotated[float, "%", "energy of `best` beyond the bound"]
    wait_power_w: Annotated[float, "W", "of a GPU that waits, mean over stages"]
    usual_sm_clock_mhz: Annotated[float, "MHz", "the highest under the power limit"]
    node_peak_w: Annotated[float, "W", "most that a host's GPUs draw at any time"]
    stages: Annotated[list[StageClocksStageJson], "first to last"]
    memory: Annotated[MemoryJson, "bytes in the GPU's memory"]
    granularity: Annotated[str, "what has a clock: `instruction`, `kind` or `stage`"]
    max_slowdown_pct: Annotated[float | None, "%", "allowed"]
    straggler: Annotated[StragglerJson | None, "as asked for"]
    deadline_s: Annotated[float | None, "s", "as asked for"]
    node_power: Annotated[NodePowerJson | None, "with `--node-power`"]
    solve_s: Annotated[float, "s", "of the search"]
    warnings: Annotated[list[str], "sentences"]
