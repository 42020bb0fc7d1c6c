"""The public `search`: the deployment for a load."""

from typing import Any, Final

from ...requests import BadRequest, accepts
from .._apart.answer import NOTE
from .._ask import warnings_of
from .._deploy import load_of
from .._drafts import speculation_figures
from .._load import Load
from .._result import ServingResult
from .choose import Choice, Search
from .request import SearchRequest
from .result import SearchResult, search_json
from .space import candidates


@accepts(SearchRequest)
def search(request: SearchRequest) -> SearchResult:
    """The deployment that serves a load within limits of latency at least energy, cost
    or number of GPUs.

    `load`: a `Load` with a `rate` or a `concurrency`, lengths and limits of latencies
    (95th percentiles). All GPUs, types, degrees of `tp` and `ep`, engines, numbers of
    replicas, batch limits and clocks are ranked by one table of steps for each way to
    serve a replica; the first ones are priced as `steady_state` does.

    Returns:
        A `SearchResult`; `best` is the `ServingResult` of the best deployment.

    Raises:
        ValueError: for what cannot be, in one sentence.
        Infeasible: no deployment keeps the limits; the message has what can be had.

    Example:

        >>> from diffenergy import serving
        >>> load = serving.Load(rate=4, slo_tpot=0.03, input_len=256, output_len=64)
        >>> result = serving.search("qwen3-0.6b", ["a100-sxm-80gb"], load, tp=1)
        >>> result.summary["best"]["num_gpus"]
        1
    """
    load = _load(request)
    if request.apart != "no" and load.rate is None:
        raise BadRequest(
            f"`apart` is {request.apart}, but the load has no `rate`; pools apart are "
            "searched at a rate.",
            "apart",
            "rate",
        )
    chosen, skipped = candidates(request, load)
    choice = Search(request, load, chosen).run()
    first = choice.priced[0]
    notes = warnings_of(first.deployment, first.summary)
    if any(x.apart for x in choice.priced):
        notes = (*notes, NOTE)
    drafts = speculation_figures(first.deployment, first.costs)
    best = ServingResult(first.summary | drafts, first.deployment, first.costs, notes)
    summary, warnings = search_json(request, load, chosen, skipped, choice)
    summary |= _speculation(request, load, choice, drafts)
    return SearchResult(summary, choice, best, (*notes, *warnings))


_TURNS: Final = (
    "speculative", "accept", "draft_tokens", "tokens_per_step", "break_even_batch",
)  # fmt: skip


def _speculation(
    request: SearchRequest, load: Load, choice: Choice, drafts: dict[str, Any]
) -> dict[str, Any]:
    """Where speculation turns on the GPUs of the best deployment, at its clock, whether
    or not it has drafts; nothing without `speculative`."""
    if request.speculative is None:
        return {}
    if not drafts:
        best = choice.priced[0]
        alike = {**best.candidate.options, "speculative": request.speculative}
        names = ("gpu", "dtype", "tp", "ep", "engine", "speculative")
        one = next(
            x
            for x in choice.candidates
            if all(x.options.get(k) == alike.get(k) for k in names)
        )
        clock = best.deployment.setting.sm_clock
        of = one.at(load, clock, best.limit, best.deployment.replicas)
        drafts = speculation_figures(of, of.costs(), compared=False)
    return {"speculation": {name: drafts[name] for name in _TURNS}}


def _load(request: SearchRequest) -> Load:
    """The load of a search, which comes at a rate or from clients."""
    load = load_of(request.load)
    if load is None or load.mode == "saturated":
        raise BadRequest(
            "`rate` is missing, and so is `concurrency`; a search needs one of them: "
            "the load that is to be served.",
            "rate",
            "concurrency",
        )
    if load.slo_ttft is None and load.slo_tpot is None:
        raise BadRequest(
            "`slo_tpot` is missing, and so is `slo_ttft`; a search needs a limit of "
            "latency.",
            "slo_tpot",
            "slo_ttft",
        )
    if load.waves is not None:
        raise BadRequest(
            f"`waves` is {load.waves:g}; a search is for a steady load; leave it out.",
            "waves",
        )
    if load.pause is not None:
        raise BadRequest(
            f"`pause` is {load.pause:g}; a search has no requests that pause; leave it "
            "out, and price the best deployment with it.",
            "pause",
        )
    if request.attention_dp is not None:
        raise BadRequest(
            f"`attention_dp` is {request.attention_dp}; a search is for attention by "
            "tensor parallelism; leave it out, and price the best deployment with it.",
            "attention_dp",
        )
    return load
