"""`compiler_options`: how XLA should compile what is traced here."""

import functools

import jax


@functools.cache
def compiler_options(once: bool = False) -> dict[str, bool | int]:
    """Options for a `jax.jit` of your own around the model, as far as this JAX knows
    them; a `jax.grad` or `jax.vmap` of `estimate` outside of a `jit` needs none.

    XLA's CPU fusion emitters lengthen compilation and do not make it faster. The
    gradient of Llama-3.1-8B by all numbers of a GPU: 24 s of CPU time without options
    and 16 s with them, then 3 ms a call; with `once` 9 s, then 5 ms
    (`python tests/benchmarks/table_gradient.py`, 2 cores).

    Args:
        once: without LLVM's optimisation, for programs that run a few times.

    Returns:
        What `jax.jit` takes as `compiler_options`; empty on backends without them.
    """
    options: dict[str, bool | int] = {"xla_cpu_use_fusion_emitters": False}
    if once:
        options["xla_backend_optimization_level"] = 0
    try:
        jax.jit(lambda x: x, compiler_options=options)(0.0)
    except jax.errors.JaxRuntimeError:  # an option that is gone, or another backend
        return {}
    return options
