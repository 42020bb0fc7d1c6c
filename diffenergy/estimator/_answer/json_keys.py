"""Keys of the JSON of `estimate`: of each its type, its unit where it has one, and what
it means. What is not known is None."""

from typing import Annotated, Any, NotRequired, TypedDict

Interval = list[float]
"""5th and 95th percentile."""


class AskedJson(TypedDict, total=False):
    """What not every request has: of a plan, of training, of some models."""

    plan: Annotated[
        dict[str, Any] | None,
        "sizes of the plan: `tp, pp, ep, dp`; of training all of its keys",
    ]
    num_gpus: Annotated[int | None, "GPUs of the plan"]
    topology: Annotated[str | None, "machine of the plan"]
    accumulation: Annotated[float | None, "micro-batches of a training step"]
    checkpointing: Annotated[
        bool | None, "whether layers are computed again in training"
    ]
    lora: Annotated[
        int | None, "rank of adapters that are trained alone, where asked for"
    ]
    lora_layers: Annotated[
        str | None, "linear layers that have them: `all` or `attention`"
    ]
    frozen_layers: Annotated[
        int | None, "first layers that are not trained, where asked for"
    ]
    routing: Annotated[str | None, "how tokens spread over experts"]
    speculative: Annotated[str | None, "what drafts tokens, where asked for"]
    accept: Annotated[float | None, "share of drafted tokens that are kept"]
    draft_tokens: Annotated[int | None, "tokens drafted in a step"]
    tokens_per_step: Annotated[
        float | None, "tokens", "made in a step of speculation, on average"
    ]
    images: Annotated[int | None, "images of a sequence"]
    image_tokens: Annotated[int | None, "tokens", "of an image"]
    steps: Annotated[int | None, "denoising steps of an image"]
    guidance: Annotated[bool | None, "whether each step runs twice, guided"]
    global_batch: Annotated[int | None, "sequences of a training step of a plan"]


class WorkJson(AskedJson):
    """What ran."""

    model: Annotated[str, "name of the model or listing; of a mix all of them"]
    gpu: Annotated[str, "name of the GPU"]
    phase: Annotated[
        str | None,
        "`generate`, `prefill`, `decode`, `forward`, `train` or that of a listing",
    ]
    batch: Annotated[float | None, "sequences or images; in training of a micro-batch"]
    input_len: Annotated[float | None, "tokens", "read of a sequence"]
    output_len: Annotated[float | None, "tokens", "made of a sequence"]
    dtype: Annotated[str | None, "type of the linear layers"]
    kv_dtype: Annotated[str | None, "type of the KV cache"]
    attention: Annotated[str | None, "`flash` or `eager`"]
    stack: Annotated[str | None, "`serving` (fused kernels) or `eager` (modules)"]
    dispatch: Annotated[str | None, "how kernels are launched: `eager` or `graph`"]


class ForecastJson(TypedDict):
    """A factor of a constant that no fit has seen, by a law."""

    tag: Annotated[str, "level that it is of"]
    constant: Annotated[str, "name"]
    factor: Annotated[float, "/ 7 nm, HBM2 or the usual link"]
    sd: Annotated[float, "of its logarithm"]
    anchor: Annotated[str, "fitted level that it starts from"]


class RequestJson(WorkJson):
    """What ran, at the start of every answer about a model or a listing."""

    assumed: Annotated[dict[str, Any], "every value that no flag gave"]
    forecast: NotRequired[
        Annotated[list[ForecastJson], "constants that laws alone say"]
    ]


class GradesJson(TypedDict):
    """How well numbers of this kind are known."""

    grade: Annotated[str, "the least of `grades`"]
    grades: Annotated[
        dict[str, str],
        "of `time`, `power` and `energy`: `calibrated`, `transferred`, `forecast` or "
        "`datasheet` ([uncertainty](../explanation/uncertainty.md))",
    ]


class MemoryJson(TypedDict):
    """The GPU's memory at its fullest, of a plan that of the fullest GPU. A part that a
    phase does not have is 0; of a listing all but the capacity is null.
    [Training](../training.md#what-stays-in-memory)."""

    weights: Annotated[float | None, "B", "parameters"]
    kv_cache: Annotated[float | None, "B", "keys and values"]
    state: Annotated[float | None, "B", "of recurrent layers"]
    activations: Annotated[
        float | None,
        "B",
        "kept for the backward pass; else operands of the largest kernel, and "
        "the skip connection",
    ]
    logits: Annotated[float | None, "B", "of scored tokens, in their type and fp32"]
    gradients: Annotated[float | None, "B", "of the parameters"]
    optimizer: Annotated[float | None, "B", "state of AdamW, and fp32 weights"]
    gathered: Annotated[float | None, "B", "weights of other GPUs"]
    workspace: Annotated[float | None, "B", "CUDA context and libraries, 1 GB"]
    total: Annotated[float | None, "B", "all of the above"]
    capacity: Annotated[float, "B", "of the GPU"]
    fits: Annotated[bool | None, "whether the total is within the capacity"]


