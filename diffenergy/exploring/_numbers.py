"""What the sliders turn and what is seen: pure numbers, one compiled program."""

import dataclasses
import functools
from typing import Any, Final, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..estimator import at_points, estimate_once, stacked, unstacked
from ..hardware import GpuCard, GpuSpec, OperatingPoint, sm_clocks
from ..physics import COMPONENTS
from ..workload import Workload, assemble
from ..workload.models import Model

POINTS: Final = 11
"""Clocks of the curve."""
SLOWEST: Final = 3.0
"""The curve ends at the highest clock / this: nobody would choose what is slower."""
FIELDS: Final = ("num_sms", "l2_capacity", "dram_bandwidth")
"""Numbers of the GPU that can be turned."""
_CACHED: Final = 64
"""Workloads that are kept, of the requests looked at last."""


class Values(NamedTuple):
    """What the sliders say, in SI units. `input_len` and `output_len` are None for
    models that have none."""

    sm_clock: float  # Hz
    power_limit: float  # W
    batch: int
    input_len: int | None
    output_len: int | None
    num_sms: float
    l2_capacity: float  # B
    dram_bandwidth: float  # B/s


@dataclasses.dataclass(frozen=True)
class Shown:
    """What is seen at some values.

    `tokens`: that the request makes, or reads where it makes none (images: how many).
    Where the limit cannot be kept the figures are those of the lowest clock.
    Of the curve, each array has a row for each of `clocks`, asked for under the power
    limit; NaN where the limit cannot be kept.
    """

    time: float  # s
    energy: float  # J
    tokens: int
    ttft: float | None  # s to the first token; None unless tokens are made
    tpot: float | None  # s for each token after
    requested_clock: float  # Hz
    sm_clock: float  # Hz, held in the mean
    feasible: bool  # the power limit can be kept
    memory: float  # B that the request needs
    capacity: float  # B of the GPU's memory
    energy_by_unit: dict[str, float]  # J
    clocks: np.ndarray  # Hz, rising
    times: np.ndarray  # s
    energies: np.ndarray  # J

    @property
    def energy_per_token(self) -> float:
        """J for each of the tokens."""
        return self.energy / self.tokens

    @property
    def power(self) -> float:
        """Mean power, W."""
        return self.energy / self.time


class _Totals(NamedTuple):
    """An estimate, or those at some clocks."""

    time: Array | np.ndarray
    energy: Array | np.ndarray
    sm_clock: Array | np.ndarray
    feasible: Array | np.ndarray
    phase_time: Array | np.ndarray  # [*clock, phase]
    components: Array | np.ndarray  # [*clock, component]


class Numbers:
    """A request of `model` on the GPU of `card`, at whatever the sliders say.

    `gpu`: its numbers with the constants that serve it; `request`: the choices of
    `Model.listings` that stay. The model is compiled once, at the first look: batch,
    lengths and all numbers are data.
    """

    def __init__(self, model: Model, card: GpuCard, gpu: GpuSpec, **request: Any):
        self.model, self.card, self.gpu = model, card, gpu
        self._request = request
        self._work = functools.lru_cache(_CACHED)(self._built)
        clocks = np.sort(sm_clocks(card))
        self.steps = clocks[clocks >= clocks[-1] / SLOWEST]
        """Clocks that can be chosen, rising, Hz."""
        places = np.linspace(0, len(self.steps) - 1, POINTS).round().astype(int)
        self.clocks = np.unique(self.steps[places])
        """Clocks of the curve (Hz)."""

    def at(self, values: Values) -> Shown:
        """What is seen at `values`. Raises `ValueError` for requests that the model
        refuses."""
        lengths = (values.batch, values.input_len, values.output_len)
        workload, memory = self._work(*lengths)
        changed = {name: float(getattr(values, name)) for name in FIELDS}
        gpu = dataclasses.replace(self.gpu, **changed)
        clocks = np.array([values.sm_clock, *self.clocks])
        others = (float(gpu.mem_clock), values.power_limit)
        points = unstacked(
            OperatingPoint(clocks, *(np.full(len(clocks), x) for x in others))
        )
        totals: _Totals = stacked(
            at_points([(workload, gpu, x) for x in points], _totals, often=True)
        )
        times, energies = (
            np.where(totals.feasible, x, np.nan)[1:]
            for x in (totals.time, totals.energy)
        )
        ttft, tpot = None, None
        if values.output_len is not None and totals.phase_time.shape[1] == 2:
            ttft, rest = totals.phase_time[0].tolist()
            tpot = rest / (values.output_len - 1)
        return Shown(
            time=float(totals.time[0]),
            energy=float(totals.energy[0]),
            tokens=values.batch * (values.output_len or values.input_len or 1),
            ttft=ttft,
            tpot=tpot,
            requested_clock=float(values.sm_clock),
            sm_clock=float(totals.sm_clock[0]),
            feasible=bool(totals.feasible[0]),
            memory=memory,
            capacity=self.card.values["dram_capacity"],
            energy_by_unit=dict(
                zip(COMPONENTS, totals.components[0].tolist(), strict=True)
            ),
            clocks=self.clocks,
            times=times,
            energies=energies,
        )

    def _built(
        self, batch: int, input_len: int | None, output_len: int | None
    ) -> tuple[Workload, float]:
        """The workload of a request and the bytes of memory that it needs."""
        lengths = {"input_len": input_len, "output_len": output_len}
        choices = {name: x for name, x in lengths.items() if x is not None}
        choices |= self._request | {"batch": batch}
        listings = self.model.listings(**choices)
        memory = sum(self.model.memory(self.model.request(**choices)).values())
        return assemble(listings), float(memory)


def _totals(workload: Workload, gpu: GpuSpec, point: OperatingPoint) -> _Totals:
    """An estimate."""
    estimates = estimate_once(workload, gpu, point)
    return _Totals(
        estimates.time,
        estimates.energy,
        estimates.sm_clock,
        jnp.all(estimates.phases.feasible),
        estimates.phases.time,
        jnp.sum(estimates.phases.components, axis=-2),
    )
