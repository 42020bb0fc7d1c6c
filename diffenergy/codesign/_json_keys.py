"""Keys of the JSON of `codesign`: type, unit, meaning. What is not known is None."""

from typing import Annotated, Any, NotRequired, TypedDict

from ..estimator._answer.json_keys import GradesJson, Interval, MemoryJson, RequestJson


class DesignJson(TypedDict):
    """A legal design, by an exact estimate."""

    objective: Annotated[float | None, "the objective in its `unit`"]
    time_s: Annotated[float | None, "s", "of the workload"]
    energy_j: Annotated[float | None, "J", "of the workload"]
    avg_power_w: Annotated[float | None, "W", "mean"]
    area_mm2: Annotated[float | None, "mm2", "of the die"]
    ttft_s: Annotated[float | None, "s", "to the first token"]
    tpot_s: Annotated[float | None, "s", "of a token after it"]
    energy_j_per_token: Annotated[float | None, "J", "of a token"]
    cost: Annotated[float | None, "of `--price`, where it counts"]
    violation_pct: Annotated[float | None, "%", "by which it passes its worst limit"]
    fields: Annotated[dict[str, Any], "SI", "what was varied; `tiles`: of each product"]
    words: NotRequired[
        Annotated[dict[str, str], "its process and memory, where they are varied"]
    ]


class RangeJson(TypedDict, total=False):
    """A field that was varied, SI; of tiles their number of products alone."""

    low: Annotated[float, "SI", "lower bound"]
    high: Annotated[float, "SI", "upper bound"]
    base: Annotated[float, "SI", "of the GPU as it is"]
    legal_values: Annotated[int | None, "how many there are; null: any"]
    products: Annotated[int, "matrix products with tiles"]


class LimitJson(TypedDict):
    """A limit, with the base's and the best design's value."""

    name: Annotated[str, "its flag"]
    metric: Annotated[str, "what is limited"]
    unit: Annotated[str, "of the three numbers"]
    limit: Annotated[float, "`unit`", "most, or least, that is allowed"]
    start: Annotated[float | None, "`unit`", "of the base"]
    best: Annotated[float | None, "`unit`", "of the best design"]


class ConstraintJson(TypedDict):
    """A limit or bound that holds the best design back."""

    name: Annotated[str, "of the limit or field"]
    multiplier: Annotated[
        float | None, "`unit`", "fall of the objective for one unit more room"
    ]
    unit: Annotated[str, "of the multiplier"]


class ElasticityJson(TypedDict):
    """What 1 % more of a field does to the objective."""

    field: Annotated[str, "of the GPU"]
    elasticity: Annotated[float | None, "% of the objective per % of the field"]


class MemberJson(RequestJson):
    """A workload of a mix."""

    weight: Annotated[float, "its share"]


class RoundJson(TypedDict):
    """The best legal design near the descent after a round."""

    round: Annotated[int, "from 1"]
    evaluations: Annotated[int, "of designs so far"]
    objective: Annotated[float | None, "in its `unit`"]
    violation: Annotated[float | None, "by which it passes its worst limit"]
    fields: Annotated[dict[str, Any], "SI", "what was varied"]


class SearchJson(RequestJson, GradesJson):
    """A search; of a mix what its workloads share, null where they differ."""

    workloads: NotRequired[Annotated[list[MemberJson], "of a mix"]]
    warnings: Annotated[list[str], "sentences"]
    objective: Annotated[str, "what is made small"]
    unit: Annotated[str, "of the objective"]
    start: Annotated[DesignJson, "the GPU as it is"]
    best: Annotated[DesignJson, "the best legal design"]
    improvement_pct: Annotated[float | None, "%", "of the objective"]
    vary: Annotated[dict[str, RangeJson], "bounds of every field"]
    limits: Annotated[list[LimitJson], "that were asked for"]
    active_constraints: Annotated[list[ConstraintJson], "that hold the design back"]
    sensitivities: Annotated[list[ElasticityJson], "largest first"]
    evaluations: Annotated[int, "of designs"]
    wall_s: Annotated[float, "s", "of the search"]
    seed: Annotated[int, "of all draws"]
    interrupted: Annotated[bool, "whether Ctrl-C ended it"]
    pareto: Annotated[list[DesignJson], "with several goals: that no other beats"]
    choices: NotRequired[
        Annotated[list[DesignJson], "of each process and memory its best, best first"]
    ]
    path: NotRequired[Annotated[list[RoundJson], "in files: every round"]]
    time_s_p5_p95: Annotated[Interval, "s", "5 to 95 % interval of `best`"]
    energy_j_p5_p95: Annotated[Interval, "J", "5 to 95 % interval of `best`"]


class ProductJson(TypedDict):
    """A matrix product with its best tile; costs of one launch."""

    op: Annotated[str, "kind of kernel"]
    batch: Annotated[float, "products in a launch"]
    m: Annotated[float, "rows"]
    n: Annotated[float, "columns"]
    k: Annotated[float, "inner dimension"]
    dtype: Annotated[str, "of the operands"]
    count: Annotated[float, "launches"]
    tile_m: Annotated[int, "rows of a CTA"]
    tile_n: Annotated[int, "columns of a CTA"]
    tile_k: Annotated[int, "depth of a step"]
    stages: Annotated[int, "steps in flight"]
    split_k: Annotated[int, "CTAs that share `k`"]
    time_s: Annotated[float, "s", "with this tile"]
    energy_j: Annotated[float, "J", "with this tile"]
    default_time_s: Annotated[float, "s", "with the library's choice"]
    default_energy_j: Annotated[float, "J", "with the library's choice"]
    default_costs_more_pct: Annotated[float, "%", "of what was asked for"]


class TilesJson(RequestJson, GradesJson):
    """The best tiles (`--tune-tiles`)."""

    memory: Annotated[MemoryJson, "bytes in the GPU's memory"]
    warnings: Annotated[list[str], "sentences"]
    goal: Annotated[str, "`time` or `energy`"]
    time_s: Annotated[float, "s", "of the workload"]
    energy_j: Annotated[float, "J", "of the workload"]
    default_time_s: Annotated[float, "s", "with the library's choice"]
    default_energy_j: Annotated[float, "J", "with the library's choice"]
    tiles_tried: Annotated[int, "of all products"]
    gemms: Annotated[list[ProductJson], "every matrix product"]
