"""Fit few constants to the tables that tell them apart, all others frozen.

    python calibration/energies.py attention DATA [--write FILE.json]
    python calibration/energies.py blackwell DATA [--write FILE.json]
    python calibration/energies.py fp8 DATA [--write FILE.json]
    python calibration/energies.py programs DATA [--write FILE.json]

- `attention`: times of fused attention on H100, H200 and B200, 512 rows of each table.
  Free from where they are: the factors of both MMA kinds on the constants of prefill
  and decode. In the joint fit these tables count as 128 rows each.
- `blackwell`: the same products with random weights and with left-over ones, both read
  on a B200, tell the price of a byte of its two dies from the contents of weights and
  from how each campaign sampled. Free from their priors: core energy of the
  architecture and the board, the dies' factor on DRAM, the board's idle power.
- `fp8`: products in block-scaled fp8 and expert layers in plain and block-scaled fp8,
  read on an H200. Free from where they are: energy of an fp8 FLOP and what scaling
  blocks adds. The joint fit has 173 rows with power of that GPU, half of them in 16
  bits.
- `programs`: times and powers of programs known by their activities, of five GPUs. Free
  from their priors: overlap, DRAM's rate and knee, and energy of DRAM on each GPU. The
  joint fit has 256 of these rows of each GPU.

The sensors of the rows' campaigns are free beside them. `--write` puts the constants
(of `blackwell` the sensors, too) into a corrections file in place of
its own; the widths of answers stay those of left-out rows (`calibration/accuracy.py`).
"""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from calibration.campaigns import instruments
from calibration.splits.base import WHOLE, Data, column, only
from calibration.splits.contents import contents
from calibration.splits.kernels import longer
from diffenergy.corrections import (
    CONSTANTS,
    PRIOR_FACTORS,
    CorrectionsFile,
    read_corrections,
    write_corrections,
)
from diffenergy.fitting._calibrate import Settings, calibrate
from diffenergy.fitting._parameters import Parameter
from diffenergy.measurements import MeasurementTable


@dataclasses.dataclass(frozen=True)
class Refit:
    """Constants that are free, the tables that tell them, where the fit starts."""

    free: tuple[Parameter, ...]
    tables: Callable[[Data], list[MeasurementTable]]
    settings: Settings
    from_priors: str = ""
    """Sensors that start at their priors with the constants; "": all as they are."""
    sensors: bool = False
    """Whether the sensors are written, too."""


def _fp8_rows(data: Data) -> list[MeasurementTable]:
    products = data.kernels("h200_sxm", "gemm", "power")
    experts = data.kernels("h200_sxm", "moe", "power")
    # short block-scaled products are bound by their launches
    return [only(products, longer(products, 20e-6, 100e-6)), experts]


def _attention_rows(data: Data) -> list[MeasurementTable]:
    tables = [
        data.kernels(gpu, op, what)
        for op in ("context_attention", "generation_attention")
        for gpu, what in (
            ("h200_sxm", "power"), ("h200_sxm", "latency"), ("h100_sxm", "latency"),
            ("b200_sxm", "latency"),
        )
    ]  # fmt: skip
    # heads of 512 are another kernel
    return [only(table, column(table, "head_dim") < 512) for table in tables]


def _program_rows(data: Data) -> list[MeasurementTable]:
    return [
        data.imported("nv_dvfs", "nv_dvfs_dcgm"),
        data.imported("gpmtool", "gpmtool"),
    ]


_PROGRAM_GPUS: Final = (
    "v100-pcie-16gb", "quadro-rtx-8000", "titan-x-maxwell", "titan-xp", "k40c",
)  # fmt: skip
_PROGRAM_CONSTANTS: Final = (
    "activity_sharpness", "activity_dram", "memory_knee", "energy_dram",
)  # fmt: skip
_ATTENTION: Final = tuple(
    Parameter(f"mma:{kind}", name)
    for kind in ("wgmma", "tcgen05")
    for name in CONSTANTS
    if name.startswith(("prefill_", "decode_"))
)

