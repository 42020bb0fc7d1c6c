"""`GpuSpec` and `OperatingPoint`: the numbers of a GPU and where it runs."""

import math
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from ..corrections import Corrections, constant_steps
from ..records import Record, as_float, gradient_table, is_concrete
from ..units import GHz
from ._fields import CLOCK, FIELDS, MMA_KINDS, NumberField
from ._link_costs import LinkCosts

if TYPE_CHECKING:
    from ._fields import GpuNumbers
else:
    GpuNumbers = types.new_class(
        "GpuNumbers",
        (Record,),
        exec_body=lambda body: body.update(
            {name: eqx.field(converter=as_float) for name in FIELDS},
            __annotations__=dict.fromkeys(FIELDS, Float[Array, "*batch"]),
            __module__=__name__,
            __doc__="Numbers of a GPU file as arrays.",
        ),
    )


class GpuSpec(GpuNumbers):
    """Everything numeric about one GPU (or a batch of GPUs), in SI, with the fitted
    constants that serve it.

    Every number of a GPU file is a field (see `FIELDS`: unit, range and meaning, also
    printed by `diffenergy gpus show h100-sxm`): clocks in Hz, capacities in B, rates in
    B/s or per cycle of the SM clock, power in W, latencies of DRAM in s and of all else
    in cycles, voltages in V, temperatures in C. Numbers that a file could not hold are
    refused (`ValueError`); tracers are not looked at.
    """

    mma_kind: Float[Array, "*batch"] = eqx.field(converter=as_float)
    """Index in `MMA_KINDS`, as a float: the whole record can be differentiated (GPUs
    without tensor cores have 0)."""
    corrections: Corrections
    """Fitted constants that serve this GPU."""
    links: LinkCosts
    """Fitted constants of collectives, one row for each of `link_costs.BLOCKS`."""

    def __check_init__(self):
        """Raises `ValueError` for a number that cannot be right."""
        for name, rule in FIELDS.items():
            _check(name, rule, _plain_numbers(getattr(self, name)))

    def __repr__(self) -> str:
        """Numbers of a GPU; of a gradient, which no GPU can be, its largest entries."""
        signed = [x for x, rule in FIELDS.items() if rule.sign == "+"]
        if not is_concrete(self) or all(np.all(getattr(self, x) > 0) for x in signed):
            return super().__repr__()
        steps = {x: rule.stepped for x, rule in FIELDS.items() if rule.step}
        for name, (number, unit, si) in steps.items():
            if FIELDS[name].counted:  # its gradient is a straight-through one
                steps[name] = (number, f"{unit} (smoothed)", si)
        constants, inner = constant_steps(), vars(self.corrections)
        steps |= {f"corrections.{x}": step for x, step in constants.items()}
        inner = {f"corrections.{x}": value for x, value in inner.items()}
        return gradient_table("GpuSpec", vars(self) | inner, steps)

    @property
    def sm_clock_applied_max(self) -> Float[Array, "*batch"]:
        """Highest SM clock that is applied, Hz; requests above are cut to it."""
        return self.sm_clock_max * self.sm_clock_applied_share

    @property
    def is_systolic(self) -> Bool[Array, "*batch"]:
        """Whether its matrix units are systolic arrays."""
        return self.mma_kind > _SYSTOLIC - 0.5

    @property
    def copies_in_bulk(self) -> Bool[Array, "*batch"]:
        """Whether operands come by bulk copies of 16 B alone: wgmma and tcgen05."""
        return (self.mma_kind > 0) & ~self.is_systolic


_SYSTOLIC: Final = MMA_KINDS.index("systolic")
_CAP: Final = NumberField("W", "power limit", high=1e4, slip="mW")
_UNLIMITED: Final = 1e6
"""W; a power cap from there on is none."""
_HOTTEST: Final = 200.0
"""C; above it a temperature is surely in K."""


