"""`Deployment`: a model on GPUs under an engine, ready to be asked under any load."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, Final, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from ..compiling import call_compiled
from ..corrections import CorrectionsFile
from ..dtypes import BYTES, code
from ..estimator import Setting, point_of
from ..hardware import GpuCard, GpuSpec, OperatingPoint
from ..nodes import Site
from ..plans import Plan
from ..records import Keyed
from ..workload import LanguageModel
from ..workload.models import Request
from ._engine import Engine, captured, engine_of
from ._lengths import Lengths
from ._load import Load
from ._steady.figures import LoadArrays, Mode, Steady, load_arrays, steady
from ._steady.server import Groups, Memory, Pause, Server, Traffic
from ._step.groups import grouping
from ._step.table import Program, StepCosts, batch_knots, program, step_costs
from ._tiles import Tiles, expert_tiles

ASIDE: Final = 2e9
"""B of activations, graphs and context that engines keep aside."""
HOST_RATE: Final = 25e9
"""B/s at which a replica brings KV caches back from its host, by one link (PCIe)."""
_MOST: Final = 8192
"""Requests at once that are told apart."""
_STATES: Final = 64
"""Least number of states of an open loop; powers of two of it share a program."""


@dataclasses.dataclass(frozen=True)
class Deployment:
    """One or more replicas of a model behind an engine; `costs` and `steady` are pure.

    `model`: what one GPU of `plan` has; `gpu`, `setting`: numbers of the GPU and where
    it runs; `load`: what it was made for (grids of lengths and batches fit that one);
    `replicas` share the load evenly.
    """

    model: LanguageModel
    request: Request
    card: GpuCard
    file: CorrectionsFile
    setting: Setting
    plan: Plan
    engine_name: str
    sampling: str
    schedule: str
    chunk: int
    fraction: float
    load: Load
    assumed: Mapping[str, Any]
    changed: bool
    covering: bool = False
    """Whether the grid goes up to the batch limit, whatever the memory holds."""
    site: Site | None = None
    """Where the boards stand; None where they alone count."""
    like: Program | None = None
    """Steps whose compiled program these share, with launches that they lack."""

    @property
    def replicas(self) -> int:
        """Servers that share the load."""
        return self.plan.dp

    @functools.cached_property
    def gpu(self) -> GpuSpec:
        """The GPU's numbers with its constants."""
        with jax.ensure_compile_time_eval():  # it is kept: no tracers of a caller
            return self.card.served(self.file)

    @property
    def point(self) -> OperatingPoint:
        """Where it runs."""
        return jax.tree.map(jnp.asarray, point_of(self.setting))

    @functools.cached_property
    def engine(self) -> Engine:
        """Constants of the engine on the GPU's host."""
        with jax.ensure_compile_time_eval():
            return engine_of(
                self.engine_name,
                self.sampling,
                self.card,
                self.launched,
                self.file.engines,
                self.tiles,
            )

    @property
    def launched(self) -> int:
        """Layers whose kernels the host launches in a step with a prompt. One with
        experts counts twice: such steps take 0.3 to 0.7 ms a layer in dense models of
        more than 8B, 0.6 to 1.2 with experts (`studies/served/launches.py`).
        """
        return len(self.model.stack()) + self.model.expert_layers

    @property
    def tiles(self) -> Tiles:
        """Tiles of its experts; those of a constant that the user sets are untuned."""
        untuned = "untuned" in (self.file.engines or {}).get("set", {})
        of = (self.model, self.request, self.card, self.engine_name)
        return expert_tiles(*of, untuned)

    @functools.cached_property
    def traffic(self) -> Traffic:
        """Lengths of the load as numbers."""
        with jax.ensure_compile_time_eval():
            load, accept = self.load, self.request.accept or 0.0
            return traffic_of(load.input, load.output, load.cached, accept)

    @property
    def attention_dp(self) -> int:
        """Groups of GPUs of a replica with sequences of their own."""
        return self.model.share.split.replicas

    @property
    def groups(self) -> Groups | None:
        """How sequences spread over the groups of GPUs."""
        groups = grouping(self.model, self.attention_dp)
        if groups is None:
            return None
        numbers = (groups.number, groups.fullest, groups.prompts)
        return Groups(*(jnp.asarray(float(x)) for x in numbers))

    @property
    def pause(self) -> Pause | None:
        """How long requests keep their cache, and where."""
        load, tp = self.load, self.plan.tp
        if load.pause is None:
            return None
        bytes_ = (load.kv_offload or 0.0) / tp
        numbers = (load.pause, bytes_, tp / HOST_RATE)
        return Pause(*(jnp.asarray(float(x)) for x in numbers))

    @functools.cached_property
    def program(self) -> Program:
        """Steps that are priced."""
        return self.program_behind(self.load.cached)

    def program_behind(self, cached: float) -> Program:
        """Steps whose prompts stand behind so many cached tokens."""
        load = self.load
        lengths = tuple(load.input.mean * x for x in load.input.nodes)
        numbers = [self.most]
        if load.concurrency is not None and not self.covering:
            numbers.append(self.slots)  # the saturation is that of any other load
        of = batch_knots(numbers), self.context, lengths, cached, self.chunk
        return _program(_Steps(self.model, self.request, *of, self.like))

    @functools.cached_property
    def fits(self) -> float:
        """Requests of one replica whose tokens fit the memory, at the mean context."""
        with jax.ensure_compile_time_eval():
            one, pool = self.memory(self.gpu).on_host(self.context)
        return pool / one

    @property
    def context(self) -> float:
        """Cached tokens of a request that runs, the mean (`Traffic.context`)."""
        output = self.load.output
        read = self.load.input.mean + self.load.cached
        return read + output.spread * output.mean / 2

    @property
    def slots(self) -> float:
        """Most requests of a replica that run at once under its load."""
        limit = self.load.max_batch or math.inf
        return float(min(max(min(self.fits, limit), 1.0), _MOST))

    @property
    def most(self) -> float:
        """Most requests of a replica at once."""
        if self.covering and self.load.max_batch is not None:
            return self.load.max_batch
        limits = [self.fits, self.load.max_batch or math.inf, _MOST]
        if self.load.concurrency is not None:
            limits.append(max(self.load.concurrency / self.replicas, 1.0))
        return float(min(limits))

    def memory(self, gpu: GpuSpec) -> Memory:
        """What requests may keep on one GPU."""
        model, request = self.model, self.request
        drafting, drafted = model.drafting(request)
        # a GPU has the sequences of its group, which are a share of those of all
        share = 1 / self.attention_dp
        element = share * BYTES[code(request.kv_dtype)]
        cached = [
            (cache, n) for cache, n in [*model.all_cached(), *drafted] if cache.elements
        ]
        bytes_ = [cache.elements * n * element for cache, n in cached]
        windows = [cache.window or math.inf for cache, _ in cached]
        return Memory(
            gpu.dram_capacity,
            jnp.asarray(self.fraction),
            jnp.asarray(model.weight_bytes(request.dtype) + drafting),
            jnp.asarray(ASIDE),
            # by numpy, as in `traffic_of`; an entry of no bytes: a model without a KV
            # cache has one, too
            jnp.asarray(np.asarray([*bytes_, 0.0])),
            jnp.asarray(np.asarray([*windows, 1.0])),
            jnp.asarray(share * model.state_bytes()),
        )

    def costs(
        self, gpu: GpuSpec | None = None, point: OperatingPoint | None = None
    ) -> StepCosts:
        """Time and energy of steps on a GPU, at all its SM clocks up to that of a
        point, without a power limit: pure; differentiate, or map by `jax.vmap` over
        both.

        Args:
            gpu: numbers of a GPU [the deployment's].
            point: highest SM clock, memory clock, temperature [the deployment's].

        Returns:
            The table that `steady` reads.
        """
        once = self.like is None  # what many share is run often
        if gpu is None and point is None:
            free = self.setting._replace(power_limit=_UNLIMITED)
            return _costs(self.program, Keyed(id(self.gpu), self.gpu), free, once)
        gpu = self.gpu if gpu is None else gpu
        point = self.point if point is None else point
        arguments = jax.tree.map(jnp.asarray, (*self.program, gpu, point))
        # inside a caller's `jit` or `grad` a kept program cannot run
        if any(isinstance(x, Tracer) for x in jax.tree.leaves(arguments)):
            return step_costs(*arguments)
        return call_compiled(step_costs, arguments, once)

    def costs_behind(self, cached: float) -> StepCosts:
        """The table with prompts behind so many cached tokens."""
        program = self.program_behind(cached)
        arguments = jax.tree.map(jnp.asarray, (*program, self.gpu, self.point))
        return call_compiled(step_costs, arguments)

    def server(
        self,
        costs: StepCosts,
        gpu: GpuSpec | None = None,
        traffic: Traffic | None = None,
        sm_clock: Any = None,
        power_limit: Any = None,
        max_batch: Any = None,
    ) -> Server:
        """One replica with such costs; the rest as in `steady`."""
        gpu = self.gpu if gpu is None else gpu
        clock = self.point.sm_clock if sm_clock is None else sm_clock
        limit = self.point.power_cap if power_limit is None else power_limit
        return Server(
            costs,
            self.engine,
            self.memory(gpu),
            self.traffic if traffic is None else traffic,
            jnp.asarray(float(self.model.vocab)),
            jnp.asarray(float(self.chunk)),
            self.captured(max_batch),
            jnp.asarray(float(self.schedule == "prefill-first")),
            _at_most(clock, gpu.sm_clock_applied_max),
            jnp.asarray(limit * gpu.cap_fraction),
            self.pause,
            self.groups,
        )

    def captured(self, max_batch: Any = None) -> Array:
        """Tokens of a step with prompts up to which it runs as a graph."""
        limit = self.load.max_batch if max_batch is None else max_batch
        return jnp.asarray(captured(self.engine_name, limit), float)

    def steady(
        self,
        costs: StepCosts,
        *,
        rate: Any = None,
        concurrency: Any = None,
        max_batch: Any = None,
        sm_clock: Any = None,
        power_limit: Any = None,
        gpu: GpuSpec | None = None,
        traffic: Traffic | None = None,
    ) -> Steady:
        """Figures of one replica in balance: pure, differentiable, to be mapped.

        Steps are composed of decoding, prompts, sampling and host time, and then run at
        the highest clock at which their mean power keeps the limit.

        Args:
            costs: of its steps (`costs`).
            rate: requests a second of all replicas [the load's].
            concurrency: clients of all replicas [the load's].
            max_batch: most requests at once of a replica [the load's].
            sm_clock: requested SM clock, Hz, up to that of `costs` [the deployment's].
            power_limit: of one GPU, W [the deployment's].
            gpu: numbers of the GPU, for its memory and limiter [the deployment's].
            traffic: lengths [the load's].

        Returns:
            `Steady`: times in s, powers and energies of one GPU in W and J.
        """
        of = gpu, traffic, sm_clock, power_limit, max_batch
        server = self.server(costs, *of)
        load = self.load_arrays(rate, concurrency, max_batch, server)
        return steady(server, load, self.mode, self.states)

    def load_arrays(
        self,
        rate: Any = None,
        concurrency: Any = None,
        max_batch: Any = None,
        server: Server | None = None,
    ) -> LoadArrays:
        """The load of one replica as the closed forms take it; see `steady`."""
        load = self.load
        slots: Any = self.slots
        if server is not None:  # what is traced reaches the slots
            limit = load.max_batch if max_batch is None else max_batch
            fits = jnp.minimum(server.fits, math.inf if limit is None else limit)
            slots = jnp.clip(fits, 1.0, _MOST)
        clients, rate = (
            x if x is None else x / self.replicas
            for x in (
                load.concurrency if concurrency is None else concurrency,
                load.rate if rate is None else rate,
            )
        )
        phi = 0.0 if load.waves is None else 1 / load.waves
        return load_arrays(slots, clients, rate, phi, load.slo_ttft, load.slo_tpot)

    @property
    def mode(self) -> Mode:
        """How requests come."""
        return cast(Mode, self.load.mode)

    @property
    def states(self) -> int:
        """States of an open loop that reach beyond all slots."""
        return _STATES << max(math.ceil(math.log2((self.most + 1) / _STATES)), 0)


