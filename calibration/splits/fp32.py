"""fp32 library kernels on CUDA cores, a GPU left out of the fit: matrix products whose
tile is given, vector operations after one measured copy."""

import functools
from pathlib import Path

import numpy as np

from calibration.importers import neusight
from diffenergy.corrections import CONSTANTS, CorrectionsFile, prior_file, resolve
from diffenergy.fitting._calibrate import Settings
from diffenergy.hardware import read_gpu
from diffenergy.measurements import MeasurementTable

from .base import NONE, WHOLE, Data, Fold, Mask, Score, Split, as_table, on, only

_PRODUCTS = (
    ("P100", "p100-pcie-16gb", 12, (11.4, 12.7)),
    ("V100", "v100-pcie-32gb", 12, (11.9, 14.3)),
    ("A100", "a100-pcie-40gb", 12, (6.9, 6.3)),
    ("H100", "h100-sxm", 12, (10.6, 9.4)),
    ("T4", "t4", 20, (22.9, 26.0)),
)
"""Label, GPU, goal, figures of the study (all rows, above 300 us)."""
_VECTORS = ("p100-pcie-16gb", "v100-pcie-32gb", "a100-pcie-40gb", "t4", "mi100")
_APART = ("t4", "mi100")
"""GPUs that are scored and never fitted: the clock of the T4 follows a power cap that
nobody recorded, MI100 is of another vendor."""
_ROWS = 512
_LEVELS = ("architecture", "mma", "memory", "node", "gpu")
_EVENT = 16e-6
"""Launch and events in the time of one large element-wise call, s."""


def _but(*beginnings: str) -> tuple[str, ...]:
    """`Settings.freeze` for a fit of the global constants that begin with `kept`."""
    frozen = (
        name
        for name in CONSTANTS
        if not name.startswith(beginnings)
        and not any(k.startswith(name) for k in beginnings)
    )
    return (*_LEVELS, *frozen)


_OF_PRODUCTS = _but(
    "simt_", "fma_efficiency", "l2_efficiency", "dram_efficiency", "split_cycles"
)
_OF_VECTORS = _but(
    "stream_feed", "sharpness_stream", "reduction_", "l2_efficiency",
    "l2_producer_share", "l2_sharpness",
)  # fmt: skip


@functools.cache
def _table(folder: Path, stem: str) -> MeasurementTable:
    return as_table(neusight.translated(folder / "neusight" / f"{stem}_fp32.csv.gz"))


def _out(
    table: MeasurementTable,
    gpus: tuple[str, ...],
    i: int,
    seed: int,
    freeze: tuple[str, ...],
    start: CorrectionsFile,
) -> Fold:
    """Fold that leaves GPU i out; GPUs in `_APART` are in no fit."""
    fitted = [gpu for gpu in gpus if gpu not in (gpus[i], *_APART)]
    groups = len(fitted) * len(table.fields)
    settings = Settings(
        seed=seed, max_rows=groups * _ROWS, table_weight=WHOLE, max_steps=20,
        freeze=freeze,
    )  # fmt: skip
    return Fold(
        [only(table, np.isin(table.gpu, fitted))],
        only(table, table.gpu == gpus[i]),
        settings,
        start,
    )


def _products(data: Data, i: int, seed: int) -> Fold:
    table = _table(data.folder, "gemm")
    gpus = tuple(gpu for _, gpu, *_ in _PRODUCTS)
    return _out(table, gpus, i, seed, _OF_PRODUCTS, prior_file())


def _vectors(data: Data, i: int, seed: int) -> Fold:
    table = _table(data.folder, "vector")
    return _out(table, _VECTORS, i, seed, _OF_VECTORS, _after_a_copy(table))


def _after_a_copy(table: MeasurementTable) -> CorrectionsFile:
    """Priors with the DRAM rate that one large element-wise row of each GPU shows."""
    start = prior_file()
    rows, values = table.fields["elementwise"].rows, table.fields["elementwise"].values
    moved = 4 * values["elements"] * (values["reads"] + values["writes"])
    plain = np.isin(values["fn"], ("add", "mul", "div"))
    for gpu in _VECTORS:
        card = read_gpu(gpu)
        place = np.argmax(np.where(plain & (table.gpu[rows] == gpu), moved, 0.0))
        rate = moved[place] / (table.time_s[rows[place]] - _EVENT)
        efficiency = resolve(start.levels, card.tags)["dram_efficiency"]
        level = start.levels.setdefault(card.tags[-1], {})
        factor = _odds(rate / card.values["dram_bandwidth"]) / _odds(efficiency)
        level["dram_efficiency"] = level.get("dram_efficiency", 1.0) * float(factor)
    return start


def _odds(share: float) -> float:
    return share / (1 - share)


def _of(op: str, apart: bool, seconds: float) -> Mask:
    def rows(table: MeasurementTable, *_: object) -> np.ndarray:
        long = (table.op == op) & (table.time_s > seconds)
        return long & (np.isin(table.gpu, _APART) == apart)

    return rows


SPLITS = (
    Split(
        "fp32-gemm", "", "a whole GPU", len(_PRODUCTS), _products,
        tuple(
            Score(title, on(gpu, seconds), (goal, None, None), (study, None, None),
                  ("time",))
            for label, gpu, goal, studies in _PRODUCTS
            for title, seconds, study in (
                (f"{label} fp32 GEMM of cuBLAS, tile given", 0.0, studies[0]),
                ("... > 300 us", 300e-6, studies[1]),
            )
        ),
    ),
    Split(
        "fp32-vector", "", "a whole GPU, but one copy", len(_VECTORS), _vectors,
        tuple(
            Score(title, _of(op, apart, seconds), (goal, None, None), NONE, ("time",))
            for apart, gpus in ((False, "P100, V100, A100"), (True, "T4, MI100"))
            for op, goal in (("elementwise", 8), ("softmax", 15), ("layernorm", 15))
            for title, seconds in ((f"{gpus} fp32 {op}", 0.0), ("... > 100 us", 1e-4))
        ),
    ),
)  # fmt: skip
