"""What NVIDIA's `nvMatmulHeuristics` would run: the tile of its fastest kernel.

An optional package: `pip install nvidia-matmul-heuristics`. It needs no GPU.
"""

import functools
import importlib
from types import ModuleType
from typing import Any, Final

from diffenergy.codesign._tiles.tiles import Tiles

_GPUS: Final = {
    "a100-sxm-80gb": "A100_SXM_80GB",
    "a100-pcie-80gb": "A100_PCIE_80GB",
    "a30": "A30_PCIE",
    "a10": "A10_PCIE",
    "a40": "A40_PCIE",
    "rtx-a6000": "RTX_A6000",
    "l40s": "L40S",
    "l4": "L4",
    "rtx-4090": "RTX_4090",
    "h100-sxm": "H100_SXM",
    "h100-pcie": "H100_PCIE",
    "h200-sxm": "H200_SXM",
    "b200-sxm": "B200",
    "gb200": "GB200_NVL",
    "gb300": "GB300_NVL",
}
"""Its names of GPUs."""
_PRECISIONS: Final = {
    "bf16": "TST",
    "fp16": "HSH",
    "fp8": "QST",
    "tf32": "SFS",
}
"""Its letters: operands, accumulation, output."""
_LAYOUTS: Final = {"tn": "TN_ROW_MAJOR", "nn": "NN_ROW_MAJOR", "nt": "NT_ROW_MAJOR"}
_MOST: Final = 64
"""Kernels to ask for, more than it has for a shape."""


def heuristic_tile(
    gpu: str,
    m: int | float,
    n: int | float,
    k: int | float,
    *,
    dtype: str = "bf16",
    layout: str = "tn",
    batch: int | float = 1,
) -> Tiles:
    """Tile of the kernel that it estimates fastest for C[m, n] = A[m, k] B[k, n].

    `gpu`: a name of `gpu_names()`. `layout`: "tn" for `nn.Linear`. Clusters and
    orders of CTAs, which it chooses too, have no place in the model.

    Raises `ValueError` if the package is not installed or does not know the GPU, type
    or layout.
    """
    for name, value, known in (
        ("gpu", gpu, _GPUS),
        ("dtype", dtype, _PRECISIONS),
        ("layout", layout, _LAYOUTS),
    ):
        if value not in known:
            raise ValueError(
                f"`{name}` is '{value}', which nvMatmulHeuristics is not asked for; "
                f"allowed are {', '.join(known)}."
            )
    library, descriptor = _library(_GPUS[gpu], _PRECISIONS[dtype])
    order = _module().NvMatmulHeuristicsMatmulLayout[_LAYOUTS[layout]]
    sizes = (int(m), int(n), int(k))
    problem = library.makeNvMatmulHeuristicsProblem(*sizes, order, int(batch))
    kernels = library.get(problem, _MOST, descriptor)
    if not kernels:
        shape = "x".join(map(str, sizes))
        raise ValueError(
            f"nvMatmulHeuristics has no kernel for {shape} in {dtype} on {gpu}; "
            "leave its tile out."
        )
    kernel = min(kernels, key=lambda kernel: kernel["runtime"])["kernel"]
    return Tiles(
        kernel.cta_tile_m,
        kernel.cta_tile_n,
        kernel.cta_tile_k,
        kernel.stages,
        max(kernel.split_k, 1),
    )


def _module() -> ModuleType:
    try:
        return importlib.import_module("nvMatmulHeuristics")
    except ImportError:
        raise ValueError(
            "`nvMatmulHeuristics` is not installed; `pip install "
            "nvidia-matmul-heuristics` brings it."
        ) from None


@functools.cache
def _library(gpu: str, precision: str) -> tuple[Any, Any]:
    """(library, GPU) for kernels of CUTLASS (from Hopper on CUTLASS 3); they live as
    long as the process."""
    module = _module()

    class Library(module.NvMatmulHeuristicsInterface):
        def __del__(self) -> None:
            """Its own one crashes the process (0.1.0.27)."""

    later = gpu.startswith(("H", "B", "GB"))
    targets = module.NvMatmulHeuristicsTarget
    library = Library(
        targets.CUTLASS3 if later else targets.CUTLASS,
        precision=precision,
        # without it the answer is one tile for every shape, best or not
        flags=module.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
    )
    descriptor = library.createHardwareDescriptor()
    library.setHardwarePredefinedGpu(
        descriptor, module.NvMatmulHeuristicsNvidiaGpu[gpu]
    )
    return library, descriptor
