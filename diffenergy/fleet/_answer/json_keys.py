"""Keys of the JSON of `fleet`: type, unit, meaning. What is not known is None."""

from typing import Annotated, NotRequired, TypedDict


class ReplicasJson(TypedDict):
    """Replicas of a model in a slot; the last four of one replica."""

    slot: Annotated[int, "from 0"]
    model: Annotated[str, "name"]
    pool: Annotated[str, "name"]
    row: Annotated[int | None, "of the points, from 0"]
    replicas: Annotated[int, "number"]
    gpus_per_replica: Annotated[int, "GPUs"]
    sm_clock_mhz: Annotated[float | None, "MHz", "to set"]
    power_limit_w: Annotated[float | None, "W", "of a board"]
    max_batch: Annotated[int | None, "requests that may run at once"]
    requests_per_s: Annotated[float, "1/s", "that it serves"]
    ttft_p95_s: Annotated[float | None, "s", "to the first token, 95th percentile"]
    tpot_p95_s: Annotated[float | None, "s", "of a token after it, 95th percentile"]
    power_w: Annotated[float, "W", "of its boards"]


class StartJson(TypedDict):
    """Replicas that are loaded after the first slot."""

    slot: Annotated[int, "from 0"]
    model: Annotated[str, "name"]
    pool: Annotated[str, "name"]
    replicas: Annotated[int, "number"]


class SitePowerJson(TypedDict):
    """What a site draws in a slot."""

    slot: Annotated[int, "from 0"]
    site: Annotated[str, "name"]
    power_w: Annotated[float, "W", "at the meter"]
    budget_w: Annotated[float | None, "W", "null: none"]


class ShadowPriceJson(TypedDict):
    """Fall of the objective over the slot for one W or GPU more, rise for one request
    a second more."""

    slot: Annotated[int, "from 0"]
    kind: Annotated[str, "`watt`, `gpu` or `request`"]
    site: NotRequired[Annotated[str, "of a watt"]]
    pool: NotRequired[Annotated[str, "of a GPU"]]
    model: NotRequired[Annotated[str, "of a request"]]
    value: Annotated[float, "of a GPU gross, as the bound needs it"]
    net: NotRequired[Annotated[float, "of a GPU, which brings its parked watts"]]


class HeadroomJson(TypedDict):
    """How far all demand can grow together, shares of a replica allowed."""

    demand_scale: Annotated[float, "largest factor that the hardest slot carries"]
    slot: Annotated[int, "that slot"]
    per_watt: Annotated[dict[str, float], "1/W", "what a watt of a site adds to it"]
    per_gpu: Annotated[dict[str, float], "what a GPU of a pool adds to it"]


class PricingJson(TypedDict):
    """Plans that the product priced: a model on tp GPUs of a type each."""

    plans: Annotated[int, "number that were priced and run"]
    left_out: Annotated[list[str], "that `--time-limit` left no time for"]


class FleetSearchJson(TypedDict):
    """Work of the search: counted, the same on any machine."""

    work_s: Annotated[float, "s", "that it takes on an idle core, about"]
    effort_s: Annotated[float, "s", "that it might have taken (`--effort`)"]
    ended_by_time: Annotated[
        bool, "whether `--time-limit` ended it, so that another run may differ"
    ]


class FleetJson(TypedDict):
    """A planned fleet; `value` and bounds in `unit`."""

    status: Annotated[str, "`optimal` (gap of at most 1e-4) or `feasible`"]
    objective: Annotated[str, "`energy`, `cost` or `carbon`"]
    unit: Annotated[
        str | None,
        "J, g, or the currency of prices: of `value`, bounds and shadow prices; null: "
        "cost in a currency that is not named",
    ]
    currency: Annotated[str | None, "of `cost`, such as EUR; null: not named"]
    assumed: Annotated[
        dict[str, str], "what was taken unsaid: `price` without a unit is `per MWh`"
    ]
    value: Annotated[float, "of the plan"]
    bound: Annotated[float, "that no plan goes below"]
    gap: Annotated[float, "(value - bound) / value"]
    bound_by_prices: Annotated[float, "that the shadow prices prove"]
    energy_j: Annotated[float, "J", "at the meters"]
    cost: Annotated[float | None, "of energy, in `currency`; null without prices"]
    carbon_g: Annotated[float | None, "g", "null without the series"]
    slots: Annotated[int, "of the horizon"]
    slot_s: Annotated[float, "s", "length of a slot"]
    plan: Annotated[list[ReplicasJson], "what runs where"]
    starts: Annotated[list[StartJson], "what is loaded"]
    site_power: Annotated[list[SitePowerJson], "by slot and site"]
    shadow_prices: Annotated[list[ShadowPriceJson], "which prove `bound_by_prices`"]
    headroom: Annotated[HeadroomJson | None, "null where nothing is asked for"]
    pricing: Annotated[PricingJson | None, "null where the points are a table"]
    search: Annotated[FleetSearchJson, "work, and whether time ended it"]
    seconds: Annotated[float, "s", "of wall time"]


class ReasonJson(TypedDict, total=False):
    """The limit that binds, and the least that helps."""

    limit: Annotated[
        str,
        "`slo`, `gpus`, `power`, looked for in this order; `time`: whole replicas were "
        "not found in time, or a model was not priced in time",
    ]
    slot: Annotated[int | None, "the hardest"]
    model: Annotated[str, "that no row serves in time"]
    ttft_p95_s: Annotated[float | None, "s", "least that can be had"]
    tpot_p95_s: Annotated[float | None, "s", "least that can be had"]
    add_gpus: Annotated[dict[str, int], "GPUs more, by pool, of which one would do"]
    site: Annotated[str, "that lacks power"]
    needed_w: Annotated[float, "W", "that the slot needs there"]
    budget_w: Annotated[float, "W", "that it has"]
    remedy: Annotated[str, "a sentence"]


class NoFleetJson(TypedDict):
    """No plan keeps the limits (exit status 3)."""

    status: Annotated[str, "`infeasible`"]
    reason: Annotated[ReasonJson, "why"]
