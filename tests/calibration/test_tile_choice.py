"""Costs of given tiles, as the study of the libraries' choices counts them."""

import pytest

from calibration.studies.tile_choice import costs_with
from diffenergy.codesign._tiles.tiles import Tiles
from diffenergy.codesign._tiles.tuning import tune
from diffenergy.hardware import read_gpu
from diffenergy.workload import Listing, normalise_kernel


@pytest.mark.slow
def test_cuda_cores_default_is_the_best_of_the_menu():
    """`nn.Linear` in fp32: cuBLAS's five tiles, all of them legal."""
    card = read_gpu("a100-sxm-80gb")
    c = card.spec.corrections
    size = {"m": 1024, "n": 1024, "k": 4096, "dtype": "fp32"}
    kernel = normalise_kernel({"op": "gemm", **size}, "here")
    rows = [Listing("prefill", kernels=(kernel,), mode="prefill", dispatch="graph")]
    menu = [(128, 64, 1), (128, 32, 1), (32, 128, 1), (64, 32, 1), (128, 32, 3)]
    tiles = [Tiles([m], [n], [8], [2], [split]) for m, n, split in menu]
    times = [costs_with(rows, tile, card, c)[0][0] for tile in tiles]
    result = tune(rows, card, c)
    assert result.products[0].default_time == pytest.approx(min(times), rel=1e-9)
    assert result.products[0].time <= min(times)
