"""Flags of `diffenergy measure`."""

from typing import Annotated

from ...measure import MeasureRequest
from ...requests import Flag, Seed
from ..flags import Json


class Flags(MeasureRequest):
    """Measure kernels on a GPU of this machine, for `diffenergy fit`.

    Needs an NVIDIA GPU, and PyTorch or JAX with CUDA. A run may be stopped at any time;
    the same command continues where FILE ends. FILE.series.jsonl has all samples.
    Clocks and limits change only with --set-clocks and --set-power-limit.

    \b
    Examples:
      diffenergy measure --out mine.csv
      diffenergy measure --out mine.csv --set-clocks --minutes 30 --points 300
    """

    file: Annotated[
        str | None,
        Flag(
            "Measurements to write or continue (.csv).",
            "FILE",
            name="--out",
            endings=(".csv",),
        ),
    ] = None
    gpu_index: Annotated[Seed, "Board, as nvidia-smi counts"] = 0
    gpu: Annotated[
        str | None, Flag("GPU name in the rows [reported by the board].", "NAME")
    ] = None
    set_clocks: Annotated[bool, "Allow locking SM clocks; restored afterwards."] = False
    set_power_limit: Annotated[
        bool, "Allow setting power limits; restored afterwards."
    ] = False
    resume: Annotated[bool, "Require that FILE exists."] = False
    dry_run: Annotated[bool, "Show the plan; needs no GPU."] = False
    as_json: Json = False
