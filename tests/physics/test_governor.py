"""Power limits: the closed case of the A100, infeasible and idle limits, gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy.optimize import brentq

from diffenergy import estimator
from diffenergy.compiling import compiler_options
from diffenergy.corrections import CONSTANTS, Corrections, prior_file
from diffenergy.hardware import OperatingPoint, load_gpu, read_gpu, voltage
from diffenergy.physics import capped_clock, secant_clock
from diffenergy.units import GHz

LOW, HIGH = 0.21 * GHz, 1.41 * GHz
A100 = load_gpu("a100-pcie-40gb")


def power(clock: Array, work: float | Array = 250.0) -> Array:
    """P = 35.79 + 10.85 V^2 f + 30.39 V^4 + 250 V^2 f (f in GHz), W."""
    v, f = voltage(A100, clock), clock / GHz
    return 35.79 + (10.85 + work) * v**2 * f + 30.39 * v**4


@jax.jit
def govern(requested: Array, lowest: Array, cap: Array) -> tuple[Array, Array]:
    """Clock and feasibility with the power of the closed case."""
    return capped_clock(power, requested, lowest, cap)


def columns(size: int, *values: float) -> tuple[Array, Array, Array]:
    """Requested and lowest clock and cap, the same for `size` elements."""
    requested, lowest, cap = (jnp.full(size, x) for x in values)
    return requested, lowest, cap


@pytest.mark.parametrize(
    ("cap", "requested", "clock", "feasible", "slopes"),
    [
        (400.0, HIGH, HIGH / GHz, True, (1, 0, 0)),  # 349 W at the requested clock
        (242.0, HIGH, 1.23529, True, (0, 0, 1e9 / 459.7)),
        (120.0, HIGH, 0.61469, True, None),
        (60.0, HIGH, LOW / GHz, False, (0, 1, 0)),  # 69 W idle and at work at 210 MHz
        (400.0, LOW, LOW / GHz, True, None),
        (60.0, LOW, LOW / GHz, False, None),
    ],
)
def test_closed_case(
    cap: float, requested: float, clock: float, feasible: bool, slopes
):
    """Clock, and its slopes by the requested and the lowest clock and the cap."""
    at = columns(1, requested, LOW, cap)
    result, possible = govern(*at)
    assert float(result[0]) / GHz == pytest.approx(clock, abs=6e-6)
    assert bool(possible[0]) == feasible
    got = jax.grad(lambda *x: govern(*x)[0][0], argnums=(0, 1, 2))(*at)
    if slopes:
        assert [float(x[0]) for x in got] == pytest.approx(slopes, rel=2e-4)


def test_root_agrees_with_bisection():
    caps = np.linspace(70, 340, 55)
    clock, feasible = govern(jnp.full(55, HIGH), jnp.full(55, LOW), jnp.asarray(caps))
    assert jnp.all(feasible)
    roots = [
        brentq(lambda f, cap=cap: float(power(jnp.asarray(f))) - cap, LOW, HIGH)
        for cap in caps
    ]
    assert np.asarray(clock) == pytest.approx(np.array(roots), rel=1e-8)
    assert jnp.all(jnp.diff(clock) > 0)


def test_idle_power_alone_is_over_the_limit():
    over, slope = (jnp.ravel(x) for x in jnp.meshgrid(
        jnp.asarray([1e-3, 0.5, 20.0]), jnp.asarray([1e-6, 0.01, 1.0, 40.0])
    ))  # fmt: skip
    clock, feasible = capped_clock(
        lambda f: 60 + over + slope * (f - LOW) / GHz,
        *columns(over.size, HIGH, LOW, 60.0),
    )
    assert jnp.all(clock == LOW) and not jnp.any(feasible)


def test_flat_and_steep_powers():
    place, slope = (jnp.ravel(x) for x in jnp.meshgrid(
        jnp.asarray([1e-4, 0.02, 0.5, 0.999]), jnp.asarray([1e-3, 0.1, 1.0, 3.0, 8.0])
    ))  # fmt: skip
    root = LOW + place * (HIGH - LOW)
    clock, feasible = capped_clock(
        lambda f: 60 * (f / root) ** slope,
        *columns(root.size, HIGH, LOW, 60.0),
    )
    assert jnp.all(feasible)
    assert np.asarray(clock) == pytest.approx(np.asarray(root), rel=1e-6)


def test_slope_of_what_the_power_depends_on():
    @functools.partial(jax.jit, compiler_options=compiler_options(once=True))
    def clock_and_slope(work: Array) -> tuple[Array, Array]:
        def clock(work: Array) -> Array:
            def of(f: Array) -> Array:
                return power(f, work)

            return capped_clock(of, *columns(1, HIGH, LOW, 242.0))[0][0]

        return jax.value_and_grad(clock)(work)

    step = 0.01
    (up, _), (down, _), (_, slope) = (
        clock_and_slope(jnp.asarray(work)) for work in (250 + step, 250 - step, 250.0)
    )
    assert slope == pytest.approx(float((up - down) / (2 * step)), rel=1e-5)


def test_single_width():
    with jax.enable_x64(False):
        one = jnp.ones(1, jnp.float32)
        clock, feasible = capped_clock(
            lambda f: 40 + 250 * (f / GHz) ** 2, HIGH * one, LOW * one, 240 * one
        )
        assert feasible[0]
        assert clock[0] / GHz == pytest.approx(0.8**0.5, rel=1e-5)


# --- the clock of fits, by a fixed number of secant steps

SHAPES = (
    {"m": 4096, "n": 4096, "k": 4096},
    {"m": 16, "n": 8192, "k": 8192},
    {"m": 1024, "n": 3072, "k": 16384},
    {"m": 8192, "n": 8192, "k": 8192},
    {"m": 4096, "n": 7168, "k": 7168, "dtype": "fp8_block"},
)
CAPS = (300.0, 500.0, 700.0)
MOVED = ("energy_tensor", "core_energy", "dram_efficiency", "leakage")


@pytest.fixture(scope="module")
def capped(sample, phases):
    """`estimate`, and `runs` with its forward slope: time and energy of every shape at
    every cap as functions of relative changes of the constants `MOVED`."""
    card = read_gpu("h200-sxm")
    gpu = card.spec
    rows = [[sample("gemm", **shape)] for shape in SHAPES for _ in CAPS]
    workload, served = phases(*rows), prior_file().serve(card)

    def moved(x: Array) -> Corrections:
        scale: dict[str, Array] = dict(zip(MOVED, jnp.exp(x), strict=True))
        return Corrections(
            **{name: getattr(served, name) * scale.get(name, 1.0) for name in CONSTANTS}
        )

    def point(caps: Array) -> OperatingPoint:
        top = jnp.full(len(rows), 1.0)
        return OperatingPoint(
            gpu.sm_clock_max * top, gpu.mem_clock * top, caps, 60 * top
        )

    caps = jnp.asarray(CAPS * len(SHAPES))
    options = compiler_options(once=True)

    @functools.partial(jax.jit, compiler_options=options)
    def searched(x: Array, caps: Array) -> tuple[Array, Array, Array]:
        got = estimator.estimate_workload(workload, gpu, point(caps), moved(x)).phases
        return jnp.stack([got.time, got.energy]), got.sm_clock, got.feasible

    def stepped(x: Array) -> tuple[Array, Array]:
        both = estimator.runs(workload, gpu, point(caps), moved(x), True, True)
        return jnp.stack(both[0]), jnp.stack(both[1])

    @functools.partial(jax.jit, compiler_options=options)
    def forward(x: Array, v: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        return jax.jvp(stepped, (x,), (v,))

    return caps, searched, forward


def test_secant_steps_of_a_power_law():
    """P ~ f^2 and t ~ 1/f: the clock falls by the root of what the cap asks for, stays
    as requested, or ends at the lowest one."""
    top, cap = jnp.zeros(3), jnp.array([-1.0, 0.5, -9.0])
    clock, slopes = secant_clock(lambda x: jnp.stack([-x, 2 * x]), top, top - 2, cap)
    assert clock.tolist() == pytest.approx([-0.5, 0.0, -2.0])
    assert np.asarray(slopes) == pytest.approx(np.repeat([[-1.0], [2.0]], 3, axis=1))


@pytest.mark.slow
def test_secant_steps_find_the_root(capped):
    """Slow-downs and powers to 1 %; a cap that binds is kept, a free run is exact."""
    caps, searched, forward = capped
    at = jnp.zeros(len(MOVED))
    free, *_ = searched(at, 0 * caps + 1e6)
    kept_power, clock, feasible = searched(at, caps)
    (got_free, got_held), _ = forward(at, at)
    assert jnp.all(feasible)
    slow = np.asarray(kept_power[0] / free[0])
    assert (slow > 1.1).any() and (slow == 1).any()  # both kinds of phase are here
    assert np.asarray(got_free) == pytest.approx(np.asarray(free), rel=1e-9)
    assert np.asarray(got_held[0] / got_free[0]) == pytest.approx(slow, rel=0.01)
    power = np.asarray(kept_power[1] / kept_power[0])
    assert np.asarray(got_held[1] / got_held[0]) == pytest.approx(power, rel=0.01)
    bound = np.asarray(clock) < 0.999 * float(clock.max())
    limit = np.asarray(caps) * float(load_gpu("h200-sxm").cap_fraction)
    assert power[bound] == pytest.approx(limit[bound], rel=1e-6)


@pytest.mark.slow
def test_forward_slopes_of_the_secant_clock(capped):
    """d ln (time, energy) of free and governed runs by each constant, against
    differences of the search for the root.

    At 300 W, less than half of the GPU's limit, the steps end 1e-3 from a root at half
    of the clock, where d ln P / d ln f changes fast.
    """
    caps, searched, forward = capped
    at, step = jnp.zeros(len(MOVED)), 1e-4
    far = np.asarray(caps) < 400
    for direction in jnp.eye(len(MOVED)):
        values, slopes = forward(at, direction)
        for limit, value, slope in zip(
            (0 * caps + 1e6, caps), values, slopes, strict=True
        ):
            up, down = (searched(s * step * direction, limit)[0] for s in (1, -1))
            expected = np.asarray(jnp.log(up / down)) / (2 * step)
            got = np.asarray(slope / value)
            assert got[:, ~far] == pytest.approx(expected[:, ~far], rel=2e-3, abs=2e-4)
            assert got[:, far] == pytest.approx(expected[:, far], rel=0.04, abs=5e-4)
