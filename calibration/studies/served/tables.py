"""Other people's tables of servers as rows of `serving.csv`.

Prompt lengths are not in ML.ENERGY's table: those here are from gaps between tokens
(mean minus median) and from the task.
"""

import json
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import numpy as np
import pandas as pd

import diffenergy

BUNDLED: Final = {
    "Qwen/Qwen3-8B": "qwen3-8b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "meta-llama/Llama-3.3-70B-Instruct": "llama-3.1-70b",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
    "Qwen/Qwen3-30B-A3B-Thinking-2507": "qwen3-30b-a3b",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3-30b-a3b",
    "Qwen/Qwen3-235B-A22B-Instruct-2507": "qwen3-235b-a22b",
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": "qwen3-235b-a22b",
}
"""Bundled models of the same shape."""
_QWEN14: Final = dict(
    hidden_size=5120, intermediate_size=17408, num_hidden_layers=40,
    num_attention_heads=40,
)  # fmt: skip
_LLAMA_FP8: Final = "meta-llama/Llama-3.1-405B-Instruct-FP8"
_GEMMA: Final = dict(
    model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], head_dim=256,
    sliding_window=1024, vocab_size=262208, max_position_embeddings=131072,
    hidden_activation="gelu_pytorch_tanh",
)  # fmt: skip
OTHERS: Final = {
    "google/gemma-3-12b-it": _GEMMA | dict(
        hidden_size=3840, intermediate_size=15360, num_hidden_layers=48,
        num_attention_heads=16, num_key_value_heads=8,
    ),
    "google/gemma-3-27b-it": _GEMMA | dict(
        hidden_size=5376, intermediate_size=21504, num_hidden_layers=62,
        num_attention_heads=32, num_key_value_heads=16, head_dim=128,
    ),
}  # fmt: skip
"""Published sizes of models that are not bundled."""
GPUS: Final = {
    "NVIDIA H100 80GB HBM3": "h100-sxm", "NVIDIA B200": "b200-sxm",
    "h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm", "b200_sxm": "b200-sxm",
}  # fmt: skip
PROMPTS: Final = {
    "lm-arena-chat": ("lognormal:270:1.2", 80),
    "gpqa": ("250", 0),
    "sourcegraph-fim": ("1730", 0),
}
"""Prompt tokens computed and cached."""
_CODE: Final = "sourcegraph-fim"
"""Task whose requests are sampled without sorts: medians of gaps leave 14 us a sequence
and less beside the kernels of Qwen3-30B-A3B on H100, where chat leaves 52 to 54. Its
client sends them to another interface, whose defaults are greedy (ML.ENERGY's
`mlenergy/llm/benchmark.py`)."""
_LESS: Final = 0.97
"""Power over that of a smaller batch below which a board waits for its host."""
_WAVES: Final = {"vllm": 6.0, "trtllm": 6.0, "sglang": 1.0}
"""Requests that a client of AIConfigurator's campaigns sends (1 / phi)."""


def configs() -> dict[str, str]:
    """Files of the models that are not bundled, by name."""
    folder, paths = Path(mkdtemp()), {}
    sizes_of = {
        "Qwen/Qwen3-14B": _bundled("qwen3-8b") | _QWEN14,
        _LLAMA_FP8: _llama_fp8(),
        **OTHERS,
    }
    for name, sizes in sizes_of.items():
        path = folder / f"{name.rpartition('/')[2]}.json"
        path.write_text(json.dumps(sizes))
        paths[name] = str(path)
    return paths


def _bundled(name: str) -> dict[str, Any]:
    folder = Path(diffenergy.__file__).parent / "data/models"
    return json.loads((folder / name / "config.json").read_text())


def _llama_fp8() -> dict[str, Any]:
    """Llama-3.1-405B whose attention, first and last layer stay in 16 bits, as its fp8
    checkpoint has them (arXiv 2407.21783, section 6.2)."""
    config = _bundled("llama-3.1-405b")
    layers = range(config["num_hidden_layers"])
    wide = [f"model.layers.{i}.self_attn.{x}_proj" for i in layers for x in "qkvo"]
    wide += [
        f"model.layers.{i}.mlp.{x}_proj"
        for i in (layers[0], layers[-1])
        for x in ("gate", "up", "down")
    ]
    quantised = dict(quant_method="fbgemm_fp8", modules_to_not_convert=wide)
    return config | {"quantization_config": quantised}


