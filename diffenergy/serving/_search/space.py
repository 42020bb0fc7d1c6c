"""Candidates of a search: deployments that differ in more than load and clock."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ...estimator import settings
from ...hardware import GpuCard, read_gpu, sm_clocks, spread_clocks
from ...plans import host_of
from ...requests import BadRequest, part, values_of
from ...results import Infeasible
from ...workload import LanguageModel
from ...workload.models import load_model
from .._deploy import deploy
from .._deployment import Deployment
from .._load import Load
from .._request import DeployRequest
from .rank import MOST_BATCH
from .request import SearchRequest

DEFAULT_GPUS: Final = ("h100-sxm", "h200-sxm", "b200-sxm")
CLOCKS: Final = 9
"""Clocks of a candidate, and of a round around the best of them."""
_LIMITS: Final = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
MOST_LIMITS: Final = len(_LIMITS) + 1
"""Batch limits of a candidate: those, and that of the memory."""
BEYOND: Final = 1.1
"""Factor by which limits are loosened, to see which of them binds."""
_RATES: Final = {"fp8": "fp8", "fp8_block": "fp8", "mxfp8": "fp8"} | dict.fromkeys(
    ("nvfp4", "mxfp4"), "fp4"
)
"""Rate of tensor cores that a type needs; other types run on every GPU."""

_PLAIN: Final = dict.fromkeys(("speculative", "accept", "draft_tokens"))
"""Options of a server without speculation."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A way to serve on one replica: `options` of `deploy`, the `deployment` that has
    the table of steps (highest clock, largest batch limit), the number of GPUs on
    offer, clocks (Hz, rising) and batch limits that are tried."""

    options: Mapping[str, Any]
    deployment: Deployment
    most_gpus: float
    clocks: np.ndarray
    limits: np.ndarray

    @property
    def gpu(self) -> str:
        """Name of the GPU."""
        return self.deployment.card.name

    @property
    def tp(self) -> int:
        """GPUs of a replica."""
        return self.deployment.plan.tp

    def at(self, load: Load, clock: float, limit: float, replicas: int) -> Deployment:
        """The deployment of one point, or a pool of it, by itself."""
        of, chosen = self.deployment, ("sm_clock_mhz", "num_gpus", "max_batch")
        return dataclasses.replace(
            of,
            setting=of.setting._replace(sm_clock=clock),
            plan=dataclasses.replace(of.plan, dp=replicas),
            load=dataclasses.replace(load, max_batch=limit),
            assumed={k: v for k, v in of.assumed.items() if k not in chosen},
            covering=False,
        )

    @functools.cached_property
    def fits(self) -> int:
        """Requests of a replica that fit the memory."""
        return max(math.floor(self.deployment.fits), 1)

    @property
    def pool_type(self) -> tuple[Any, ...]:
        """What pools apart have in common."""
        of = self.deployment
        return of.request.dtype, of.request.kv_dtype, of.engine_name

    @property
    def kind(self) -> tuple[Any, ...]:
        """What decides which kernels a step launches."""
        of = self.deployment
        return of.request.dtype, of.request.speculative, self.tp > 1, of.plan.ep > 1


def candidates(request: SearchRequest, load: Load) -> tuple[list[Candidate], list[str]]:
    """All candidates, and why others are none.

    Raises `ValueError` for what no deployment can have, `Infeasible` if none has the
    memory.
    """
    model = load_model(request.model)
    if not isinstance(model, LanguageModel):
        raise ValueError(f"`model` is {model.name}, which makes no tokens to serve.")
    gpus = _gpus(request)
    _check_prices(request, [card.name for card, _ in gpus])
    clocks = values_of(request.sm_clock)
    skipped, reasons, chosen = [], [], []
    shared = part(
        DeployRequest, request, load=_table_load(load), sm_clock=None, num_gpus=None
    )
    for card, number in gpus:
        for ways in _ways(request, model, card, number, skipped):
            options = {**shared, "gpu": card, **ways}
            try:
                settings(card, sm_clock=clocks)
                deployment = deploy(
                    **{**options, "sm_clock": clocks and (max(clocks),)}
                )
            except (ValueError, Infeasible) as error:
                reasons.append(error)
                skipped.append(f"{_words(card, ways)}: {error}")
                continue
            chosen.append(_candidate(options, deployment, load, number, clocks))
    if not chosen:
        # a memory that is too small rather than a size that divides nothing
        raise (
            next((x for x in reasons if isinstance(x, Infeasible)), None)
            or (reasons or [ValueError(skipped[0])])[0]
        )
    # one program for all: it has the launches of each kind of candidate
    kinds = {x.kind: x.deployment for x in sorted(chosen, key=lambda x: x.tp)}
    like = None
    for deployment in kinds.values():
        like = dataclasses.replace(deployment, like=like).program
    return [
        dataclasses.replace(x, deployment=dataclasses.replace(x.deployment, like=like))
        for x in chosen
    ], skipped


def _candidate(
    options: Mapping[str, Any],
    deployment: Deployment,
    load: Load,
    number: float,
    clocks: Sequence[float] | None,
) -> Candidate:
    board = sm_clocks(deployment.card)[::-1]
    tried = np.sort(clocks) if clocks else spread_clocks(board, CLOCKS)
    fits = min(math.floor(deployment.fits), MOST_BATCH)
    if load.max_batch is not None:
        limits = [min(load.max_batch, fits)]
    else:
        # the last one is beyond the memory, unless that is larger than all limits
        limits = [
            *(x for x in _LIMITS if x < fits),
            fits,
            min(BEYOND * fits, MOST_BATCH),
        ]
    # repeats fill up to one shape, so that candidates share a compiled program
    padded = np.resize(np.floor(np.maximum(limits, 1.0)), MOST_LIMITS)
    # knots up to all batch limits: GPUs share the list of steps
    deployment = dataclasses.replace(deployment, covering=True)
    return Candidate(options, deployment, number, tried, padded)


def _table_load(load: Load) -> Load:
    """The load for which tables of steps are made: all batch limits."""
    return dataclasses.replace(load, max_batch=float(MOST_BATCH))


def _gpus(request: SearchRequest) -> list[tuple[GpuCard, float]]:
    """GPUs on offer, and how many there are of each."""
    numbers = [float(x) for x in values_of(request.num_gpus) or (math.inf,)]
    if len(numbers) > 1:
        raise BadRequest(
            "`num_gpus` is a list; a search takes one number, the maximum.", "num_gpus"
        )
    gpus = []
    for name in values_of(request.gpu) or DEFAULT_GPUS:
        if isinstance(name, GpuCard):
            gpus.append((name, numbers[0]))
            continue
        text, at, count = name.partition("@")
        if at and not (count.isdecimal() and int(count)):
            raise BadRequest(
                f"`gpu` is '{name}'; give NAME or NAME@COUNT with a whole number from "
                "1 on, such as h100-sxm@16.",
                "gpu",
            )
        most = min(float(count), numbers[0]) if at else numbers[0]
        gpus.append((read_gpu(text), most))
    return gpus


def _check_prices(request: SearchRequest, names: Sequence[str]) -> None:
    """Raises `ValueError` unless the prices are those of the GPUs on offer."""
    prices = request.gpu_price
    for name in prices or ():
        if name not in names:
            raise BadRequest(
                f"`gpu_price` has '{name}', which is not on offer; `gpu` has "
                f"{', '.join(names)}.",
                "gpu_price",
                "gpu",
            )
    if request.objective != "cost":
        return
    for name in names:
        if name not in (prices or {}):
            raise BadRequest(
                f"`gpu_price` has no {name}; the search for least cost needs a price "
                f"an hour of every GPU on offer, such as {name}=2.5.",
                "gpu_price",
            )


def _ways(
    request: SearchRequest,
    model: LanguageModel,
    card: GpuCard,
    number: float,
    skipped: list[str],
) -> Iterator[dict[str, Any]]:
    """Type, sharing and engine of each candidate on a GPU."""
    size = host_of(card).size
    sizes = values_of(request.tp) or tuple(
        2**i for i in range(int(math.log2(size)) + 1)
    )
    for tp in values_of(request.tp) or ():
        if tp & (tp - 1) or tp > size:
            raise BadRequest(
                f"`tp` is {tp}; a search takes powers of two up to the {size} GPUs of "
                f"a host of {card.name}.",
                "tp",
            )
    mixture = model.default_routing() is not None
    named = values_of(request.dtype) or (None,)
    types = [x for x in named if x is None or _has(card, x)]
    for name in set(named) - set(types):
        skipped.append(f"{card.name}: its tensor cores have no {name}")
    drafts = [{}] if request.speculative is None else [{}, _PLAIN]
    for dtype, tp, engine, more in itertools.product(
        types, sizes, values_of(request.engine) or (None,), drafts
    ):
        if tp > number:
            continue
        shares = values_of(request.ep) or ((1, tp) if mixture else (1,))
        for ep in dict.fromkeys(x for x in shares if tp % x == 0):
            yield {"dtype": dtype, "tp": tp, "ep": ep, "engine": engine, **more}


def _has(card: GpuCard, dtype: str) -> bool:
    """Whether the tensor cores of a GPU have a type."""
    rate = _RATES.get(dtype)
    return rate is None or card.values[f"tensor_flop_per_cycle_{rate}"] > 0


def _words(card: GpuCard, ways: Mapping[str, Any]) -> str:
    """A candidate in a few words."""
    names = {k: v for k, v in ways.items() if v is not None and (k, v) != ("ep", 1)}
    return ", ".join([card.name, *(f"{k} {v}" for k, v in names.items())])
