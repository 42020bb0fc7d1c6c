"""A workload on a GPU as a `Problem`, through the model."""

import dataclasses
from collections.abc import Iterable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..compiling import call_compiled
from ..corrections import Corrections
from ..estimator import Task, at_points, stacked, unstacked
from ..hardware import GpuCard, OperatingPoint, sm_clocks
from ..physics import chip_temperature, leakage_growth
from ..workload import Listing, Loop, Workload, assemble, listing_order
from ._costs import Costs, PowerCurve, Uniform, applied, row_costs, uniform
from ._groups import collapsed
from ._meter import BOARD, Meter
from ._problem import LEFT_ALONE, Problem
from ._shared import NETWORK, Shared, shared_of


@dataclasses.dataclass(frozen=True)
class Modelled:
    """A workload at every pair of clocks, as far as no schedule changes it.

    Leakage follows the temperature of a whole stage, hence its mean power, hence the
    schedule: `problem` takes how far it has grown. Energies and powers of problems are
    those that `meter` counts.
    """

    labels: tuple[str, ...]
    stages: tuple[str, ...]
    stage: Int[np.ndarray, " kernel"]
    count: Float[np.ndarray, " kernel"]
    loops: tuple[Loop, ...]
    settings: Float[np.ndarray, "setting 2"]
    costs: Costs  # settings, then the default; [setting kernel]
    uniform: Uniform
    workload: Workload
    card: GpuCard
    corrections: Corrections
    temperature: float | None  # C, if it is given
    power_cap: float  # W
    meter: Meter = BOARD
    shared: Shared | None = None
    """The step of a plan of many GPUs, whose energies and powers are of all."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels of `problem`."""
        rest = self.shared is not None and self.shared.rest > 0
        return (*self.labels, NETWORK) if rest else self.labels

    def of_step(self, task: Task) -> "Modelled":
        """The parts of a training step of a plan, of all its GPUs."""
        default = self.uniform.default
        shared, parts = shared_of(task, default, self.stage, self.count)
        return dataclasses.replace(
            self, stages=parts, loops=shared.loops, shared=shared
        )

    @property
    def limits(self) -> PowerCurve:
        """The workload under lower power limits."""
        curve = self.uniform.limits
        if self.shared is None:
            return curve
        total = self.shared.totals(self.uniform.limited)
        return dataclasses.replace(curve, time=total.time, energy=total.energy)

    @property
    def default_growth(self) -> Float[np.ndarray, " stage"]:
        """Growth of leakage at default clocks, as in the estimate."""
        stages, c = self.uniform.default, self.costs
        leakage = np.asarray(stages.components[:, -1])
        leaked = leakage * np.asarray(stages.gpu_time) / np.asarray(stages.time)
        return np.asarray(leaked / np.bincount(self.stage, (c.leakage * c.time)[-1]))

    def growth(self, power: Float[np.ndarray, " stage"]) -> Float[np.ndarray, " stage"]:
        """Growth of leakage in stages that draw `power` W on average, as it counts."""
        power = (~self.meter).power(power)
        if self.shared is not None:
            power = self.shared.board_power(power, self.uniform.default)
        temperature = np.asarray(chip_temperature(self.card.spec, jnp.asarray(power)))
        if self.temperature is not None:
            temperature = np.full_like(temperature, self.temperature)
        return np.asarray(
            call_compiled(leakage_growth, (self.corrections, temperature))
        )

    def problem(self, growth: Float[np.ndarray, " stage"]) -> Problem:
        """Kernels of their own clocks, when leakage has grown by `growth` in each
        stage; the costs of the default are always those of its own temperature."""
        default = self.uniform.default
        energy = self._energy(growth) / self.count
        time = np.asarray(self.costs.time) / self.count
        cap = self.power_cap * self.card.values["cap_fraction"]
        problem = Problem(
            kernels=self.labels,
            stages=self.stages,
            stage=self.stage,
            count=self.count,
            settings=self.settings,
            time=time[:-1].T,
            energy=energy[:-1].T,
            default_time=time[-1],
            default_energy=self._energy(self.default_growth)[-1] / self.count,
            loops=self.loops,
            power_cap=np.full(len(self.stages), cap),
            host_time=np.asarray(default.host_time),
            wait_power=np.asarray(default.static_power),
        )
        if self.shared is not None:
            static = self._static(growth)[:-1].T, self._static(self.default_growth)[-1]
            problem = self.shared.problem(problem, *static, self.loops)
        return self.meter.problem(problem)

    def stage_problem(self) -> Problem:
        """Stages with one pair of clocks each, as the power limiter leaves them."""
        clocks, default = self.uniform.clocks, self.uniform.default
        num = len(self.stages)
        allowed = self.uniform.feasible[:, None]
        problem = Problem(
            kernels=self.stages,
            stages=self.stages,
            stage=np.arange(num),
            count=np.ones(num),
            settings=self.settings,
            time=np.where(allowed, clocks.time, np.inf).T,
            energy=np.where(allowed, clocks.energy, np.inf).T,
            default_time=np.asarray(default.time),
            default_energy=np.asarray(default.energy),
            loops=(Loop(tuple(range(num)), 1),),
            power_cap=np.full(num, np.inf),
            host_time=np.zeros(num),
            wait_power=np.zeros(num),
        )
        if self.shared is not None:
            static = self.uniform.static.T, np.asarray(default.static_power)
            loops = tuple(collapsed(loop, self.stage) for loop in self.loops)
            problem = self.shared.problem(problem, *static, loops, stages=True)
        return self.meter.problem(problem)

    def _energy(
        self, growth: Float[np.ndarray, " stage"]
    ) -> Float[np.ndarray, "setting kernel"]:
        c = self.costs
        return np.asarray(c.work + self._static(growth) * c.time)

    def _static(
        self, growth: Float[np.ndarray, " stage"]
    ) -> Float[np.ndarray, "setting kernel"]:
        """W of idling and leakage."""
        return np.asarray(self.costs.idle + self.costs.leakage * growth[self.stage])


