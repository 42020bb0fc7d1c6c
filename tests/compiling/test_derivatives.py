"""Derivatives outside of a `jax.jit`: those inside, by whatever way they are taken."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.experimental.compilation_cache import compilation_cache

import diffenergy as de
from diffenergy.compiling import (
    _derivatives,
    _programs,
    compiled_whole,
    compiler_options,
)
from diffenergy.hardware import GpuSpec

ONCE = compiler_options(once=True)


@dataclasses.dataclass(frozen=True)
class Cubic:
    """x^3 y summed over x, x y, and whether x is large: real and other results."""

    factor: float = 1.0

    def __call__(self, x: Array, y: Array) -> list[Array]:
        return [self.factor * jnp.sum(x**3) * y, x * y, x > 1.0]


def cubic(x: Any, y: Any, factor: float = 1.0) -> Array:
    """factor * sum(x^3) y, called as estimates are."""
    return compiled_whole(Cubic(factor), [jnp.asarray(x), jnp.asarray(y)])[0]


X, Y = jnp.asarray([0.5, 2.0]), jnp.asarray(3.0)
XS, YS = jnp.stack([X, 2 * X]), jnp.stack([Y, -Y])
SUM = 0.125 + 8
SLOPES = (9 * X**2, SUM)
CURVATURE = ((jnp.diag(18 * X), 3 * X**2), (3 * X**2, 0.0))
ALONG = 9 * (0.25 + 4)
"""Tangent of equal steps in x."""


def mapped(y: Array) -> Array:
    """Sum over `XS`."""
    return jnp.sum(jax.vmap(cubic, (0, None))(XS, y))


def third(x: Array) -> Array:
    """Third derivative by the first x."""
    second = jax.grad(lambda b: jax.grad(cubic)(b, Y)[0])
    return jax.grad(lambda a: second(a)[0])(x)


ONES, BOTH = jnp.ones(2), (0, 1)
WAYS: dict[str, tuple[Callable[[], Any], Any]] = {
    "value": (lambda: cubic(X, Y), SUM * 3),
    "grad": (lambda: jax.grad(cubic, BOTH)(X, Y), SLOPES),
    "jit of grad": (lambda: jax.jit(jax.grad(cubic, BOTH))(X, Y), SLOPES),
    "jacfwd": (lambda: jax.jacfwd(cubic, BOTH)(X, Y), SLOPES),
    "vmap": (lambda: jax.vmap(cubic, (None, 0))(X, YS), jnp.asarray([3, -3]) * SUM),
    "vmap of grad": (
        lambda: jax.vmap(jax.grad(cubic), (0, None))(XS, Y),
        jnp.stack([SLOPES[0], 4 * SLOPES[0]]),
    ),
    "grad of vmap": (lambda: jax.grad(mapped)(Y), (1 + 8) * SUM),
    "linearize": (lambda: jax.linearize(cubic, X, Y)[1](ONES, jnp.zeros(())), ALONG),
    "transpose of a pullback": (
        lambda: jax.linear_transpose(jax.vjp(cubic, X, Y)[1], Y)((ONES, Y))[0],
        ALONG + 3 * SUM,
    ),
    "jit of a pullback": (lambda: jax.jit(jax.vjp(cubic, X, Y)[1])(Y)[1], 3 * SUM),
    "checkpoint": (lambda: jax.grad(jax.checkpoint(cubic))(X, Y), SLOPES[0]),
    "hessian": (lambda: jax.hessian(cubic, BOTH)(X, Y), CURVATURE),
    "reverse over reverse": (
        lambda: jax.jacrev(jax.jacrev(cubic, BOTH), BOTH)(X, Y), CURVATURE
    ),
    "reverse over forward": (
        lambda: jax.jacrev(jax.jacfwd(cubic, BOTH), BOTH)(X, Y), CURVATURE
    ),
    "third": (lambda: third(X), jnp.asarray([18.0, 0.0])),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_derivative(way: str):
    result, expected = WAYS[way]
    got = jax.tree.leaves(result())
    for a, b in zip(got, jax.tree.leaves(expected), strict=True):
        assert np.asarray(a) == pytest.approx(np.asarray(b), rel=1e-12)


def test_results_that_are_not_real_pass_through():
    values, slopes = jax.jvp(
        lambda x: tuple(compiled_whole(Cubic(), [x, Y])), (X,), (jnp.ones(2),)
    )
    assert values[2].tolist() == [False, True] and slopes[2].dtype == jax.dtypes.float0
    assert slopes[1].tolist() == [3.0, 3.0]


def test_equal_functions_share_a_program():
    jax.grad(cubic)(X, Y, 7.0)
    before = (
        _derivatives._program.cache_info().misses,
        _derivatives._traced.cache_info().misses,
    )
    jax.grad(cubic)(2 * X, Y, 7.0)
    jax.jacrev(cubic)(X, Y, 7.0)  # a map of it is another
    after = (
        _derivatives._program.cache_info().misses,
        _derivatives._traced.cache_info().misses,
    )
    assert after == (before[0] + 1, before[1])


# --- programs that later processes load


def scaled_cubic(x: dict[str, Array], y: Array) -> Array:
    """A function of a module, with a tree of arguments."""
    return jnp.sum(x["x"] ** 3 * y)


def persistent(x: Array) -> Array:
    return compiled_whole(scaled_cubic, [{"x": x}, Y], persistent=True)


@pytest.fixture
def anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[], Path]]:
    """Goes on as a new process does, which has loaded nothing; returns the folder of
    programs, empty at first. JAX's own cache is off: what comes out of it cannot be
    written again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()

    def forget() -> Path:
        monkeypatch.setattr(_programs, "_LOADED", {})
        for function in ("_traced", "_tangent", "_transposed", "_mapped", "_program"):
            getattr(_derivatives, function).cache_clear()
        return tmp_path / "diffenergy" / "jax"

    yield forget
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


