"""Priors of the factors of constants, by tag of a GPU."""

from collections.abc import Mapping
from typing import Final

from ._constants import CONSTANTS
from ._generations import generation, generations

_CLOCK_TREE: Final = {"Hopper": (1.4, 0.3), "Blackwell": (1.4, 0.4)}
NEWER_HOST: Final = {
    f"dispatch_{what}": (0.55, 0.3) for what in ("stream", "matrix", "module", "pass")
}
"""Hosts of H100 boards need 17 us for a listed operator, those of the A100 33 us."""
ACTIVITY_CONSTANTS: Final[Mapping[str, float]] = {
    "activity_sharpness": 0.2,
    "memory_knee": 0.5,
    "activity_dram": 0.4,
    "activity_fp64": 0.5,
    "activity_branch": 0.5,
    **dict.fromkeys(("energy_fma", "energy_issue", "energy_l2", "energy_smem"), 1.0),
    "energy_sfu": 2.0,
    "energy_dram": 0.4,
    "sm_clock_energy": 0.7,
    "leakage": 0.7,
    "idle_scale": 0.4,
    "memory_idle": 1.0,
    "voltage_knee": 0.25,
    "voltage_slope": 0.7,
    "voltage_curvature": 0.7,
}
"""What rows of op `activity` move, with the sd of a GPU's own factor: a busy cycle of a
unit, as counters see it, costs something else on every GPU than work known from shapes.
These rows move nothing that other GPUs share."""
_COUNTED: Final = {name: (1.0, sd) for name, sd in ACTIVITY_CONSTANTS.items()}
_COUNTED_GPUS: Final = (
    "v100-pcie-16gb", "quadro-rtx-8000", "gtx-1080-ti", "gtx-980", "titan-x-maxwell",
    "titan-xp", "k40c",
)  # fmt: skip
CDNA: Final[dict[str, tuple[float, float]]] = dict.fromkeys(
    ("tensor_efficiency", "fp8_efficiency", "fp8_block_efficiency", "gemm_cycles"),
    (1.0, 0.8),
)
"""AMD's instructions and libraries are their own: NVIDIA's rates say little of them."""
PRIOR_FACTORS: Final[Mapping[str, Mapping[str, tuple[float, float]]]] = {
    "mma:wgmma": {
        "operand_half_tile": (0.3, 0.4),
        "gemm_cycles": (0.5, 0.3),
        "stream_feed": (1.4, 0.2),
        "store_exposed": (0.17, 0.6),
        # FlashAttention 2 reaches 35 % of the H100's peak, 3 75 % (arXiv 2407.08608)
        "training_attention_early": (2.1, 0.2),
    },
    "mma:tcgen05": {  # beyond wgmma
        "gemm_cycles": (0.8, 0.3),
        "stream_feed": (1.3, 0.2),
        "store_exposed": (0.6, 0.5),
        # its instructions scale the blocks; served nvfp4 draws what half of that is
        "energy_fp8": (1.15, 0.15),
        "energy_fp8_block": (0.88, 0.05),
    },
    "dies:2": {"energy_dram": (1.15, 0.12)},  # half of the bytes cross to the other
    "mma:systolic": {  # beside mma.sync; an SM is a core with arrays (docs/physics.md)
        "operand_half_tile": (0.007, 0.7),
        "tensor_efficiency": (3.0, 0.5),  # of a Gaudi 2's peak 99.4 % are reached
        "own_cycles": (1.07, 0.3),  # 0.35 us of a grid step of a TPU v5e
        "step_cycles": (0.1, 0.7),
        "reduction_latency": (1e-3, 1.0),  # a core takes rows by the thousand
        "gemm_cycles": (0.5, 0.5),
        "store_exposed": (0.01, 0.7),  # of its odds
        "sharpness": (3.0, 0.5),  # the program itself moves the next tile meanwhile
        # a core instead of an SM: DRAM and vector memory of the file bind before
        **dict.fromkeys(
            (
                "sm_feed",
                "stream_feed",
                "prefill_feed",
                "prefill_query",
                "decode_flow",
                "moe_feed",
                "moe_flow",
                "moe_stream",
            ),
            (100.0, 1.0),
        ),
        # grid steps of other kernels; a tile of 128 columns is a part of one
        **dict.fromkeys(("prefill_own", "decode_own"), (0.4, 0.7)),
        **dict.fromkeys(("decode_own_head", "moe_own"), (0.05, 1.0)),
        # the host starts one program, 0.1 ms; it dispatches no operators
        "gemm_eager": (0.17, 0.3),
        **dict.fromkeys(
            ("dispatch_stream", "dispatch_matrix", "dispatch_module"), (1e-3, 1.0)
        ),
        "dispatch_pass": (0.1, 0.5),
        # at most 0.41 pJ/FLOP of a TPU v4: 192 W, 90 idle, 0.9 of 275 TF, V^2 1.56
        "energy_tensor": (0.35, 0.35),
        "sm_clock_energy": (30.0, 0.7),
    },
    "memory:HBM2e": {"energy_dram": (0.95, 0.1)},
    "memory:HBM3": {"energy_dram": (0.8, 0.05)},
    "memory:HBM3e": {"energy_dram": (0.8, 0.1)},
    "memory:GDDR5": {"energy_dram": (1.8, 0.2), "dram_efficiency": (0.64, 0.4)},
    "memory:GDDR5X": {"energy_dram": (1.6, 0.2), "dram_efficiency": (0.64, 0.4)},
    "memory:GDDR6": {"energy_dram": (1.3, 0.15), "dram_efficiency": (0.64, 0.4)},
    "memory:GDDR6X": {"energy_dram": (1.4, 0.2), "dram_efficiency": (0.64, 0.4)},
    "memory:GDDR7": {"energy_dram": (1.0, 0.3), "dram_efficiency": (0.64, 0.4)},
    "node:28nm": {"core_energy": (2.5, 0.3)},
    "node:16nm": {"core_energy": (1.5, 0.2)},
    "node:12nm": {"core_energy": (1.25, 0.2)},
    "node:8nm": {"core_energy": (1.5, 0.2)},
    # by passes of an A100 with its temperature logged: 13 K and 1.8 W at 40 C and V0
    "node:7nm": {"leakage_efold": (0.325, 0.15), "leakage": (0.25, 0.5)},
    "node:4N": {"core_energy": (0.65, 0.2)},
    "node:4NP": {"core_energy": (0.6, 0.2)},
    **{f"gpu:{name}": _COUNTED for name in _COUNTED_GPUS},
    # boards of one chip, the GH100
    **dict.fromkeys(("gpu:h100-sxm", "gpu:h200-sxm"), {"core_energy": (1.0, 0.05)}),
    "architecture:Kepler": {"tiled_l1": (0.83, 0.7)},  # its read-only path
    "architecture:GCN": {"tiled_l1": (1.67, 0.7), "tiled_smem": (1.0, 0.5)},
    "architecture:Pascal": {"simt_issue": (1.3, 0.1)},  # two instructions at once
    # what its one board with rows shows beyond that, under its limit, is the board's:
    # an L4 at 72 W runs fp32 products a third faster than it would let it
    "architecture:Ada": {"core_energy": (1.2, 0.03), "tensor_efficiency": (1.0, 0.8)},
    **dict.fromkeys(("architecture:CDNA3", "architecture:CDNA4"), CDNA),
    **{
        f"architecture:{x}": ({"sm_clock_energy": clock} if clock else {}) | NEWER_HOST
        for x, clock in ((x, _CLOCK_TREE.get(x)) for x in generations())
        if generation(x).host >= 2022
    },
}
"""Prior factors of tags: (centre, sd of the log); see `docs/physics.md`, Constants:
newer matrix instructions, memory types per byte, process nodes per core operation."""

for _name in {x for factors in PRIOR_FACTORS.values() for x in factors} - {*CONSTANTS}:
    raise ValueError(f"`{_name}` has a prior factor, but it is no constant; rename it.")
