"""The public `sweep`: servers of every combination of lists."""

import dataclasses
import itertools
from typing import Any, ClassVar, Final

from ...requests import accepts, part, values_of
from ...results import Infeasible, Result
from .._ask import steady_state
from .._deploy import DEFAULT_GPU
from .._request import ServeRequest
from .request import ListedRequest

AXES: Final = {
    "gpu": "gpu",
    "engine": "engine",
    "dtype": "dtype",
    "tp": "tp",
    "ep": "ep",
    "num_gpus": "num_gpus",
    "mem_clock": "mem_clock_mhz",
    "sm_clock": "sm_clock_set_mhz",
    "power_limit": "power_limit_w",
}
"""Lists that are crossed, the outermost first, and what entries call them."""
_SHARED: Final = (
    "model", "mode", "request_rate_per_s", "concurrency", "input_len", "output_len",
    "cached_len",
)  # fmt: skip
_MOST: Final = 1000


@dataclasses.dataclass(frozen=True, repr=False)
class ServersResult(Result):
    """Servers of every combination.

    `summary`: the JSON of `diffenergy serve` with lists: `axes` (what was varied),
    `points`, one entry a combination with its answer or `error`, and the indices of the
    best of them.
    """

    view: ClassVar[str] = "servers"
    summary: dict[str, Any]

    def rows(self) -> list[dict[str, Any]]:
        """A row for each combination; nested figures are columns `key_part`."""
        return [_flat(x) for x in self.summary["points"]]


@accepts(ListedRequest)
def sweep(request: ListedRequest) -> ServersResult:
    """Servers of a model under a load, for every combination of lists: each is what
    `steady_state` answers.

    A combination that has no answer says why in its `error`.

    Returns:
        A `ServersResult`, whose `summary` is the JSON of `diffenergy serve` with lists.

    Raises:
        ValueError: for what cannot be, in one sentence.
        Infeasible: if no combination has an answer.

    Example:

        >>> from diffenergy import serving
        >>> load = serving.Load(rate=4, input_len=256, output_len=64)
        >>> result = serving.sweep("qwen3-0.6b", ["h100-sxm", "a100-sxm-80gb"], load)
        >>> [x["gpu"] for x in result.summary["points"]]
        ['h100-sxm', 'a100-sxm-80gb']
    """
    if request.sensitivity:
        raise ValueError("`sensitivity` is given with several servers; give one.")
    lists = {name: values_of(getattr(request, name)) for name in AXES}
    present = {name: values for name, values in lists.items() if values}
    total = 1
    for values in present.values():
        total *= len(values)
    if total > _MOST:
        raise ValueError(f"The lists make {total:,} servers; allowed are {_MOST:,}.")
    points, errors = [], list[Exception]()
    for values in itertools.product(*present.values()):
        chosen = dict(zip(present, values, strict=True))
        if request.progress:
            request.progress(len(points), total)
        entry, error = _answer(request, chosen)
        points.append(entry)
        errors += [error] if error else []
    if len(errors) == len(points):
        # a limit that none keeps rather than a size that divides nothing
        raise next((x for x in errors if isinstance(x, Infeasible)), errors[0])
    good = [x for x in points if "error" not in x]
    axes = [key for name, key in AXES.items() if len(present.get(name, ())) > 1]
    assumed = {
        key: x
        for key, x in good[0]["assumed"].items()
        if all(one["assumed"].get(key) == x for one in good)
    }
    energy = f"{'wall_' if 'node' in good[0] else ''}energy_j_per_output_token"
    answered = [i for i, x in enumerate(points) if "error" not in x]
    paced = [i for i in answered if points[i]["tpot_s"]]
    summary = {key: good[0][key] for key in _SHARED} | {
        "assumed": assumed,
        "axes": axes,
        "points": points,
        "best_energy_per_token": min(answered, key=lambda i: points[i][energy]),
        "best_tpot": min(
            paced, key=lambda i: points[i]["tpot_s"]["mean"], default=None
        ),
    }
    return ServersResult(summary)


def _answer(
    request: ListedRequest, chosen: dict[str, Any]
) -> tuple[dict[str, Any], Exception | None]:
    """Entry of one combination, and why it has no answer."""
    try:
        one = part(ServeRequest, request, **chosen)
        return steady_state(**one).summary, None
    except (ValueError, Infeasible) as error:
        scale = {"sm_clock": 1e-6, "mem_clock": 1e-6}
        about = {AXES[k]: v * scale[k] if k in scale else v for k, v in chosen.items()}
        gpu = getattr(about.get("gpu"), "name", about.get("gpu", DEFAULT_GPU))
        return {**about, "gpu": gpu, "error": str(error)}, error


def _flat(entry: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A row of an entry: nested figures become `key_part`; lists are left out."""
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}_")
        elif not isinstance(value, list):
            flat[f"{prefix}{key}"] = value
    return flat