@pytest.fixture
def no_tracing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Refuses from then on what only a compilation needs."""

    def refuse() -> None:
        monkeypatch.setattr(_derivatives.jax, "make_jaxpr", None)
        monkeypatch.setattr(_programs, "compiler_options", None)

    return refuse


def derivatives(x: Array) -> list[Array]:
    """Value, gradient, forward derivative, map of gradients, Hessian."""
    return [
        persistent(x),
        jax.grad(persistent)(x),
        jax.jvp(persistent, (x,), (jnp.ones(2),))[1],
        jax.vmap(jax.grad(persistent))(jnp.stack([x, 2 * x])),
        jax.hessian(persistent)(x),
    ]


def by_hand(x: Array) -> list[Array]:
    """Those of sum(x^3 y)."""
    slope = 3 * x**2 * Y
    return [
        jnp.sum(x**3 * Y), slope, jnp.sum(slope), jnp.stack([slope, 4 * slope]),
        jnp.diag(6 * x * Y),
    ]  # fmt: skip


def test_derivatives_are_loaded_without_a_trace(anew, no_tracing):
    """Broken files are replaced."""
    folder = anew()
    close(derivatives(X), by_hand(X))
    for file in folder.iterdir():
        file.write_bytes(b"broken")
    anew()
    close(derivatives(X), by_hand(X))
    anew()
    no_tracing()
    close(derivatives(2 * X), by_hand(2 * X))


def test_a_folder_that_cannot_be_written_changes_no_derivative(anew, monkeypatch):
    folder = anew()

    def refuse(*_: Any) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr(_programs, "write_bytes_atomic", refuse)
    close(derivatives(X), by_hand(X))
    assert list(folder.iterdir()) == []
    monkeypatch.setattr("os.access", lambda *_: False)  # of the user's own folder
    anew()
    close(derivatives(X), by_hand(X))


def test_debugged_numbers_are_compiled_by_jax(anew):
    """A loaded program checks nothing."""
    folder = anew()
    with jax.debug_nans(True):
        assert float(persistent(X)) == float(by_hand(X)[0])
        with pytest.raises(FloatingPointError):
            persistent(X * jnp.nan)
    assert list(folder.iterdir()) == []
    assert float(persistent(X)) == float(by_hand(X)[0])
    assert len(list(folder.iterdir())) == 1


def test_the_width_of_numbers_is_part_of_a_program(anew):
    anew()
    arguments = [{"x": jnp.ones(2, "float32")}, jnp.ones(2, "float32")]
    for wide in (True, False, True):
        with jax.enable_x64(wide):
            value = compiled_whole(widened, arguments, persistent=True)
            assert value.dtype == ("float64" if wide else "float32")


def widened(x: dict[str, Array], y: Array) -> Array:
    """A sum in the width that JAX counts in."""
    return jnp.sum(x["x"].astype(float) * y)


# --- of estimates


@pytest.fixture(scope="module")
def energy(sample, phases) -> Callable[..., Array]:
    """J of a small workload by the GPU."""
    workload = phases([sample("gather")])
    return lambda gpu: de.estimate(workload, gpu).energy


def close(a: Any, b: Any):
    """That two trees of numbers are the same but for rounding."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x == pytest.approx(y, rel=1e-9, abs=1e-12 * np.abs(y).max())


