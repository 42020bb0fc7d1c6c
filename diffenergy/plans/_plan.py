"""`Plan`: how many GPUs share the layers, the tokens and the experts of a model."""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from ..workload import RECOMPUTED, TrainingStorage, is_recompute

if TYPE_CHECKING:  # its module loads NumPy
    from ..workload import ModelSplit

Schedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "dualpipe"]
Overlap = Literal["none", "dp", "tp+dp", "ep+dp", "tp+ep+dp"]
Dispatch = Literal["plain", "bf16", "fp8"]
Graphs = Literal["none", "part", "all"]
Sums = Literal["fp32", "bf16"]
Store = Literal["bf16", "fp8"]
Sequence = Literal["on", "off"]
ContextExchange = Literal["gather", "ring"]

SERVING: Final = ("tp", "pp", "ep", "dp")
"""Sizes that every phase knows."""
_SIZES: Final = (*SERVING, "cp", "vp", "etp", "microbatch")
_WORDS: Final = {
    "schedule": get_args(Schedule),
    "overlap": get_args(Overlap),
    "dispatch": get_args(Dispatch),
    "graphs": get_args(Graphs),
    "sums": get_args(Sums),
    "moments": get_args(Sums),
    "store": get_args(Store),
    "sequence": get_args(Sequence),
    "cp_exchange": get_args(ContextExchange),
}
KEYS: Final = (
    *_SIZES, "hosts", "zero", *_WORDS, "recompute", "bf16_layers", "software",
)  # fmt: skip
_RARE: Final = ("sequence", "cp_exchange", "bf16_layers")
"""Keys that an answer names only where they are not the usual."""
_ZERO: Final = 3
_MOST: Final = 100_000
NETWORK_FIELD: Final = "network"
"""What B/s of a GPU's network card are called where they are asked for."""
NOW: Final = 2026.5
"""Year of the newest training software that the constants were fitted to."""
_YEARS: Final = (2019.0, 2030.0)
_SIXTEEN_BITS: Final = 2.0
_WEIGHTED: Final = 2025.0
"""Year from which programs weight what experts make before their last product, whose
result they then need not keep (Megatron-LM)."""
_DISPATCHERS: Final = 2026.0
"""Year from which training programs send a row once to each host and GPU."""
_WHOLE_GRAPHS: Final = 2026.4
"""Year from which graphs of a whole step are usual for 8-bit types (Megatron-Bridge
26.06)."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """`tp` GPUs share every layer, `pp` stages of them the layers, `dp` replicas of all
    stages the requests; `ep` of the GPUs at a stage share its experts.

    Training alone: `cp` GPUs share the tokens of a sequence; a GPU has `vp` virtual
    stages; `etp` GPUs share the features of an expert (None: tp where there is no
    `ep`, else 1); a micro-batch has `microbatch` sequences; `zero`: what the replicas
    divide (1 optimizer state, 2 also gradients, 3 also weights: FSDP); `schedule` of
    the pipeline (None: 1f1b, interleaved where `vp` > 1); what a backward pass
    computes again (`recompute`); which exchanges run beside computation (`overlap`);
    `dispatch`: how rows reach their experts, `plain` once to each of them, else once
    to each host and GPU, there in this type (None: as usual in the year of the
    software); `hosts`: at most so many of them for a token
    (0: any; None: as the model's groups of experts say); `graphs`: what of
    a step is captured (None: as usual for year and type);
    `sums`: type in which the gradients of several GPUs are added up, `moments`: of
    AdamW's, `store`: of what gated activations and experts' rows keep for the backward
    pass; `sequence`: whether `tp` GPUs divide the tokens between pairs of layers, too
    (Megatron's sequence parallelism), or all of them have all;
    `cp_exchange`: whether a GPU gathers a layer's keys and values of all tokens, or has
    one part of them after the other (memory alone); `bf16_layers`: of a step below 16
    bit the first and the last layers whose products stay in 16 bit;
    `software`: year of the training program, which decides its attention kernels.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    cp: int = 1
    vp: int = 1
    etp: int | None = None
    microbatch: int = 1
    zero: int = 1
    schedule: Schedule | None = None
    recompute: str = "none"
    overlap: Overlap = "tp+dp"
    dispatch: Dispatch | None = None
    hosts: int | None = None
    graphs: Graphs | None = None
    sums: Sums = "fp32"
    moments: Sums = "fp32"
    store: Store = "bf16"
    sequence: Sequence = "on"
    cp_exchange: ContextExchange = "gather"
    bf16_layers: int = 0
    software: float = NOW

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def order(self) -> Schedule:
        """The schedule, the usual one where none is said."""
        return self.schedule or ("interleaved" if self.vp > 1 else "1f1b")

    @property
    def storage(self) -> TrainingStorage:
        """How its program keeps what a backward pass reads."""
        return TrainingStorage(self.store, self.moments, self.software < _WEIGHTED)

    @property
    def model_split(self) -> "ModelSplit":
        """How its GPUs divide a layer in training."""
        from ..workload import ModelSplit

        divided = self.tp > 1 and self.sequence == "on"
        return ModelSplit(self.tp, self.ep, self.cp, self.expert_parts, divided)

    @property
    def hides_experts(self) -> bool:
        """Whether experts' exchange runs beside another micro-batch."""
        return "ep" in self.overlap.split("+")

    @property
    def dispatcher(self) -> Dispatch:
        """How rows reach their experts."""
        if self.dispatch is not None:
            return self.dispatch
        return "bf16" if self.hosts or self.software >= _DISPATCHERS else "plain"

    def captured(self, width: float) -> Graphs:
        """What of a step graphs capture whose operands have so many bytes (`width`)."""
        if self.graphs is not None:
            return self.graphs
        whole = width < _SIXTEEN_BITS and self.software >= _WHOLE_GRAPHS
        return "all" if whole else "part"

    @property
    def expert_parts(self) -> int:
        """GPUs that share the features of one expert."""
        if self.etp is not None:
            return self.etp
        return self.tp if self.ep == 1 else max(self.tp // self.ep, 1)

    @property
    def text(self) -> str:
        """As `--plan` takes it.

        >>> Plan(tp=8, pp=2, recompute="full").text
        'tp=8,pp=2,recompute=full'
        """
        parts = [f"{k}={x}" for k, x in vars(self).items() if x != getattr(Plan, k)]
        return ",".join(parts) or "tp=1"

    def to_json(self, training: bool = False) -> dict[str, Any]:
        """All sizes; with those and the words of `training`."""
        if training:
            words = {"etp": self.expert_parts, "schedule": self.order}
            every = dataclasses.asdict(self) | words
            rare = {x: getattr(Plan, x) for x in _RARE}
            return {x: y for x, y in every.items() if x not in rare or y != rare[x]}
        return {key: getattr(self, key) for key in SERVING}

    def check_serving(self):
        """Raises `ValueError` if it has what belongs to training alone."""
        plain = Plan()
        for key in KEYS:
            if key not in SERVING and getattr(self, key) != getattr(plain, key):
                raise ValueError(
                    f"`plan` has {key}={getattr(self, key)}, which belongs to "
                    f"training; give `--phase train`, or {', '.join(SERVING)} alone."
                )


def read_plan(
    plan: "str | Mapping[str, Any] | Plan | None" = None,
    tp: int | None = None,
    num_gpus: int | None = None,
    training: bool = False,
) -> Plan | None:
    """The plan that is asked for; None without any.

    `plan`: "tp=8,pp=2", or the same as a dict; `tp`: short for a plan of it alone;
    `num_gpus`: alone as many for `tp` (in `training` for `dp`), else what the sizes
    have to make, `dp` following where it is not given. Raises `ValueError` for what
    makes no plan.

    >>> read_plan("tp=4", num_gpus=8).text
    'tp=4,dp=2'
    """
    if plan is None and tp is None and num_gpus is None:
        return None
    if isinstance(plan, Plan):
        plan = dataclasses.asdict(plan)
    values: dict[str, Any] = plan_values(plan)
    if tp is not None:
        if "tp" in values:
            raise ValueError("`tp` is given beside `plan`, which has it; give one.")
        values["tp"] = _size("tp", tp)
    if num_gpus is not None:
        number = _size("num_gpus", num_gpus)
        if not values and not training:
            values["tp"] = number
        one = math.prod(values.get(key, 1) for key in ("tp", "pp", "cp"))
        values.setdefault("dp", max(number // one, 1))
        if one * values["dp"] != number:
            raise ValueError(
                f"`num_gpus` is {number}, but the plan has tp x pp x cp x dp = "
                f"{one * values['dp']} GPUs; correct one of them."
            )
    parsed = Plan(**values)
    if parsed.gpus > _MOST:
        raise ValueError(
            f"`plan` has {parsed.gpus:,} GPUs; allowed are at most {_MOST:,}."
        )
    if training:
        _check_training(parsed)
    else:
        parsed.check_serving()
        _check_experts(parsed)
    return parsed


def plan_values(plan: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Values by key as they are given, each checked alone; raises `ValueError`."""
    if plan is None:
        return {}
    if isinstance(plan, Mapping):
        pairs = [(str(key), value) for key, value in plan.items() if value is not None]
    else:
        pairs = [_pair(plan, part) for part in plan.split(",")]
    values: dict[str, Any] = {}
    for name, value in pairs:
        key = name.replace("-", "_")
        if key not in KEYS:
            raise ValueError(
                f"`plan` has the unknown key '{name}'; allowed are {', '.join(KEYS)}."
            )
        if key in values:
            raise ValueError(f"`plan` has `{key}` twice; give it once.")
        values[key] = _value(key, value)
    return values


def _value(key: str, value: Any) -> Any:
    """A value of one key, checked."""
    if key in _WORDS:
        if value not in _WORDS[key]:
            raise ValueError(
                f"`plan` has {key}={value}; allowed are {', '.join(_WORDS[key])}."
            )
        return value
    if key == "recompute":
        if not is_recompute(value):
            raise ValueError(f"`plan` has recompute={value}; allowed are {RECOMPUTED}.")
        return value
    if key == "zero":
        if isinstance(value, bool) or value not in range(_ZERO + 1):
            raise ValueError(f"`plan` has zero={value}; allowed are 0 to {_ZERO}.")
        return value
    if key == "software":
        return _year(value)
    if key in ("hosts", "bf16_layers") and value == 0 and not isinstance(value, bool):
        return 0
    return _size(key, value, "plan")


def _year(value: Any) -> float:
    low, high = _YEARS
    try:
        year = float(value)
    except (TypeError, ValueError):
        year = math.nan
    if not low <= year <= high:
        raise ValueError(
            f"`plan` has software={value}; allowed is a year from {low:g} to {high:g}, "
            "such as 2024.5."
        )
    return year


def _pair(plan: str, part: str) -> tuple[str, Any]:
    key, equals, value = (x.strip() for x in part.partition("="))
    if not equals or not key:
        raise ValueError(
            f"`plan` is '{plan}'; give KEY=VALUE of {', '.join(KEYS)}, such as "
            "tp=8,pp=2."
        )
    return key, int(value) if value.isdecimal() and len(value) < 10 else value


def _size(name: str, value: Any, within: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        place = f"`{within}` has {name}={value}" if within else f"`{name}` is {value!r}"
        raise ValueError(f"{place}; allowed is a whole number of at least 1.")
    return value


def _check_experts(plan: Plan):
    """Those that share experts are part of a replica's GPUs, or whole replicas."""
    both = plan.tp * plan.dp
    if both % plan.ep or (plan.tp % plan.ep and plan.ep % plan.tp):
        allowed = [
            x
            for x in range(1, both + 1)
            if both % x == 0 and not (plan.tp % x and x % plan.tp)
        ]
        raise ValueError(
            f"`plan` has ep={plan.ep}, but tp={plan.tp} and dp={plan.dp} allow "
            f"{', '.join(map(str, allowed))}: experts are shared by GPUs of a stage."
        )


def _check_training(plan: Plan):
    """Keys of training that contradict each other."""
    stage = plan.tp * plan.cp * plan.dp
    shared = plan.ep * plan.expert_parts
    if stage % shared:
        raise ValueError(
            f"`plan` has ep={plan.ep} and etp={plan.expert_parts}, but tp x cp x dp = "
            f"{stage} GPUs at a stage; ep x etp has to divide them."
        )
    if plan.vp > 1 and plan.order != "interleaved":
        raise ValueError(
            f"`plan` has vp={plan.vp} and schedule={plan.order}; virtual stages need "
            "schedule=interleaved, or leave vp out."
        )
    if plan.vp > 1 and plan.pp == 1:
        raise ValueError(
            f"`plan` has vp={plan.vp}, but pp=1; virtual stages need a pipeline: leave "
            "vp out."
        )
    if plan.order == "dualpipe" and plan.pp % 2:
        raise ValueError(
            f"`plan` has pp={plan.pp} and schedule=dualpipe, in which a GPU has two "
            "stages, one from either end; give an even pp."
        )
    if plan.cp_exchange == "ring" and plan.cp == 1:
        raise ValueError(
            "`plan` has cp_exchange=ring and cp=1, with which nothing is exchanged; "
            "give cp=2 or more, or leave cp_exchange out."
        )
    if plan.hides_experts:
        _check_hidden(plan)


def _check_hidden(plan: Plan):
    """Experts' exchange needs another micro-batch on the same GPU to hide behind."""
    why = ""
    if plan.ep == 1:
        why = "ep=1, so that there is none; leave ep out of overlap"
    elif plan.recompute == "full":
        why = "recompute=full, which runs whole layers again beside; take another"
    elif plan.pp > 1 and plan.vp == 1 and plan.order != "dualpipe":
        why = f"pp={plan.pp} and vp=1; give virtual stages (vp=2), or schedule=dualpipe"
    if why:
        raise ValueError(
            f"`plan` has overlap={plan.overlap}, experts' exchange beside another "
            f"micro-batch, and {why}."
        )
