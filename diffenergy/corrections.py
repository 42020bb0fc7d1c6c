"""`Corrections`: what is fitted, with priors and levels; reading and writing.

Each constant has one global value and factors for tags of a GPU (`mma:wgmma`,
`memory:HBM3`, `node:4N`, `gpu:a10`, ...): an unseen GPU falls back to the tags that it
shares with fitted ones. Sources of the priors: the letters of `physics/` are spelled
out in docs; every centre here is a published or fitted figure of those studies.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .hardware.files import GpuCard, corrections_rows, gpu_names, read_gpu
from .hardware.spec import GpuSpec
from .records import Record, as_float

Transform = Literal["positive", "share"]
SCHEMA: Final = 1


def _constant(
    centre: float, sd: float, unit: str, what: str, transform: Transform = "positive"
) -> Any:
    """Field with a prior: centre, sd of the log (of the logit for a share)."""
    return eqx.field(
        default=centre,
        converter=as_float,
        metadata={"sd": sd, "unit": unit, "what": what, "transform": transform},
    )


class Corrections(Record):
    """Constants of the model for one GPU (or a batch of them); defaults are priors."""

    # rates and overlap
    tensor_efficiency: Float[Array, "*batch"] = _constant(
        0.95, 0.6, "-", "tensor-core rate reached / data sheet", "share"
    )
    tf32_efficiency: Float[Array, "*batch"] = _constant(0.8, 0.1, "-", "tf32 / bf16")
    fp8_efficiency: Float[Array, "*batch"] = _constant(0.95, 0.15, "-", "fp8 / bf16")
    fp8_block_efficiency: Float[Array, "*batch"] = _constant(
        0.8, 0.2, "-", "block-scaled fp8 / bf16"
    )
    operand_half_tile: Float[Array, "*batch"] = _constant(
        10.0, 0.3, "elements", "tile side that halves the operand feed at 2048 FLOP/cycle"
    )
    sm_feed: Float[Array, "*batch"] = _constant(
        75.0, 0.3, "B/cycle/SM", "tile loads that one SM sustains"
    )
    tile_load_scale: Float[Array, "*batch"] = _constant(
        1.8, 0.1, "-", "tile loads served per L2 read (loads shared by CTAs)"
    )
    fma_efficiency: Float[Array, "*batch"] = _constant(
        0.96, 0.6, "-", "CUDA-core rate reached / data sheet", "share"
    )
    fp32_dual: Float[Array, "*batch"] = _constant(
        0.65, 0.05, "-", "usable share of the doubled fp32 rate (GA10x, Ada)"
    )
    fma_step_cycles: Float[Array, "*batch"] = _constant(
        450.0, 0.4, "cycles", "critical path of a CUDA-core main-loop step of 8"
    )
    depthwise_efficiency: Float[Array, "*batch"] = _constant(
        0.1, 0.5, "-", "depthwise convolution rate / fp32 rate"
    )
    misalignment: Float[Array, "*batch"] = _constant(
        0.8, 0.3, "-", "slow-down of GEMM main loops at odd sizes"
    )
    sharpness: Float[Array, "*batch"] = _constant(
        6.0, 0.3, "-", "overlap of units inside an SM and with memory"
    )
    sharpness_stream: Float[Array, "*batch"] = _constant(
        2.2, 0.2, "-", "overlap of SM side and DRAM in streaming kernels"
    )
    # memory
    l2_efficiency: Float[Array, "*batch"] = _constant(
        0.85, 0.5, "-", "L2 rate reached / measured rate", "share"
    )
    l2_share: Float[Array, "*batch"] = _constant(
        0.6, 0.3, "-", "usable share of L2 for operands", "share"
    )
    l2_producer_share: Float[Array, "*batch"] = _constant(
        0.4, 0.3, "-", "usable share of L2 for a producer's output", "share"
    )
    l2_sharpness: Float[Array, "*batch"] = _constant(2.5, 0.2, "-", "edge of L2 misses")
    wave_traffic: Float[Array, "*batch"] = _constant(
        1.0, 0.2, "-", "re-reads between waves of tiles / ideal block order"
    )
    dram_efficiency: Float[Array, "*batch"] = _constant(
        0.92, 0.4, "-", "DRAM rate reached / data sheet", "share"
    )
    in_flight: Float[Array, "*batch"] = _constant(
        45.0, 0.3, "B/cycle/SM", "DRAM rate of one SM at 228 KiB shared memory"
    )
    stream_feed: Float[Array, "*batch"] = _constant(
        18.4, 0.15, "B/cycle/SM", "rate of one SM in streaming kernels"
    )
    reduction_reads: Float[Array, "*batch"] = _constant(
        1.5, 0.5, "-", "extra reads of a row in softmax and norms"
    )
    reduction_latency: Float[Array, "*batch"] = _constant(
        4.0, 0.5, "-", "critical path of a row / DRAM latency"
    )
    # per launch, per tile
    launch_seconds: Float[Array, "*batch"] = _constant(
        1.2e-6, 0.3, "s", "launch cost that no clock changes"
    )
    launch_cycles: Float[Array, "*batch"] = _constant(
        2000.0, 0.5, "cycles", "launch cost that follows the SM clock"
    )
    gemm_cycles: Float[Array, "*batch"] = _constant(
        3000.0, 0.5, "cycles", "cost of a library GEMM beyond its tiles"
    )
    gemm_eager: Float[Array, "*batch"] = _constant(
        3.0, 0.5, "-", "the same in eager passes / in a loop of one kernel"
    )
    own_cycles: Float[Array, "*batch"] = _constant(
        1200.0, 0.5, "cycles", "first fill and epilogue of a tile, alone on its SM"
    )
    step_cycles: Float[Array, "*batch"] = _constant(
        120.0, 0.5, "cycles", "critical path of a tensor main-loop step of 128 B"
    )
    store_exposed: Float[Array, "*batch"] = _constant(
        0.9, 0.3, "-", "share of a store that no other tile hides (mma.sync)", "share"
    )
    split_cycles: Float[Array, "*batch"] = _constant(
        2000.0, 0.5, "cycles", "second launch of a split-K reduction"
    )
    choice_tau: Float[Array, "*batch"] = _constant(
        0.05, 0.3, "-", "spread in ln t of a library's tile choice, tensor cores"
    )
    choice_tau_fma: Float[Array, "*batch"] = _constant(
        0.1, 0.3, "-", "the same on CUDA cores"
    )
    choice_split: Float[Array, "*batch"] = _constant(
        3.0, 0.5, "-", "reluctance to split K: weight s^-x"
    )
    # host
    dispatch_stream: Float[Array, "*batch"] = _constant(
        15e-6, 0.3, "s", "host time of one streaming operator"
    )
    dispatch_matrix: Float[Array, "*batch"] = _constant(
        25e-6, 0.3, "s", "host time of one matrix operator"
    )
    dispatch_module: Float[Array, "*batch"] = _constant(
        7e-6, 0.5, "s", "host time of one module call"
    )
    dispatch_pass: Float[Array, "*batch"] = _constant(
        1e-3, 0.5, "s", "host time of one forward pass"
    )
    # fused attention, prefill
    prefill_efficiency: Float[Array, "*batch"] = _constant(
        0.9, 0.3, "-", "tensor-core rate in prefill attention", "share"
    )
    prefill_exp: Float[Array, "*batch"] = _constant(
        1.94, 0.3, "-", "softmax cost / one exponential per element"
    )
    prefill_mask: Float[Array, "*batch"] = _constant(
        0.62, 0.5, "-", "extra cost of an element in a masked block"
    )
    prefill_feed: Float[Array, "*batch"] = _constant(
        129.0, 0.5, "B/cycle/SM", "loads of K and V into shared memory"
    )
    prefill_own: Float[Array, "*batch"] = _constant(
        1205.0, 0.4, "cycles", "start and end of a prefill tile"
    )
    prefill_query: Float[Array, "*batch"] = _constant(
        10.5, 0.4, "B/cycle/SM", "load of Q and store of O"
    )
    prefill_fill: Float[Array, "*batch"] = _constant(
        0.39, 0.4, "-", "share of the first block that nothing overlaps"
    )
    prefill_sharpness: Float[Array, "*batch"] = _constant(
        4.1, 0.3, "-", "overlap of matrix, softmax and loads"
    )
    prefill_quantization: Float[Array, "*batch"] = _constant(
        0.77, 0.5, "-", "share of a part-filled wave that is paid", "share"
    )
    prefill_tail: Float[Array, "*batch"] = _constant(
        0.4, 0.5, "-", "list-schedule tail of unequal tiles"
    )
    prefill_cycles: Float[Array, "*batch"] = _constant(
        5000.0, 0.4, "cycles", "launch cost of prefill attention beyond a launch"
    )
    # fused attention, decode
    decode_efficiency: Float[Array, "*batch"] = _constant(
        0.8, 0.3, "-", "tensor-core rate in decode attention", "share"
    )
    decode_exp: Float[Array, "*batch"] = _constant(
        0.94, 0.3, "-", "softmax cost / one exponential per element"
    )
    decode_own: Float[Array, "*batch"] = _constant(
        1995.0, 0.4, "cycles", "start and end of a decode tile"
    )
    decode_own_head: Float[Array, "*batch"] = _constant(
        19.1, 0.5, "cycles", "the same, per element of head_dim"
    )
    decode_flow: Float[Array, "*batch"] = _constant(
        600.0, 0.5, "B/cycle/SM", "DRAM rate of one SM in decode attention"
    )
    decode_quantization: Float[Array, "*batch"] = _constant(
        0.48, 0.5, "-", "share of a part-filled wave that is paid", "share"
    )
    decode_cycles: Float[Array, "*batch"] = _constant(
        3400.0, 0.4, "cycles", "launch cost of decode attention beyond a launch"
    )
    decode_schedule: Float[Array, "*batch"] = _constant(
        20e-9, 0.5, "s", "scheduling kernel, per sequence"
    )
    transpose_rate: Float[Array, "*batch"] = _constant(
        5.4, 0.5, "elements/cycle/SM", "transposition of fp8 V in shared memory"
    )
    # mixture of experts
    moe_efficiency: Float[Array, "*batch"] = _constant(
        0.67, 0.3, "-", "tensor-core rate of grouped expert GEMM", "share"
    )
    moe_own: Float[Array, "*batch"] = _constant(
        2150.0, 0.4, "cycles", "start and end of a grouped-GEMM tile"
    )
    moe_quantization: Float[Array, "*batch"] = _constant(
        0.53, 0.5, "-", "share of a part-filled wave that is paid", "share"
    )
    moe_align: Float[Array, "*batch"] = _constant(
        0.37e-9, 0.5, "s", "sorting of tokens by expert, per row"
    )
    moe_misaligned: Float[Array, "*batch"] = _constant(
        7.0, 0.5, "-", "memory time where the inner size is no multiple of 16"
    )
    # energies, all at the floor voltage V0
    energy_tensor: Float[Array, "*batch"] = _constant(
        0.45e-12, 0.3, "J/FLOP", "bf16 tensor FLOP, operands included"
    )
    energy_tf32: Float[Array, "*batch"] = _constant(2.6, 0.2, "-", "tf32 / bf16")
    energy_fp8: Float[Array, "*batch"] = _constant(0.65, 0.2, "-", "fp8 / bf16")
    energy_fma: Float[Array, "*batch"] = _constant(
        5e-12, 0.3, "J/FLOP", "fp32 FLOP on CUDA cores"
    )
    energy_sfu: Float[Array, "*batch"] = _constant(3.5e-12, 0.6, "J", "special function")
    energy_issue: Float[Array, "*batch"] = _constant(
        2e-12, 0.5, "J", "lane instruction of streaming kernels"
    )
    energy_smem: Float[Array, "*batch"] = _constant(0.5e-12, 0.7, "J/B", "shared memory")
    energy_l2: Float[Array, "*batch"] = _constant(
        10e-12, 0.4, "J/B", "L2, network and SM path"
    )
    energy_dram: Float[Array, "*batch"] = _constant(
        75e-12, 0.2, "J/B", "DRAM and its interface (own rail), HBM2"
    )
    energy_link: Float[Array, "*batch"] = _constant(
        60e-12, 0.5, "J/B", "NVLink, 5-10 pJ/bit"
    )
    energy_launch: Float[Array, "*batch"] = _constant(
        1e-6, 1.0, "J", "launch; no study saw it"
    )
    energy_tile: Float[Array, "*batch"] = _constant(
        1e-9, 1.0, "J", "CTA; no study saw it"
    )
    core_energy: Float[Array, "*batch"] = _constant(
        1.0, 0.2, "-", "factor on all core energies (process, design)"
    )
    sm_clock_energy: Float[Array, "*batch"] = _constant(
        0.2e-9, 0.5, "J/cycle", "clock tree and issue of an SM that holds CTAs"
    )
    leakage: Float[Array, "*batch"] = _constant(
        0.008, 0.5, "1/TDP", "leakage at 40 C and V0 beyond the cold idle table"
    )
    leakage_efold: Float[Array, "*batch"] = _constant(13.0, 0.15, "K", "e-fold")
    zero_saving: Float[Array, "*batch"] = _constant(
        0.14, 0.3, "-", "energy saved by operands that are half zeros"
    )
    idle_scale: Float[Array, "*batch"] = _constant(
        1.0, 0.05, "-", "idle power / that of the GPU file"
    )


CONSTANTS: Final[Mapping[str, dataclasses.Field[Any]]] = {
    field.name: field for field in dataclasses.fields(Corrections)
}

Levels = dict[str, dict[str, float]]

PRIOR_FACTORS: Final[Mapping[str, Mapping[str, tuple[float, float]]]] = {
    "mma:wgmma": {
        "operand_half_tile": (0.45, 0.4),
        "gemm_cycles": (0.5, 0.3),
        "stream_feed": (1.4, 0.2),
        "store_exposed": (0.67, 0.4),
    },
    "mma:tcgen05": {
        "operand_half_tile": (0.45, 0.4),
        "gemm_cycles": (0.5, 0.3),
        "stream_feed": (1.8, 0.3),
        "store_exposed": (0.33, 0.5),
    },
    "memory:HBM2e": {"energy_dram": (0.95, 0.1)},
    "memory:HBM3": {"energy_dram": (0.85, 0.1)},
    "memory:HBM3e": {"energy_dram": (0.8, 0.1)},
    "memory:GDDR5": {"energy_dram": (1.8, 0.2)},
    "memory:GDDR5X": {"energy_dram": (1.6, 0.2)},
    "memory:GDDR6": {"energy_dram": (1.3, 0.15)},
    "memory:GDDR6X": {"energy_dram": (1.4, 0.2)},
    "memory:GDDR7": {"energy_dram": (1.0, 0.3)},
    "node:28nm": {"core_energy": (2.5, 0.3)},
    "node:16nm": {"core_energy": (1.5, 0.2)},
    "node:12nm": {"core_energy": (1.25, 0.2)},
    "node:8nm": {"core_energy": (1.15, 0.2)},
    "node:5nm": {"core_energy": (0.7, 0.2)},
    "node:4N": {"core_energy": (0.65, 0.2)},
    "node:4NP": {"core_energy": (0.6, 0.2)},
    "architecture:Hopper": {"sm_clock_energy": (1.4, 0.3), "leakage": (0.2, 0.5)},
    "architecture:Blackwell": {"sm_clock_energy": (1.4, 0.4), "leakage": (0.2, 0.5)},
}
"""Prior factors of tags: (centre, sd of the log), from `unified.md` sections 3 and 5:
newer matrix instructions, memory types per byte, process nodes per core operation."""


def tags(card: GpuCard) -> tuple[str, ...]:
    """Level names that apply to a GPU, general ones first; the last wins nothing:
    factors multiply."""
    return (
        f"architecture:{card.architecture}",
        f"mma:{card.mma}",
        f"memory:{card.memory}",
        f"node:{card.process_node}",
        f"gpu:{card.corrections or card.name}",
    )


def prior_levels() -> Levels:
    """Levels with every constant at its prior centre."""
    levels = {"global": {name: float(f.default) for name, f in CONSTANTS.items()}}
    for tag, factors in PRIOR_FACTORS.items():
        levels[tag] = {name: centre for name, (centre, _) in factors.items()}
    return levels


def resolve(levels: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> dict:
    """Constants for a GPU with tags `names`: global values times the tags' factors."""
    values = dict(levels["global"])
    for tag in names:
        for constant, factor in levels.get(tag, {}).items():
            values[constant] = values[constant] * factor
    return values


