"""What was measured: kernels one by one (Figure 5), and what is expected of each."""

import dataclasses
import re
from pathlib import Path
from typing import Final

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from diffenergy.fitting._clock_model import KernelPriors, Kind
from diffenergy.hardware import GpuSpec
from diffenergy.kernels._residency import wave_traffic
from diffenergy.units import MHz

from .joined import Extremes

MEM_CLOCKS: Final = (405.0, 810.0, 5001.0, 9251.0, 9501.0, np.nan)
SM_CLOCKS: Final = (*(210.0 * i for i in range(1, 11)), np.nan)
SETTINGS: Final = np.array([(sm, mem) for mem in MEM_CLOCKS for sm in SM_CLOCKS]) * MHz
"""(SM clock, memory clock), Hz; NaN: left alone. The last leaves both alone."""
DRAM_EFFICIENCY: Final = 0.96
"""DRAM rate of the plain elementwise kernels / data sheet (805-889 of 912 GB/s)."""
CORE_POWER: Final = 70e-9
"""J/cycle at V0 of a GEMM that keeps the tensor cores busy (0.37 TDP at 1.86 GHz)."""
STREAM_POWER: Final = 92.0
"""W at V0 that streaming kernels draw from the core rail at full DRAM rate."""
CORE_SHARE: Final = 0.35
"""Core part of a streaming kernel / its DRAM part."""
_DRAM_BOUND: Final = 0.75
"""Streaming kernels that reach less of the DRAM rate wait for something else too."""
_LONG: Final = 40_000.0
"""Reductions from this length on: weight gradients, whose operands are both read
across."""
_MATRIX: Final = ("matrix", "batched matrix", "long matrix")
"""Kinds of GEMMs; the batched ones are those of attention, with a side of 128."""
_LAUNCH_BYTES: Final = 2e5
_TILE: Final = 128.0

# widths: of ln (core work, DRAM bytes, core energy) of a kernel, then of its kind
KINDS: Final = {
    "matrix": Kind((0.5, 0.4, 0.1), (0.5, 0.2, 0.3), 6.3),
    "batched matrix": Kind((0.5, 0.4, 0.1), (0.5, 0.4, 0.3), 6.3),
    "long matrix": Kind((0.5, 0.6, 0.1), (0.5, 0.5, 0.3), 3.0),
    "stream": Kind((0.3, 0.1, 0.15), (0.5, 0.1, 0.3), 7.5),
    "mixed": Kind((0.3, 0.2, 0.3), (0.3, 0.1, 0.3), 2.7),
    "launch": Kind((1.0, 2.0, 1.0), (0.1, 0.1, 0.1)),
}


def core_limit(
    settings: Float[np.ndarray, "setting 2"],
) -> Float[np.ndarray, " setting"]:
    """SM clock that a memory clock allows, Hz: 405 MHz goes with at most 420 MHz."""
    return np.where(settings[:, 1] == 405 * MHz, 420 * MHz, np.inf)


@dataclasses.dataclass(frozen=True)
class Study:
    """Published tables, as they stand."""

    kernels: pd.DataFrame  # Figure 5
    shapes: pd.DataFrame  # inferred
    best: pd.DataFrame  # Table 1: names, repeats; its clocks only score
    passes: pd.DataFrame  # Figures 3 and 4
    frontier: pd.DataFrame  # Figure 6: only scores
    scalars: pd.Series

    @property
    def counts(self) -> Float[np.ndarray, " kernel"]:
        """Launches in one iteration."""
        return self.best.repeats_per_iteration.to_numpy(float)

    @property
    def forward(self) -> np.ndarray:
        """Mask of the kernels of the forward pass."""
        return self.best.section.isin(["Embedding", "Forward"]).to_numpy()


def read_study(folder: Path) -> Study:
    """Study in `kernel_dvfs` under the folder of the measured tables."""
    names = (
        "fig5_kernel_time_energy",
        "kernel_shapes_inferred",
        "table1_best_clocks",
        "fig3_fig4_pass_sweep",
        "fig6_relaxed_waste_frontier",
        "scalars",
    )
    place = folder / "kernel_dvfs"
    if not place.is_dir():
        raise ValueError(f"`DATA` is {folder}, which holds no `kernel_dvfs`.")
    *tables, scalars = (pd.read_csv(place / f"{name}.csv") for name in names)
    return Study(*tables, scalars=scalars.set_index("quantity").value)


def clocks(column: pd.Series) -> Float[np.ndarray, " row"]:
    """Clocks in Hz; NaN for `auto`."""
    return column.replace("auto", np.nan).astype(float).to_numpy() * MHz


def gemm_sizes(text: str) -> tuple[float, float, float, float]:
    """(batch, m, n, k) of `640x[1024x1024x128]`.

    >>> gemm_sizes("[40960x6144x2048]")
    (1.0, 40960.0, 6144.0, 2048.0)
    """
    match = re.fullmatch(r"(?:(\d+)x)?\[(\d+)x(\d+)x(\d+)\]", text)
    if match is None:
        raise ValueError(f"`gemm_mnk_inferred` is {text!r}; give `BATCHx[MxNxK]`.")
    batch, m, n, k = (float(x or 1) for x in match.groups())
    return batch, m, n, k