REFITS: Final = {
    "attention": Refit(
        _ATTENTION,
        _attention_rows,
        Settings(max_rows=8 * 512, table_weight=WHOLE, max_steps=15),
    ),
    "blackwell": Refit(
        (
            Parameter("dies:2", "energy_dram"),
            Parameter("architecture:Blackwell", "core_energy"),
            Parameter("gpu:b200-sxm", "core_energy"),
            Parameter("gpu:b200-sxm", "idle_scale"),
        ),
        lambda data: [contents(data)],
        Settings(max_rows=512),
        from_priors=":gemm@b200-sxm",
        sensors=True,
    ),
    "fp8": Refit(
        (
            Parameter("global", "energy_fp8"),
            Parameter("global", "energy_fp8_block"),
        ),
        _fp8_rows,
        Settings(max_rows=1500, table_weight=WHOLE, max_steps=12),
    ),
    "programs": Refit(
        tuple(
            Parameter(f"gpu:{gpu}", name)
            for gpu in _PROGRAM_GPUS
            for name in _PROGRAM_CONSTANTS
        ),
        _program_rows,
        Settings(max_rows=6000, table_weight=WHOLE),
        from_priors=":activity",
    ),
}


def started(refit: Refit, file: CorrectionsFile) -> CorrectionsFile:
    """The file with the free constants where the fit starts."""
    if not refit.from_priors:
        return file
    levels = {tag: dict(values) for tag, values in file.levels.items()}
    for p in refit.free:
        prior = PRIOR_FACTORS.get(p.tag, {}).get(p.constant, (1.0, 0.0))
        levels.setdefault(p.tag, {})[p.constant] = prior[0]
    constants = instruments()
    sensors = {x: constants[x] for x in constants if x.endswith(refit.from_priors)}
    return dataclasses.replace(
        file, levels=levels, instruments=file.instruments | sensors
    )


def main(
    what: Annotated[str, typer.Argument(help=" or ".join(REFITS))],
    data: Annotated[Path, typer.Argument(help="folder of the measured tables")],
    write: Annotated[Path | None, typer.Option(help="corrections to renew")] = None,
):
    """Fit, print the constants, and with --write change a corrections file."""
    import jax

    if what not in REFITS:
        raise SystemExit(f"{what} is no fit; choose {' or '.join(REFITS)}.")
    refit = REFITS[what]
    jax.config.update("jax_enable_x64", True)
    start = started(refit, read_corrections(write))
    fitted = calibrate(
        refit.tables(Data(data)), start, refit.settings, among=refit.free
    )
    free, z = fitted.fit.parameters, fitted.fit.z
    for p, x, y, sd in zip(free.free, z, free.centre(), free.sd(), strict=True):
        if p in refit.free or abs(x - y) > 0.1 * sd:
            print(
                f"{p}: {math.exp(y):.4g} -> {math.exp(x):.4g}, {(x - y) / sd:+.1f} sd"
            )
    if write is not None:
        new = renewed(read_corrections(write), refit, fitted.corrections)
        write.write_text(write_corrections(new), encoding="utf-8")


def renewed(
    file: CorrectionsFile, refit: Refit, fitted: CorrectionsFile
) -> CorrectionsFile:
    """The file with the constants of a fit; `fitted_on["apart"]` names those that the
    joint fit did not have."""
    levels = {tag: dict(values) for tag, values in file.levels.items()}
    for p in refit.free:
        levels[p.tag][p.constant] = fitted.levels[p.tag][p.constant]
    joint = (file.posterior or {"parameters": ()})["parameters"]
    new = {p.constant for p in refit.free if str(p) not in joint and p.tag == "global"}
    on = file.fitted_on | {"apart": sorted({*file.fitted_on.get("apart", ()), *new})}
    sensors = fitted.instruments if refit.sensors else file.instruments
    return dataclasses.replace(file, levels=levels, fitted_on=on, instruments=sensors)


if __name__ == "__main__":
    typer.run(main)
