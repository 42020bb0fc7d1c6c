"""The public `apart`: a model served by a prefill pool and a decode pool."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final

from ...estimator import of_hardware
from ...requests import BadRequest, accepts, explicit_fields, part
from ...results import Infeasible
from .._deploy import deploy, load_of
from .._deployment import Deployment
from .._load import Load
from .._optimize import check_limits
from .._request import DeployRequest
from .._result import ServingResult, check_power
from . import answer
from .pools import Pools
from .request import ApartRequest, DecodeRequest, PoolRequest
from .sizes import GB, LINK, Side, price, sized, transfer_of


@accepts(ApartRequest)
def apart(request: ApartRequest) -> ServingResult:
    """What a model costs whose prompts are read by one pool of servers and whose tokens
    are made by another.

    `load`: a `Load`, or its fields as a dict, with `rate` or `concurrency`. `prefill`,
    `decode`: the pools as `{"tp": 2, "workers": 5}`; what is left out is as of `apart`,
    and as many workers as carry the rate within the limits of latencies.

    Returns:
        A `ServingResult`, whose `summary` is the JSON of `diffenergy serve --apart`.

    Raises:
        ValueError: for what cannot be, in one sentence.
        Infeasible: if a request does not fit a pool, or a pool cannot carry the rate or
            keep its limit; the message names it.

    Example:

        >>> from diffenergy import serving
        >>> load = serving.Load(rate=4, input_len=2048, output_len=64)
        >>> x = serving.apart("qwen3-0.6b", "h100-sxm", load, decode={"workers": 1})
        >>> x.summary["pools"]["prefill"]["workers"]
        1
    """
    load = _load(request)
    prefill = _deployed(request, request.prefill or PoolRequest(), load, prompts=True)
    decode = _deployed(request, request.decode or DecodeRequest(), load)
    rate = LINK if request.kv_link is None else float(request.kv_link)
    sides = Side(prefill, prefill.costs()), Side(decode, decode.costs())
    check_limits(decode, sides[1].costs)
    transfer = transfer_of(prefill, decode, rate)
    workers = [x and x.workers for x in (request.prefill, request.decode)]
    sides = sized(*sides, transfer, *workers)
    figures = price(*sides, transfer)
    _check(*sides, figures)
    assumed = _assumed(request, *sides)
    summary = answer.to_json(*sides, figures, transfer, assumed)
    decode = sides[1].deployment
    boards = [x.deployment for x in sides]
    notes = [of_hardware(x.file, x.card, x.plan.tp > 1) for x in boards]
    notes = dict.fromkeys([*decode.model.notes, *notes[0], *notes[1], answer.NOTE])
    return ServingResult(summary, decode, None, tuple(notes))


_NO: Final = {
    "num_gpus": "give `workers` and `tp` of each pool, at least a GPU of both",
    "schedule": "each pool has one kind of steps; leave it out",
    "waves": "pools are in steady state; leave it out",
    "pause": "what pauses in a pool is not known; leave it out",
    "attention_dp": "a pool's GPUs share all sequences; leave it out",
    "speculative": "pools decode a token a step; leave it out",
}
"""What two pools do not have, and the remedy."""


def _load(request: ApartRequest) -> Load:
    load = load_of(request.load)
    if load is None or load.mode == "saturated":
        raise BadRequest(
            "`rate` is missing, and so is `concurrency`; give one: pools have no batch "
            "in common (that of the decode pool is its `max_batch`).",
            "rate",
            "concurrency",
        )
    for name, remedy in _NO.items():
        value = getattr(request if hasattr(request, name) else load, name)
        if value is not None:
            text = f"{value:g}" if isinstance(value, int | float) else f"'{value}'"
            raise BadRequest(
                f"`{name}` is {text} beside `apart`; {remedy}.", name, "apart"
            )
    return load


def _deployed(
    request: ApartRequest, pool: PoolRequest, load: Load, prompts: bool = False
) -> Deployment:
    """One pool, checked: those of `request` with what the pool has of its own."""
    own = {name: getattr(pool, name) for name in explicit_fields(pool)}
    number = own.pop("workers", 1)
    limit = own.pop("max_batch", load.max_batch)
    load = dataclasses.replace(load, max_batch=1.0 if prompts else limit)
    chosen: dict[str, Any] = part(DeployRequest, request) | own | {"load": load}
    if prompts:  # one prompt at a time, which all GPUs of a worker share
        chosen["attention_dp"] = None
    name = "prefill" if prompts else "decode"
    try:
        tp = chosen["tp"] or 1
        of = deploy(**chosen | {"tp": tp, "num_gpus": number * tp})
    except ValueError as error:
        raise type(error)(*_about(name, own, error)) from None
    except Infeasible as error:
        raise Infeasible(f"{name} pool: {error}", **error.least) from None
    taken = {} if chosen["tp"] else {"tp": 1}
    return dataclasses.replace(of, assumed={**taken, **of.assumed})


def _about(name: str, own: Mapping[str, Any], error: Exception) -> tuple[str, ...]:
    """The sentence of an error of a pool, with the pool where a key of its own is
    wrong, and its fields."""
    text = str(error)
    named = any(text.startswith(f"`{key}`") for key in own)
    return (f"`{name}`: {text}" if named else text, *getattr(error, "fields", ()))


# --- Refusals


def _check(prefill: Side, decode: Side, figures: Pools):
    """Raises `Infeasible` where a pool cannot carry the rate or keep its power
    limit."""
    for name, side, x in (
        ("prefill", prefill, figures),
        ("decode", decode, figures.steady),
    ):
        try:
            check_power(side.deployment, float(x.lowest), bool(x.feasible))
        except Infeasible as error:
            raise Infeasible(f"{name} pool: {error}", **error.least) from None
    rate = decode.deployment.load.rate
    if rate is None:
        return
    for name, side, most in zip(
        ("prefill", "decode"), (prefill, decode), figures.most, strict=True
    ):
        if rate >= most:
            scale = 10 ** (3 - math.floor(math.log10(most)))  # as many digits as shown
            shown = math.floor(most * scale) / scale
            number = side.deployment.replicas
            raise Infeasible(
                f"`rate` is {rate:g} requests a second, but the {name} pool of "
                f"{number} worker{'s' * (number > 1)} sustains less than {shown:g}; "
                "give a lower one or more `workers`.",
                rate=shown,
            )


# --- What was assumed


def _assumed(request: ApartRequest, prefill: Side, decode: Side) -> dict[str, Any]:
    """What both pools assume, that of one pool under its name."""
    without = ("num_gpus", "schedule")
    both = [
        {k: v for k, v in side.deployment.assumed.items() if k not in without}
        for side in (prefill, decode)
    ]
    both[0].pop("max_batch", None)
    for name, values, side in zip(
        ("prefill", "decode"), both, (prefill, decode), strict=True
    ):
        pool = getattr(request, name)
        if pool is None or pool.workers is None:
            values["workers"] = side.deployment.replicas
    shared = {k: v for k, v in both[0].items() if both[1].get(k, None) == v}
    shared.pop("workers", None)
    own = {
        f"{name}_{key}": value
        for name, values in zip(("prefill", "decode"), both, strict=True)
        for key, value in values.items()
        if key not in shared
    }
    link = {} if request.kv_link is not None else {"kv_link": f"{LINK / GB:g} GB/s"}
    return shared | own | link
