"""Converted public sets: synthetic rows of each format, and the real folders."""

from pathlib import Path

import numpy as np
import pytest

from calibration.importers import importers
from diffenergy.measurements.importers import notes_of

DCGM = (
    "gpu,suite,benchmark,kernel,input,sm_clock_mhz,mem_clock_mhz,time_us,"
    "avg_power_w,energy_j,sm_active,sm_occupancy,dram_active,fp32_active,fp64_active\n"
)
NVPROF = (
    "gpu,benchmark,kernel,input,sm_clock_mhz,mem_clock_mhz,time_us,avg_power_w,"
    "dram_bytes,l2_bytes,shared_transactions,flop_sp,flop_dp,warps,"
    "achieved_occupancy,launch,source_file,energy_j\n"
)


def read(name: str, path: Path):
    return importers()[name].read(path)


def noted(table, words: str) -> bool:
    return any(words in note for note in notes_of(table))


def dcgm(gpu: str, clock: float, active: float, kernel: str = "k,in0") -> str:
    return (
        f"{gpu},real,mixbench-cuda-alt,{kernel},{clock},877,{1e5 / clock},{clock / 8},"
        f"0.1,{active},0.5,0.25,0.125,0.0\n"
    )


def test_nv_dvfs_joins_the_reference_run(write, read_back):
    v100 = "Tesla V100-PCIE"
    rows = [
        dcgm(v100, 802, 0.7),
        dcgm(v100, 1087, 0.8),
        dcgm(v100, 1380, 0.9),
        dcgm(v100, 405, 0.5),
        dcgm(v100, 1087, 0.8, "benchmark_double,input019"),
        dcgm("Quadro RTX 8000", 1305, 0.8, "benchmark_double,input024"),
        dcgm(v100, 802, 0.8, "alone,in1"),
    ]
    path = write(DCGM + "".join(rows), "v100_rtx8000_dcgm.csv.gz")
    tables = read("nv_dvfs", path.parent)
    table = tables["nv_dvfs_dcgm"]
    assert noted(table, "1 of 7 rows left out: V100 at 405 MHz")
    assert noted(table, "2 of 6 rows left out: mixbench")
    assert noted(table, "1 of 4 rows left out: the series has no run")
    assert table["series"].nunique() == 1
    back = read_back(tables)["nv_dvfs_dcgm"]
    np.testing.assert_allclose(back.time_s, 0.1 / np.array([802, 1087, 1380]))
    fields = back.fields["activity"].values
    np.testing.assert_allclose(fields["sm_active"], 0.8)
    np.testing.assert_allclose(fields["time_ref_us"], 1e5 / 1087)
    np.testing.assert_allclose(fields["sm_clock_ref_mhz"], 1087.0)
    np.testing.assert_allclose(table["avg_power_ref_w"], 1087 / 8)


def nvprof(
    clock: float, memory: float, gpu: str = "GeForce GTX 980", source: str = "low@1"
) -> str:
    """1e8 bytes and 1e9 fp32 FLOP in 1000 us."""
    return (
        f"{gpu},app,k,in0,{clock},{memory},1000,100,1e8,2e8,0,1e9,0,64,0.5,"
        f"(1 1 1),{source},0.1\n"
    )


def test_nv_dvfs_activities_from_counters(write, read_back):
    grid = [nvprof(c, m) for c in (500, 600, 700) for m in (900, 3505)]
    other = nvprof(700, 3505, source="high@1")
    bare = "GeForce RTX 2070 SUPER,app,k,in0,1680,5800,10,90,,,,,,,,,2070@1,0.1\n"
    path = write(
        NVPROF + "".join(grid) + other + bare, "older_gpus_nvprof.csv.gz"
    ).parent
    tables = read("nv_dvfs", path)
    table = tables["nv_dvfs_nvprof"]
    assert noted(table, "1 of 8 rows left out: no counters")
    assert set(table["gpu"]) == {"gtx-980"}
    assert set(table.loc[table["source_file"] == "low@1", "sm_clock_ref_mhz"]) == {600}
    assert set(table["mem_clock_ref_mhz"]) == {3505}
    # 1e11 B/s of the file's 2.243e11 at 3505 MHz; 1e12 FLOP/s of 16 x 256 x clock
    np.testing.assert_allclose(table["dram_active"], 1e11 / 2.243e11, rtol=1e-3)
    low = table[table["source_file"] == "low@1"]
    np.testing.assert_allclose(low["fp32_active"], 1e12 / (16 * 256 * 600e6))
    assert read_back(tables)["nv_dvfs_nvprof"].num_rows == 7


