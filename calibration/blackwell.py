"""Fit Blackwell's energies of bytes and operations, all other constants frozen.

    python calibration/blackwell.py DATA [--write FILE.json]

The same products with random weights and with left-over ones, both read on a B200,
tell the price of a byte of its two dies from the contents of weights and from how each
campaign sampled. Free from their priors: core energy of the architecture and the
board, the dies' factor on DRAM, the board's idle power, both campaigns' sensors.
`--write` puts them into a corrections file in place of its own; the widths of answers
stay those of left-out rows (`calibration/accuracy.py`).
"""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Final

import typer

from calibration.campaigns import instruments
from calibration.splits.base import Data
from calibration.splits.contents import contents
from diffenergy.corrections import (
    PRIOR_FACTORS,
    CorrectionsFile,
    read_corrections,
    write_corrections,
)
from diffenergy.fitting._calibrate import Settings, calibrate
from diffenergy.fitting._parameters import Parameter

FREE: Final = (
    Parameter("dies:2", "energy_dram"),
    Parameter("architecture:Blackwell", "core_energy"),
    Parameter("gpu:b200-sxm", "core_energy"),
    Parameter("gpu:b200-sxm", "idle_scale"),
)
_ROWS: Final = 256
"""Rows of a campaign, as in the joint fit."""


def at_priors(file: CorrectionsFile) -> CorrectionsFile:
    """The file with the free constants at their prior centres."""
    levels = {tag: dict(values) for tag, values in file.levels.items()}
    for p in FREE:
        prior = PRIOR_FACTORS.get(p.tag, {}).get(p.constant, (1.0, 0.0))
        levels.setdefault(p.tag, {})[p.constant] = prior[0]
    constants = instruments()
    sensors = {
        name: constants[name] for name in constants if name.endswith(":gemm@b200-sxm")
    }
    return dataclasses.replace(
        file, levels=levels, instruments=file.instruments | sensors
    )


def main(
    data: Annotated[Path, typer.Argument(help="folder of the measured tables")],
    write: Annotated[Path | None, typer.Option(help="corrections to renew")] = None,
):
    """Fit, print shifts in prior std, and with --write change a corrections file."""
    import jax

    jax.config.update("jax_enable_x64", True)
    start = at_priors(read_corrections(write))
    fitted = calibrate(
        [contents(Data(data))], start, Settings(max_rows=2 * _ROWS), among=FREE
    )
    free, z = fitted.fit.parameters, fitted.fit.z
    for p, x, y, sd in zip(free.free, z, free.centre(), free.sd(), strict=True):
        if abs(x - y) > 0.1 * sd:
            print(
                f"{p}: {math.exp(y):.4g} -> {math.exp(x):.4g}, {(x - y) / sd:+.1f} sd"
            )
    if write is not None:
        _write(write, fitted.corrections)


def _write(path: Path, fitted: CorrectionsFile):
    """Puts the levels and instruments of a fit into a corrections file."""
    file = read_corrections(path)
    new = dataclasses.replace(
        file, levels=fitted.levels, instruments=fitted.instruments
    )
    path.write_text(write_corrections(new), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