class PhaseJson(TypedDict):
    """A phase of the request; of training on many GPUs a pass of the mean GPU with the
    joules and watts of all of them, and `waiting`."""

    time_s: Annotated[float, "s", "length"]
    energy_j: Annotated[float, "J", "of all GPUs"]
    avg_power_w: Annotated[float | None, "W", "mean over the phase"]
    sm_clock_mhz: Annotated[float | None, "MHz", "reached"]
    temperature_c: Annotated[float | None, "C", "of the chip"]
    gpu_time_s: Annotated[float | None, "s", "kernels of the GPU take"]
    host_time_s: Annotated[float | None, "s", "the host takes to launch them"]
    limited_by: Annotated[str, "[limiter](#limited_by)"]
    feasible: Annotated[bool, "whether the power limit can be kept"]


class RunJson(TypedDict):
    """A [whole training run](../training.md#a-whole-run) (`--tokens`) on all GPUs."""

    tokens: Annotated[float, "tokens", "read in the run"]
    steps: Annotated[float, "optimizer steps"]
    time_s: Annotated[float, "s", "of all steps"]
    energy_j: Annotated[float, "J", "of all GPUs"]
    gpu_hours: Annotated[float, "h", "GPUs x time"]
    energy_kwh: Annotated[float, "kWh", "the same as `energy_j`"]
    time_s_p5_p95: NotRequired[Annotated[Interval, "s", "5 to 95 % interval"]]
    energy_j_p5_p95: NotRequired[Annotated[Interval, "J", "5 to 95 % interval"]]


class ExchangeJson(TypedDict):
    """What the GPUs of an axis of a plan exchange, of the mean GPU."""

    total_s: Annotated[float, "s", "of exchange"]
    exposed_s: Annotated[float, "s", "of it in which nothing else runs"]


class StageJson(TypedDict, total=False):
    """A stage of the pipeline of a plan; times, power and clock of training."""

    layers: Annotated[float, "layers of the model"]
    memory_bytes: Annotated[float, "B", "in each of its GPUs"]
    forward_s: Annotated[float, "s", "of a micro-batch"]
    backward_s: Annotated[float, "s", "of a micro-batch"]
    busy: Annotated[float, "share of the step in which it computes"]
    power_w: Annotated[float, "W", "of one of its GPUs"]
    sm_clock_mhz: Annotated[float, "MHz", "of its GPUs"]


class KernelJson(TypedDict, total=False):
    """A kernel of the listing, beside the [fields](kernels.md) of its op; of a row that
    is never launched time, energy, utilization and limiter are null."""

    op: Annotated[str, "kind of kernel"]
    count: Annotated[float, "launches in its phase; on a plan of a GPU in a step"]
    phase: Annotated[str, "in which it runs"]
    time_s: Annotated[float | None, "s", "of a launch"]
    kernel_s: Annotated[float | None, "s", "the same without launch latency"]
    energy_j: Annotated[
        float | None, "J", "of a launch on one GPU, idle and leakage too"
    ]
    utilization: Annotated[dict[str, float] | None, "share of each unit's peak rate"]
    limited_by: Annotated[str | None, "[limiter](#limited_by)"]
    gpus: Annotated[int, "that launch it (training on many GPUs)"]
    dynamic_j: Annotated[
        float | None, "J", "of a launch beyond idle and leakage (training on many GPUs)"
    ]


class PlanFiguresJson(TypedDict, total=False):
    """Of a [plan](../plans.md); from `step_time_s` on of training on many GPUs."""

    tokens_per_s_per_gpu: Annotated[float | None, "tokens/s", "of a plan"]
    power_per_gpu_w: Annotated[float, "W", "of a plan, mean GPU"]
    power_total_w: Annotated[float, "W", "`avg_power_w`"]
    memory_per_gpu_bytes: Annotated[float, "B", "`memory.total` of the fullest GPU"]
    exposed_communication: Annotated[
        float, "share of the time in which nothing else runs"
    ]
    communication: Annotated[
        dict[str, ExchangeJson],
        "of a plan, by axis `tp`, `pp`, `ep`, of training `dp` and `cp` too",
    ]
    stages: Annotated[list[StageJson] | None, "of a plan, first to last"]
    step_time_s: Annotated[
        float,
        "s",
        "of [training on many GPUs](../plans.md#what-an-answer-says): `time_s`",
    ]
    peak_power_w: Annotated[
        float | None,
        "W",
        "most of all of them at any moment, without the "
        "transients of a kernel; null where micro-batches are too many to follow",
    ]
    mfu: Annotated[float | None, "model FLOP / peak"]
    model_flops: Annotated[float, "FLOP", "of the model in a step"]
    bubble: Annotated[
        float, "share of the pipeline in which GPUs idle or wait for a slower stage"
    ]


