"""Keys of the JSON of `collective`: type, unit, meaning. What is not known is None."""

from typing import Annotated, NotRequired, TypedDict


class JoulesJson(TypedDict):
    """An energy with the ends of what is published."""

    typical: Annotated[float, "J", "the usual value"]
    low: Annotated[float, "J", "the least"]
    high: Annotated[float, "J", "the most"]


class EnergyJson(TypedDict):
    """Where the joules go."""

    total_j: Annotated[JoulesJson | None, "J", "links, memory and waiting GPUs"]
    covers: Annotated[str, "what the total holds"]
    links_j: Annotated[dict[str, JoulesJson], "J", "by medium"]
    dram_j: Annotated[float | None, "J", "of memory"]
    l2_j: Annotated[float | None, "J", "of the L2 cache"]
    idle_j: Annotated[float | None, "J", "of GPUs that wait"]
    idle_power_w: Annotated[float | None, "W", "of a GPU that waits"]
    sm_clock_hz: Annotated[float | None, "Hz", "at which it waits"]
    gpus: Annotated[int, "that take part"]
    finish_s: Annotated[float, "s", "time over which they wait"]


class WaitClockJson(TypedDict):
    """The SM clock at which waiting GPUs draw least."""

    sm_clock_mhz: Annotated[float, "MHz", "that clock"]
    idle_power_w: Annotated[float, "W", "of a GPU at it"]
    saved_w: Annotated[float, "W", "against the usual clock"]
    saved_j: Annotated[float, "J", "once the change has acted"]
    switch_latency_s: Annotated[float, "s", "of a change"]


class AlgorithmJson(TypedDict):
    """A standard algorithm on the same links."""

    finish_s: Annotated[float, "s", "until the last wanted chunk has arrived"]
    slower_pct: Annotated[float, "%", "than the schedule"]
    variant: Annotated[str, "which of its kind is fastest"]


class ChunkJson(TypedDict):
    """A chunk of a demand that no collective's name says."""

    chunk: Annotated[int, "number among those of its source"]
    source: Annotated[str, "GPU that has it"]
    bytes: Annotated[float, "B", "size"]
    wanted: Annotated[list[str], "GPUs that want it"]
    parts: NotRequired[Annotated[list[str], "of a sum: GPUs that add to it"]]


class SendJson(TypedDict):
    """A send over a link, by start."""

    chunk: Annotated[int, "number among those of its source"]
    source: Annotated[str, "GPU whose chunk it is"]
    link: Annotated[list[str], "nodes from and to"]
    start_s: Annotated[float, "s", "begin on the link"]
    end_s: Annotated[float, "s", "arrival"]
    bytes: NotRequired[Annotated[float, "B", "where it is a part of its chunk"]]


class TradeJson(TypedDict):
    """A schedule that no other beats in finish and energy."""

    finish_s: Annotated[float, "s", "until the last wanted chunk has arrived"]
    moved_j: Annotated[float, "J", "of links and memory"]
    energy_j: Annotated[float | None, "J", "with the GPUs that wait"]


class SensitivityJson(TypedDict):
    """What the rate and latency of a link, or of all links of a medium, do to the
    finish. Null: not worked out, or the order could not be kept."""

    link: NotRequired[Annotated[list[str], "nodes from and to"]]
    medium: NotRequired[Annotated[str, "of the links"]]
    links: NotRequired[Annotated[int, "of the medium"]]
    rate_bytes_per_s: Annotated[float | None, "B/s", "null: they differ"]
    latency_s: Annotated[float | None, "s", "null: they differ"]
    rate_sensitivity: Annotated[float | None, "% of finish per % of rate"]
    rate_sensitivity_if_faster: Annotated[float | None, "% per %", "to that side"]
    rate_sensitivity_if_slower: Annotated[float | None, "% per %", "to that side"]
    latency_sensitivity: Annotated[float | None, "% of finish per % of latency"]
    latency_sensitivity_s_per_us: Annotated[float | None, "s/us", "rise of the finish"]
    latency_sensitivity_if_longer_s_per_us: Annotated[
        float | None, "s/us", "to that side"
    ]
    latency_sensitivity_if_shorter_s_per_us: Annotated[
        float | None, "s/us", "to that side"
    ]


class PriceJson(TypedDict):
    """A link that the bound rests on."""

    link: Annotated[list[str], "nodes from and to"]
    rate_bytes_per_s: Annotated[float, "B/s", "its rate"]
    bound_rate_sensitivity: Annotated[float, "% of the bound per % of rate"]


CutOffJson = TypedDict(
    "CutOffJson",
    {
        "demands": Annotated[int, "chunks that cannot arrive"],
        "from": Annotated[list[str], "GPUs that send them"],
        "to": Annotated[list[str], "GPUs that lack them"],
    },
)
CutOffJson.__doc__ = "What cannot arrive without a link."


