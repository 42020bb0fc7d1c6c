"""Measured rows as batches of phases: which rows go together, and what they hold."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from diffenergy import measurements
from diffenergy.corrections import CONSTANTS, Corrections, prior_file
from diffenergy.fitting import _batches
from diffenergy.fitting._batches import Batch
from diffenergy.fitting._fit import _movers, acting_constants
from diffenergy.fitting._predict import compiled_reading
from diffenergy.measurements import MeasurementTable, NoConstants

from .builders import Parameter, Parameters, batches, free_parameters, target

KERNELS = "gpu,op,m,n,k,dtype,campaign,time_us,avg_power_w,sm_clock_mhz_avg"


def kernels(folder: Path, *rows: str) -> MeasurementTable:
    (folder / "kernels.csv").write_text("\n".join([KERNELS, *rows]))
    return measurements.read([str(folder / "kernels.csv")])


def passes(folder: Path, number: int) -> MeasurementTable:
    """Forward passes of GPT-2 with batches of 1, 2, ... on an A10."""
    rows = [f"a10,gpt2,bf16,{i + 1},64,forward,0.1,100" for i in range(number)]
    head = "gpu,model,precision,batch,seq_len,mode,time_s,avg_power_w"
    (folder / "passes.csv").write_text("\n".join([head, *rows]))
    return measurements.read([str(folder / "passes.csv")])


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


def test_phases_of_a_row_add_up(tmp_path: Path):
    (batch,) = batches(passes(tmp_path, 3), prior_file())
    assert batch.kind == "workload" and batch.campaign == ""
    phase = np.arange(1.0, len(batch.rows) + 1)
    assert batch.per_row(5, phase).tolist() == [1 + 2, 3 + 4, 5 + 6, 0, 0]
    assert len(batch.rows) > 6  # the rest fill up the shape


def test_what_is_capped(tmp_path: Path):
    """Rows with a measured clock are past the limiter: one without makes a batch that
    may be over its cap."""
    clock = "a10,gemm,64,64,64,bf16,x,9,100,1000"
    none = "a10,gemm,64,64,64,bf16,x,9,100,"
    for rows, capped in (([clock] * 2, False), ([clock, none], True)):
        (batch,) = batches(kernels(tmp_path, *rows), prior_file())
        assert batch.capped is capped
        caps = np.asarray(batch.point.power_cap)[:2].tolist()
        assert caps == [1e9, 150.0 if capped else 1e9]


def test_what_a_batch_is_of(tmp_path: Path):
    """Kinds of rows: passes; kernels, of which some pass over memory alone."""
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
    text = [",".join(row), ",".join(map(str, row.values()))]
    (folder / "kernels.csv").write_text("\n".join(text))
    return measurements.read([str(folder / "kernels.csv")])


ONE_OF_EACH: dict[str, dict[str, object]] = {
    "gemm": {"m": 1000, "n": 2056, "k": 1544},
    "elementwise": {"fn": "add", "elements": 30_000_000},
    "moe": {"num_tokens": 90, "hidden_size": 1024, "inter_size": 512, "topk": 2,
            "num_experts": 8},
    "context_attention": {"q_len": 512, "num_heads": 8, "head_dim": 64},
}  # fmt: skip


def test_constants_act_where_a_formula_uses_them(tmp_path: Path):
    """No list names ops: constants of other classes do not act, and a fit moves those
    that act alone."""
    families = {"gemm": "choice_", "moe": "moe_", "context_attention": "prefill_"}
    parameters = Parameters(
        tuple(Parameter("global", name) for name in CONSTANTS), prior_file().levels
    )
    for op, fields in ONE_OF_EACH.items():
        table = rows_of(tmp_path, op, **fields)
        (batch,) = batches(table, prior_file())
        acting = acting_constants(batch)
        for other, start in families.items():
            acts = any(name.startswith(start) for name in acting)
            assert acts is (op == other), (op, start)
        free = _movers(parameters, target(table, batch, 0.1, 0.1))
        moved = {parameters.free[i].constant for i in free}
        assert moved <= acting and "sm_clock_energy" in moved
        assert ("stream_feed" in moved) is (op == "elementwise")
        assert not any(x.startswith(("dispatch_", "training_")) for x in moved)


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


def test_what_only_power_shows_moves_no_times(tmp_path: Path):
    """Energies of a kernel without a power and past its limiter; one power, or a row
    that may be over its cap, is enough."""
    free = [Parameter("global", x) for x in ("energy_dram", "dram_efficiency")]
    free += [Parameter("gpu:t4", "dram_efficiency")]
    parameters = Parameters(tuple(free), prior_file().levels)
    row = "a10,gemm,64,64,64,bf16,x,9,"
    for cells, movers in (
        ([",1000"] * 2, [1]), ([",1000", "90,1000"], [0, 1]), ([",1000", ","], [0, 1]),
    ):  # fmt: skip
        table = kernels(tmp_path, *(row + x for x in cells))
        (batch,) = batches(table, prior_file())
        assert _movers(parameters, target(table, batch, 0.1, 0.1)) == movers, cells


@pytest.mark.parametrize("timed", [True, False])
def test_a_target_holds_what_was_read(tmp_path: Path, timed: bool):
    table = kernels(tmp_path, *["a10,gemm,64,64,64,bf16,x,9,90,"] * 3)
    if not timed:
        table.time_s[1] = np.nan
    (batch,) = batches(table, prior_file())
    result = target(table, batch, 0.1, 0.2)
    nan = np.nan
    rest = [nan] * (len(batch.rows) - 3)
    expected = np.array([9e-6, 9e-6 if timed else nan, 9e-6, *rest])
    assert result.time == pytest.approx(expected, nan_ok=True)
    assert result.power == pytest.approx(np.array([90.0] * 3 + rest), nan_ok=True)
    assert (result.time_sd, result.power_sd) == (0.1, 0.2)


def test_constants_of_hand_made_tiles_move_those_rows_alone(tmp_path: Path):
    """Hand-made tiles on a K20m, library kernels on an A100."""
    tiles = (
        "tile_m,tile_n,tile_k,mdimc,ndimc,mdima,ndimb,vwm,vwn,sa,sb",
        "64,64,32,16,8,16,16,2,4,1,0",
    )
    by_hand = f"k20m,clblast_gemm,2048,2048,2048,fp32,{tiles[1]},sweep,3000"
    library = f"a100-pcie-40gb,gemm,2048,2048,2048,bf16,{',' * 10},library,90"
    head = f"gpu,op,m,n,k,dtype,{tiles[0]},campaign,time_us"
    (tmp_path / "rows.csv").write_text(
        "\n".join([head, *[by_hand] * 3, *[library] * 9])
    )
    table = measurements.read([str(tmp_path / "rows.csv")])
    targets = {
        batch.campaign: target(table, batch, 0.1, 0.1)
        for batch in batches(table, prior_file())
    }
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
