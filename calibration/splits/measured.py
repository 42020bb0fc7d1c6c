"""Our own measurements on an H100 (`calibration/measurements`): a board, libraries and
a campaign that the fit does not see."""

import functools
from pathlib import Path
from typing import Final

import numpy as np

from diffenergy import measurements
from diffenergy.measurements import MeasurementTable

from .base import NONE, Data, Fold, Mask, Score, Split
from .contents import contents, settings

_FOLDER: Final = Path(__file__).resolve().parents[1] / "measurements"
_SHORT: Final = 5e-6
"""s; shorter kernels are launches."""


@functools.cache
def measured() -> MeasurementTable:
    """Kernels in loops of their own and whole passes, clocks left to the board."""
    names = ("h100_kernels.csv", "h100_passes.csv")
    return measurements.read([str(_FOLDER / name) for name in names])


def _whole(data: Data, i: int, seed: int) -> Fold:
    """All of it; passes and kernel tables of Ampere and Hopper are fitted."""
    kernels = [
        *(data.kernels(f"{gpu}_sxm", "gemm", "latency") for gpu in ("a100", "h100")),
        *(
            data.kernels("h100_sxm", op, "latency")
            for op in ("context_attention", "generation_attention")
        ),
        data.kernels("h200_sxm", "gemm", "power"),
    ]
    tables = [data.passes, *kernels, contents(data)]
    return Fold(tables, measured(), settings(len(tables), seed))


def _kernels(*ops: str, dtypes: tuple[str, ...] = ("bf16", "fp16")) -> Mask:
    def rows(table: MeasurementTable, *_: object) -> np.ndarray:
        frame = table.frame
        random = (frame["contents"] == "random").to_numpy(bool)
        kind = np.isin(frame["dtype"].to_numpy(str), dtypes)
        return (
            random & kind & frame["op"].isin(ops).to_numpy() & (table.time_s > _SHORT)
        )

    return rows


def _passes(table: MeasurementTable, *_: object) -> np.ndarray:
    """Those that keep the GPU busy: at least 500 W."""
    return (table.kind == "workload") & (table.avg_power_w > 500)


SPLITS = (
    Split(
        "h100-measured", "", "the board and the campaign", 1, _whole,
        (
            Score("H100 16-bit GEMM > 5 us, torch 2.11", _kernels("gemm"), NONE, NONE),
            Score("... prefill attention", _kernels("context_attention"), NONE, NONE),
            Score("... decode attention", _kernels("generation_attention"), NONE, NONE),
            Score("... streams and reductions",
                  _kernels("elementwise", "softmax", "layernorm", "rmsnorm",
                           dtypes=("bf16", "fp32")), NONE, NONE),
            Score("... passes above 500 W", _passes, NONE, NONE),
        ),
        seeded=False,
    ),
)  # fmt: skip
