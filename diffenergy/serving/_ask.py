"""The public `steady_state`: a server in balance, by name."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..hardware import GpuCard
from ._answers import answer as _answer
from ._answers.answer import ServingResult
from ._answers.limits import check_limits
from ._answers.optimize import best
from ._answers.sensitivity import check_fields, sensitivities
from ._answers.solve import priced, solved
from ._deploy import deploy
from ._deployment import Deployment
from ._load import Load


def steady_state(
    model: str,
    gpu: str | GpuCard | None = None,
    load: Load | Mapping[str, Any] | None = None,
    *,
    engine: str | None = None,
    optimize: str | None = None,
    sensitivity: Sequence[str] = (),
    **server: Any,
) -> ServingResult:
    """What a server of a model costs under a load, in steady state.

    Args:
        model: bundled name, or a Hugging Face config.json.
        gpu: name or file [h100-sxm].
        load: a `Load`, or its fields as a dict: one of `max_batch`, `concurrency` and
            `rate`, lengths, limits of latencies.
        engine: vllm, sglang, trtllm or vllm-v0 [vllm].
        optimize: "energy" or "throughput": the clock and the batch limit that are best
            of those whose 95th percentiles keep the limits of the load.
        sensitivity: fields by which the means are differentiated: `rate`,
            `concurrency`, `input_len`, `output_len`, `sm_clock`, `power_limit` or any
            number of a GPU.
        **server: other arguments of `deploy`: `num_gpus`, `tp`, `ep`, `dtype`,
            `kv_dtype`, `routing`, `sampling`, `schedule`, `chunk`, `memory_fraction`,
            `sm_clock`, `mem_clock`, `power_limit`, `temperature`, `changes`,
            `corrections`.

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
    found = deploy(model, gpu, _load(load), engine=engine, **server)
    _check_optimize(optimize, found.load)
    check_fields(found, sensitivity)
    costs = priced(found)
    check_limits(found, costs)
    found, more = best(found, optimize) if optimize else (found, {})
    costs = priced(found) if optimize else costs
    figures = solved(found, costs)
    _answer.check(found, costs, figures)
    summary = _answer.told(found, figures) | more
    if sensitivity:
        summary["sensitivities"] = sensitivities(found, sensitivity)
    return ServingResult(summary, found, costs, _warnings(found, summary))


def _load(load: Load | Mapping[str, Any] | None) -> Load:
    if isinstance(load, Load):
        return load
    known = {field.name for field in dataclasses.fields(Load)}
    for name in load or {}:
        if name not in known:
            raise ValueError(
                f"`{name}` is no field of a load; allowed are "
                f"{', '.join(sorted(known))}."
            )
    return Load(**(load or {}))


def _check_optimize(optimize: str | None, load: Load):
    if optimize is None:
        return
    if optimize not in ("energy", "throughput"):
        raise ValueError(f"`optimize` is '{optimize}'; allowed are energy, throughput.")
    if load.slo_ttft is None and load.slo_tpot is None:
        raise ValueError(
            f"`optimize` is {optimize}, but no limit is given that has to be kept; "
            "give `slo_tpot` or `slo_ttft`."
        )


def _warnings(found: Deployment, summary: Mapping[str, Any]) -> tuple[str, ...]:
    said = list(found.model.notes)
    if found.mode == "open" and summary["utilization"] > 0.9:
        said.append(
            f"the server is {100 * summary['utilization']:.0f} % used: the queue is "
            "that of a rate which lasts for hours; `--trace` shows shorter times."
        )
    return tuple(said)
