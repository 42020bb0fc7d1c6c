"""Keys of the JSON of `dvfs`: type, unit, meaning. What is not known is None."""

from typing import Annotated, NotRequired, TypedDict

from ...estimator._answer.json_keys import GradesJson, Interval, MemoryJson, RequestJson


class TotalJson(TypedDict):
    """Time and energy of an iteration."""

    time_s: Annotated[float, "s", "of an iteration"]
    energy_j: Annotated[float, "J", "of an iteration"]


class ChangeJson(TotalJson):
    """A schedule against default clocks."""

    time_change_pct: Annotated[float | None, "%", "against default clocks"]
    energy_change_pct: Annotated[float | None, "%", "against default clocks"]


class FreeJson(ChangeJson):
    """The schedule if changes of clocks were free, below which none can go."""

    bound_energy_change_pct: Annotated[float | None, "%", "that no schedule passes"]


class BaselineJson(ChangeJson, total=False):
    """The best with one pair of clocks, one a phase, or a power limit alone."""

    sm_clock_mhz: Annotated[float | None, "MHz", "of one pair"]
    mem_clock_mhz: Annotated[float | None, "MHz", "of one pair"]
    stages: Annotated[dict[str, dict[str, float | None]], "MHz", "clocks of each phase"]
    power_limit_w: Annotated[float, "W", "the limit"]


class LaunchJson(TypedDict):
    """A kernel with its clocks; time and energy of one launch."""

    kernel: Annotated[str, "name"]
    count: Annotated[float, "launches"]
    sm_clock_mhz: Annotated[float | None, "MHz", "null: left alone"]
    mem_clock_mhz: Annotated[float | None, "MHz", "null: left alone"]
    time_s: Annotated[float, "s", "of a launch"]
    energy_j: Annotated[float, "J", "of a launch"]


class PowerLimitJson(TypedDict):
    """An iteration at default clocks under a power limit."""

    power_limit_w: Annotated[float, "W", "the limit"]
    time_s: Annotated[float, "s", "of an iteration"]
    energy_j: Annotated[float, "J", "of an iteration"]
    avg_power_w: Annotated[float, "W", "mean"]
    sm_clock_mhz: Annotated[float, "MHz", "reached"]
    tokens_per_s: Annotated[float | None, "tokens/s", "made, else read"]


class ScheduleJson(ChangeJson):
    """A schedule of clocks, what was asked for, and what it is measured against."""

    objective: Annotated[str, "`energy`, `edp`, `ed2p` or `time`"]
    max_slowdown_pct: Annotated[float | None, "%", "allowed; null: any"]
    granularity: Annotated[str, "what has clocks: `kernel`, `phase` or `iteration`"]
    aggregation: Annotated[str, "who keeps the limit: `global` sum or each, `local`"]
    per_launch: Annotated[bool, "whether launches of a kernel may differ"]
    switch_kind: Annotated[str | None, "`stall` or `lookahead`; null: changes are free"]
    switch_latency_s: Annotated[float | None, "s", "of a change of clocks"]
    switch_latency_source: Annotated[str | None, "whose latency that is"]
    switch_energy_j: Annotated[float | None, "J", "of a change of clocks"]
    switches: Annotated[float | None, "changes in an iteration"]
    bound_energy_change_pct: Annotated[float | None, "%", "that no schedule passes"]
    gap_pct: Annotated[float | None, "%", "of the objective above its bound"]
    out_of_time: Annotated[
        bool, "whether wall time ended the proof: an idler machine may say more"
    ]
    solver: Annotated[str, "what found it"]
    default: Annotated[TotalJson, "with every clock left alone"]
    baselines: Annotated[
        dict[str, BaselineJson | None],
        "`iteration`, `phase` and `power_limit`; null where none keeps the limit",
    ]
    free: Annotated[FreeJson | None, "if changes of clocks were free"]
    frontier: Annotated[
        list[list[float]], "%", "changes of time and energy that no schedule beats"
    ]
    schedule: Annotated[list[LaunchJson], "in order"]
    advice: Annotated[
        str,
        "a sentence: clocks per phase or kernel are worth it where one clock, at the "
        "same cost of changes, saves less than 90 % of what they do",
    ]


class ModelScheduleJson(RequestJson, GradesJson, ScheduleJson):
    """Of a model or listing."""

    memory: Annotated[MemoryJson, "bytes in the GPU's memory"]
    warnings: Annotated[list[str], "sentences"]
    time_s_p5_p95: Annotated[Interval, "s", "5 to 95 % interval"]
    energy_j_p5_p95: Annotated[Interval, "J", "5 to 95 % interval"]
    power_curve: NotRequired[Annotated[list[PowerLimitJson], "with `--power-curve`"]]


class TableScheduleJson(ScheduleJson):
    """Of a measured table (`--table`)."""

    table: Annotated[str, "its path"]
    gpu: Annotated[str | None, "where it is named"]
    time_change_pct_p95: NotRequired[
        Annotated[float | None, "%", "95th percentile of the true change (`--smooth`)"]
    ]
    noise_time_pct: NotRequired[Annotated[float, "%", "of readings (`--smooth`)"]]
    noise_energy_pct: NotRequired[Annotated[float, "%", "of readings (`--smooth`)"]]