def gemm_bytes(text: str, num_sms: float) -> float:
    """DRAM bytes of a GEMM whose waves of 128 x 128 tiles read their operands anew."""
    batch, m, n, k = gemm_sizes(text)
    tiles = m / _TILE, n / _TILE
    wave = min(num_sms, tiles[0] * tiles[1])
    sizes = (*tiles, _TILE, _TILE, wave, 2 * k, 2 * k)
    return batch * (float(wave_traffic(*map(jnp.asarray, sizes))) + 2 * m * n)


def _matrix_kind(text: str) -> str:
    batch, _, _, k = gemm_sizes(text)
    if batch > 1:
        return "batched matrix"
    return "long matrix" if k > _LONG else "matrix"


def kinds_of(study: Study, gpu: GpuSpec) -> Int[np.ndarray, " kernel"]:
    """Index in `KINDS` of every kernel, from its shape and default time."""
    names = list(KINDS)
    rate = DRAM_EFFICIENCY * float(gpu.dram_bandwidth)
    time = study.kernels.time_auto_s.to_numpy()
    least = study.shapes.min_dram_bytes.to_numpy(float)
    kinds = np.where(least < _DRAM_BOUND * time * rate, "mixed", "stream")
    kinds = np.where(least == 0, "launch", kinds).astype(object)
    for i, text in enumerate(study.shapes.gemm_mnk_inferred):
        if isinstance(text, str):
            kinds[i] = _matrix_kind(text)
    return np.array([names.index(x) for x in kinds])


def kernel_priors(study: Study, gpu: GpuSpec) -> KernelPriors:
    """What shapes and times at default clocks say: bytes from the shapes, at most what
    the time allows; what DRAM leaves of the time is core work."""
    rate = DRAM_EFFICIENCY * float(gpu.dram_bandwidth)
    top = float(gpu.sm_clock_applied_max)
    time = study.kernels.time_auto_s.to_numpy()
    kind = kinds_of(study, gpu)
    name = np.array(list(KINDS))[kind]
    matrix = np.isin(name, _MATRIX)
    dram = study.shapes.min_dram_bytes.to_numpy(float).copy()
    for i in np.flatnonzero(matrix):
        text = study.shapes.gemm_mnk_inferred[i]
        dram[i] = min(gemm_bytes(text, float(gpu.num_sms)), 0.9 * time[i] * rate)
    dram = np.where(
        name == "launch", _LAUNCH_BYTES, np.minimum(dram, 0.96 * time * rate)
    )
    busy = dram / rate / time
    p = KINDS["stream"].sharpness
    rest = np.where(name == "mixed", (1 - np.minimum(busy, 0.999) ** p) ** (1 / p), 0.0)
    share = np.maximum(CORE_SHARE * busy, rest)
    share = np.where(matrix, 0.97, np.where(name == "launch", 0.2, share))
    core = matrix | (name == "launch")
    return KernelPriors(
        tuple(KINDS.values()),
        kind,
        share * time * top,
        dram,
        np.where(core, CORE_POWER, 0.0),
        np.where(core, 0.0, STREAM_POWER / rate),
    )


def starts(study: Study, priors: KernelPriors, gpu: GpuSpec) -> list[np.ndarray]:
    """Latents to try: many bytes (the time at the lowest memory clock), with or without
    core work for the whole time, and few."""
    rate = DRAM_EFFICIENCY * float(gpu.dram_bandwidth)
    time = study.kernels.time_auto_s.to_numpy()
    slowest = study.kernels.time_max_s.to_numpy() * MEM_CLOCKS[0] / MEM_CLOCKS[4]
    many = np.minimum(0.9 * slowest, 0.97 * time) * rate
    launch = np.array(list(KINDS))[priors.kind] == "launch"
    whole = np.log(time * float(gpu.sm_clock_applied_max) / priors.cycles)
    tried = ((many, 0.0), (many, 1.0), (0.4 * priors.dram, 1.0), (priors.dram, 1.0))
    return [
        np.where(
            launch[:, None],
            0.0,
            np.stack([on * whole, np.log(dram / priors.dram), 0 * whole], 1),
        )
        for dram, on in tried
    ]


def readings(study: Study, energy_noise: float = 0.01) -> Extremes:
    """Figure 5: each kernel at default clocks, and its extremes over all settings.

    `energy_noise`: error of one energy reading (kernels that occur twice agree within
    1.0 % rms).
    """
    k = study.kernels
    shape = (len(k), len(SETTINGS))
    time, energy = np.full(shape, np.nan), np.full(shape, np.nan)
    time[:, -1], energy[:, -1] = k.time_auto_s, k.energy_auto_j
    matrix = study.shapes.gemm_mnk_inferred.notna().to_numpy()
    longest = np.where(matrix, 0.1, 0.06)  # operands of slow GEMMs are read again
    return Extremes(
        time,
        energy,
        0.003,
        0.015,
        energy_noise,
        least=k[["time_min_s", "energy_min_j"]].to_numpy(),
        least_sd=np.tile([0.003, 0.015], (len(k), 1)),
        greatest=k[["time_max_s", "energy_max_j"]].to_numpy(),
        greatest_sd=np.stack([longest, np.full(len(k), 0.06)], 1),
    )
