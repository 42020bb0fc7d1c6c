"""Two pools ready to be priced: their tables of steps, the transfer between them, and
numbers of workers."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...results import Infeasible
from ...workload import ModelShare, ModelSplit
from .._deployment import Deployment
from .._engine import levels
from .._load import Load
from .._solve import run_cached
from .._steady.figures import load_arrays
from .._steady.spread import QUANTILES
from .._step.table import StepCosts
from .pools import Pools, Question, pools
from .rank import (
    DecodeGrid,
    DecodeQuestion,
    PrefillGrid,
    PrefillQuestion,
    decode_grid,
    prefill_grid,
    prompts_at,
)

READS: Final = 0.85
"""Most load of a prefill pool whose workers are not given: beyond it prompts queue."""
MAKES: Final = 0.95
"""Most load of a decode pool whose workers are not given."""
GB: Final = 1e9
LINK: Final = 50 * GB
"""B/s of a GPU to the other pool: a network card of 400 Gbit/s for each."""
LATENCY: Final = 20e-6
"""s until the first byte of a KV cache is there."""
_LINK_ENERGY: Final = 20e-12
"""J/bit of network cards, switches and optics: a guess that does not matter, 0.4 J for
8,192 tokens of Llama-3.1-70B beside 700 J to read them."""
_P95: Final = QUANTILES.index(0.95)
MOST: Final = 16
"""Numbers of workers that are priced at once."""


class Transfer(NamedTuple):
    """The KV cache of the mean request: `bytes`, s and J of its way to the decode
    pool, sent when all of the prompt is read; `delay`: s of a request with that, router
    and set-up."""

    bytes: float
    time: float
    energy: float
    delay: float


class Side(NamedTuple):
    """A pool, and the table of its steps."""

    deployment: Deployment
    costs: StepCosts

    @property
    def server(self) -> Any:
        """One worker."""
        return self.deployment.server(self.costs)


def transfer_of(prefill: Deployment, decode: Deployment, rate: float) -> Transfer:
    """What the KV cache of the mean prompt, cached tokens among it, takes to the decode
    pool, where `rate` B/s of each GPU are used:

        latency + bytes / (rate min(tp_prefill, tp_decode))

    A copy of it: where ranks of a decode worker keep the same latents (MLA), they pass
    them on among each other.
    """
    one, _ = _whole(decode).on_host(decode.load.input.mean + decode.load.cached)
    lanes = min(prefill.plan.tp, decode.plan.tp)
    time = LATENCY + one / (rate * lanes)
    setup = levels(decode.engine_name, decode.card, decode.file.engines)["apart"]
    return Transfer(one, time, 8 * one * _LINK_ENERGY, time + setup)


def _whole(deployment: Deployment) -> Any:
    """Memory of requests as if one GPU had the whole model."""
    model = deployment.model.placed(ModelShare(ModelSplit(1)))
    return dataclasses.replace(deployment, model=model).memory(deployment.gpu)


def price(prefill: Side, decode: Side, transfer: Transfer) -> Pools:
    """Figures of two pools with as many workers as they have, on the host."""
    of = decode.deployment
    load, each = of.load, of.load_arrays()
    # rates and clients are of all workers here
    flow = load_arrays(
        each.slots, load.concurrency, load.rate, 0.0, load.slo_ttft, load.slo_tpot
    )
    states = of.states
    if load.concurrency is not None:
        states = 64 << max(math.ceil(math.log2((load.concurrency + 1) / 64)), 0)
    question = Question(
        prefill.server, decode.server, jnp.asarray(float(prefill.deployment.replicas)),
        jnp.asarray(float(of.replicas)), jnp.asarray(transfer.delay), flow, of.mode,
        states,
    )  # fmt: skip
    return jax.device_get(run_cached(pools, (question,)))


def sized(
    prefill: Side,
    decode: Side,
    transfer: Transfer,
    readers: int | None = None,
    decoders: int | None = None,
) -> tuple[Side, Side]:
    """Both pools with their number of workers: those given, else in an open loop the
    least that carry the rate within the limits of latencies, else one.

    Raises `Infeasible` where no number keeps a limit.
    """
    load = decode.deployment.load
    if load.rate is None:
        return _with(prefill, readers or 1), _with(decode, decoders or 1)
    if decoders is None:
        decode = _with(decode, _least_decode(decode, load))
    if readers is None:
        prefill = _with(prefill, _least_prefill(prefill, decode, transfer))
    return prefill, decode


def _with(side: Side, workers: int) -> Side:
    plan = dataclasses.replace(side.deployment.plan, dp=workers)
    return side._replace(deployment=dataclasses.replace(side.deployment, plan=plan))


def decode_pools(
    side: Side, clocks: np.ndarray, limits: np.ndarray, workers: np.ndarray
) -> DecodeGrid:
    """Decode pools [clock (Hz), batch limit, workers]; powers are of one GPU."""
    of = side.deployment
    question = DecodeQuestion(
        side.server, jnp.asarray(of.load.rate), jnp.asarray(clocks, float),
        jnp.asarray(limits, float), jnp.asarray(workers, float), of.states,
    )  # fmt: skip
    return jax.device_get(run_cached(decode_grid, (question,)))


def prefill_pools(side: Side, clocks: np.ndarray, workers: np.ndarray) -> PrefillGrid:
    """Prefill pools [clock (Hz), workers]; powers are of one GPU."""
    return jax.device_get(run_cached(prefill_grid, (_reading(side, clocks, workers),)))


def _reading(side: Side, clocks: np.ndarray, workers: np.ndarray) -> PrefillQuestion:
    return PrefillQuestion(
        side.server, jnp.asarray(side.deployment.load.rate),
        jnp.asarray(clocks, float), jnp.asarray(workers, float),
    )  # fmt: skip


def _clock(side: Side) -> np.ndarray:
    return np.array([side.deployment.setting.sm_clock])


def _least_decode(side: Side, load: Load) -> int:
    of = side.deployment

    def at(workers: np.ndarray) -> DecodeGrid:
        grid = decode_pools(side, _clock(side), np.array([of.slots]), workers)
        return jax.tree.map(lambda x: x[0, 0], grid)

    # a load far above 1 still is the rate over what workers serve
    start = math.ceil(float(at(np.ones(MOST)).load[0]) / MAKES)
    limit = math.inf if load.slo_tpot is None else load.slo_tpot

    def keeps(workers: np.ndarray) -> np.ndarray:
        x = at(workers)
        best.append(float(x.high.min()))
        return (x.load <= MAKES) & (x.high <= limit)

    best: list[float] = []
    number = _least(keeps, start)
    if number is None:
        raise Infeasible(
            f"`slo_tpot` is {1e3 * limit:g} ms, which no number of decode workers "
            f"keeps; the least 95th percentile is {1e3 * min(best):.4g} ms: give the "
            "decode pool a wider `tp`, a higher clock or a faster `gpu`.",
            slo_tpot=min(best),
        )
    return number


def _least_prefill(prefill: Side, decode: Side, transfer: Transfer) -> int:
    load = prefill.deployment.load
    one = run_cached(prompts_at, (_reading(prefill, _clock(prefill), np.ones(1)),))
    start = math.ceil(load.rate * float(one.mean) / READS)  # pyright: ignore
    limit = math.inf if load.slo_ttft is None else load.slo_ttft
    after = price(_with(prefill, start), decode, transfer).steady.ttft.mean
    grid = prefill_pools(prefill, _clock(prefill), np.full(MOST, start))
    more = float(after) - float(grid.mean[0, 0])  # behind the prefill pool

    def keeps(workers: np.ndarray) -> np.ndarray:
        x = prefill_pools(prefill, _clock(prefill), workers)
        near.append(float(x.high.min()) + more)
        return (x.load[0] <= READS) & (x.high[0] + more <= limit)

    near: list[float] = []
    exact: list[float] = []
    number = _least(keeps, start)
    while number is not None:
        first = price(_with(prefill, number), decode, transfer).steady.ttft
        exact.append(float(first.quantiles[_P95]))
        if exact[-1] <= limit:
            return number
        number = number + 1 if number < start + _TRIED else None
    least = min(exact or near)
    raise Infeasible(
        f"`slo_ttft` is {1e3 * limit:g} ms, which no number of prefill workers keeps; "
        f"the least 95th percentile is {1e3 * least:.4g} ms: give the prefill pool "
        "a wider `tp`, a higher clock or a faster `gpu`.",
        slo_ttft=least,
    )


_STEPS: Final = np.array([0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192])
_TRIED: Final = 16


def _least(keeps: Callable[[np.ndarray], np.ndarray], start: int) -> int | None:
    """The least number from `start` on that keeps something which all above it keep,
    `MOST` of them at a time; None where 192 more do not."""
    low, steps = max(start, 1), _STEPS
    while True:
        enough = keeps(low + steps)
        if not enough.any():
            return None
        first = int(enough.argmax())
        if first == 0 or steps[first] - steps[first - 1] == 1:
            return int(low + steps[first])
        span = steps[first] - steps[first - 1] - 1
        low = low + steps[first - 1] + 1
        steps = np.round(np.linspace(0, span, MOST)).astype(int)
