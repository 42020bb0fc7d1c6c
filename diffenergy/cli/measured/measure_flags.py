"""Flags of `diffenergy measure`."""

import dataclasses
import functools
from typing import Literal

from ..parsing import read
from ..parsing.field import as_json, number, option, switch

_seconds = functools.partial(read.positive, unit="min")


def _classes(flag: str, text: str) -> tuple[str, ...]:
    from ...measure import check_classes

    return check_classes([part.strip() for part in text.split(",")])


def _clocks(flag: str, text: str) -> tuple[float, ...] | Literal["auto"]:
    return "auto" if text.strip() == "auto" else read.clocks(flag, text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """Measure kernels on a GPU of this machine, for `diffenergy fit`.

    Needs an NVIDIA GPU, and PyTorch or JAX with CUDA. It may be stopped at any time;
    the same command goes on where FILE ends. FILE.series.jsonl keeps all samples.
    Clocks and limits stay untouched without --set-clocks and --set-power-limit.

    \b
    Examples:
      diffenergy measure --out mine.csv
      diffenergy measure --out mine.csv --set-clocks --minutes 30 --points 300
    """

    file: str | None = option(
        "FILE",
        "Measurements to write or go on with (.csv).",
        name="--out",
        endings=(".csv",),
    )
    gpu_index: int = number("As nvidia-smi counts.", 0, 0)
    gpu: str | None = option("NAME", "Name in the rows [what the board says].")
    seconds: float = option(
        "MIN",
        "Most that it may take, or as 90s or 2h.",
        _seconds,
        default="20",
        name="--minutes",
    )
    points: int = option("N", "Most points, old ones too.", read.whole, default="200")
    only: tuple[str, ...] | None = option(
        "CLASS[,CLASS...]", "Kernel classes [all].", _classes
    )
    zeros: bool = switch("Operands of zeros, not random ones.")
    set_clocks: bool = switch("Allow to lock SM clocks; undone after.")
    clocks: tuple[float, ...] | Literal["auto"] | None = option(
        "MHZ[,MHZ...]|auto", "SM clocks to sweep [auto: eight].", _clocks
    )
    set_power_limit: bool = switch("Allow to set power limits; undone after.")
    power_limits: tuple[float, ...] | None = option(
        "W[,W...]", "Power limits to sweep.", read.watts
    )
    seed: int = number("Of drawn shapes.", 0, 0)
    resume: bool = switch("Insist that FILE is there to go on with.")
    dry_run: bool = switch("Show the plan; needs no GPU.")
    as_json: bool = as_json()
