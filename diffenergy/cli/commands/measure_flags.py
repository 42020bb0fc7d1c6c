"""Flags of `diffenergy measure`."""

from typing import Annotated

from ...measure import MeasureRequest
from ...requests import Flag, Seed
from ..flags import Json


class Flags(MeasureRequest):
    """Measure kernels on a GPU of this machine, for `diffenergy fit`.

    Needs an NVIDIA GPU, and PyTorch or JAX with CUDA. It may be stopped at any time;
    the same command goes on where FILE ends. FILE.series.jsonl keeps all samples.
    Clocks and limits stay untouched without --set-clocks and --set-power-limit.

    \b
    Examples:
      diffenergy measure --out mine.csv
      diffenergy measure --out mine.csv --set-clocks --minutes 30 --points 300
    """

    file: Annotated[
        str | None,
        Flag(
            "Measurements to write or go on with (.csv).",
            "FILE",
            name="--out",
            endings=(".csv",),
        ),
    ] = None
    gpu_index: Annotated[Seed, "As nvidia-smi counts"] = 0
    gpu: Annotated[
        str | None, Flag("Name in the rows [what the board says].", "NAME")
    ] = None
    set_clocks: Annotated[bool, "Allow to lock SM clocks; undone after."] = False
    set_power_limit: Annotated[bool, "Allow to set power limits; undone after."] = False
    resume: Annotated[bool, "Insist that FILE is there to go on with."] = False
    dry_run: Annotated[bool, "Show the plan; needs no GPU."] = False
    as_json: Json = False
