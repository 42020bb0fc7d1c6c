"""Tiles of nvMatmulHeuristics, as far as it is installed."""

import sys
from typing import Any

import pytest

from calibration.studies.tile_heuristics import heuristic_tile
from diffenergy.codesign._tiles.tiles import Shapes, legal
from diffenergy.dtypes import code
from diffenergy.hardware import load_gpu


def test_heuristics():
    pytest.importorskip("nvMatmulHeuristics")
    tiles = heuristic_tile("h100-sxm", 4096, 4096, 4096)
    assert {float(tiles.tile_m), float(tiles.tile_n)} == {128.0, 256.0}
    assert float(tiles.split_k) == 1 and float(tiles.stages) >= 2
    shape = Shapes(4096, 4096, 4096, code("bf16"), 1.0)
    assert bool(legal(load_gpu("h100-sxm"), shape, tiles))


@pytest.mark.parametrize(
    ("gpu", "options", "words"),
    [
        ("k20m", {}, "`gpu` is 'k20m'"),
        ("h100-sxm", {"dtype": "mxfp4"}, "`dtype` is 'mxfp4'"),
        ("h100-sxm", {"layout": "tt"}, "`layout` is 'tt'"),
        ("l4", {"dtype": "fp16"}, "pip install nvidia-matmul-heuristics"),
    ],
)
def test_heuristics_refuse(gpu: str, options: Any, words: str, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvMatmulHeuristics", None)
    with pytest.raises(ValueError, match=words):
        heuristic_tile(gpu, 64, 64, 64, **options)