def test_gpmtool_rows(write, read_back):
    header = (
        "gpu,benchmark_id,avg_power_w,sm_clock_mhz,mem_clock_mhz,util_fp32_add,"
        "util_dram\n"
    )
    rows = (
        "Tesla K40c,0,100,666,3004,0.5,1.005\n"
        "Tesla K40c,1,100,875,3004,-3e9,0.2\n"
        "TITAN Xp,0,150,1404,5705,0.5,0.2\n"
    )
    path = write(header + rows, "microbenchmark_power.csv.gz")
    tables = read("gpmtool", path)
    assert noted(tables["gpmtool"], "1 of 3 rows left out: a utilisation outside")
    back = read_back(tables)["gpmtool"]
    assert back.skipped.tolist() == ["", ""]
    fields = back.fields["activity"].values
    assert fields["util_dram"].tolist() == [1.0, 0.2]
    assert fields["sm_clock_ref_mhz"].tolist() == [875.0, 1404.0]
    assert fields["mem_clock_ref_mhz"].tolist() == [3004.0, 5705.0]
    assert np.isnan(back.time_s).all()


def test_kernel_tuner_rows_carry_clblast_tiles(write, read_back):
    text = (
        "gpu,mwg,nwg,mdimc,ndimc,mdima,ndimb,vwm,vwn,sa,sb,time_us,time_std_us,"
        "time_min_us,timings\n"
        "GeForce GTX 1080 Ti,64,128,16,8,16,16,2,4,1,0,15000,20,14900,32\n"
        "No Such GPU,64,128,16,8,16,16,2,4,1,0,15000,20,14900,32\n"
    )
    tables = read("kernel_tuner_tiles", write(text, "gemm_fp32_4096.csv.gz"))
    assert noted(tables["kernel_tuner_gemm"], "no GPU file for 'No Such GPU'")
    back = read_back(tables)["kernel_tuner_gemm"]
    fields = back.fields["clblast_gemm"].values
    expected = {"m": 4096, "n": 4096, "k": 4096, "tile_m": 64, "tile_n": 128}
    expected |= {"tile_k": 32, "threads": 128, "vwn": 4}
    assert {name: int(fields[name][0]) for name in expected} == expected
    assert fields["dtype"].tolist() == ["fp32"]
    assert tables["kernel_tuner_gemm"]["vwn"].tolist() == [4.0]


def test_zeus_trace_is_of_the_gpu_in_its_name(write, read_back):
    text = (
        "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,"
        "average_power\n"
        "cifar100,resnet18,64,adam,125,20.0,120.0\n"
        "cifar100,resnet18,64,adam,100,24.0,106.0\n"
    )
    tables = read("zeus_traces", write(text, "summary_power_p100.csv").parent)
    (back,) = read_back(tables).values()
    assert back.gpu.tolist() == ["p100-pcie-16gb"]
    assert back.workload.tolist() == ["cifar100/resnet18/adam/b64"]
    np.testing.assert_allclose(back.energy_j, 2400.0)
    np.testing.assert_allclose(back.power_limit, 125.0)
    assert noted(tables["zeus_summary_power_p100"], "1.05 x the power limit")


VIDUR = (
    "gpu,model,op,tp,num_tokens,n_embd,time_us,time_min_us,time_std_us,m,n,k,dtype\n"
)


def vidur(op: str, shape: str = "64,,", time_us: int = 50, model: str = "llama") -> str:
    return (
        f"NVIDIA A100-SXM4-80GB,{model},{op},1,64,512,{time_us},1,1,{shape},float16\n"
    )


