"""`compiler_options`: how XLA should compile what is traced here."""

import functools

import jax


@functools.cache
def compiler_options(once: bool = False) -> dict[str, bool | int]:
    """Options for a `jax.jit` around the model, as far as this JAX knows them.

    XLA's CPU fusion emitters triple the compile time and do not make it faster; `once`:
    without LLVM optimisation it compiles in a second and runs a few times slower.
    """
    options: dict[str, bool | int] = {"xla_cpu_use_fusion_emitters": False}
    if once:
        options["xla_backend_optimization_level"] = 0
    try:
        jax.jit(lambda x: x, compiler_options=options)(0.0)
    except jax.errors.JaxRuntimeError:  # an option that is gone, or another backend
        return {}
    return options
