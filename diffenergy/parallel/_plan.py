"""`Plan`: how many GPUs share the layers, the tokens and the experts of a model."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

_KEYS: Final = ("tp", "pp", "ep", "dp")
_TRAINING: Final = (
    "vp", "cp", "etp", "microbatch", "zero", "schedule", "recompute", "software",
)  # fmt: skip
"""Keys of training, which is not built yet."""
_MOST: Final = 100_000


@dataclasses.dataclass(frozen=True)
class Plan:
    """`tp` GPUs share every layer, `pp` stages of them the layers, `dp` replicas of all
    stages the requests; `ep` of the `tp` x `dp` GPUs at a stage share its experts."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.tp * self.pp * self.dp

    @property
    def text(self) -> str:
        """As `--plan` takes it.

        >>> Plan(tp=8, pp=2).text
        'tp=8,pp=2'
        """
        sizes = dataclasses.asdict(self)
        return ",".join(f"{k}={n}" for k, n in sizes.items() if n > 1) or "tp=1"

    def to_json(self) -> dict[str, int]:
        """All sizes."""
        return dataclasses.asdict(self)


def read_plan(
    plan: "str | Mapping[str, Any] | Plan | None" = None,
    tp: int | None = None,
    num_gpus: int | None = None,
) -> Plan | None:
    """The plan that is asked for; None without any.

    `plan`: "tp=8,pp=2", or the same as a dict; `tp`: short for a plan of it alone;
    `num_gpus`: alone as many for `tp`, else what the sizes have to make, `dp` following
    where it is not given. Raises `ValueError` for what makes no plan.

    >>> read_plan("tp=4", num_gpus=8)
    Plan(tp=4, pp=1, ep=1, dp=2)
    """
    if plan is None and tp is None and num_gpus is None:
        return None
    if isinstance(plan, Plan):
        plan = plan.to_json()
    sizes = _sizes(plan)
    if tp is not None:
        if "tp" in sizes:
            raise ValueError("`tp` is given beside `plan`, which has it; give one.")
        sizes["tp"] = _size("tp", tp)
    if num_gpus is not None:
        number = _size("num_gpus", num_gpus)
        sizes = sizes or {"tp": number}
        one = sizes.get("tp", 1) * sizes.get("pp", 1)
        sizes.setdefault("dp", max(number // one, 1))
        if one * sizes["dp"] != number:
            raise ValueError(
                f"`num_gpus` is {number}, but the plan has tp x pp x dp = "
                f"{one * sizes['dp']} GPUs; correct one of them."
            )
    found = Plan(**sizes)
    if found.gpus > _MOST:
        raise ValueError(
            f"`plan` has {found.gpus:,} GPUs; allowed are at most {_MOST:,}."
        )
    _check_experts(found)
    return found


def _sizes(plan: str | Mapping[str, Any] | None) -> dict[str, int]:
    """Size by key."""
    if plan is None:
        return {}
    if isinstance(plan, Mapping):
        pairs = [(str(key), value) for key, value in plan.items()]
    else:
        pairs = [_pair(plan, part) for part in plan.split(",")]
    found: dict[str, int] = {}
    for key, value in pairs:
        if key in _TRAINING:
            raise ValueError(
                f"`plan` has `{key}`, which belongs to training on several GPUs, which "
                f"is not built yet; allowed are {', '.join(_KEYS)}."
            )
        if key not in _KEYS:
            raise ValueError(
                f"`plan` has the unknown key '{key}'; allowed are {', '.join(_KEYS)}."
            )
        if key in found:
            raise ValueError(f"`plan` has `{key}` twice; give it once.")
        found[key] = _size(key, value, "plan")
    return found


def _pair(plan: str, part: str) -> tuple[str, Any]:
    key, equals, value = (x.strip() for x in part.partition("="))
    if not equals or not key:
        raise ValueError(
            f"`plan` is '{plan}'; give KEY=NUMBER of {', '.join(_KEYS)}, such as "
            "tp=8,pp=2."
        )
    return key, int(value) if value.isdecimal() and len(value) < 10 else value


def _size(name: str, value: Any, within: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        said = f"`{within}` has {name}={value}" if within else f"`{name}` is {value!r}"
        raise ValueError(f"{said}; allowed is a whole number of at least 1.")
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