def test_vidur_rows(write, read_back):
    rows = [
        vidur("mlp_up_proj", "64,2816,512"),
        vidur("mlp_down_proj", "64,512,1408", 19),
        vidur("input_layernorm", model="microsoft/phi-2"),
        *map(vidur, ("mlp_act", "add", "input_layernorm", "emb", "attn_rope")),
    ]
    path = write(VIDUR + "".join(rows), "transformer_ops.csv.gz")
    tables = read("vidur", path)
    names = ("elementwise", "gemm", "layernorm", "rmsnorm")
    assert sorted(tables) == [f"vidur_{x}" for x in names]
    reported = [note for table in tables.values() for note in notes_of(table)]
    assert any("1 of 8 rows left out: under 20 us" in note for note in reported)
    assert any("2 of 7 rows left out: embedding" in note for note in reported)
    back = read_back(tables)
    fields = back["vidur_elementwise"].fields["elementwise"].values
    assert fields["fn"].tolist() == ["silu_mul", "add"]
    assert fields["elements"].tolist() == [64 * 1408, 64 * 512]
    assert fields["reads"].tolist() == [2.0, 2.0]
    assert fields["writes"].tolist() == [1.0, 1.0]
    fields = back["vidur_gemm"].fields["gemm"].values
    assert [fields[n][0] for n in ("m", "n", "k")] == [64, 2816, 512]
    assert fields["dtype"].tolist() == ["fp16"]
    assert back["vidur_rmsnorm"].fields["rmsnorm"].values["cols"].tolist() == [512.0]


def test_vidur_activation_of_unknown_width_is_left_out(write):
    path = write(VIDUR + vidur("mlp_act") + vidur("add"), "transformer_ops.csv.gz")
    (table,) = read("vidur", path).values()
    assert table["fn"].tolist() == ["add"]
    assert noted(table, "the width of the activation is not known")
    write(VIDUR + vidur("add", time_us=5), "transformer_ops.csv.gz")
    with pytest.raises(ValueError, match="no row is left.*under 20 us"):
        read("vidur", path)


def test_small_sources_rows(write, read_back):
    header = "gpu,suite,precision,m,n,k,trans_a,trans_b,time_us,tflop_per_s\n"
    mixed = '"16 bit inputs, 16 bit multiplication, 32 bit addition"'
    other = '"16 bit inputs, 32 bit multiplication, 32 bit addition"'
    rows = (
        "NVIDIA V100,train,Float,64,128,256,N,T,50,1.0\n"
        f"NVIDIA V100,train,{mixed},64,128,256,N,T,20,1.0\n"
        f"NVIDIA V100,train,{other},64,128,256,N,T,20,1.0\n"
        "Intel KNL7250,train,Float,64,128,256,N,T,50,1.0\n"
    )
    write(header + rows, "deepbench_gemm.csv")
    text = "gpu,op,dtype,m,n,k,time_us\nNVIDIA A100-SXM4-80GB,matmul,float16,8,9,7,20\n"
    path = write(text, "llmcompass_matmul.csv").parent
    tables = read("small_sources", path)
    assert noted(tables["deepbench_gemm"], "is none of our dtypes")
    assert noted(tables["deepbench_gemm"], "no GPU file for 'Intel KNL7250'")
    back = read_back(tables)
    fields = back["deepbench_gemm"].fields["gemm"].values
    assert fields["dtype"].tolist() == ["fp32", "fp16"]
    assert back["llmcompass_matmul"].fields["gemm"].values["m"].tolist() == [8.0]


@pytest.mark.parametrize(
    "name, file, text, words",
    [
        ("gpmtool", "microbenchmark_power.csv.gz", "gpu,x\nK40c,1\n", "`util_...`"),
        ("vidur", "transformer_ops.csv.gz", "gpu,op\na,b\n", "no column for"),
        ("neusight", "gemm_fp32.csv.gz", "gpu,op,dtype\na,b,c\n", "for `time_us`"),
        (
            "small_sources",
            "llmcompass_matmul.csv",
            "gpu,op,dtype,m,n,k,time_us\na10,matmul,fp16,1,1,1,2e-5\n",
            "another unit",
        ),
    ],
)
def test_wrong_columns_and_units(write, name, file, text, words):
    with pytest.raises(ValueError, match=words):
        read(name, write(text, file))