class OperatingPoint(Record):
    """Where a GPU runs: requested clocks, power limit, temperature.

    Arguments:

    - `sm_clock`, `mem_clock`: Hz (`1.98 * GHz`), above 0.
    - `power_cap`: W, above 0; from 1e6 on there is no limit.
    - `temperature`: of the chip, C; NaN, or left out: it follows from the thermal
      resistance.
    - `mem_locked`: 1 where the memory clock is locked, 0 where it is left alone [0]
      (GeForce boards then run the SMs at a higher voltage, see `voltage`).

    NaN means "not given". Raises `ValueError` for numbers that cannot be right, naming
    the likely slip; tracers are not looked at.

    >>> OperatingPoint(1980, 2619e6, 700)
    Traceback (most recent call last):
    ValueError: `sm_clock` is 1980, which looks like MHz; give it in Hz (1.98e+09).
    """

    sm_clock: Float[Array, "*batch"] = eqx.field(converter=as_float)  # Hz
    mem_clock: Float[Array, "*batch"] = eqx.field(converter=as_float)  # Hz
    power_cap: Float[Array, "*batch"] = eqx.field(converter=as_float)  # W
    temperature: Float[Array, "*batch"] = eqx.field(converter=as_float)  # C
    mem_locked: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def __init__(
        self,
        sm_clock: ArrayLike | Sequence[int | float],
        mem_clock: ArrayLike | Sequence[int | float],
        power_cap: ArrayLike | Sequence[int | float],
        temperature: ArrayLike | Sequence[int | float] | None = None,
        mem_locked: ArrayLike | Sequence[int | float] | None = None,
    ):
        self.sm_clock = as_float(sm_clock)
        self.mem_clock = as_float(mem_clock)
        self.power_cap = as_float(power_cap)
        shape = self.sm_clock.shape  # what is left out fits the rest
        celsius = np.full(shape, math.nan) if temperature is None else temperature
        locked = np.zeros(shape) if mem_locked is None else mem_locked
        self.temperature, self.mem_locked = as_float(celsius), as_float(locked)
        _check("sm_clock", CLOCK, _plain_numbers(sm_clock))
        _check("mem_clock", CLOCK, _plain_numbers(mem_clock))
        caps = _plain_numbers(power_cap)
        _check("power_cap", _CAP, caps[caps < _UNLIMITED])
        _check_temperature(_plain_numbers(celsius))


def _plain_numbers(value: Any) -> Float[np.ndarray, " known"]:
    """The numbers of an argument that are given and are no tracers."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value)):
        return np.zeros(0)
    numbers = np.ravel(np.asarray(value, float))
    return numbers[~np.isnan(numbers)]


def _check(name: str, rule: NumberField, numbers: Float[np.ndarray, " known"]):
    """Raises `ValueError` where one of `numbers` cannot be right."""
    if numbers.size:  # what is allowed is an interval
        rule.check(name, float(numbers.min()))
        rule.check(name, float(numbers.max()))


def _check_temperature(celsius: Float[np.ndarray, " known"]):
    """Raises `ValueError` for what is no temperature of a chip in C."""
    wrong = celsius[(celsius < -273.15) | (celsius > _HOTTEST)]
    if wrong.size:
        slip = " (is that K? Subtract 273.15)" if wrong[0] > _HOTTEST else ""
        raise ValueError(
            f"`temperature` is {wrong[0]:g}; allowed are -273.15 to {_HOTTEST:g} C"
            f"{slip}."
        )


def default_point(gpu: GpuSpec) -> OperatingPoint:
    """Highest clocks, default power limit, temperature from the thermal resistance."""
    return OperatingPoint(
        gpu.sm_clock_max,
        gpu.mem_clock,
        gpu.tdp,
        jnp.full_like(gpu.tdp, jnp.nan),
    )


KNEE_WIDTH: Final = 0.03 * GHz
"""Width of the softplus that rounds the V-f knee (0.02-0.05 GHz fit alike)."""


def voltage(
    gpu: GpuSpec, sm_clock: Float[Array, "*p"], mem_locked: ArrayLike = 1.0
) -> Float[Array, "*p"]:
    """Core voltage at `sm_clock` (Hz), V: flat up to a knee, then rising.

    V(f) = V0 + s h + q h^2, h = w ln(1 + exp((f - knee)/w)). Monotone for s, q >= 0.
    On the A100-PCIe-40GB table (81 rows) rms 2.3 mV, one step of 6.25 mV.
    Where the memory clock is not locked (`mem_locked` 0), s grows by
    `vf_unlocked_slope`: an RTX 3080 Ti draws up to 11 % less at the same SM clock as
    soon as its memory clock is locked, even at its highest (arXiv 2601.08539).
    """
    h = KNEE_WIDTH * jax.nn.softplus((sm_clock - gpu.vf_knee_clock) / KNEE_WIDTH)
    slope = gpu.vf_slope + gpu.vf_unlocked_slope * (1 - mem_locked)
    return gpu.vf_floor_voltage + slope * h + gpu.vf_curvature * h**2


def relative_voltage(
    gpu: GpuSpec, sm_clock: Float[Array, "*p"], mem_locked: ArrayLike = 1.0
) -> Float[Array, "*p"]:
    """V(f)/V0, the ratio that core energies (stated at V0) scale with."""
    return voltage(gpu, sm_clock, mem_locked) / gpu.vf_floor_voltage


def idle_power(
    gpu: GpuSpec, sm_clock: Float[Array, "*p"], mem_locked: ArrayLike = 1.0
) -> Float[Array, "*p"]:
    """Board power at zero work and locked `sm_clock` (Hz), W, on a cold board.

    P = c + a V^2 f + b V^4: board and memory, clock tree of empty SMs, leakage. With
    the A100 tables (81 rows each) rms 0.35-0.37 W.
    """
    v = voltage(gpu, sm_clock, mem_locked)
    return (
        gpu.idle_constant + gpu.idle_clock * v**2 * sm_clock + gpu.idle_leakage * v**4
    )