@dataclasses.dataclass(frozen=True)
class CorrectionsFile:
    """Contents of a corrections file: levels, instruments and what they rest on."""

    levels: Levels
    instruments: dict[str, dict[str, float]]
    fitted_on: dict[str, Any]

    def serve(self, card: GpuCard) -> Corrections:
        """Constants for one GPU."""
        return Corrections(**resolve(self.levels, tags(card)))

    def grade(self, card: GpuCard) -> str:
        """`calibrated` where rows of this GPU were fitted, `forecast` where only its
        relatives were, `datasheet` where nothing was."""
        fitted = self.fitted_on.get("gpus", [])
        if (card.corrections or card.name) in fitted:
            return "calibrated"
        return "forecast" if fitted else "datasheet"


def prior_file() -> CorrectionsFile:
    """Corrections with nothing fitted."""
    return CorrectionsFile(prior_levels(), {}, {})


def read_corrections(path: str | Path | None = None) -> CorrectionsFile:
    """Corrections file at `path`, or the shipped one.

    Raises `ValueError` in one sentence that names what is wrong.
    """
    if path is None:
        return _shipped()
    path = Path(path)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"corrections file '{path}' cannot be read ({error.strerror}); give a file "
            "that `diffenergy fit` wrote."
        ) from None
    except ValueError as error:
        raise ValueError(
            f"corrections file '{path}' is no JSON ({error}); give a file that "
            "`diffenergy fit` wrote."
        ) from None
    return _parse(raw, str(path))


