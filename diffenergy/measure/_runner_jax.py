"""Kernels from JAX: unrolled rounds of launches, compiled by XLA."""

import importlib.metadata
import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ._runner import DTYPES, LASTING, Runner, Unsupported
from ._shapes import Kernel, depth, operands

_MOST_LAUNCHES: Final = 256
"""Launches of one program, unless there are more sets."""


def jax_on_gpu() -> Runner | None:
    """JAX, if it has a GPU."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    try:
        return JaxRunner(jax.devices("gpu")[0])
    except RuntimeError:
        return None


class JaxRunner:
    """JAX on one device."""

    versions: Mapping[str, str]
    l2: float

    def __init__(self, device: Any):
        import jax

        self._device = device
        self.versions = {
            "jax": jax.__version__,
            "jaxlib": importlib.metadata.version("jaxlib"),
        }
        self.l2 = math.nan

    def prepare(self, kernel: Kernel, copies: int, zeros: bool) -> "JaxRunning":
        import jax

        try:
            with (
                jax.default_device(self._device),
                jax.default_matmul_precision(
                    "tensorfloat32" if kernel["dtype"] == "tf32" else "highest"
                ),
            ):
                sets = [
                    [
                        _tensor(shape, dtype, zeros, 10 * i + j)
                        for j, (shape, dtype) in enumerate(operands(kernel)[0])
                    ]
                    for i in range(copies)
                ]
                return JaxRunning(_function(kernel), sets)
        except Exception as error:  # whatever keeps a library from a kernel
            raise Unsupported.of(error) from None


class JaxRunning:
    """A compiled round of launches: each waits for the one before, so that XLA neither
    joins nor drops one."""

    def __init__(self, function: Callable[..., Any], sets: list[list[Any]]):
        self._function, self._sets = function, sets
        self._compile(len(sets))
        self.run(1)
        begin = time.perf_counter()
        self.run(1)
        each = (time.perf_counter() - begin) / len(sets)
        rounds = min(LASTING / each, _MOST_LAUNCHES) // len(sets)
        if rounds > 1:
            self._compile(int(rounds) * len(sets))

    def run(self, launches: int) -> int:
        import jax

        rounds = math.ceil(launches / self._launches)
        last = None
        for _ in range(rounds):
            last = self._program(self._sets)
        jax.block_until_ready(last)
        return rounds * self._launches

    def _compile(self, launches: int) -> None:
        import jax

        def round_of(sets: list[list[Any]]) -> list[Any]:
            outputs: list[Any] = [None] * len(sets)
            for number in range(launches):
                i = number % len(sets)
                previous = outputs[(number - 1) % len(sets)] if number else None
                inputs, _ = jax.lax.optimization_barrier((sets[i], previous))
                outputs[i] = self._function(*inputs)
            return outputs

        self._launches = launches
        self._program = jax.jit(round_of).lower(self._sets).compile()


def _tensor(shape: tuple[int, ...], dtype: str, zeros: bool, seed: int) -> Any:
    import jax
    import jax.numpy as jnp

    kind = getattr(jnp, DTYPES[dtype])
    if zeros:
        return jnp.zeros(shape, kind)
    wide = jnp.float32 if dtype == "fp8" else kind
    return jax.random.normal(jax.random.key(seed), shape, wide).astype(kind)


def _function(kernel: Kernel) -> Callable[..., Any]:
    """What one launch computes from its operands."""
    import jax
    import jax.numpy as jnp

    match kernel["op"]:
        case "gemm":
            out = getattr(jnp, DTYPES[kernel.get("out_dtype", kernel["dtype"])])
            return lambda a, b: jnp.matmul(a, b, preferred_element_type=out)
        case "context_attention" | "generation_attention":
            causal = kernel["op"] == "context_attention"
            way = "cudnn" if jax.default_backend() == "gpu" else None
            return lambda q, k, v: jax.nn.dot_product_attention(
                q, k, v, is_causal=causal, implementation=way
            )
        case "softmax":
            return lambda x: jax.nn.softmax(x, -1)
        case "layernorm":
            return lambda x: jax.nn.standardize(x, -1)
        case "rmsnorm":
            return lambda x: (
                x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
            )
        case "elementwise":
            return _map(kernel)
    raise Unsupported(f"JAX has no kernel for {kernel['op']} here")


def _map(kernel: Kernel) -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    if kernel["fn"] == "exp":

        def chain(x: Any) -> Any:
            for _ in range(depth(kernel)):
                x = jnp.exp(-6.2 * x * x) - 0.5  # the Gauss map: stays random
            return x

        return chain
    functions = {
        "copy": lambda x: x * jnp.asarray(1.0000001, x.dtype),
        "add": jnp.add,
        "mul": jnp.multiply,
        "scalar_add": lambda x: x + 1,
        "relu": jax.nn.relu,
        "gelu": jax.nn.gelu,
        "silu": jax.nn.silu,
        "tanh": jnp.tanh,
    }
    return functions[kernel["fn"]]