def ml_energy(path: Path) -> pd.DataFrame:
    """ML.ENERGY v3 (vLLM 0.11.1, V1): steady runs of text models.

    `waits`: boards draw less than those of a smaller batch of the same model, task and
    plan, as they do where they wait for their host (steps up to twice as long as those
    of neighbouring batches; SOURCES.md there). More requests at once draw more power.
    """
    rows: Any = pd.read_csv(path)
    models = BUNDLED | configs()
    full = 3 * rows["max_num_seqs"] <= rows["requests"]  # a steady state
    known = rows["model"].isin(models) & rows["task"].isin(PROMPTS)
    # reasoning on hosts of the B200 is bound by them
    host = (rows["gpu"] == "NVIDIA B200") & (rows["task"] == "gpqa")
    rows = rows[full & known & ~host & (rows["mean_running"] <= 1000)]
    spread = rows["output_len_second_moment"] / rows["output_len_mean"] ** 2
    cv = (spread - 1).clip(lower=0) ** 0.5
    mixture = rows["model"].str.contains("A3B|A22B")
    series = rows.sort_values("mean_running").groupby(
        ["model", "task", "gpu", "num_gpus", "dtype"]
    )
    most = series["power_w_all_gpus"].cummax().reindex(rows.index)
    return pd.DataFrame(
        {
            "campaign": "ml-energy",
            "name": rows["model"],
            "task": rows["task"],
            "gpu": rows["gpu"].map(GPUS),
            "model": rows["model"].map(models),
            "engine": "vllm",
            "num_gpus": rows["num_gpus"],
            "tp": rows["num_gpus"],
            "ep": rows["num_gpus"].where(mixture, 1),
            "dtype": [_dtype(x) for x in rows.itertuples()],
            "max_batch": rows["max_num_seqs"],
            "running_requests": rows["mean_running"],
            "input_len": [PROMPTS[x][0] for x in rows["task"]],
            "cached_len": [PROMPTS[x][1] for x in rows["task"]],
            "output_len": [
                f"lognormal:{mean:.6g}:{c:.4g}"
                for mean, c in zip(rows["output_len_mean"], cv, strict=True)
            ],
            "sampling": ["random" if x == _CODE else "penalties" for x in rows["task"]],
            "tpot_s": rows["mean_running"] / rows["output_throughput_tok_s"],
            "itl_p50_s": rows["itl_p50_ms"] / 1e3,
            "itl_p90_s": rows["itl_p90_ms"] / 1e3,
            "itl_p99_s": rows["itl_p99_ms"] / 1e3,
            "avg_power_w": rows["power_w_all_gpus"],
            "energy_j_per_output_token": rows["energy_j_per_token"],
            "waits": rows["power_w_all_gpus"] < _LESS * most,
        }
    ).reset_index(drop=True)


def _dtype(row: Any) -> str:
    if "235B" in row.model and row.dtype == "fp8":
        return "fp8_block"
    if row.model == _LLAMA_FP8:
        return ""  # as the checkpoint says
    return "bf16" if row.dtype == "bfloat16" else str(row.dtype)


def aiconfigurator(path: Path) -> pd.DataFrame:
    """Closed loops of AIConfigurator's table: Qwen3-32B on H100 SXM.

    Without a stated concurrency rows are prefix-cached or limited in rate, and left
    out. TensorRT-LLM serves the fp8 checkpoint with a cache in fp8: 128 requests of
    2,304 tokens run on one H100, which holds 71 of them in 16 bits.
    """
    rows: Any = pd.read_csv(path)
    rows = rows[(rows["gpu"] == "h100_sxm") & (rows["model"] == "Qwen/Qwen3-32B")]
    rows = rows[(rows["pp"] == 1) & rows["concurrency"].notna()]
    dtype = rows["gemm_quant_mode"].fillna("bf16")
    return _closed(rows, "qwen3-32b").assign(
        dtype=dtype.to_numpy(),
        kv_dtype=np.where((rows["backend"] == "trtllm") & (dtype == "fp8"), "fp8", ""),
    )


