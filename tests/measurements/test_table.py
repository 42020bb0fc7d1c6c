"""Reading measurement files: units, kinds of rows, sources' formats."""

import time
from pathlib import Path

import numpy as np
import pytest

from diffenergy import measurements

GEMM = "gpu,op,m,n,k,dtype,time_us\na10,gemm,8,8,8,bf16,1\n"
ENERGAIZER = (
    "gpu,model,config,precision,batch,seq_len,mode,attention,sm_clock_mhz_set,"
    "sm_clock_mhz_avg,energy_j_per_iter,time_ms_per_iter,avg_power_w,temperature_c,"
    "iterations,source,window_s,throttled,kernel_listing,workload\n"
    "A10,bertmodel,large,bf16,1,128,prefill,eager,900,899.5,0.859,12.8,67.1,47.7,1891,"
    "a10,24.212,False,artifact,bert\n"
)


@pytest.fixture
def read(write):
    """`read(columns, *cells)`: a table of runs of the workload `w` on an A10."""

    def read(columns: str, *cells: str) -> measurements.MeasurementTable:
        rows = "".join(f"a10,w,{x}\n" for x in cells)
        path = write(f"gpu,workload,{columns}\n{rows}")
        return measurements.read([path], workloads={"w": []})

    return read


@pytest.mark.parametrize(
    "column, cell, name, expected",
    [
        ("time_us", "12.5", "time_s", 12.5e-6),
        ("time_ms_per_iter", "12.5", "time_s", 12.5e-3),
        ("energy_mj", "3", "energy_j", 3e-3),
        ("energy_kj_per_iter", "3", "energy_j", 3e3),
        ("avg_power_kw", "0.25", "avg_power_w", 250.0),
        ("sm_clock_mhz", "900", "sm_clock_set", 9e8),
        ("sm_clock_mhz_set", "900", "sm_clock_set", 9e8),
        ("sm_clock_ghz_avg", "0.9", "sm_clock_avg", 9e8),
        ("mem_clock_hz", "1.2e9", "mem_clock", 1.2e9),
        ("power_limit_w", "700", "power_limit", 700.0),
        ("temperature_c", "-5", "temperature", -5.0),
        ("iterations", "10", "iterations", 10.0),
        ("window_ms", "500", "window_s", 0.5),
    ],
)
def test_units_follow_from_the_suffix(read, column, cell, name, expected):
    time = {} if name == "time_s" else {"time_us": "1"}
    table = read(*map(",".join, zip(*({column: cell} | time).items(), strict=True)))
    np.testing.assert_allclose(getattr(table, name), [expected], rtol=1e-14)


@pytest.mark.parametrize(
    "columns, cells",
    [
        ("time_s,avg_power_w", "2,100"),
        ("time_s,energy_j", "2,200"),
        ("energy_j,avg_power_w", "200,100"),
        ("time_s,energy_j,avg_power_w", "2,200,100"),
        ("time_s,energy_j,avg_power_w", "2,,100"),
        ("time_s,energy_j,avg_power_w", ",200,100"),
    ],
)
def test_two_of_time_energy_and_power_give_the_third(read, columns, cells):
    table = read(columns, cells)
    values = [table.time_s[0], table.energy_j[0], table.avg_power_w[0]]
    assert values == [2.0, 200.0, 100.0]


def test_zero_power_counts_as_not_measured_and_is_said(read):
    table = read("time_s,avg_power_w", "1,0", "1,50", "1,")
    np.testing.assert_array_equal(table.avg_power_w, [np.nan, 50, np.nan])
    np.testing.assert_array_equal(table.energy_j, [np.nan, 50, np.nan])
    assert "`avg_power_w` is 0 in 1 rows" in table.notes[0]
    assert np.isnan(table.sm_clock_set).all() and np.isnan(table.power_limit).all()
    assert table.campaign[0] == table.host[0] == table.op[0] == ""


def test_first_spelling_wins_and_the_others_are_said(read):
    table = read("time_ms,time_us", "3,7")
    assert table.time_s[0] == pytest.approx(7e-6)
    assert "`time_us` is read, `time_ms` is not" in table.notes[0]
    assert table.ignored_columns == ()


def test_kernel_rows_with_defaults_and_synonyms(write):
    file = write(
        "gpu,framework,kernel_source,dtype,m,n,k,avg_power_w,power_limit_w,time_us\n"
        "h200_sxm,vllm/0.22.0,vllm_default,bfloat16,1,32,1536,142.435,700.0,4.1398\n"
        "NVIDIA H200,vllm/0.22.0,cutlass,fp8_block,2,32,1536,150,700.0,5\n",
        "h200.csv.gz",
    )
    table = measurements.read([f"gemm={file}"])
    for column, value in (
        (table.gpu, "h200-sxm"), (table.op, "gemm"), (table.kind, "kernel"),
        (table.campaign, "vllm/0.22.0"),
    ):  # fmt: skip
        assert list(column) == [value] * 2
    shape = table.fields["gemm"].values
    assert {x: list(shape[x]) for x in ("dtype", "out_dtype", "family")} == {
        "dtype": ["bf16", "fp8_block"],
        "out_dtype": ["bf16", "bf16"],
        "family": ["vllm_default", "cutlass"],
    }
    for name, values in (("m", [1, 2]), ("batch", [1, 1]), ("tile_m", [0, 0])):
        np.testing.assert_array_equal(shape[name], values)
    assert table.ignored_columns == ()
    assert list(table.frame["m"]) == ["1", "2"]
    assert list(table.frame["avg_power_w"]) == ["142.435", "150"]


