"""Rows of hand-made tiles: what they free and move, and what they leave alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from diffenergy import measurements
from diffenergy.corrections import prior_file
from diffenergy.fitting._batches import Batch, batches
from diffenergy.fitting._fit import Target, _movers, target
from diffenergy.fitting._free_parameters import free_parameters

HEADER = (
    "gpu,op,m,n,k,dtype,tile_m,tile_n,tile_k,mdimc,ndimc,mdima,ndimb,vwm,vwn,sa,sb,"
    "campaign,time_us\n"
)
BY_HAND = "2048,2048,2048,fp32,64,64,32,16,8,16,16,2,4,1,0,sweep,3000\n"
LIBRARY = "2048,2048,2048,bf16,,,,,,,,,,,,library,90\n"


@pytest.fixture
def targets(tmp_path: Path) -> dict[str, Target]:
    """One target of hand-made tiles on a K20m, one of library kernels on an A100."""
    file = tmp_path / "rows.csv"
    text = (
        HEADER
        + f"k20m,clblast_gemm,{BY_HAND}" * 3
        + f"a100-pcie-40gb,gemm,{LIBRARY}" * 9
    )
    file.write_text(text, encoding="utf-8")
    table = measurements.read([str(file)])

    def found() -> Iterator[Batch]:
        yield from batches(table, prior_file())

    return {batch.campaign: target(table, batch, 0.1, 0.1) for batch in found()}


def test_constants_of_hand_made_tiles_move_those_rows_alone(targets):
    parameters = free_parameters(prior_file(), list(targets.values()))
    moved = {
        name: {str(parameters.free[i]) for i in _movers(parameters, item)}
        for name, item in targets.items()
    }
    tiled = {name for name in moved["sweep"] if "/tiled_" in name}
    assert {"global/tiled_smem", "architecture:Kepler/tiled_l1"} <= tiled
    assert "gpu:k20m/tiled_clock" in tiled and "global/tiled_clock" not in tiled
    assert not any("/tiled_" in name for name in moved["library"])
    assert {"global/sharpness", "global/tensor_efficiency"} <= moved["library"]
    rest = {name.partition("/")[2] for name in moved["sweep"] - tiled}
    assert rest.isdisjoint({"sharpness", "tensor_efficiency", "gemm_cycles"})
    assert {"l2_efficiency", "dram_efficiency", "launch_seconds"} <= rest
