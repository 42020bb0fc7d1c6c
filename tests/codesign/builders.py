"""Small workloads and spaces whose every design can be scored."""

import itertools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from diffenergy.codesign import Range
from diffenergy.codesign._problem.exact import Judge, Judged
from diffenergy.codesign._problem.mixing import Listed, build
from diffenergy.codesign._problem.problem import Problem
from diffenergy.hardware import read_gpu
from diffenergy.workload import Listing, normalise_kernel

KERNELS: Final[dict[str, list[dict[str, Any]]]] = {
    "products": [
        {"op": "gemm", "m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"},
        {"op": "gemm", "m": 2048, "n": 11008, "k": 4096, "dtype": "bf16", "count": 3},
    ],
    "streams": [
        {"op": "gemm", "m": 8, "n": 4096, "k": 4096, "dtype": "bf16", "count": 32},
        {"op": "elementwise", "fn": "add", "elements": 3e7, "dtype": "bf16"},
    ],
    "attention": [
        {"op": "context_attention", "batch": 2, "q_len": 2048, "kv_len": 2048,
         "num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "dtype": "bf16"},
        {"op": "rmsnorm", "rows": 4096, "cols": 4096, "dtype": "bf16", "count": 2},
    ],
    "cuda_cores": [
        {"op": "gemm", "m": 1024, "n": 1024, "k": 1024, "dtype": "fp32"},
        {"op": "softmax", "rows": 16384, "cols": 1024, "dtype": "fp32"},
    ],
}  # fmt: skip
"""What the workloads are made of: bound by tensor cores, by DRAM, mixed, fp32."""


def part(name: str, **about: Any) -> Listed:
    """One workload by its name in `KERNELS`."""
    kernels = tuple(normalise_kernel(row, name) for row in KERNELS[name])
    listing = Listing(name, mode="forward", kernels=kernels, dispatch="graph")
    return Listed([listing], name=name, **about)


def problem(
    names: Sequence[str],
    ranges: Sequence[Range],
    gpu: str = "h100-sxm",
    **designs: Any,
) -> Problem:
    """Problem over workloads of `KERNELS`."""
    return build([part(name) for name in names], read_gpu(gpu), ranges, **designs)


def everything(designs: Problem) -> Judged:
    """Exact scores of all designs of a space without continuous axes."""
    grid = itertools.product(*(axis.legal or () for axis in designs.axes))
    return Judge(designs.task)(np.array(list(grid)))