def test_same_row_twice_counts_once(write):
    row = "a10,matmul,fp16,8,8,8,20\n"
    text = "gpu,op,dtype,m,n,k,time_us\n" + 2 * row + row.replace("20", "21")
    table = read("small_sources", write(text, "llmcompass_matmul.csv"))
    assert table["llmcompass_matmul"]["time_us"].tolist() == [20.0, 21.0]
    assert noted(table["llmcompass_matmul"], "the same row is there before")


LEAST_ROWS = {
    "nv_dvfs": {"nv_dvfs_dcgm": 2188, "nv_dvfs_nvprof": 2065},
    "gpmtool": {"gpmtool": 6903},
    "kernel_tuner_tiles": {"kernel_tuner_gemm": 45000},
    "neusight": {"neusight_gemm": 30000, "neusight_vector": 20000},
    "vidur": {"vidur_gemm": 16000, "vidur_elementwise": 5000, "vidur_rmsnorm": 6000},
    "small_sources": {"deepbench_gemm": 800, "llmcompass_matmul": 20},
    "zeus_traces": {"zeus_training_power_limit": 300},
}
"""Rows that each set gives at least: more where more GPUs have files."""


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize("name", list(LEAST_ROWS))
def test_shared_sets(shared: Path, name: str, read_back):
    tables = read(name, shared / "data" / name.removesuffix("_traces"))
    assert {stem: len(tables[stem]) >= n for stem, n in LEAST_ROWS[name].items()} == (
        dict.fromkeys(LEAST_ROWS[name], True)
    )
    small = {stem: table.iloc[::20] for stem, table in tables.items()}
    for stem, back in read_back(small).items():
        assert not any(back.skipped), stem


@pytest.mark.shared_data
def test_shared_nv_dvfs_reference_is_its_own(shared: Path):
    """At the reference clocks, a row's time and power are the joined ones."""
    for table in read("nv_dvfs", shared / "data" / "nv_dvfs").values():
        here = table["sm_clock_mhz"] == table["sm_clock_ref_mhz"]
        here &= table["mem_clock_mhz"] == table["mem_clock_ref_mhz"]
        assert np.count_nonzero(here) == table["series"].nunique()
        for own, joined in (
            ("time_us", "time_ref_us"),
            ("avg_power_w", "avg_power_ref_w"),
        ):
            np.testing.assert_array_equal(table[here][own], table[here][joined])
        assert table.filter(like="_active").max().max() <= 1


AITER = (
    "gpu,gfx,cu,family,m,n,k,time_us,library,tile_m,tile_n,tile_k,block_threads,"
    "split_k_log2_or_count,kernel,source_file\n"
)


def aiter(gpu: str, family: str, m: int, time: float) -> str:
    return f"AMD Instinct {gpu},g,256,{family},{m},256,7168,{time},ck,,,,,3,x,y\n"


def test_aiter_times_the_product_alone(write, read_back):
    """Short rows lie in caches; activations were quantised before."""
    rows = [
        aiter("MI300X", "a8w8_blockscale", 4096, 32.5),
        aiter("MI355X", "a8w8_blockscale_bpreshuffle", 4096, 20.0),
        aiter("MI355X", "a4w4_blockscale", 4096, 15.5),
        aiter("MI355X", "bf16", 16, 6.0),
        aiter("MI355X", "w4a16", 4096, 60.0),
    ]
    path = write(AITER + "".join(rows), "tuned_gemm.csv.gz")
    tables = read("aiter", path.parent)
    table = tables["aiter_gemm"]
    assert noted(table, "1 of 5 rows left out: under 15 us")
    assert noted(table, "1 of 4 rows left out: a family of unknown types")
    assert [*table["gpu"]] == ["mi300x", "mi355x", "mi355x"]
    assert [*table["dtype"]] == ["fp8_block", "fp8_block", "mxfp4"]
    back = read_back(tables)["aiter_gemm"]
    np.testing.assert_allclose(back.time_s, np.array([32.5, 20.0, 15.5]) * 1e-6)
    assert {*back.fields["gemm"].values["weights"]} == {"none"}