def _closed(rows: Any, model: Any) -> pd.DataFrame:
    """Closed loops of AIConfigurator's table, without types of weights."""
    engine = rows["backend"]
    return pd.DataFrame(
        {
            "campaign": "aiconfigurator",
            "name": rows["model"],
            "task": rows["backend_version"],
            "gpu": rows["gpu"].map(GPUS),
            "model": model,
            "engine": engine,
            "num_gpus": rows["tp"].astype(int),
            "tp": rows["tp"].astype(int),
            "concurrency": rows["concurrency"],
            "input_len": rows["input_tokens"],
            "output_len": rows["output_tokens"],
            "sampling": engine.map({"vllm": "top-p"}).fillna("random"),
            "waves": engine.map(_WAVES),
            "tpot_s": rows["tpot_ms"] / 1e3,
            "ttft_s": rows["ttft_ms"] / 1e3,
        }
    ).reset_index(drop=True)


MIXTURES: Final = {
    "deepseek-ai/DeepSeek-R1": "deepseek-v3",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "MiniMaxAI/MiniMax-M2.5": "minimax-m2",
}
"""Bundled models of the same shape as the mixtures of AIConfigurator's table."""


def mixtures(path: Path) -> pd.DataFrame:
    """Closed loops of mixtures in AIConfigurator's table, on at most 8 GPUs.

    They are InferenceX's, whose client sends ten requests of each client, all at once
    (its README). No row pays for sorts (gpt-oss-120b, 8 H200, 64 clients: 7.05 ms, 7.3
    without, 10.5 with them), so that sampling is taken as greedy; which the client asks
    for was not read. Up to 256 clients whose first token comes within 5 s,
    attention by tensor parallelism. Without TensorRT-LLM on Hopper, whose rows are of
    two kinds of builds. Times to the first token are left out: what waited is unknown.
    On B200 its launch scripts set a cache in fp8 for TensorRT-LLM, SGLang and, since
    vLLM 0.11.2, gpt-oss. Builds that its changelog names for drafts (`_DRAFTS`) are
    left out.
    """
    rows: Any = pd.read_csv(path)
    rows = rows[rows["model"].isin(MIXTURES) & rows["gpu"].isin(GPUS)]
    ranks = rows["moe_tp_size"] * rows["moe_ep_size"]
    rows = rows[(rows["pp"] == 1) & (rows["tp"] <= 8) & (ranks == rows["tp"])]
    rows = rows[(rows["concurrency"] <= 256) & (rows["ttft_ms"] < 5000)]
    hopper = rows["gpu"] != "b200_sxm"
    rows = rows[~(hopper & (rows["backend"] == "trtllm")) & ~_drafted(rows)]
    # 4 bits of gpt-oss are the checkpoint's own
    fp4 = (rows["gemm_quant_mode"] == "nvfp4") & ~rows["model"].str.contains("gpt-oss")
    frame = _closed(rows, rows["model"].map(MIXTURES))
    return frame.assign(
        campaign="inferencex",
        ep=rows["moe_ep_size"].astype(int).to_numpy(),
        sampling="greedy",
        waves=10.0,
        ttft_s=np.nan,
        dtype=np.where(fp4, "nvfp4", ""),
        kv_dtype=np.where(_narrow_cache(rows), "fp8", ""),
    )


_DRAFTS: Final = {"1.2.0rc6.post3": "2026-02-01", "1.1.0rc2.post2": "2026-01-01"}
"""Builds of TensorRT-LLM that serve DeepSeek-R1 with drafts (MTP), and since when:
InferenceX's changelog moves dsr1-fp4-b200-trt to 1.2.0rc6.post2 and that with drafts
from 1.1.0rc2.post2 to 1.2.0rc6.post3."""


def _drafted(rows: Any) -> Any:
    since = rows["backend_version"].map(_DRAFTS).fillna("9")
    deepseek = rows["model"].str.contains("DeepSeek") & (rows["backend"] == "trtllm")
    return deepseek & (rows["measured"] >= since)


def _narrow_cache(rows: Any) -> Any:
    """Rows of B200 whose KV cache is in fp8."""
    vllm = rows["backend"] == "vllm"
    since = rows["model"].str.contains("gpt-oss") & rows["backend_version"].notna()
    return (rows["gpu"] == "b200_sxm") & (~vllm | since)