def clock_pairs(
    card: GpuCard, sm: Iterable[float] | None = None, mem: Iterable[float] | None = None
) -> Float[np.ndarray, "setting 2"]:
    """Pairs of clocks (SM, memory; Hz) that `card` can be set to, NaN for a clock left
    alone; the first leaves both alone.

    By default every step of the SM clock, and every memory clock that can be locked if
    there are several (HBM has one). An SM clock at its highest is the one left alone,
    as long as the memory clock is left alone too.
    """
    top = card.values["sm_clock_max"]
    if sm is None:
        sm = sm_clocks(card)
    if mem is None:
        mem = card.mem_clocks if len(card.mem_clocks) > 1 else ()
    pairs = [
        (f, m)
        for m in (LEFT_ALONE, *sorted(mem, reverse=True))
        for f in (LEFT_ALONE, *sorted(sm, reverse=True))
        if not (np.isnan(m) and f == top)
    ]
    return np.array(pairs)


def modelled(
    listings: Sequence[Listing],
    labels: Sequence[str],
    card: GpuCard,
    corrections: Corrections,
    power_cap: float,
    settings: Float[np.ndarray, "setting 2"],
    temperature: float | None = None,
) -> Modelled:
    """The workload of `listings` (one a stage) on `card` at every pair of `settings`.

    Arguments:

    - `labels`: name of every kernel, through all listings.
    - `power_cap`: power limit, W. `temperature`: C; None lets it follow the power.

    Raises `ValueError` if no kernel is launched.
    """
    live = [k["count"] > 0 for listing in listings for k in listing.kernels]
    listings = [
        dataclasses.replace(x, kernels=tuple(k for k in x.kernels if k["count"] > 0))
        for x in listings
    ]
    workload = assemble(listings)
    stage = np.repeat(np.arange(len(listings)), [len(x.kernels) for x in listings])
    whole = uniform(workload, card, corrections, settings, power_cap, temperature)
    governed = np.asarray(whole.default.sm_clock)[stage]
    points = _points(card, settings, governed)
    gpu = card.spec
    questions = [(workload, gpu, point, corrections) for point in unstacked(points)]
    costs: Costs = stacked(at_points(questions, row_costs))
    return Modelled(
        labels=tuple(x for x, runs in zip(labels, live, strict=True) if runs),
        stages=tuple(listing.mode or "forward" for listing in listings),
        stage=stage,
        count=np.array([float(k["count"]) for x in listings for k in x.kernels]),
        loops=tuple(
            loop
            for n, listing in enumerate(listings)
            for loop in listing_order(listing.kernels, int(np.sum(stage < n)))
        ),
        settings=settings,
        costs=costs,
        uniform=whole,
        workload=workload,
        card=card,
        corrections=corrections,
        temperature=temperature,
        power_cap=power_cap,
    )


def _points(
    card: GpuCard,
    settings: Float[np.ndarray, "setting 2"],
    governed: Float[np.ndarray, " kernel"],
) -> OperatingPoint:
    """Every setting for all rows, then the clocks that the limiter holds by default."""
    shape = (len(settings), len(governed))
    sm, mem = (np.broadcast_to(x[:, None], shape) for x in applied(card, settings))
    locked = np.append(~np.isnan(settings[:, 1]), False)
    sm = np.vstack([sm, governed])
    return OperatingPoint(
        sm,
        np.vstack([mem, np.full_like(governed, card.values["mem_clock"])]),
        np.ones(sm.shape),
        np.ones(sm.shape),
        np.broadcast_to(locked[:, None], sm.shape),
    )