class FiguresJson(PlanFiguresJson):
    """Of the whole request, step or pass: of one GPU board, of a plan of all."""

    time_s: Annotated[float | None, "s", "length"]
    energy_j: Annotated[float | None, "J", "of all GPUs"]
    avg_power_w: Annotated[float | None, "W", "mean over the time"]
    sm_clock_mhz: Annotated[float | None, "MHz", "reached, mean over the time"]
    mem_clock_mhz: Annotated[float, "MHz", "of the memory"]
    power_limit_w: Annotated[float, "W", "of a board"]
    limited_by: NotRequired[
        Annotated[str, "what held the clock, or [else](#limited_by)"]
    ]
    temperature_c: Annotated[
        float | None, "C", "of the chip: given, or reached in the hottest phase"
    ]
    time_s_p5_p95: NotRequired[Annotated[Interval, "s", "5 to 95 % interval"]]
    avg_power_w_p5_p95: NotRequired[Annotated[Interval, "W", "5 to 95 % interval"]]
    energy_j_p5_p95: NotRequired[Annotated[Interval, "J", "5 to 95 % interval"]]
    energy_j_by_unit: NotRequired[
        Annotated[
            dict[str, float],
            "J",
            "parts of `energy_j`: hardware units, clock tree, launch, other, idle, "
            "leakage",
        ]
    ]
    phases: NotRequired[Annotated[dict[str, PhaseJson], "by name"]]
    memory: Annotated[MemoryJson, "bytes in the GPU's memory"]
    ttft_s: NotRequired[Annotated[float | None, "s", "to the first token (generation)"]]
    tpot_s: NotRequired[
        Annotated[
            float | None,
            "s",
            "of a token after it: `time_s = ttft_s + (output_len - 1) tpot_s`",
        ]
    ]
    tokens_per_s: NotRequired[
        Annotated[
            float | None,
            "tokens/s",
            "made: batch x `output_len`, in `decode` batch; where none are made read: "
            "batch x (`input_len` + image tokens) (x micro-batches); of images null",
        ]
    ]
    energy_j_per_token: Annotated[float | None, "J", "over the same tokens"]
    run: NotRequired[Annotated[RunJson | None, "with `--tokens`"]]


class StepEffectJson(TypedDict):
    """What one step of a number of the GPU does: from 0.005 %, largest first."""

    field: Annotated[str, "as `--set` has it, or an energy, `process_node`, `network`"]
    step: Annotated[float, "what a designer adds"]
    unit: Annotated[str, "of `step`"]
    time_pct: Annotated[float, "%", "change of the time"]
    energy_pct: Annotated[float, "%", "change of the energy"]
    by: Annotated[str, "`gradient`, or of what is counted `difference`"]


class EstimateJson(RequestJson, GradesJson, FiguresJson):
    """Of one request at one clock and limit."""

    warnings: Annotated[
        list[str],
        "sentences: memory that does not suffice, types that the GPU lacks or that "
        "were taken, clocks that it cannot set, a chip too hot",
    ]
    kernels: NotRequired[Annotated[list[KernelJson], "with `--detail`"]]
    sensitivity: NotRequired[Annotated[list[StepEffectJson], "with `--sensitivity`"]]


class SettingJson(FiguresJson):
    """At one of several clocks or limits: of one that cannot be kept most is null."""

    sm_clock_set_mhz: Annotated[float, "MHz", "asked for"]
    feasible: Annotated[bool, "whether the power limit can be kept"]
    least_power_w: NotRequired[Annotated[float, "W", "that can be, where it cannot"]]
    edp: Annotated[float | None, "J s", "energy x time"]


class SettingsJson(RequestJson, GradesJson):
    """Of lists of clocks or limits alone."""

    memory: Annotated[MemoryJson, "bytes in the GPU's memory"]
    warnings: Annotated[list[str], "sentences"]
    points: Annotated[list[SettingJson], "in the order given"]
    best_energy: Annotated[int | None, "index of the point of least energy"]
    best_edp: Annotated[int | None, "index of the point of least energy x time"]


class CombinationJson(WorkJson, GradesJson, SettingJson):
    """One combination of lists, with its answer."""

    warnings: Annotated[list[str], "sentences"]
    error: NotRequired[Annotated[str, "why its limit cannot be kept"]]


class UnansweredJson(TypedDict, total=False):
    """A combination without an answer: the values that it stands for, as above, and
    why."""

    gpu: Annotated[str, "name"]
    batch: Annotated[float, "sequences or images"]
    input_len: Annotated[float, "tokens", "read"]
    output_len: Annotated[float, "tokens", "made"]
    dtype: Annotated[str, "type of the linear layers"]
    sm_clock_set_mhz: Annotated[float, "MHz", "asked for"]
    mem_clock_mhz: Annotated[float, "MHz", "asked for"]
    power_limit_w: Annotated[float, "W", "asked for"]
    error: Annotated[str, "a sentence"]


class CombinationsJson(TypedDict):
    """Of lists of GPUs, batches, lengths or types; beside these what all combinations
    share of the request."""

    assumed: Annotated[dict[str, Any], "every value that no flag gave, of all of them"]
    warnings: Annotated[list[str], "those of all combinations"]
    axes: Annotated[list[str], "what was varied"]
    points: Annotated[
        list[CombinationJson | UnansweredJson],
        "one for each combination, in the order given",
    ]
    best_energy: Annotated[int | None, "index of the point of least energy"]
    best_energy_per_token: Annotated[int | None, "index of the least energy a token"]
    best_time: Annotated[int | None, "index of the point of least time"]
