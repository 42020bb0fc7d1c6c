"""Seconds until a gradient by all numbers of a GPU is there, by how it is asked for.

    python tests/benchmarks/table_gradient.py

Two processes each, the first with an empty folder of programs: wall time and CPU time
of the first call (trace, compile or load, run) and the median wall time of ten more.
The workload is that of docs/speed.md, "Compilation".
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Final

WAYS: Final = (
    "estimate", "grad", "jit", "jit, compiler_options()",
    "jit, compiler_options(once=True)",
)  # fmt: skip


def measure(way: str) -> None:
    """Prints a row of the table."""
    import jax

    import diffenergy as de

    jax.config.update("jax_enable_x64", True)
    request = {"batch": 8, "input_len": 512, "output_len": 128}
    workload = de.load_model("llama-3.1-8b").workload(**request)
    gpu = de.load_gpu("h100-sxm")

    def energy(gpu: de.GpuSpec) -> jax.Array:
        return de.estimate(workload, gpu).energy

    slope = energy if way == "estimate" else jax.grad(energy)
    if way.startswith("jit"):
        options = de.compiler_options("once" in way) if "options" in way else None
        slope = jax.jit(slope, compiler_options=options)
    began, spent = time.perf_counter(), time.process_time()
    jax.block_until_ready(slope(gpu))
    first, spent = time.perf_counter() - began, time.process_time() - spent
    later = []
    for _ in range(10):
        began = time.perf_counter()
        jax.block_until_ready(slope(gpu))
        later.append(time.perf_counter() - began)
    print(f"{way:34} {first:6.1f} {spent:6.1f} {statistics.median(later):8.4f}")


def main() -> None:
    """Prints the table."""
    print(f"{'':34} {'first':>6} {'(CPU)':>6} {'later, s':>8}", flush=True)
    own = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    for way in WAYS:
        with tempfile.TemporaryDirectory() as folder:
            own["XDG_CACHE_HOME"] = folder
            for _ in range(2):
                subprocess.run([sys.executable, __file__, way], env=own, check=True)


if __name__ == "__main__":
    measure(sys.argv[1]) if sys.argv[1:] else main()