@pytest.mark.slow
def test_the_gradient_is_that_of_a_jit(energy):
    gpu = de.load_gpu("a100-sxm-80gb")
    value, slope = jax.value_and_grad(energy)(gpu)
    close(
        (value, slope), jax.jit(jax.value_and_grad(energy), compiler_options=ONCE)(gpu)
    )
    _, forward = jax.jvp(energy, (gpu,), (jax.tree.map(lambda x: 0.01 * x, gpu),))
    pairs = zip(jax.tree.leaves(gpu), jax.tree.leaves(slope), strict=True)
    along = sum(0.01 * float(jnp.sum(x * y)) for x, y in pairs)
    assert float(forward) == pytest.approx(along, rel=1e-9)
    around = [
        energy(dataclasses.replace(gpu, dram_bandwidth=gpu.dram_bandwidth * x))
        for x in (1 - 1e-4, 1 + 1e-4)
    ]
    by_bandwidth = float(slope.dram_bandwidth * gpu.dram_bandwidth)
    assert by_bandwidth == pytest.approx(float(around[1] - around[0]) / 2e-4, rel=1e-5)


@pytest.mark.slow
def test_an_estimate_and_its_gradient_are_those_of_compiled_ones(
    energy, anew, no_tracing
):
    """As a process answers that loads them, also without the folder."""
    anew()
    gpu = de.load_gpu("h100-sxm")
    compiled = energy(gpu), jax.grad(energy)(gpu)
    anew()
    no_tracing()
    close((energy(gpu), jax.grad(energy)(gpu)), compiled)


@pytest.mark.slow
def test_a_gradient_compiles_with_options_of_ours(energy, anew, monkeypatch):
    """No program of its own is compiled as XLA would."""
    request: list[Any] = []
    real = jax.jit

    def jit(function: Any, **more: Any) -> Any:
        if "compiler_options" in more:
            request.append(more["compiler_options"])
        return real(function, **more)

    anew()
    monkeypatch.setattr(_derivatives.jax, "jit", jit)
    jax.grad(energy)(de.load_gpu("h100-sxm"))
    assert request == [ONCE, ONCE]  # value and pullback
    jax.grad(energy)(de.load_gpu("a100-sxm-80gb"))
    assert len(request) == 2


SECOND = {
    "prefill": [
        [{"op": "gemm", "m": 512}, {"op": "context_attention"}, {"op": "rmsnorm"}],
    ],
    "decode": [
        [{"op": "gemm", "m": 8}, {"op": "generation_attention"}, {"op": "gather"},
         {"op": "elementwise"}],
    ],
}  # fmt: skip


def narrowed(x: Any) -> Array:
    """An array in the width that JAX counts in."""
    x = np.asarray(x)
    return jnp.asarray(x, float if np.issubdtype(x.dtype, np.floating) else x.dtype)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("wide", [False, True], ids=["f32", "f64"])
def test_second_derivatives_by_all_numbers_of_a_gpu_are_finite(
    wide: bool, sample, phases
):
    lists = SECOND["decode" if wide else "prefill"]
    rows = [[sample(**row) for row in kernels] for kernels in lists]
    both = phases(*rows), de.load_gpu("h100-sxm")
    with jax.enable_x64(wide):
        workload, gpu = jax.tree.map(narrowed, both)
        names = [
            x for x in GpuSpec.__dataclass_fields__
            if isinstance(getattr(gpu, x), Array) and getattr(gpu, x).ndim == 0
        ]  # fmt: skip
        values = jnp.stack([getattr(gpu, x) for x in names])
        scale = jnp.where(values == 0, 1.0, values)

        def log_energy(u: Array) -> Array:
            changed = dict(zip(names, values + scale * u, strict=True))
            got = de.estimate(workload, dataclasses.replace(gpu, **changed))
            return jnp.log(got.energy)

        at = jnp.zeros(len(names))
        slope = jax.grad(log_energy)
        columns = jax.jit(
            jax.vmap(lambda e: jax.jvp(slope, (at,), (e,))[1]), compiler_options=ONCE
        )
        result = np.asarray(columns(jnp.eye(len(names))))
        assert result.dtype == (np.float64 if wide else np.float32)
        assert np.isfinite(result).all()
        sms = names.index("num_sms")
        assert result[sms, sms] != 0


def test_a_clock_by_name_is_no_argument_to_differentiate():
    with pytest.raises(TypeError, match="`sm_clock` is differentiated.*OperatingPoint"):
        jax.grad(lambda f: de.estimate("gpt2", "h100-sxm", sm_clock=f).energy)(1.5e9)
