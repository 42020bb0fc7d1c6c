"""Public tables that no fit has seen, predicted by the shipped corrections."""

import functools
from collections.abc import Callable

from diffenergy.corrections import CorrectionsFile, read_corrections
from diffenergy.fitting import predict
from diffenergy.fitting._calibrate import Settings

from .base import NONE, Data, Fold, Score, Split, everything, on

_TABLES = (
    ("vidur", "vidur_gemm", "fp16 GEMM of seven LLMs (Vidur)"),
    ("vidur", "vidur_rmsnorm", "RMSNorm of seven LLMs (Vidur)"),
    ("vidur", "vidur_elementwise", "element-wise kernels of LLMs (Vidur)"),
    ("small_sources", "llmcompass_matmul", "fp16 GEMM (LLMCompass)"),
    ("small_sources", "deepbench_gemm", "GEMM of 2016-2018 libraries (DeepBench)"),
)
"""Importer, table, title."""


@functools.cache
def _shipped() -> CorrectionsFile:
    return read_corrections()


def _of(name: str, stem: str) -> Callable[[Data, int, int], Fold]:
    def fold(data: Data, i: int, seed: int) -> Fold:
        table = data.imported(name, stem)
        predicted = predict(table, _shipped())
        return Fold([], table, Settings(seed=seed), _shipped(), predicted)

    return fold


def _scores(name: str, title: str) -> tuple[Score, ...]:
    if name != "vidur":
        return (Score(title, everything, NONE, NONE, ("time",)),)
    gpus = (("a100-sxm-80gb", "A100"), ("h100-sxm", "H100"))
    return tuple(
        Score(f"{label} {title}", on(gpu), NONE, NONE, ("time",)) for gpu, label in gpus
    )


SPLITS = tuple(
    Split(
        stem, "", "the whole table; shipped corrections", 1, _of(name, stem),
        _scores(name, title), seeded=False,
    )
    for name, stem, title in _TABLES
)  # fmt: skip