def test_attention_and_moe_rows(write):
    attention = write(
        "gpu,framework,kernel_source,batch,q_len,num_heads,num_kv_heads,head_dim,"
        "window_size,dtype,kv_cache_dtype,kv_len,time_us\n"
        "b200_sxm,vllm/0.24.0,trtllm,1,1,8,2,64,128,bfloat16,fp8,2048,9.1\n",
        "attention.csv",
    )
    moe = write(
        "gpu,framework,kernel_source,dtype,num_tokens,hidden_size,inter_size,topk,"
        "num_experts,moe_tp_size,moe_ep_size,distribution,time_us\n"
        "h200_sxm,vllm/0.22.0,fused,fp8,1,2048,512,8,256,1,8,power_law_1.2,24.1\n",
        "moe.csv",
    )
    table = measurements.read([f"generation_attention={attention}", f"moe={moe}"])
    shape = table.fields["generation_attention"].values
    assert shape["kv_cache_dtype"][0] == "fp8" and shape["causal"][0]
    assert shape["window_size"][0] == 128
    experts = table.fields["moe"]
    assert list(experts.rows) == [1]
    assert experts.values["distribution"][0] == "power_law_1.2"
    assert list(table.row) == [0, 0] and len(set(table.file)) == 2


def test_workload_rows_name_a_listing(write):
    table = measurements.read([write(ENERGAIZER)], workloads={"bert": []})
    assert table.kind[0] == "workload" and table.workload[0] == "bert"
    assert table.campaign[0] == "a10" and table.attention[0] == "eager"
    assert table.sm_clock_avg[0] == pytest.approx(899.5e6)
    assert table.iterations[0] == 1891 and table.window_s[0] == 24.212
    assert table.ignored_columns == ("throttled", "kernel_listing")
    assert len(table.model_request.rows) == 0


def test_workload_rows_name_a_model(write):
    file = write(
        "gpu,model,precision,batch,seq_len,mode,attention,time_ms\n"
        "a10,qwen2,bfloat16,2,128,prefill,flash,5\n"
        "a10,resnet,fp32,4,,forward,,6\n"
    )
    request = measurements.read([file]).model_request
    assert list(request.rows) == [0, 1]
    assert list(request.values["model"]) == ["qwen2", "resnet"]
    assert list(request.values["precision"]) == ["bf16", "fp32"]
    np.testing.assert_array_equal(request.values["batch"], [2, 4])
    np.testing.assert_array_equal(request.values["seq_len"], [128, np.nan])
    assert list(request.values["attention"]) == ["flash", ""]


def test_activity_needs_no_time_and_broken_shares_are_skipped(write):
    file = write(
        "gpu,avg_power_w,util_int,util_dram\n"
        "TITAN Xp,142,0.2,0.004\n"
        "TITAN Xp,142,-8e8,0.004\n"
    )
    table = measurements.read([f"activity={file}"])
    assert np.isnan(table.time_s).all() and table.skipped[0] == ""
    assert table.skipped[1] == "`util_int` is -8e+08, which is no share from 0 to 1"


def test_gpu_and_op_given_by_the_caller_replace_the_columns(write):
    file = write(GEMM.replace("a10,gemm", "nonsense,layer_7"))
    table = measurements.read([file], gpu="NVIDIA H200", op="gemm")
    assert table.gpu[0] == "h200-sxm" and table.op[0] == "gemm"
    assert table.frame[["gpu", "op"]].to_numpy().tolist() == [["h200-sxm", "layer_7"]]


def test_files_are_joined_in_order(write):
    """Ops of one file keep their rows, with the cells of that op alone."""
    first = write(
        "gpu,op,m,n,k,rows,cols,dtype,time_us\na10,gemm,8,16,32,,,bf16,1\n"
        "a10,softmax,,,,4,128,half,2\na10,gemm,9,16,32,,,bf16,3\n",
        "a.csv",
    )
    second = write("gpu,op,rows,cols,dtype,time_ms\nl4,softmax,4,4,fp32,1\n", "b.csv")
    table = measurements.read([first, second])
    assert [Path(x).name for x in table.file] == ["a.csv", "a.csv", "a.csv", "b.csv"]
    assert list(table.row) == [0, 1, 2, 0]
    gemm, softmax = table.fields["gemm"], table.fields["softmax"]
    assert (list(gemm.rows), list(softmax.rows)) == ([0, 2], [1, 3])
    np.testing.assert_array_equal(gemm.values["m"], [8, 9])
    assert list(softmax.values["dtype"]) == ["fp16", "fp32"]
    np.testing.assert_allclose(table.time_s, [1e-6, 2e-6, 3e-6, 1e-3])
    assert list(table.frame["m"]) == ["8", "", "9", ""]
    assert list(table.frame["rows"]) == ["", "4", "", "4"]


def test_byte_order_mark_blank_lines_and_blanks_around_cells(write):
    text = "\ufeff gpu , op,m,n,k,dtype,time_us\r\n\r\na10, gemm ,8,8, 8,bf16,1\r\n"
    table = measurements.read([write(text)])
    assert table.fields["gemm"].values["k"][0] == 8 and list(table.row) == [0]


def test_fifty_thousand_rows_are_read_as_columns(write):
    measurements.read([write(GEMM, "warm.csv")])
    file = write(GEMM + "a10,gemm,8,16,32,bf16,1.5\n" * 49_999)
    start = time.perf_counter()
    table = measurements.read([file])
    assert time.perf_counter() - start < 4
    assert table.num_rows == 50_000