def write_corrections(file: CorrectionsFile) -> str:
    """JSON text of a corrections file."""
    units = {name: field.metadata["unit"] for name, field in CONSTANTS.items()}
    body = {
        "schema": SCHEMA,
        "levels": file.levels,
        "units": units,
        "instruments": file.instruments,
        "fitted_on": file.fitted_on,
    }
    return json.dumps(body, indent=1) + "\n"


def _parse(raw: Any, where: str) -> CorrectionsFile:
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        found = raw.get("schema") if isinstance(raw, dict) else type(raw).__name__
        raise ValueError(
            f"`schema` of '{where}' is {found}; this version reads {SCHEMA}."
        )
    levels = raw.get("levels")
    if not isinstance(levels, dict) or "global" not in levels:
        raise ValueError(f"`levels.global` is missing in '{where}'.")
    for tag, values in levels.items():
        for name, value in values.items():
            if name not in CONSTANTS:
                raise ValueError(
                    f"`{tag}.{name}` in '{where}' is no constant of this version."
                )
            if not (isinstance(value, int | float) and math.isfinite(value)):
                raise ValueError(
                    f"`{tag}.{name}` in '{where}' is {value!r}; allowed are finite "
                    "numbers."
                )
            if value <= 0:
                raise ValueError(
                    f"`{tag}.{name}` in '{where}' is {value}; allowed are positive "
                    "numbers."
                )
    levels = {**levels, "global": {**prior_levels()["global"], **levels["global"]}}
    return CorrectionsFile(
        levels, raw.get("instruments", {}), raw.get("fitted_on", {})
    )


@functools.cache
def _shipped() -> CorrectionsFile:
    path = resources.files("diffenergy") / "data" / "corrections" / "default.json"
    return _parse(json.loads(path.read_text(encoding="utf-8")), "default.json")


@functools.cache
def _shipped_table() -> dict[str, np.ndarray]:
    """Shipped constants of every row that `GpuSpec.corrections_row` can name."""
    file, bundled = _shipped(), set(gpu_names())
    rows = [
        resolve(
            file.levels,
            tags(read_gpu(name)) if name in bundled else (f"architecture:{name}",),
        )
        for name in corrections_rows()
    ]
    return {name: np.array([row[name] for row in rows]) for name in CONSTANTS}


def shipped_corrections(gpu: GpuSpec) -> Corrections:
    """Shipped constants for the GPU that `gpu.corrections_row` names (traceable)."""
    row = jnp.round(gpu.corrections_row).astype(jnp.int32)
    return Corrections(
        **{name: as_float(v)[row] for name, v in _shipped_table().items()}
    )
