"""Measured rows as batches of phases: which rows go together, and what they hold."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from diffenergy.corrections import CONSTANTS, Corrections, prior_file
from diffenergy.fitting import _batches
from diffenergy.fitting._batches import Batch
from diffenergy.fitting._fit import _movers, acting_constants
from diffenergy.fitting._predict import compiled_reading
from diffenergy.measurements import MeasurementTable, NoConstants

from .builders import (
    batches,
    free_parameters,
    read_rows,
    targets_of,
)

KERNELS = "gpu,op,m,n,k,dtype,campaign,time_us,avg_power_w,sm_clock_mhz_avg"


def kernels(folder: Path, *rows: str) -> MeasurementTable:
    return read_rows(folder, KERNELS, *rows)


def passes(folder: Path, number: int) -> MeasurementTable:
    """Forward passes of GPT-2 with batches of 1, 2, ... on an A10."""
    rows = [f"a10,gpt2,bf16,{i + 1},64,forward,0.1,100" for i in range(number)]
    head = "gpu,model,precision,batch,seq_len,mode,time_s,avg_power_w"
    return read_rows(folder, head, *rows)


def shares(result: list[Batch]) -> list[list[int]]:
    """Table rows of each batch, without those that fill up the shape."""
    return [x.rows[x.rows >= 0].tolist() for x in result]


def test_rows_by_gpu_campaign_and_number(tmp_path: Path, monkeypatch):
    """Four at most in one batch; what is skipped is in none."""
    monkeypatch.setattr(_batches, "CHUNK", 4)
    names = ["x"] * 9 + ["y"]
    rows = [f"a10,gemm,64,64,{64 * (i + 1)},bf16,{x},9,,"
            for i, x in enumerate(names)]  # fmt: skip
    table = kernels(tmp_path, *rows, "t4,gemm,64,64,64,bf16,x,9,,")
    table.skipped[2] = "not read"
    result = list(batches(table, prior_file()))
    assert shares(result) == [[0, 1, 3, 4], [5, 6, 7, 8], [9], [10]]
    assert [x.campaign for x in result] == ["x", "x", "y", "x"]
    assert [x.card.name for x in result] == ["a10", "a10", "a10", "t4"]
    assert {x.kind for x in result} == {"gemm"}
    whole = passes(tmp_path, 5)
    assert shares(list(batches(whole, prior_file()))) == [
        [0, 0, 1, 1, 2, 2, 3, 3], [4, 4],
    ]  # fmt: skip  # prefill and decode


def test_what_a_batch_is_of(tmp_path: Path):
    """Kinds of rows: passes; kernels, of which some pass over memory alone. Those with
    a measured clock are past the limiter: one without makes a batch that may be over
    its cap."""
    clock = "a10,gemm,64,64,64,bf16,x,9,100,1000"
    none = clock.removesuffix("1000")
    for rows, capped in (([clock] * 2, False), ([clock, none], True)):
        (batch,) = batches(kernels(tmp_path, *rows), prior_file())
        assert batch.capped is capped
        caps = np.asarray(batch.point.power_cap)[:2].tolist()
        assert caps == [1e9, 150.0 if capped else 1e9]
    (whole,) = batches(passes(tmp_path, 1), prior_file())
    (alone,) = batches(kernels(tmp_path, "a10,gemm,64,64,64,bf16,x,9,,"), prior_file())
    assert whole.kinds == {"workload"} and alone.kinds == {"kernel"}
    assert whole.holds("gemm") and not whole.holds("moe")
    assert alone.holds("gemm") and alone.ops == ("gemm",)
    (stream,) = batches(rows_of(tmp_path, "softmax", rows=64, cols=64), prior_file())
    assert stream.kinds == {"kernel", "stream"}
    assert {"softmax", "elementwise", "gather"} <= {*stream.ops}  # of one formula


def rows_of(folder: Path, op: str, **fields: object) -> MeasurementTable:
    """One measured kernel of an A10 at 1 GHz."""
    row = {"gpu": "a10", "op": op, "dtype": "bf16", **fields, "time_us": 9}
    row |= {"sm_clock_mhz_avg": 1000, "avg_power_w": 100}
    return read_rows(folder, ",".join(row), ",".join(map(str, row.values())))


ONE_OF_EACH: dict[str, dict[str, object]] = {
    "gemm": {"m": 1000, "n": 2056, "k": 1544},
    "elementwise": {"fn": "add", "elements": 30_000_000},
    "moe": {"num_tokens": 90, "hidden_size": 1024, "inter_size": 512, "topk": 2,
            "num_experts": 8},
    "context_attention": {"q_len": 512, "num_heads": 8, "head_dim": 64},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("op", ONE_OF_EACH)
def test_whatever_changes_a_reading_acts(tmp_path: Path, op: str):
    (batch,) = batches(rows_of(tmp_path, op, **ONE_OF_EACH[op]), prior_file())
    changing = sensitive(batch)
    assert "dram_efficiency" in changing and changing <= acting_constants(batch)


def sensitive(batch: Batch) -> set[str]:
    """Constants along which a difference quotient of a time or an energy is not 0."""
    start, factor = Corrections(), 1.01

    def read(changed: dict[str, object]) -> np.ndarray:
        c = dataclasses.replace(start, **changed)  # pyright: ignore[reportArgumentType]
        run = compiled_reading(batch.inputs, c, NoConstants(), batch.capped)
        return np.stack([run.time, run.energy])

    base = read({})
    return {
        name
        for name, row in CONSTANTS.items()
        if np.any(np.abs(read({name: row.centre * factor}) / base - 1) > 1e-12)
    }


def test_constants_of_hand_made_tiles_move_those_rows_alone(tmp_path: Path):
    """Hand-made tiles on a K20m, library kernels on an A100."""
    tiles = (
        "tile_m,tile_n,tile_k,mdimc,ndimc,mdima,ndimb,vwm,vwn,sa,sb",
        "64,64,32,16,8,16,16,2,4,1,0",
    )
    by_hand = f"k20m,clblast_gemm,2048,2048,2048,fp32,{tiles[1]},sweep,3000"
    library = f"a100-pcie-40gb,gemm,2048,2048,2048,bf16,{',' * 10},library,90"
    head = f"gpu,op,m,n,k,dtype,{tiles[0]},campaign,time_us"
    table = read_rows(tmp_path, head, *[by_hand] * 3, *[library] * 9)
    targets = targets_of(prior_file(), table)
    parameters = free_parameters(prior_file(), targets)
    moved = {
        x.batch.campaign: {str(parameters.free[i]) for i in _movers(parameters, x)}
        for x in targets
    }
    tiled = {name for name in moved["sweep"] if "/tiled_" in name}
    assert {"global/tiled_smem", "architecture:Kepler/tiled_l1"} <= tiled
    assert "gpu:k20m/tiled_clock" in tiled and "global/tiled_clock" not in tiled
    assert not any("/tiled_" in name for name in moved["library"])
    assert {"global/sharpness", "global/tensor_efficiency"} <= moved["library"]
    rest = {name.partition("/")[2] for name in moved["sweep"] - tiled}
    assert rest.isdisjoint({"sharpness", "tensor_efficiency", "gemm_cycles"})
    assert {"l2_efficiency", "dram_efficiency", "launch_seconds"} <= rest