class FailureJson(TypedDict):
    """What the failure of a pair of links does, the most critical first."""

    link: Annotated[list[str], "the pair"]
    factor: Annotated[float, "of the rate: 0"]
    finish_s: Annotated[float | None, "s", "without it"]
    base_s: Annotated[float, "s", "with it"]
    slowdown_pct: Annotated[float | None, "%", "against the least finish of all"]
    lower_bound_s: Annotated[float | None, "s", "without it"]
    alike: Annotated[int, "pairs of which the same holds"]
    used: Annotated[bool, "whether the schedule uses it"]
    cut_off: Annotated[CutOffJson | None, "what cannot arrive without it"]
    problem: Annotated[str | None, "why there is no plan without it"]


class LinksJson(TypedDict):
    """What links do to the finish (`--links`)."""

    sensitivity: Annotated[list[SensitivityJson], "of each link"]
    media: Annotated[list[SensitivityJson], "of each medium"]
    prices: Annotated[list[PriceJson], "links that the bound rests on"]
    criticality: Annotated[list[FailureJson], "of each pair"]
    complete: Annotated[bool, "whether every failure was looked at"]


class CollectiveJson(TypedDict):
    """A verified schedule; of several sizes a list of them."""

    topology: Annotated[str, "name or file of the machine"]
    collective: Annotated[str, "what was asked for"]
    size_bytes: Annotated[float | None, "B", "output buffer of a GPU"]
    chunks: Annotated[int | None, "parts of a GPU's share that are sent by themselves"]
    method: Annotated[str, "what found the schedule"]
    solver: Annotated[str | None, "of an integer or linear program"]
    solver_s: Annotated[float, "s", "it took"]
    epoch_s: Annotated[float | None, "s", "length of an epoch"]
    epochs: Annotated[int | None, "fewest that were found"]
    epoch_finish_s: Annotated[float | None, "s", "`epochs` x `epoch_s`"]
    epoch_bound: Annotated[int | None, "epochs that no schedule beats"]
    sends_epochs: Annotated[int | None, "epochs of the sends"]
    finish_s: Annotated[float, "s", "until the last wanted chunk has arrived"]
    lower_bound_s: Annotated[float, "s", "that no schedule beats"]
    gap_pct: Annotated[float, "%", "finish above the bound"]
    certified: Annotated[bool, "whether none is shorter"]
    certified_in: Annotated[list[str], "`epochs`, `time`: in which none is"]
    algo_bw_bytes_per_s: Annotated[float, "B/s", "buffer / finish"]
    bus_bw_bytes_per_s: Annotated[float | None, "B/s", "as nccl-tests counts it"]
    output_buffer_bytes: Annotated[float, "B", "of a GPU"]
    energy_j: Annotated[float | None, "J", "typical total"]
    energy: Annotated[EnergyJson, "where it goes"]
    verified: Annotated[bool, "true: replayed by code that shares nothing with search"]
    interrupted: Annotated[bool, "whether Ctrl-C ended the search"]
    out_of_time: Annotated[
        bool, "whether wall time ended the search: an idler machine may do better"
    ]
    baselines: Annotated[dict[str, AlgorithmJson], "standard algorithms by name"]
    baselines_unfit: Annotated[dict[str, str], "why others do not fit the machine"]
    root: Annotated[str | int | None, "as asked for"]
    latency_s: Annotated[float | None, "s", "of links, as asked for"]
    disable: Annotated[list[str], "pairs without their links"]
    scale: Annotated[list[str], "pairs with a factor of their rate"]
    gpu: Annotated[str | None, "whose memory and idle power count"]
    seed: Annotated[int, "of all draws"]
    demand: NotRequired[Annotated[list[ChunkJson], "where no name says it"]]
    send_count: Annotated[int, "number of sends"]
    wait_clock: NotRequired[Annotated[WaitClockJson, "of a known GPU"]]
    front: NotRequired[Annotated[list[TradeJson], "with `--objective`"]]
    links: NotRequired[Annotated[LinksJson, "with `--links`"]]
    sends: NotRequired[Annotated[list[SendJson], "without `--no-sends`"]]


class VerifiedJson(TypedDict):
    """A right schedule of a file (`collective verify`)."""

    file: Annotated[str | None, "its path"]
    format: Annotated[str, "`diffenergy`, `te-ccl` or `msccl`"]
    verified: Annotated[bool, "true"]
    topology: Annotated[str, "name of the machine"]
    collective: Annotated[str, "what is done"]
    send_count: Annotated[int, "number of sends"]
    epoch_s: Annotated[float | None, "s", "of a TE-CCL file"]
    epochs: Annotated[int | None, "of a TE-CCL file"]
    finish_s: Annotated[float, "s", "until the last wanted chunk has arrived"]
    earliest_finish_s: Annotated[
        float, "s", "if every send starts as early as its order allows"
    ]