@dataclasses.dataclass(frozen=True)
class _Steps:
    """Arguments of `program`; equal ones share it."""

    model: LanguageModel
    request: Request
    batches: tuple[int, ...]
    context: float
    lengths: tuple[float, ...]
    cached: float
    chunk: int
    like: Program | None

    def __hash__(self) -> int:  # a model has no hash
        return hash((self.model.name, self.request.dtype, self.batches, self.lengths))


@functools.lru_cache(maxsize=32)
def _program(steps: _Steps) -> Program:
    """The program of steps: listing them takes longer than pricing them."""
    with jax.ensure_compile_time_eval():
        return program(**{x.name: getattr(steps, x.name) for x in _FIELDS})


_FIELDS: Final = dataclasses.fields(_Steps)


_UNLIMITED: Final = 1e6
"""W of a limit that is none (`OperatingPoint`): a table holds at any."""


@functools.lru_cache(maxsize=32)
def _costs(program: Program, gpu: Keyed, setting: Setting, once: bool) -> StepCosts:
    """The table of `Deployment.costs`, which loads and limits share."""
    with jax.ensure_compile_time_eval():  # it is kept: no tracers of a first caller
        arguments = (*program, gpu.value, point_of(setting))
        return call_compiled(step_costs, arguments, once)


def _at_most(clock: Any, highest: Array) -> Array:
    """The clock, or the highest one; at a tie with the slope of the clock."""
    return jnp.where(jnp.asarray(clock) > highest, highest, clock)


def traffic_of(
    prompt: Lengths, output: Lengths, cached: float, accept: float = 0.0
) -> Traffic:
    """Distributions as numbers; `accept` as in `Traffic`."""
    numbers = (
        prompt.mean, prompt.nodes, prompt.tail, cached,
        output.mean, output.spread, output.tail, accept,
    )  # fmt: skip
    # by numpy: jax converts a sequence number by number
    return Traffic(*(jnp.asarray(np.asarray(x, float)) for x in numbers))
