"""AIConfigurator's parquet tables and a checkout of the EnergAIzer artifact."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibration.importers import importers
from diffenergy.measurements.importers import notes_of

BOTH = {"framework": "VLLM", "version": "0.1.0", "kernel_source": "triton"}
GEMM = BOTH | {
    "gemm_dtype": ["bfloat16", "fp8", "w4a16"], "m": 128, "n": 4096,
    "k": [1024, 1024, 1024], "latency": [0.5, 0.3, 0.2], "power": [400.0, 0.0, 300.0],
}  # fmt: skip
ATTENTION = BOTH | {
    "batch_size": 2, "isl": [1, 1, 1], "step": [99, 199, 0], "num_heads": 32,
    "num_key_value_heads": [8, 0, 5], "head_dim": 128, "attn_dtype": "bfloat16",
    "kv_cache_dtype": "fp8", "latency": [0.02, 0.03, 0.04],
}  # fmt: skip
MOE = BOTH | {
    "num_tokens": [64], "hidden_size": 2048, "inter_size": 512, "topk": 8,
    "num_experts": 128, "moe_tp_size": 1, "moe_ep_size": 2,
    "distribution": "power_law_1.2", "moe_dtype": "fp8_block", "latency": 0.1,
}  # fmt: skip


@pytest.fixture
def package(tmp_path: Path):
    """`package(columns, family, name)` adds a table of the H200; its root."""
    pytest.importorskip("pyarrow")

    def add(columns: dict, family: str, name: str, gpu: str = "h200_sxm") -> Path:
        root = tmp_path / "systems" / "data"
        folder = root / gpu / family / "vllm" / "0.1.0"
        folder.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(columns).to_parquet(folder / f"{name}.parquet")
        return root

    return add


def aiconfigurator(path: Path) -> dict[str, pd.DataFrame]:
    return importers()["aiconfigurator"].read(path)


def test_aiconfigurator_package(package, read_back):
    package(GEMM, "gemm", "gemm_perf")
    package(ATTENTION, "attention", "generation_attention_perf")
    package(ATTENTION | {"isl": [7, 8, 9]}, "attention", "context_attention_perf")
    package(MOE, "moe", "moe_perf")
    package({"size": [1], "latency": [0.1]}, "comm", "nccl_perf")
    tables = aiconfigurator(package(GEMM, "gemm", "gemm_perf", gpu="no_such_gpu"))
    assert list(tables) == [
        "h200-sxm_context_attention",
        "h200-sxm_gemm",
        "h200-sxm_generation_attention",
        "h200-sxm_moe",
    ]
    first = notes_of(tables["h200-sxm_context_attention"])
    assert any("1 x nccl_perf" in note and "without a file" in note for note in first)
    reported = " ".join(notes_of(tables["h200-sxm_gemm"]))
    assert "`dtype` 'w4a16'" in reported and "`avg_power_w` is 0 in 1 rows" in reported
    back = read_back(tables)
    gemm = back["h200-sxm_gemm"]
    np.testing.assert_allclose(gemm.time_s, [0.5e-3, 0.3e-3])
    np.testing.assert_allclose(gemm.avg_power_w, [400.0, np.nan])
    assert gemm.campaign.tolist() == ["vllm/0.1.0"] * 2
    assert gemm.fields["gemm"].values["dtype"].tolist() == ["bf16", "fp8"]
    decode = back["h200-sxm_generation_attention"].fields["generation_attention"].values
    assert decode["kv_len"].tolist() == [100.0, 200.0]
    assert decode["num_kv_heads"].tolist() == [8.0, 32.0]
    assert decode["q_len"].tolist() == [1.0, 1.0]
    prefill = back["h200-sxm_context_attention"].fields["context_attention"].values
    assert prefill["q_len"].tolist() == [7.0, 8.0]
    assert prefill["kv_len"].tolist() == [106.0, 207.0]
    moe = back["h200-sxm_moe"].fields["moe"].values
    assert moe["distribution"].tolist() == ["power_law_1.2"]
    assert moe["moe_ep_size"].tolist() == [2.0]


def test_aiconfigurator_single_file_names_its_gpu(tmp_path: Path):
    pytest.importorskip("pyarrow")
    table = pd.DataFrame(GEMM | {"device": ["NVIDIA H200", "NVIDIA B200", "x"]})
    table.to_parquet(tmp_path / "gemm.parquet")
    assert list(aiconfigurator(tmp_path / "gemm.parquet")) == [
        "b200-sxm_gemm",
        "h200-sxm_gemm",
    ]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"m": None}, "no column for `m`"),
        ({"latency": None}, "no column for `latency`"),
        ({"latency": [5e8] * 3}, "another unit"),
        ({"k": ["a", "b", "c"]}, "`k` is 'a'"),
    ],
)
def test_aiconfigurator_errors(package, change: dict, words: str):
    columns = {k: v for k, v in (GEMM | change).items() if v is not None}
    with pytest.raises(ValueError, match=words):
        aiconfigurator(package(columns, "gemm", "gemm_perf"))


def test_files_that_cannot_be_read(package, monkeypatch):
    root = package(GEMM, "gemm", "gemm_perf")
    (file,) = root.rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(ValueError, match="cannot be read as parquet"):
        aiconfigurator(root)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match="pip install pyarrow"):
        aiconfigurator(root)


# --- EnergAIzer

NAME = "bertmodel_large_pbf16_b4_s128_modeprefill"


def artifact(root: Path, campaign: str, text: str) -> Path:
    file = root / "test/data/measurements" / campaign / "nvml" / "nvml_parsed.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return root


def test_energaizer_checkout(tmp_path: Path, read_back):
    header = "workload,energy,time,iterations,sm_clock_avg,temperature\n"
    artifact(tmp_path, "a10", header + f"{NAME},1.2,12.0,2000,900,47\n")
    vision = "vitmodel_large_pfp32_b2_modeforward"
    rows = f"{NAME}_freq1410,2.0,10.0,3000,1410,50\n{vision},3.0,20.0,1500,1410,50\n"
    root = artifact(tmp_path, "a100_dvfs", header + rows)
    tables = importers()["energaizer"].read(root)
    back = read_back(tables)["measurements"]
    assert back.gpu.tolist() == ["a10", "a100-pcie-40gb", "a100-pcie-40gb"]
    assert back.campaign.tolist() == ["a10", "a100_dvfs", "a100_dvfs"]
    np.testing.assert_allclose(back.avg_power_w, [100.0, 200.0, 150.0])
    np.testing.assert_allclose(back.sm_clock_set, [np.nan, 1.41e9, np.nan])
    wanted = back.model_request.values
    assert not len(wanted) and back.workload.tolist()[2] == vision
    table = tables["measurements"]
    assert table["precision"].tolist() == ["bf16", "bf16", "fp32"]
    np.testing.assert_allclose(table["seq_len"], [128.0, 128.0, np.nan])


def test_energaizer_columns_instead_of_a_name(tmp_path: Path, read_back):
    text = (
        "model,config,precision,batch,seq_len,mode,energy_mj_per_iter,"
        "time_s_per_iter,iterations,sm_clock_mhz_set,sm_clock_mhz_avg\n"
        "bertmodel,large,bf16,4,128,prefill,1200,0.012,2000,900,890\n"
        "bertmodel,large,bf16,8,128,prefill,1200,0.012,50,900,900\n"
    )
    tables = importers()["energaizer"].read(artifact(tmp_path, "a10", text))
    back = read_back(tables)["measurements"]
    np.testing.assert_allclose(back.energy_j, 1.2)
    np.testing.assert_allclose(back.time_s, 0.012)
    assert back.model_request.values["model"].tolist() == ["bertmodel"]
    assert tables["measurements"]["throttled"].tolist() == [True]
    assert "a dead run" in notes_of(tables["measurements"])[-1]


@pytest.mark.parametrize(
    "text, words",
    [
        ("workload,time,iterations\nx,1,2\n", "no column for `energy_j_per_iter`"),
        ("energy,time,iterations\n1,10,2000\n", "no column for `model`"),
        (f"workload,energy,time,iterations\n{NAME},9e3,9,9000\n", "another unit"),
        (
            "workload,energy,time,iterations\nx,1,10,2000\n",
            "no workload name that holds it",
        ),
    ],
)
def test_energaizer_errors(tmp_path: Path, text: str, words: str):
    with pytest.raises(ValueError, match=words):
        importers()["energaizer"].read(artifact(tmp_path, "a10", text))
