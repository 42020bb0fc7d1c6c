"""The public `steady_state`: a server in balance, by name."""

from typing import Any, Final

from ..estimator import of_clocks, of_hardware
from ..requests import accepts, part
from . import _result as _answer
from ._caches import cache_figures, cache_notes
from ._deploy import deploy
from ._deployment import Deployment
from ._drafts import speculation_figures
from ._load import Load
from ._optimize import best, check_limits
from ._request import DeployRequest, ServeRequest
from ._result import ServingResult
from ._solve import check_fields, sensitivities, solved

_CHECKED: Final = 0.75
"""Share of the saturation up to which the closed form of the time to the first token is
checked (`calibration/studies/served/open_loop.py`)."""


@accepts(ServeRequest)
def steady_state(request: ServeRequest) -> ServingResult:
    """What a server of a model costs under a load, in steady state.

    `load`: a `Load`, or its fields as a dict: one of `max_batch`, `concurrency` and
    `rate`, lengths, limits of latencies.

    Returns:
        A `ServingResult`, whose `summary` is the JSON of `diffenergy serve`.

    Raises:
        ValueError: for what cannot be, in one sentence.
        Infeasible: if no request fits, the rate cannot be sustained, or no clock and
            batch keep the limits; the message says what can be had.

    Example:

        >>> from diffenergy import serving
        >>> load = serving.Load(rate=4, input_len=256, output_len=64)
        >>> serving.steady_state("qwen3-0.6b", "h100-sxm", load).summary["mode"]
        'open'
    """
    optimize, sensitivity = request.optimize, request.sensitivity
    deployment = deploy(**part(DeployRequest, request))
    _check_optimize(optimize, deployment.load)
    check_fields(deployment, sensitivity)
    costs, more = deployment.costs(), {}
    check_limits(deployment, costs)
    if optimize:
        deployment, more = best(deployment, costs, optimize)
        costs = deployment.costs()
    figures = solved(deployment, costs)
    _answer.check(deployment, figures)
    summary = _answer.to_json(deployment, figures) | more
    summary |= speculation_figures(deployment, costs)
    if deployment.attention_dp > 1:
        summary["attention_dp"] = deployment.attention_dp
    summary |= cache_figures(deployment, costs, figures)
    if sensitivity:
        summary["sensitivities"] = sensitivities(deployment, sensitivity)
    return ServingResult(summary, deployment, costs, warnings_of(deployment, summary))


def _check_optimize(optimize: str | None, load: Load):
    if optimize is None:
        return
    if load.slo_ttft is None and load.slo_tpot is None:
        raise ValueError(
            f"`optimize` is {optimize}, but no limit is given that has to be kept; "
            "give `slo_tpot` or `slo_ttft`."
        )


def warnings_of(deployment: Deployment, summary: dict[str, Any]) -> tuple[str, ...]:
    """What a person should know beside the figures of a server."""
    linked = deployment.plan.gpus > 1
    notes = [
        *deployment.model.notes,
        *of_hardware(deployment.file, deployment.card, linked),
        *of_clocks(deployment.point, deployment.card),
        *cache_notes(summary),
    ]
    used = summary["utilization"]
    if deployment.mode == "open" and used > _CHECKED:
        notes.append(
            f"the server is {100 * used:.0f} % used: waits are those of a rate that "
            f"lasts for hours, and percentiles of `ttft_s` are checked against the "
            f"simulator up to {100 * _CHECKED:.0f} %; `trace` simulates shorter times."
        )
    return tuple(notes)
